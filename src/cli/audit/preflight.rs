//! `napkeeper audit --as-controller`: may the controller's identity do what its jobs need, and what stands in its way?

use super::super::output::{one_line, plural, printable};
use super::{Format, ModeArg};
use anstyle::{AnsiColor, Style};
use anyhow::{bail, ensure};
use napkeeper_azure::{AtCluster, Preflight};
use napkeeper_core::catalog::live::LockLevel;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use serde::Serialize;
use serde_json::json;
use std::io::{self, Write};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const HELP: Style = AnsiColor::Cyan.on_default();
const GREEN: Style = AnsiColor::Green.on_default();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// A job of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Job {
    /// See what is there.
    Report,
    /// Tag suspects.
    Mark,
    /// Delete orphans.
    Collect,
    /// Launch and remove nodes.
    Provision,
}

impl Job {
    fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Mark => "mark",
            Self::Collect => "collect",
            Self::Provision => "provision",
        }
    }
}

/// The rights in the node resource group that each job needs. `Provision` is for a controller in place of managed NAP.
const RIGHTS: [(Job, &str); 20] = [
    (Job::Report, "Microsoft.Resources/subscriptions/resourceGroups/read"),
    (Job::Report, "Microsoft.Resources/subscriptions/resourceGroups/resources/read"),
    (Job::Report, "Microsoft.Compute/virtualMachines/read"),
    (Job::Report, "Microsoft.Compute/disks/read"),
    (Job::Report, "Microsoft.Compute/snapshots/read"),
    (Job::Report, "Microsoft.Compute/virtualMachineScaleSets/read"),
    (Job::Report, "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read"),
    (Job::Report, "Microsoft.Network/networkInterfaces/read"),
    (Job::Report, "Microsoft.Network/publicIPAddresses/read"),
    (Job::Report, "Microsoft.Network/loadBalancers/read"),
    (Job::Mark, "Microsoft.Resources/tags/write"),
    (Job::Collect, "Microsoft.Network/networkInterfaces/delete"),
    (Job::Collect, "Microsoft.Compute/disks/delete"),
    (Job::Provision, "Microsoft.Compute/virtualMachines/delete"),
    (Job::Provision, "Microsoft.Compute/virtualMachines/write"),
    (Job::Provision, "Microsoft.Compute/disks/write"),
    (Job::Provision, "Microsoft.Compute/virtualMachines/extensions/write"),
    (Job::Provision, "Microsoft.Network/networkInterfaces/write"),
    (Job::Provision, "Microsoft.Network/networkInterfaces/join/action"),
    (Job::Provision, "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"),
];

/// The rights at the managed cluster: without them no inventory is whole, and nothing is swept.
const AT_CLUSTER: [(Job, &str); 2] = [
    (Job::Report, "Microsoft.ContainerService/managedClusters/agentPools/read"),
    (Job::Report, "Microsoft.ContainerService/managedClusters/agentPools/machines/read"),
];

/// How it stands with a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Present,
    Missing,
    /// Given, and taken away by a deny assignment or a lock.
    Denied,
    /// The permissions could not be read.
    Unknown,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Missing => "missing",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Present => GREEN,
            Self::Missing | Self::Denied => RED,
            Self::Unknown => YELLOW,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Right {
    job: Job,
    /// The group or the cluster at which it is needed.
    scope: String,
    action: &'static str,
    state: State,
    /// Who takes it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
}

/// What stands in the way beside rights, or could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Obstacle {
    about: &'static str,
    what: String,
    remedy: String,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Found {
    group: String,
    rights: Vec<Right>,
    obstacles: Vec<Obstacle>,
    /// Actions to grant at the group.
    grant: Vec<&'static str>,
    /// Actions to grant at the cluster.
    grant_at_cluster: Vec<&'static str>,
}

impl Found {
    /// True when nothing is missing and nothing stands in the way.
    pub(super) fn is_clear(&self) -> bool {
        self.obstacles.is_empty() && self.rights.iter().all(|right| right.state == State::Present)
    }
}

