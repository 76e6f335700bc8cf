//! The days to come of a NodePool: allowed nodes, expiries, the end of the replacement of drifted nodes.

use super::roll::{RollNodes, roll_end};
use super::spans::{AllowedSpan, allowed_spans};
use crate::disruption::BUDGET_RETRY;
use crate::disruption::budget::{counted_nodes, initialized_nodes};
use crate::disruption::causes::{DriftDetector, Expiry};
use crate::disruption::moves::REPLACEMENT_TIMEOUT;
use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::{DisruptionReason, NodePool};
use crate::model::names::ClaimName;
use crate::model::settings::{DisruptionScope, MaintenanceHold, PauseEnd, Settings};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// The least time that the replacement of a node is taken to last: no VM is a node that is ready sooner.
const FASTEST_REPLACEMENT: SignedDuration = SignedDuration::from_mins(1);

/// The days to come of a NodePool.
#[derive(Debug)]
pub struct PoolForecast {
    /// How many nodes may be disrupted at once, for each reason that budgets know; none while the pause switch holds them.
    pub allowed: [(DisruptionReason, Vec<AllowedSpan>); 3],
    /// Nodes that expire within these days: from when on each is replaced, and when it is deleted at the latest.
    pub expiries: Vec<NodeExpiry>,
    /// Spans in which drifted nodes may be replaced that are shorter than a drain may take, of those that begin within these days.
    pub too_short: Vec<AllowedSpan>,
    /// How long that is: the longest `terminationGracePeriod` of its nodes.
    pub longest_drain: Option<SignedDuration>,
    /// The replacement of the nodes that have drifted; `None` where none has.
    pub roll: Option<RollForecast>,
}

/// The expiry of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeExpiry {
    /// Its NodeClaim.
    pub claim: ClaimName,
    /// From when on it is replaced within budgets; `None` where another Karpenter decides, which does not.
    pub replaced_from: Option<Timestamp>,
    /// When it is deleted whatever budgets say.
    pub at: Timestamp,
}

/// When drifted nodes have all been replaced, if nothing else uses the budgets, nothing keeps them and replacements come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollForecast {
    /// How many have drifted and wait for no maintenance window.
    pub nodes: u32,
    /// The end if each takes a minute; `None` is not within the days of the forecast.
    pub earliest: Option<Timestamp>,
    /// The end if each replacement takes the 20 minutes after which it fails, and each drain its whole
    /// `terminationGracePeriod`; `None` is not within the days of the forecast, or not known.
    pub latest: Option<Timestamp>,
    /// Each drain has a limit, no node is not ready, and all that has drifted is known.
    pub has_latest: bool,
    /// How many more wait for a maintenance window, and for which.
    pub held: Option<(u32, MaintenanceHold)>,
}

/// The forecast of a NodePool for so long.
#[must_use]
pub fn forecast(
    snapshot: &Snapshot,
    settings: &Settings,
    pool: &NodePool,
    (now, until): (Timestamp, Timestamp),
) -> PoolForecast {
    let total = initialized_nodes(snapshot, pool);
    let spans = |reason| {
        let pause = snapshot.pause.disruption_pause(&DisruptionScope::new(&pool.name, reason), now);
        held_until(allowed_spans(&pool.disruption.budgets, total, reason, (now, until)), pause.map(|pause| pause.end))
    };
    let drifts = spans(DisruptionReason::Drifted);
    let expiry = |claim: &Arc<Claim>| {
        let (replaced_from, expiry) = Expiry::replaced_from(claim, settings.expiry_lead, now)?;
        let replaced_from = Some(replaced_from).filter(|_| claim.is_ours());
        Some(NodeExpiry { claim: claim.name.clone(), replaced_from, at: expiry.at })
    };
    let expiries = standing(snapshot, pool).filter_map(expiry);
    let expiries = expiries.filter(|expiry| expiry.replaced_from.unwrap_or(expiry.at) <= until);
    let mut expiries: Vec<NodeExpiry> = expiries.collect();
    expiries.sort_by_key(|expiry| (expiry.at, expiry.claim.clone()));
    let longest_drain = standing(snapshot, pool).filter_map(|claim| claim.spec.termination_grace_period).max();
    PoolForecast {
        allowed: super::REASONS.map(|reason| (reason, spans(reason))),
        expiries,
        too_short: longest_drain.map(|grace| too_short(&drifts, grace)).unwrap_or_default(),
        longest_drain,
        roll: roll(snapshot, settings, pool, &drifts),
    }
}

