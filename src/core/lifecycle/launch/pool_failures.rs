//! Counts the nodes of each NodePool that did not come up, and holds its launches for growing times.
//!
//! A wrong image, a bootstrap that fails or a missing permission fails for every node alike. Without a limit such nodes
//! would be bought for ever, as many at a time as pods are pending. After two failures without a success the NodePool is
//! held; then one node is tried, and the next hold is twice as long. A node that comes up, or a change of what nodes are
//! made from, ends it.

use crate::model::cluster::claim::Claim;
use crate::model::cluster::launch_hold::PoolHold;
use crate::model::cluster::pool::{NodeClass, NodePool};
use crate::model::cluster::status::ConditionType;
use crate::model::names::{ClaimName, NodePoolName};
use crate::model::settings::Settings;
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Failures without a success before a NodePool is held: one may be chance.
const MIN_FAILURES: u32 = 2;
/// The time of a deletion is the API server's, in whole seconds, and its clock may be a minute behind.
const DELETION_TIME_TOLERANCE: SignedDuration = SignedDuration::from_secs(61);
/// Doublings after which a hold no longer grows.
const MAX_DOUBLINGS: u32 = 6;

/// How a node failed to come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lifecycle) enum NodeFailure {
    /// Azure refused to create it.
    Launch,
    /// Its VM was paid for, and it did not join, or did not become ready for pods.
    Join,
}

/// A NodeClaim that did not come up.
#[derive(Debug, Clone, Copy)]
pub(in crate::lifecycle) struct FailedNode<'a> {
    pub(in crate::lifecycle) claim: &'a Claim,
    pub(in crate::lifecycle) failure: NodeFailure,
    /// Why, for people.
    pub(in crate::lifecycle) reason: &'a str,
}

impl NodeFailure {
    /// The first hold, and the longest.
    fn holds(self) -> (SignedDuration, SignedDuration) {
        match self {
            Self::Launch => (SignedDuration::from_mins(1), SignedDuration::from_mins(30)),
            Self::Join => (SignedDuration::from_mins(5), SignedDuration::from_mins(120)),
        }
    }
}

/// NodePools whose nodes did not come up. Disposable: after a crash one node is tried in each NodePool whose condition
/// says that they did not, and the holds start again at twice the first. Nodes that did not join and were given up just
/// before the crash, so that no condition says it yet, are counted again while they are being deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolFailures {
    failing: BTreeMap<NodePoolName, FailingPool>,
    /// NodeClaims that are counted, as long as they exist.
    counted: BTreeSet<ClaimName>,
    /// The conditions of NodePools have been read since the start.
    is_restored: bool,
}

/// A NodePool whose nodes did not come up since the last one that did.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FailingPool {
    pool: Arc<NodePool>,
    class: Option<Arc<NodeClass>>,
    nodes: u32,
    /// When the newest of them was created.
    newest: Timestamp,
    /// Why the last one failed.
    reason: Arc<str>,
    holds: u32,
    held_until: Option<Timestamp>,
}

impl PoolFailures {
    /// Counts a NodeClaim that did not come up.
    pub(in crate::lifecycle) fn record(&mut self, snapshot: &Snapshot, failed: &FailedNode<'_>, now: Timestamp) {
        let FailedNode { claim, failure, reason } = *failed;
        let Some(pool) = claim.spec.pool.as_ref().and_then(|name| snapshot.pools().get(name)) else { return };
        if has_come_up_since(snapshot, &pool.name, claim.created_at) || !self.counted.insert(claim.name.clone()) {
            return;
        }
        let failing = self.failing.entry(pool.name.clone());
        let failing = failing.or_insert_with(|| FailingPool::new(snapshot, pool, claim.created_at));
        failing.nodes += 1;
        failing.newest = failing.newest.max(claim.created_at);
        failing.reason = Arc::from(reason);
        // Those that were launched before a hold belong to it.
        if failing.nodes >= MIN_FAILURES && failing.held_until.is_none_or(|until| claim.created_at >= until) {
            let (first, longest) = failure.holds();
            let hold = longest.min(first * (1 << failing.holds.min(MAX_DOUBLINGS)));
            failing.holds += 1;
            failing.held_until = Some(now + hold);
        }
    }