/// Puts what Azure says beside what the jobs need.
pub(super) fn found(preflight: &Preflight, group: &ArmId, mode: ModeArg) -> Found {
    let needed = RIGHTS.iter().filter(|(job, _)| mode == ModeArg::Provisioner || *job != Job::Provision);
    let mut rights: Vec<Right> = needed.map(|(job, action)| right(preflight, group, *job, action)).collect();
    let grant = missing(&rights);
    let at_cluster: Vec<Right> = preflight.cluster.iter().flat_map(rights_at).collect();
    let grant_at_cluster = missing(&at_cluster);
    rights.extend(at_cluster);
    Found { group: group.to_string(), rights, obstacles: obstacles(preflight), grant, grant_at_cluster }
}

fn missing(rights: &[Right]) -> Vec<&'static str> {
    rights.iter().filter(|right| right.state == State::Missing).map(|right| right.action).collect()
}

/// Whether the cluster's agent pools and Machines may be listed. Neither locks nor lockdowns keep from reading.
fn rights_at(cluster: &AtCluster) -> impl Iterator<Item = Right> {
    AT_CLUSTER.iter().map(|(job, action)| {
        let state = match cluster.may(action) {
            Some(true) => State::Present,
            Some(false) => State::Missing,
            None => State::Unknown,
        };
        Right { job: *job, scope: cluster.id.to_string(), action, state, by: None }
    })
}

fn right(preflight: &Preflight, group: &ArmId, job: Job, action: &'static str) -> Right {
    let denial = preflight.denied_by(action).next().map(|denial| format!("deny assignment {}", denial.name));
    let lock = preflight.locks.iter().flatten().find(|lock| {
        let deletes = action.ends_with("/delete");
        deletes || lock.level == LockLevel::ReadOnly && !action.ends_with("/read")
    });
    let by = denial.or_else(|| lock.map(|lock| format!("lock {} ({})", lock.id.name(), lock.level.as_str())));
    let state = match (preflight.may(action), &by) {
        (Some(false), _) => State::Missing,
        (_, Some(_)) => State::Denied,
        (Some(true), None) => State::Present,
        (None, None) => State::Unknown,
    };
    Right { job, scope: group.to_string(), action, state, by }
}

fn obstacles(preflight: &Preflight) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    let mut put = |about, what: String, remedy: &str| {
        obstacles.push(Obstacle { about, what, remedy: remedy.to_owned() });
    };
    for denial in preflight.denials.iter().flatten() {
        let spared = plural(denial.spared, "principal");
        put(
            "deny assignment",
            format!("{} denies actions regardless of roles; excluded principals: {spared}", denial.name),
            "this is AKS node resource group lockdown (restrictionLevel ReadOnly): set it to Unrestricted for sweeps \
             to delete; until then they only report",
        );
    }
    for lock in preflight.locks.iter().flatten() {
        put(
            "lock",
            format!("{} ({}) at {}", lock.id.name(), lock.level.as_str(), lock.id),
            "remove the lock if napkeeper should delete the locked resources",
        );
    }
    for policy in preflight.policies.iter().flatten() {
        let what = match policy.effect.as_str() {
            "deny" => format!("{} denies non-compliant resources", policy.name),
            "denyaction" => format!("{} denies deletes", policy.name),
            "initiative" => format!("{} is a policy initiative that may include a deny policy", policy.name),
            _ => format!("{}: its definition could not be read, it may deny", policy.name),
        };
        put(
            "policy",
            format!("{what} (assigned at {})", policy.scope),
            "check that it allows the VMs, NICs and tags that napkeeper creates, or exempt the node resource group",
        );
    }
    let mut unread = |about, error: Option<&CloudError>, right: &str| {
        if let Some(error) = error {
            let what = format!("could not be read: {}", error.message);
            put(about, what, &format!("grant {right}, or check it manually"));
        }
    };
    unread("permissions", preflight.permissions.as_ref().err(), "Microsoft.Authorization/permissions/read");
    let at_cluster = preflight.cluster.as_ref().and_then(|cluster| cluster.permissions.as_ref().err());
    unread("permissions at the cluster", at_cluster, "Microsoft.Authorization/permissions/read at the cluster");
    unread("deny assignments", preflight.denials.as_ref().err(), "Microsoft.Authorization/denyAssignments/read");
    unread("locks", preflight.locks.as_ref().err(), "Microsoft.Authorization/locks/read");
    unread("policies", preflight.policies.as_ref().err(), "Microsoft.Authorization/policyAssignments/read");
    obstacles
}

