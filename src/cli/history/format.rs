//! The formats of the history of nodes.

use super::report::{Report, Shown};
use crate::output::markdown::{MOST, code, plain};
use crate::output::style::{BOLD, DIM};
use crate::output::{Format, one_line, plural, write_json};
use jiff::SignedDuration;
use napkeeper_api::types::duration::format as lasting;
use napkeeper_core::model::cluster::node_record::{RecordedNode, RemovedBy};
use napkeeper_kube::list::GitSource;
use serde_json::{Value, json};
use std::io::Write;

/// What is told of a history that nobody has recorded.
const RECONSTRUCTED: &str = "reconstructed from NodeClaims, Nodes and events, as far as no NodeRecord tells it. The API \
                             server keeps events for one hour by default: older removals are not known, and neither are \
                             ends, pods, nodes that are gone, and removals by others than Karpenter's disruption";
/// What is told of replacements then.
const UNLINKED: &str = "which node replaces which, Karpenter's events do not tell";

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum HistoryFormat {
    /// Human-readable text.
    Text,
    /// One JSON object.
    Json,
    /// For a comment on a pull request or a ticket.
    Markdown,
}

impl Format<Report> for HistoryFormat {
    fn write(self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Self::Text => report.write_text(out),
            Self::Json => write_json(&report.to_json(), out),
            Self::Markdown => report.write_markdown(out),
        }
    }
}

impl Report {
    fn summary(&self) -> String {
        format!("{} removed since {}", plural(self.removals.len(), "node"), self.since)
    }

    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}", self.summary())?;
        if self.is_reconstructed {
            writeln!(out, "{DIM}{RECONSTRUCTED}{DIM:#}")?;
        }
        for shown in &self.removals {
            shown.write_text(out)?;
        }
        for source in self.git.iter().filter(|source| source.current.is_some()) {
            writeln!(out, "\n{}", one_line(&git_now(source)))?;
        }
        if !self.launched.is_empty() {
            writeln!(out, "\n{BOLD}launched to replace others{BOLD:#}; {UNLINKED}")?;
        }
        for one in &self.launched {
            writeln!(out, "  {} {}: {}", one.at, one_line(&one.reason), node_text(&one.node))?;
        }
        Ok(())
    }

    fn write_markdown(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "**{}**", self.summary())?;
        if self.is_reconstructed {
            writeln!(out, "\nThis is {RECONSTRUCTED}.")?;
        }
        if !self.removals.is_empty() {
            writeln!(out, "\n| when | node | why | from | to | pods | took |\n|---|---|---|---|---|---|---|")?;
        }
        for shown in self.removals.iter().take(MOST) {
            let removal = &shown.removal;
            let to: Vec<String> = removal.replacements.iter().map(|new| code(&node_text(new))).collect();
            writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} |",
                removal.started,
                code(&named(&removal.removed)),
                plain(&shown.why()),
                offering_text(&removal.removed).map(|text| code(&text)).unwrap_or_default(),
                to.join(", "),
                if shown.is_reconstructed { String::new() } else { removal.pods.to_string() },
                shown.took(),
            )?;
        }
        if self.removals.len() > MOST {
            writeln!(out, "\n… and {} more.", self.removals.len() - MOST)?;
        }
        for source in self.git.iter().filter(|source| source.current.is_some()) {
            writeln!(out, "\n{}", plain(&git_now(source)))?;
        }
        if !self.launched.is_empty() {
            writeln!(out, "\nLaunched to replace others ({UNLINKED}):\n")?;
        }
        for one in self.launched.iter().take(MOST) {
            writeln!(out, "- {} {}: {}", one.at, plain(&one.reason), code(&node_text(&one.node)))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let launched = self.launched.iter().map(|one| {
            let mut value = node_json(&one.node);
            value["at"] = json!(one.at);
            value["reason"] = json!(one.reason);
            value["nodePool"] = json!(one.pool.as_ref().map(|pool| pool.as_str()));
            value
        });
        json!({
            "since": self.since,
            "removals": self.removals.iter().map(Shown::to_json).collect::<Vec<_>>(),
            "launched": launched.collect::<Vec<_>>(),
            "nodePools": self.git.iter().map(git_json).collect::<Vec<_>>(),
        })
    }
}

