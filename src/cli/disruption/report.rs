//! The report of `napkeeper disruption`.

use crate::explain::budgets::BudgetsLeft;
use crate::output::style::{BOLD, DIM};
use crate::output::{TextAndJson, first_names, one_line, plural};
use jiff::Timestamp;
use napkeeper_core::disruption::budget_calendar::CALENDAR;
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::names::NodePoolName;
use napkeeper_core::outlook::{NextMove, NodeOutlook, Obstacle, Outlook, OutlookInput};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;

/// Most names and reasons that are shown in one place as text.
const MOST: usize = 10;

/// What disruption does next, of all NodePools or of one.
pub(super) struct DisruptionReport<'s> {
    /// With their numbers, which count from 1 over all NodePools.
    moves: Vec<(usize, &'s NextMove)>,
    nodes: Vec<&'s NodeOutlook>,
    pools: Vec<(&'s NodePool, BudgetsLeft)>,
    /// NodeClaims that another Karpenter decides about.
    foreign: usize,
    now: Timestamp,
    /// The settings are those of a napkeeper.yaml.
    is_configured: bool,
    /// The search was not ended before all was found.
    is_complete: bool,
}

/// What is never read.
const NOT_READ: &str = "CapacityBuffers, and what only a running controller remembers";

impl<'s> DisruptionReport<'s> {
    pub(super) fn new(
        OutlookInput { snapshot, now, .. }: OutlookInput<'s>,
        outlook: &'s Outlook,
        pool: Option<&NodePoolName>,
        is_configured: bool,
    ) -> Self {
        let is_shown = |name: Option<&NodePoolName>| pool.is_none() || pool == name;
        let moves = outlook.moves.iter().enumerate().map(|(index, one)| (index + 1, one));
        let of_pool = |one: &NextMove| one.sources.iter().any(|source| is_shown(source.pool.as_ref()));
        let nodes = outlook.nodes.iter().filter(|node| is_shown(node.claim.spec.pool.as_ref()));
        let nodes: Vec<&NodeOutlook> = nodes.collect();
        let pools =
            snapshot.pools().values().filter(|pool| is_shown(Some(&pool.name))).map(|pool: &Arc<NodePool>| &**pool);
        Self {
            moves: moves.filter(|(_, one)| of_pool(one)).collect(),
            foreign: nodes.iter().filter(|node| !node.claim.is_ours()).count(),
            nodes,
            pools: pools.map(|pool| (pool, BudgetsLeft::of(snapshot, pool, now))).collect(),
            now,
            is_configured,
            is_complete: outlook.is_complete,
        }
    }

    /// True where napkeeper decides about none of the nodes.
    fn is_foreign(&self) -> bool {
        self.foreign > 0 && self.foreign == self.nodes.len()
    }

    fn settings(&self) -> &'static str {
        if self.is_configured { "those of --config" } else { "the defaults of napkeeper.yaml (see --config)" }
    }

    /// The first line: how much there is.
    fn summary(&self) -> String {
        let begins = self.moves.iter().filter(|(_, one)| one.obstacles.is_empty()).count();
        let waits = self.moves.len() - begins;
        let nodes = plural(self.nodes.len(), "node");
        if self.is_foreign() {
            return format!("{nodes} of managed NAP: its next moves are not predicted, what keeps its nodes is shown");
        }
        format!("{nodes}: {} now, {waits} waiting", plural(begins, "move"))
    }

    fn write_move(&self, out: &mut dyn Write, number: usize, one: &NextMove) -> anyhow::Result<()> {
        let (earliest, reason, saving) = (earliest(one), one.reason.as_str(), one.saving().to_string());
        let evictions = plural(one.evictions(), "pod");
        writeln!(out, "{BOLD}{number:>3}{BOLD:#}  {earliest:<20}  {reason:<15}  {saving:>10}/h  {evictions}")?;
        let mut line = |label: &str, text: &str| writeln!(out, "     {DIM}{label:<11}{DIM:#} {}", one_line(text));
        let names = one.sources.iter().map(|source| source.node.as_ref().map_or(source.claim.as_str(), |n| n.as_str()));
        line("nodes", &first_names(names, one.sources.len(), MOST))?;
        let new = one.replacements.iter().map(|(_, offering)| format!("{} at {}/h", offering.key, offering.price));
        if !one.replacements.is_empty() {
            line("replaced by", &first_names(new, one.replacements.len(), MOST))?;
        }
        line("why", &one.why)?;
        write_obstacles(&one.obstacles, "waits for", &mut line)
    }

    fn write_nodes(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for node in &self.nodes {
            let name = node.claim.status.node_name.as_ref().map_or(node.claim.name.as_str(), |name| name.as_str());
            let in_move = node.next_move.map(|index| format!(", move {}", index + 1)).unwrap_or_default();
            writeln!(out, "{BOLD}{name}{BOLD:#} {DIM}({}{in_move}){DIM:#}", node.reason.as_str())?;
            let mut line = |label: &str, text: &str| writeln!(out, "     {DIM}{label:<11}{DIM:#} {}", one_line(text));
            write_obstacles(&node.obstacles, "kept by", &mut line)?;
            if let Some(at) = node.expires_at.filter(|at| at.duration_since(self.now) <= CALENDAR) {
                line("expires", &format!("at {at}, whatever keeps it"))?;
            }
        }
        Ok(())
    }
}