/// Prints it; only for people and for programs.
pub(super) fn write(format: Format, found: &Found, out: &mut impl Write) -> anyhow::Result<()> {
    match format {
        Format::Table => table(found, out)?,
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(found)?)?,
        _ => bail!("--as-controller supports only -o table and -o json"),
    }
    Ok(())
}

/// Refuses formats that cannot show it, before anything is asked.
pub(super) fn check(format: Format) -> anyhow::Result<()> {
    let can = matches!(format, Format::Table | Format::Json);
    ensure!(can, "--as-controller supports only -o table and -o json");
    Ok(())
}

fn table(found: &Found, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{BOLD}group{BOLD:#}  {}\n", printable(&found.group))?;
    let width = found.rights.iter().map(|right| right.action.len()).max().unwrap_or(0);
    writeln!(out, "{DIM}{:<9}  {:<width$}  STATE{DIM:#}", "JOB", "RIGHT")?;
    let mut scope = &found.group;
    for right in &found.rights {
        let Right { job, action, state, by, .. } = right;
        if right.scope != *scope {
            scope = &right.scope;
            writeln!(out, "\n{BOLD}cluster{BOLD:#}  {}\n", printable(scope))?;
        }
        let style = state.style();
        let by = by.as_ref().map(|by| format!(" by {}", one_line(by))).unwrap_or_default();
        writeln!(out, "{:<9}  {action:<width$}  {style}{}{style:#}{by}", job.as_str(), state.as_str())?;
    }
    for Obstacle { about, what, remedy } in &found.obstacles {
        writeln!(out, "\n{YELLOW}{about}:{YELLOW:#} {}\n  {HELP}help:{HELP:#} {remedy}", one_line(what))?;
    }
    role(out, ("napkeeper", "in this node resource group"), &found.grant, &found.group)?;
    role(out, ("napkeeper-cluster", "at this cluster"), &found.grant_at_cluster, scope)?;
    if found.is_clear() {
        writeln!(out, "\n{GREEN}no permissions missing, nothing blocks{GREEN:#}")?;
    }
    Ok(())
}

/// A role of what is missing at a scope, and how it is granted there.
fn role(out: &mut impl Write, (name, place): (&str, &str), actions: &[&str], scope: &str) -> io::Result<()> {
    if actions.is_empty() {
        return Ok(());
    }
    let role = json!({
        "Name": name,
        "Description": format!("Permissions napkeeper is missing {place}"),
        "Actions": actions,
        "AssignableScopes": [scope],
    });
    let text = serde_json::to_string_pretty(&role).unwrap_or_default();
    let scope = printable(scope);
    writeln!(
        out,
        "\n{BOLD}missing {place}{BOLD:#}: save this as {name}.json, then create and assign the role:\n\n{}",
        printable(&text)
    )?;
    writeln!(out, "\naz role definition create --role-definition {name}.json")?;
    writeln!(out, "az role assignment create --role {name} --assignee <its client id> --scope {scope}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_azure::{Denial, Permission, Policy};
    use napkeeper_core::catalog::live::Lock;
    use napkeeper_core::model::errors::CloudErrorCode;

    fn permission(actions: &[&str], not: &[&str]) -> Permission {
        let owned = |list: &[&str]| list.iter().map(|a| (*a).to_owned()).collect();
        Permission { actions: owned(actions), not_actions: owned(not) }
    }

    fn preflight(actions: &[&str]) -> Preflight {
        Preflight {
            permissions: Ok(vec![permission(actions, &[])]),
            denials: Ok(Vec::new()),
            locks: Ok(Vec::new()),
            policies: Ok(Vec::new()),
            cluster: Some(AtCluster { id: cluster(), permissions: Ok(vec![permission(actions, &[])]) }),
        }
    }

    fn cluster() -> ArmId {
        ArmId::new("/subscriptions/s/resourceGroups/k/providers/Microsoft.ContainerService/managedClusters/c").unwrap()
    }

    fn group() -> ArmId {
        ArmId::new("/subscriptions/s/resourceGroups/g").unwrap()
    }

    fn shown(preflight: &Preflight) -> (Found, String) {
        let found = found(preflight, &group(), ModeArg::Companion);
        let mut out = Vec::new();
        table(&found, &mut out).unwrap();
        let text = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
        (found, text)
    }

    #[test]
    fn a_reader_may_report_and_is_told_what_to_grant_for_more() {
        let (found, text) = shown(&preflight(&["*/read"]));
        assert_eq!(
            found.grant,
            [
                "Microsoft.Resources/tags/write",
                "Microsoft.Network/networkInterfaces/delete",
                "Microsoft.Compute/disks/delete"
            ]
        );
        assert!(!found.is_clear() && text.contains("az role assignment create"), "{text}");
        let (found, text) = shown(&preflight(&["*"]));
        assert!(found.is_clear() && text.contains("no permissions missing"), "{text}");
    }

    #[test]
    fn machines_that_may_not_be_listed_are_told_with_the_role_at_the_cluster() {
        let mut blind = preflight(&["*"]);
        let only = permission(&["Microsoft.ContainerService/managedClusters/read"], &[]);
        blind.cluster = Some(AtCluster { id: cluster(), permissions: Ok(vec![only]) });
        let (found, text) = shown(&blind);
        assert!(!found.is_clear() && found.grant.is_empty());
        assert_eq!(found.grant_at_cluster, AT_CLUSTER.map(|(_, action)| action));
        let grant = format!("--role napkeeper-cluster --assignee <its client id> --scope {}", cluster());
        assert!(text.contains(&grant), "{text}");
        // A cluster that is none of AKS has no Machines, and needs no rights.
        blind.cluster = None;
        assert!(shown(&blind).0.is_clear());
    }

    #[test]
    fn what_takes_a_right_away_is_named() {
        let mut locked = preflight(&["*"]);
        locked.locks = Ok(vec![Lock {
            id: group().resource("Microsoft.Authorization/locks", "keep"),
            level: LockLevel::CanNotDelete,
            notes: None,
        }]);
        locked.denials = Ok(vec![Denial {
            name: "AKS lockdown".into(),
            permissions: vec![permission(&["*/write"], &[])],
            spared: 2,
        }]);
        locked.policies =
            Ok(vec![Policy { name: "Need cost center".into(), effect: "deny".into(), scope: "/s".into() }]);
        let (found, text) = shown(&locked);
        let state = |action: &str| found.rights.iter().find(|r| r.action.ends_with(action)).unwrap();
        assert_eq!(state("disks/delete").by.as_deref(), Some("lock keep (CanNotDelete)"));
        assert_eq!(state("tags/write").by.as_deref(), Some("deny assignment AKS lockdown"));
        assert_eq!(state("virtualMachines/read").state, State::Present);
        assert_eq!(found.obstacles.len(), 3);
        assert!(text.contains("Need cost center denies"), "{text}");
    }

    #[test]
    fn a_preflight_that_is_refused_is_a_finding() {
        let refused = CloudError::new(CloudErrorCode::Permission, "403 no right to read");
        let all = Preflight {
            permissions: Err(refused.clone()),
            denials: Err(refused.clone()),
            locks: Err(refused.clone()),
            policies: Err(refused.clone()),
            cluster: Some(AtCluster { id: cluster(), permissions: Err(refused) }),
        };
        let (found, text) = shown(&all);
        assert!(found.rights.iter().all(|right| right.state == State::Unknown));
        assert_eq!((found.obstacles.len(), found.grant.len(), found.grant_at_cluster.len()), (5, 0, 0));
        assert!(text.contains("grant Microsoft.Authorization/locks/read"), "{text}");
    }
}
