//! `napkeeper explain node`: explains what becomes of a node.

use super::budgets::BudgetsLeft;
use super::source::ClusterArgs;
use crate::Outcome;
use crate::output::style::{BOLD, DIM};
use crate::output::{self, OutputFormat, TextAndJson, nearest_object, one_line};
use anyhow::{Context, bail};
use jiff::{SignedDuration, Timestamp};
use napkeeper_api::types::duration::format as lasting;
use napkeeper_core::disruption::{
    DisruptionBlocker, Drift, DriftDetector, Expiry, PossibleDisruption, ReplacementLoops, disruption_blockers,
};
use napkeeper_core::model::cluster::claim::Claim;
use napkeeper_core::model::cluster::pool::{DisruptionReason, NodePool};
use napkeeper_core::model::settings::DEFAULT_EXPIRY_LEAD;
use napkeeper_core::snapshot::Snapshot;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  napkeeper explain node aks-general-x2k9q                    a node of the cluster of your kubeconfig
  napkeeper explain node general-x2k9q -o json                by its NodeClaim, as JSON
  kubectl get pods,nodes,nodepools,aksnodeclasses,nodeclaims,pdb -A -o json > cluster.json
  napkeeper explain node general-x2k9q --from cluster.json

It changes nothing.
Exit codes: 0 explained, 2 error (bad input or I/O).";

/// Explain how a node has drifted, when it expires, and what keeps it from being disrupted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of a Node or a NodeClaim.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (snapshot, from) = args.cluster.read(None)?;
    let claim = find(&args.name, &snapshot, &from)?;
    output::print(args.output, &NodeReport::new(&snapshot, claim, Timestamp::now()))?;
    Ok(Outcome::Fine)
}

/// The NodeClaim of a name, or of the Node of a name.
fn find<'s>(name: &str, snapshot: &'s Snapshot, from: &str) -> anyhow::Result<&'s Arc<Claim>> {
    if let Some((_, claim)) = snapshot.claims().iter().find(|(key, _)| key.as_str() == name) {
        return Ok(claim);
    }
    let node = snapshot.nodes().values().find(|node| node.name.as_str() == name);
    if let Some(node) = node {
        let claim = node.provider_id.as_ref().and_then(|provider| snapshot.claim_by_provider_id(provider));
        return claim.with_context(|| {
            format!("{from}: node {name} has no NodeClaim: only nodes of NodePools are replaced or removed")
        });
    }
    let claims = snapshot.claims().iter().map(|(key, _)| key.as_str());
    let names: Vec<&str> = claims.chain(snapshot.nodes().values().map(|node| node.name.as_str())).collect();
    bail!("{from}: no Node or NodeClaim {name} found; {}", nearest_object(name, &names))
}

/// What becomes of a node.
struct NodeReport<'s> {
    claim: &'s Claim,
    pool: Option<&'s NodePool>,
    /// Since when its NodePool is being deleted, and its nodes are taken away.
    pool_deleted_at: Option<Timestamp>,
    /// How it differs now from what would be made.
    drift: Option<Drift>,
    /// From when on it is replaced because it expires, and when it does.
    expiry: Option<(Timestamp, Expiry)>,
    blockers: Vec<DisruptionBlocker>,
    budgets: BudgetsLeft,
    now: Timestamp,
}

impl<'s> NodeReport<'s> {
    fn new(snapshot: &'s Snapshot, claim: &'s Claim, now: Timestamp) -> Self {
        let pool = claim.spec.pool.as_ref().and_then(|name| snapshot.pools().get(name)).map(|pool| &**pool);
        let drift = pool.and_then(|pool| DriftDetector::new(pool, snapshot, now).drift_of(claim));
        let has_drifted = drift.is_some() || claim.status.drifted.is_some();
        let deletion = pool.map(|pool| pool.deletion).filter(|deletion| claim.is_ours() && deletion.takes_nodes());
        let reason = match deletion {
            Some(_) => DisruptionReason::NodePoolDeleted,
            None if has_drifted => DisruptionReason::Drifted,
            None => DisruptionReason::Underutilized,
        };
        let loops = &ReplacementLoops::of(snapshot, now);
        let disruption = PossibleDisruption { reason, drift: drift.as_ref(), loops };
        let blockers = disruption_blockers(snapshot, claim, disruption, now);
        Self {
            claim,
            pool,
            pool_deleted_at: deletion.and_then(|deletion| deletion.requested_at),
            drift,
            expiry: Expiry::replaced_from(claim, DEFAULT_EXPIRY_LEAD, now),
            blockers,
            budgets: pool.map(|pool| BudgetsLeft::of(snapshot, pool, now)).unwrap_or_default(),
            now,
        }
    }

    fn state(&self) -> String {
        let status = &self.claim.status;
        // Where its pods fit on others, it is consolidated all the same.
        let is_loop = |blocker: &DisruptionBlocker| matches!(blocker, DisruptionBlocker::ReplacementLoop(_));
        match status.disrupted {
            _ if self.claim.deleting_at.is_some() => "is being deleted".to_owned(),
            Some(reason) => format!("is being replaced ({})", reason.as_str()),
            None if self.blockers.is_empty() => "may be disrupted".to_owned(),
            None if self.blockers.iter().all(is_loop) => "is not replaced now".to_owned(),
            None => "is not disrupted now".to_owned(),
        }
    }