/// A line for each of the first obstacles, and how many more there are.
fn write_obstacles(
    obstacles: &[Obstacle],
    label: &str,
    line: &mut dyn FnMut(&str, &str) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    for obstacle in obstacles.iter().take(MOST) {
        line(label, &obstacle.to_string())?;
    }
    let more = obstacles.len().saturating_sub(MOST);
    if more > 0 {
        line("", &format!("and {more} more"))?;
    }
    Ok(())
}

fn earliest(one: &NextMove) -> String {
    match one.earliest {
        _ if one.obstacles.is_empty() => "now".to_owned(),
        Some(at) => at.to_string(),
        None => "not known".to_owned(),
    }
}

fn texts(obstacles: &[Obstacle]) -> Vec<String> {
    obstacles.iter().map(ToString::to_string).collect()
}

impl TextAndJson for DisruptionReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}", self.summary())?;
        if self.foreign > 0 && !self.is_foreign() {
            let nodes = plural(self.foreign, "node");
            writeln!(out, "managed NAP decides about {nodes}: shown is what keeps them, not what Karpenter does next")?;
        }
        if !self.is_complete {
            writeln!(out, "so many nodes that the search was ended: there may be more moves")?;
        }
        if !self.moves.is_empty() {
            writeln!(out, "\n{DIM}  #  EARLIEST              REASON                SAVES  EVICTS{DIM:#}")?;
        }
        for (number, one) in &self.moves {
            self.write_move(out, *number, one)?;
        }
        if !self.nodes.is_empty() {
            writeln!(out, "\n{DIM}NODES{DIM:#}")?;
        }
        self.write_nodes(out)?;
        if !self.pools.is_empty() {
            writeln!(out, "\n{DIM}BUDGETS NOW{DIM:#}")?;
        }
        for (pool, budgets) in &self.pools {
            writeln!(out, "{BOLD}{}{BOLD:#} {budgets}", pool.name)?;
        }
        writeln!(out, "\n{DIM}settings: {}\nnot read: {NOT_READ}{DIM:#}", self.settings())?;
        Ok(())
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        let source = |source: &napkeeper_core::outlook::Source| {
            json!({
                "nodeClaim": source.claim.as_str(),
                "node": source.node.as_ref().map(|name| name.as_str()),
                "nodePool": source.pool.as_ref().map(|name| name.as_str()),
                "price": source.price.nanos(),
                "evictions": source.evictions,
            })
        };
        let moves = self.moves.iter().map(|(number, one)| {
            let replacement = |(pool, offering): &(NodePoolName, _)| replacement_json(pool, offering);
            json!({
                "number": number,
                "reason": one.reason.as_str(),
                "beginsNow": one.obstacles.is_empty(),
                "earliest": one.earliest,
                "nodes": one.sources.iter().map(source).collect::<Vec<_>>(),
                "replacements": one.replacements.iter().map(replacement).collect::<Vec<_>>(),
                "saving": one.saving().nanos(),
                "evictions": one.evictions(),
                "why": &*one.why,
                "waitsFor": texts(&one.obstacles),
            })
        });
        let nodes = self.nodes.iter().map(|node| {
            json!({
                "nodeClaim": node.claim.name.as_str(),
                "node": node.claim.status.node_name.as_ref().map(|name| name.as_str()),
                "nodePool": node.claim.spec.pool.as_ref().map(|name| name.as_str()),
                "reason": node.reason.as_str(),
                "move": node.next_move.map(|index| index + 1),
                "keptBy": texts(&node.obstacles),
                "expiresAt": node.expires_at,
                "decidedBy": if node.claim.is_ours() { "napkeeper" } else { "managed NAP" },
            })
        });
        let pools = self
            .pools
            .iter()
            .map(|(pool, budgets)| json!({ "nodePool": pool.name.as_str(), "budgetsLeft": budgets.to_json() }));
        Ok(json!({
            "now": self.now,
            "complete": self.is_complete,
            "settings": if self.is_configured { "config" } else { "defaults" },
            "moves": (!self.is_foreign()).then(|| moves.collect::<Vec<_>>()),
            "nodes": nodes.collect::<Vec<_>>(),
            "nodePools": pools.collect::<Vec<_>>(),
        }))
    }
}

fn replacement_json(pool: &NodePoolName, offering: &napkeeper_core::model::cluster::claim::PlannedOffering) -> Value {
    json!({ "nodePool": pool.as_str(), "offering": offering.key.to_string(), "price": offering.price.nanos() })
}