impl Shown {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let removal = &self.removal;
        let pool = removal.pool.as_ref().map(|pool| format!(", NodePool {pool}")).unwrap_or_default();
        writeln!(out, "\n{BOLD}{}{BOLD:#} {}{pool}", removal.started, named(&removal.removed))?;
        let mut line = |label: &str, text: &str| writeln!(out, "  {DIM}{label:<9}{DIM:#} {}", one_line(text));
        line("removed", &self.who())?;
        if !removal.cause.is_empty() {
            line("cause", &removal.cause)?;
        }
        if let Some(from) = offering_text(&removal.removed) {
            line("from", &from)?;
        }
        for (i, new) in removal.replacements.iter().enumerate() {
            line(if i == 0 { "to" } else { "" }, &node_text(new))?;
        }
        if !self.is_reconstructed {
            line("pods", &format!("{} had to leave", removal.pods))?;
        }
        line("took", &self.took())?;
        if let Some(revision) = &self.git_revision {
            line("Git", &format!("its NodePool was applied from {revision}"))?;
        }
        Ok(())
    }

    fn who(&self) -> String {
        let by = match self.removal.by {
            RemovedBy::Other => "by somebody else than the controller",
            RemovedBy::Unknown => "not known by whom",
            RemovedBy::Napkeeper => "by napkeeper",
            RemovedBy::Karpenter => "by Karpenter",
            RemovedBy::Azure => "by Azure",
        };
        format!("{by}: {}", self.removal.reason)
    }

    /// Who and why in one line.
    fn why(&self) -> String {
        let cause = if self.removal.cause.is_empty() { String::new() } else { format!("; {}", self.removal.cause) };
        let git = self.git_revision.as_ref().map(|revision| format!("; from Git {revision}")).unwrap_or_default();
        format!("{}{cause}{git}", self.who())
    }

    fn took(&self) -> String {
        match self.lasted() {
            Some(time) => lasting(time),
            None if self.is_gone => "not known: it is gone, and its end was not seen".to_owned(),
            None => "it is still being removed".to_owned(),
        }
    }

    /// From the request to delete the NodeClaim until it was gone.
    fn lasted(&self) -> Option<SignedDuration> {
        let lasted = self.removal.ended?.duration_since(self.removal.started);
        Some(SignedDuration::from_secs(lasted.as_secs().max(1)))
    }

    fn to_json(&self) -> Value {
        let removal = &self.removal;
        let mut value = node_json(&removal.removed);
        value["nodePool"] = json!(removal.pool.as_ref().map(|pool| pool.as_str()));
        value["by"] = json!(removal.by.as_str());
        value["reason"] = json!(&*removal.reason);
        value["cause"] = json!(Some(&*removal.cause).filter(|cause| !cause.is_empty()));
        value["replacements"] = removal.replacements.iter().map(node_json).collect();
        value["source"] = json!(if self.is_reconstructed { "reconstructed" } else { "nodeRecords" });
        value["pods"] = json!(Some(removal.pods).filter(|_| !self.is_reconstructed));
        value["startedAt"] = json!(removal.started);
        value["endedAt"] = json!(removal.ended);
        value["gitRevision"] = json!(self.git_revision);
        value["seconds"] = json!(self.lasted().map(|time| time.as_secs()));
        value
    }
}

fn git_now(source: &GitSource) -> String {
    let now = source.current.as_deref().unwrap_or_default();
    format!("NodePool {} is applied by {}, now from {now}", source.pool, source.applied_by)
}

fn git_json(source: &GitSource) -> Value {
    json!({ "nodePool": source.pool, "appliedBy": source.applied_by, "gitRevisionNow": source.current })
}

fn named(node: &RecordedNode) -> String {
    let name = node.node.as_ref().map(|node| format!(" ({node})")).unwrap_or_default();
    format!("{}{name}", node.claim)
}

fn offering_text(node: &RecordedNode) -> Option<String> {
    let price = node.price.map(|price| format!(" at {price}/h")).unwrap_or_default();
    node.offering.as_ref().map(|key| format!("{key}{price}"))
}

fn node_text(node: &RecordedNode) -> String {
    offering_text(node).map_or_else(|| named(node), |offering| format!("{}: {offering}", named(node)))
}

fn node_json(node: &RecordedNode) -> Value {
    json!({
        "nodeClaim": node.claim.as_str(),
        "node": node.node.as_ref().map(|node| node.as_str()),
        "offering": node.offering.as_ref().map(ToString::to_string),
        "price": node.price.map(|price| price.nanos()),
    })
}