    /// Takes over from their conditions which NodePools were held when the process before this one ended, and from
    /// NodeClaims that are being deleted which nodes it gave up.
    pub(in crate::lifecycle) fn restore(&mut self, snapshot: &Snapshot, settings: &Settings, now: Timestamp) {
        if std::mem::replace(&mut self.is_restored, true) {
            return;
        }
        for claim in snapshot.claims().values().filter(|claim| claim.is_ours()) {
            if let Some(at) = given_up_at(claim, settings).filter(|at| *at + NodeFailure::Join.holds().0 > now) {
                let reason = "they were given up before a restart";
                self.record(snapshot, &FailedNode { claim, failure: NodeFailure::Join, reason }, at);
            }
        }
        // A condition includes them.
        for pool in snapshot.pools().values() {
            let condition = pool.status.conditions.get(ConditionType::NodeRegistrationHealthy);
            let condition = condition.filter(|condition| !condition.holds);
            let failing = condition.map(|_| FailingPool {
                nodes: MIN_FAILURES,
                holds: 1,
                held_until: Some(now),
                reason: Arc::from("before a restart"),
                ..FailingPool::new(snapshot, pool, now)
            });
            self.failing.extend(failing.map(|failing| (pool.name.clone(), failing)));
        }
    }

    /// Forgets NodePools of which a node has come up, or which make other nodes now, and NodeClaims that are gone.
    pub(in crate::lifecycle) fn forget(&mut self, snapshot: &Snapshot) {
        self.counted.retain(|name| snapshot.claims().get(name).is_some());
        self.failing.retain(|name, failing| {
            let has_same_class = |pool: &NodePool| match (snapshot.classes().get(&pool.class), &failing.class) {
                (Some(class), Some(known)) => class.has_spec_of(known),
                (class, known) => class.is_none() && known.is_none(),
            };
            let is_same = |pool: &Arc<NodePool>| pool.has_template_of(&failing.pool) && has_same_class(pool);
            snapshot.pools().get(name).is_some_and(is_same) && !has_come_up_since(snapshot, name, failing.newest)
        });
    }

    /// How NodePools may launch at this time.
    #[must_use]
    pub fn holds(&self, snapshot: &Snapshot, now: Timestamp) -> BTreeMap<NodePoolName, PoolHold> {
        let hold = |(name, failing): (&NodePoolName, &FailingPool)| {
            let is_held = failing.held_until? > now || is_coming_up(snapshot, name);
            let held = || PoolHold::Held { reason: Arc::from(failing.message()) };
            Some((name.clone(), if is_held { held() } else { PoolHold::OneNode }))
        };
        self.failing.iter().filter_map(hold).collect()
    }

    /// NodePools that are or were held, until a node of them comes up, with the message.
    pub fn held(&self) -> impl Iterator<Item = (&NodePoolName, String)> {
        self.failing.iter().filter(|(_, pool)| pool.held_until.is_some()).map(|(name, pool)| (name, pool.message()))
    }

    /// The message for a NodePool that is or was held, until a node of it comes up.
    pub(crate) fn message(&self, pool: &NodePoolName) -> Option<String> {
        let failing = self.failing.get(pool)?;
        failing.held_until.is_some().then(|| failing.message())
    }

    /// When the next hold ends.
    pub(in crate::lifecycle) fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.failing.values().filter_map(|failing| failing.held_until).filter(|until| *until > now).min()
    }
}

impl FailingPool {
    fn new(snapshot: &Snapshot, pool: &Arc<NodePool>, newest: Timestamp) -> Self {
        Self {
            pool: Arc::clone(pool),
            class: snapshot.classes().get(&pool.class).cloned(),
            nodes: 0,
            newest,
            reason: Arc::default(),
            holds: 0,
            held_until: None,
        }
    }

    fn message(&self) -> String {
        let until = self.held_until.unwrap_or(self.newest);
        let nodes = self.nodes;
        format!("the last {nodes} nodes did not come up ({}); one is tried after {until:.0}", self.reason)
    }
}

/// True when a node of the pool that was created since then is or was ready for pods.
fn has_come_up_since(snapshot: &Snapshot, pool: &NodePoolName, since: Timestamp) -> bool {
    claims_of(snapshot, pool).any(|claim| claim.status.initialized.is_some() && claim.created_at >= since)
}

/// When a NodeClaim was deleted, if that was after the time that its node had to come up.
fn given_up_at(claim: &Claim, settings: &Settings) -> Option<Timestamp> {
    let status = &claim.status;
    let deadline = match (status.initialized, status.registered, status.launched) {
        (None, Some(registered), _) => registered + settings.initialization_timeout,
        (None, None, Some(launched)) => launched + settings.registration_timeout,
        _ => return None,
    };
    claim.deleting_at.filter(|at| *at + DELETION_TIME_TOLERANCE >= deadline)
}

/// True while a node of the pool may still come up.
fn is_coming_up(snapshot: &Snapshot, pool: &NodePoolName) -> bool {
    claims_of(snapshot, pool).any(|claim| claim.is_in_flight())
}

fn claims_of<'a>(snapshot: &'a Snapshot, pool: &'a NodePoolName) -> impl Iterator<Item = &'a Arc<Claim>> {
    snapshot.claims().values().filter(move |claim| claim.spec.pool.as_ref() == Some(pool))
}