    fn node(&self) -> String {
        let offering = self.claim.intent.as_ref().map(|intent| &intent.offering);
        let vm = offering.map(|offering| format!("{} at {}/h", offering.key, offering.price));
        let pool = self.claim.spec.pool.as_ref().map(|pool| format!("NodePool {pool}"));
        let name = self.claim.status.node_name.as_ref().map(ToString::to_string);
        let parts: Vec<String> = name.into_iter().chain(vm).chain(pool).collect();
        let age = self.now.duration_since(self.claim.created_at).as_mins().max(0);
        let age = lasting(SignedDuration::from_mins(age));
        format!("{}, {age} old", parts.join(", "))
    }

    /// What has drifted, in lines.
    fn drifted(&self) -> Vec<String> {
        let recorded = self.claim.status.drifted.as_ref();
        let head = recorded.map(|recorded| format!("since {} ({})", recorded.since, recorded.reason));
        let head = head.or_else(|| self.drift.as_ref().map(|_| "not noted on the NodeClaim yet".to_owned()));
        // The controller knows more than can be seen here.
        let recorded = recorded.map(|recorded| recorded.message.to_string()).filter(|message| !message.is_empty());
        let changes = recorded.or_else(|| self.drift.as_ref().map(ToString::to_string)).unwrap_or_default();
        head.into_iter().chain(changes.split("; ").filter(|line| !line.is_empty()).map(ToOwned::to_owned)).collect()
    }

    fn expires(&self) -> String {
        match (self.expiry, self.claim.spec.expire_after) {
            (Some((from, expiry)), _) if self.claim.is_ours() => {
                format!("at {}; replaced within budgets from {from}", expiry.at)
            }
            (Some((_, expiry)), _) => format!("at {}", expiry.at),
            (None, Some(after)) => format!("since it is older than {}", lasting(after)),
            (None, None) => "never".to_owned(),
        }
    }

    /// When it may be consolidated.
    fn consolidation(&self) -> Option<String> {
        let pool = self.pool?;
        if self.pool_deleted_at.is_some() {
            return Some("never: its NodePool is being deleted".to_owned());
        }
        if pool.replicas.is_some() {
            return Some("never: its NodePool has a fixed number of nodes".to_owned());
        }
        let Some(after) = pool.disruption.consolidate_after else {
            return Some("never: consolidateAfter is Never".to_owned());
        };
        let since = self.claim.status.quiet_since()?;
        let eligible = pool.consolidatable_from(since)?;
        let tense = if eligible <= self.now { "possible since" } else { "possible from" };
        Some(format!(
            "{tense} {eligible}: its pods have not changed since {since}, consolidateAfter is {}",
            lasting(after)
        ))
    }
}

impl TextAndJson for NodeReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{BOLD}{}{BOLD:#} {}", self.claim.name, self.state())?;
        let mut line = |label: &str, text: &str| writeln!(out, "  {DIM}{label:<13}{DIM:#} {}", one_line(text));
        line("node", &self.node())?;
        if let Some(at) = self.pool_deleted_at {
            line("NodePool", &format!("deletion requested at {at}; its nodes are taken away within budgets"))?;
        }
        for (i, text) in self.drifted().iter().enumerate() {
            line(if i == 0 { "drifted" } else { "" }, text)?;
        }
        line("expires", &self.expires())?;
        if let Some(text) = self.consolidation() {
            line("consolidation", &text)?;
        }
        for blocker in self.blockers.iter().take(MOST) {
            line("kept by", &blocker.to_string())?;
        }
        let more = self.blockers.len().saturating_sub(MOST);
        if more > 0 {
            line("", &format!("and {more} more"))?;
        }
        if !self.budgets.is_empty() {
            line("budgets now", &self.budgets.to_string())?;
        }
        Ok(())
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        let offering = self.claim.intent.as_ref().map(|intent| &intent.offering);
        let recorded = self.claim.status.drifted.as_ref();
        let drifted = (self.drift.is_some() || recorded.is_some()).then(|| {
            json!({
                "since": recorded.map(|recorded| recorded.since),
                "reason": recorded.map(|r| &*r.reason).or_else(|| self.drift.as_ref().map(|drift| drift.reason().as_str())),
                "changes": self.drifted().into_iter().skip(1).collect::<Vec<_>>(),
            })
        });
        Ok(json!({
            "nodeClaim": self.claim.name.as_str(),
            "node": self.claim.status.node_name.as_ref().map(|name| name.as_str()),
            "nodePool": self.claim.spec.pool.as_ref().map(|pool| pool.as_str()),
            "state": self.state(),
            "createdAt": self.claim.created_at,
            "offering": offering.map(|offering| offering.key.to_string()),
            "price": offering.map(|offering| offering.price.nanos()),
            "nodePoolDeletedAt": self.pool_deleted_at,
            "drifted": drifted,
            "expiresAt": self.expiry.map(|(_, expiry)| expiry.at),
            "replacedFrom": self.expiry.filter(|_| self.claim.is_ours()).map(|(from, _)| from),
            "consolidation": self.consolidation(),
            "keptBy": self.blockers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "budgetsLeft": self.budgets.to_json(),
        }))
    }
}

/// Most of what keeps a node that is shown.
const MOST: usize = 20;
