//! The table of a preflight for people.

use super::PreflightReport;
use super::blockers::Blocker;
use super::permissions::{Permission, PermissionState};
use crate::output::style::{BOLD, DIM, ERROR, GREEN, WARNING};
use crate::output::{one_line, printable, write_problem};
use anstyle::Style;
use serde_json::json;
use std::io::{self, Write};

pub(super) fn write(report: &PreflightReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}group{BOLD:#}  {}\n", printable(&report.group))?;
    let width = report.permissions.iter().map(|permission| permission.action.len()).max().unwrap_or(0);
    writeln!(out, "{DIM}{:<9}  {:<width$}  STATE{DIM:#}", "JOB", "RIGHT")?;
    let mut scope = &report.group;
    for permission in &report.permissions {
        let Permission { job, action, state, by, .. } = permission;
        if permission.scope != *scope {
            scope = &permission.scope;
            writeln!(out, "\n{BOLD}cluster{BOLD:#}  {}\n", printable(scope))?;
        }
        let style = style(*state);
        let by = by.as_ref().map(|by| format!(" by {}", one_line(by))).unwrap_or_default();
        writeln!(out, "{:<9}  {action:<width$}  {style}{}{style:#}{by}", job.as_str(), state.as_str())?;
    }
    for Blocker { about, message, remedy } in &report.blockers {
        write_problem(out, WARNING, about, message, remedy)?;
    }
    let in_group = Role {
        name: "napkeeper",
        scope_text: "in this node resource group",
        actions: &report.grant,
        scope: &report.group,
    };
    in_group.write(out)?;
    let at_cluster =
        Role { name: "napkeeper-cluster", scope_text: "at this cluster", actions: &report.grant_at_cluster, scope };
    at_cluster.write(out)?;
    if report.is_clear() {
        writeln!(out, "\n{GREEN}no permissions missing, nothing blocks{GREEN:#}")?;
    }
    Ok(())
}

fn style(state: PermissionState) -> Style {
    match state {
        PermissionState::Present => GREEN,
        PermissionState::Missing | PermissionState::Denied => ERROR,
        PermissionState::Unknown => WARNING,
    }
}

/// A role with the missing actions at a scope.
struct Role<'a> {
    name: &'a str,
    scope_text: &'a str,
    actions: &'a [String],
    scope: &'a str,
}

impl Role<'_> {
    /// Writes the role and the commands that create and assign it, if it has any actions.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { name, scope_text, actions, scope } = self;
        if actions.is_empty() {
            return Ok(());
        }
        let role = json!({
            "Name": name,
            "Description": format!("Permissions napkeeper is missing {scope_text}"),
            "Actions": actions,
            "AssignableScopes": [scope],
        });
        let text = serde_json::to_string_pretty(&role).unwrap_or_default();
        let scope = printable(scope);
        writeln!(
            out,
            "\n{BOLD}missing {scope_text}{BOLD:#}: save this as {name}.json, then create and assign the role:\n\n{}",
            printable(&text)
        )?;
        writeln!(out, "\naz role definition create --role-definition {name}.json")?;
        writeln!(out, "az role assignment create --role {name} --assignee <its client id> --scope {scope}")
    }
}