/// The NodeClaims of a NodePool that are not leaving.
fn standing<'a>(snapshot: &'a Snapshot, pool: &'a NodePool) -> impl Iterator<Item = &'a Arc<Claim>> {
    let of_pool = |claim: &&Arc<Claim>| claim.spec.pool.as_ref() == Some(&pool.name) && !claim.is_leaving();
    snapshot.claims().values().filter(of_pool)
}

/// The replacement of the drifted nodes of a NodePool in these spans; not of those of another Karpenter.
fn roll(snapshot: &Snapshot, settings: &Settings, pool: &NodePool, spans: &[AllowedSpan]) -> Option<RollForecast> {
    let now = spans.first()?.from;
    let detector = DriftDetector::new(pool, snapshot, now);
    let (mut nodes, mut held, mut first, mut has_unseen) = (0, 0, None, false);
    for claim in standing(snapshot, pool).filter(|claim| claim.is_ours()) {
        let drift = detector.drift_of(claim);
        let is_unseen = drift.is_none() && claim.status.drifted.is_some();
        has_unseen |= is_unseen;
        if let Some(hold) = drift.as_ref().and_then(|one| one.maintenance_hold(&settings.maintenance_windows, now)) {
            held += 1;
            first.get_or_insert(hold);
        } else {
            nodes += u32::from(drift.is_some() || is_unseen);
        }
    }
    let going = counted_nodes(snapshot, pool);
    let grace = drain_limit(snapshot, pool).filter(|_| !has_unseen);
    let slowest = |grace| REPLACEMENT_TIMEOUT.checked_add(BUDGET_RETRY)?.checked_add(grace);
    (nodes > 0 || held > 0).then(|| RollForecast {
        nodes,
        earliest: roll_end(spans, RollNodes { nodes, going: 0 }, FASTEST_REPLACEMENT),
        latest: grace.and_then(|grace| roll_end(spans, RollNodes { nodes, going }, slowest(grace)?)),
        has_latest: grace.is_some(),
        held: first.map(|hold| (held, hold)),
    })
}

/// How long a drain of a node of a NodePool may take; `None` where one has no limit, or is not ready: it counts against budgets
/// until it is.
fn drain_limit(snapshot: &Snapshot, pool: &NodePool) -> Option<SignedDuration> {
    let mut of_pool = snapshot.claims().values().filter(|claim| claim.spec.pool.as_ref() == Some(&pool.name));
    of_pool.try_fold(SignedDuration::ZERO, |longest, claim| {
        let is_ready = snapshot.node_of(claim).is_some_and(|node| node.ready);
        let is_counted = claim.status.initialized.is_some() && !is_ready && !claim.is_leaving();
        Some(longest.max(claim.spec.termination_grace_period.filter(|_| !is_counted)?))
    })
}

/// No node may be disrupted before this time.
fn held_until(spans: Vec<AllowedSpan>, pause: Option<PauseEnd>) -> Vec<AllowedSpan> {
    let Some(pause) = pause else { return spans };
    let mut held: Vec<AllowedSpan> = Vec::new();
    for span in spans {
        let end = match pause {
            PauseEnd::At(end) => end.clamp(span.from, span.until),
            PauseEnd::OnChange => span.until,
        };
        let parts = [AllowedSpan { until: end, allowed: 0, ..span }, AllowedSpan { from: end, ..span }];
        for part in parts.into_iter().filter(|part| part.from < part.until) {
            match held.last_mut().filter(|last| last.allowed == part.allowed) {
                Some(last) => last.until = part.until,
                None => held.push(part),
            }
        }
    }
    held
}

/// The openings that begin and end within these spans and are shorter than this.
fn too_short(spans: &[AllowedSpan], grace: SignedDuration) -> Vec<AllowedSpan> {
    let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return Vec::new() };
    let (from, until) = (first.from, last.until);
    let mut openings: Vec<AllowedSpan> = Vec::new();
    for span in spans.iter().filter(|span| span.allowed > 0) {
        match openings.last_mut().filter(|last| last.until == span.from) {
            Some(last) => (last.until, last.allowed) = (span.until, last.allowed.max(span.allowed)),
            None => openings.push(*span),
        }
    }
    let is_whole = |opening: &AllowedSpan| opening.from > from && opening.until < until;
    openings.retain(|opening| is_whole(opening) && opening.until.duration_since(opening.from) < grace);
    openings
}
