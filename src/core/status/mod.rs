//! Decides the status of NodePools, AKSNodeClasses and NodeOverlays: upstream's conditions and counts, as far as we decide
//! them; and of NodeClaims that are not launched because somebody else has written them.
//!
//! A status is written where it differs from the one that is there, whoever wrote that. What has become True or False, or
//! is about another generation, is written at once; numbers and messages at most every
//! [`WRITE_INTERVAL`](crate::model::support::write_times::WRITE_INTERVAL), however many nodes come and go. In companion mode
//! these objects are Karpenter's, and nothing is written.

mod class;
mod deletion;
mod overlay;
mod pool;
mod rollout;
mod standalone;
#[cfg(test)]
mod tests;
mod usage;

use crate::disruption::{PodWithoutRoom, ReplacementLoops};
use crate::lifecycle::PoolFailures;
use crate::model::cluster::pool::NodePool;
use crate::model::cluster::status::{ConditionType, Conditions, InvalidPool, PoolStatus, StatusCondition};
use crate::model::names::{ClaimName, NodeClassName, NodePoolName, ObjectName, Uid};
use crate::model::settings::{ControllerMode, MaintenanceWindows, Settings};
use crate::model::support::write_times::WriteTimes;
use crate::plan::{ClassReport, Command, Plan, PoolReport};
use crate::snapshot::{CommandKey, Snapshot};
pub use deletion::{KeptBy, KeptNodes};
use jiff::Timestamp;
pub use overlay::report_overlays;
use standalone::refuse_standalone_claims;
use std::collections::{BTreeMap, BTreeSet};
use usage::{PoolUsage, usage_by_pool};

/// When statuses were last written. Disposable: after a crash one may be written once too often.
#[derive(Debug, Clone, Default)]
pub struct StatusMemory {
    /// The loops of replacements that the statuses say.
    pub loops: ReplacementLoops,
    pools: WriteTimes<NodePoolName, PoolStatus>,
    classes: WriteTimes<NodeClassName, Conditions>,
    overlays: WriteTimes<ObjectName, Conditions>,
    /// Nodes that should be replaced, with pods that can be scheduled nowhere else, as disruption has found.
    pub irreplaceable: BTreeMap<ClaimName, PodWithoutRoom>,
}

/// Has the statuses written that have changed.
pub fn report_status(
    snapshot: &Snapshot,
    failures: &PoolFailures,
    memory: &mut StatusMemory,
    settings: &Settings,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    if settings.mode == ControllerMode::Provisioner {
        report_classes(snapshot, memory, now, &mut plan);
        let loops = ReplacementLoops::of(snapshot, now);
        let irreplaceable = memory.irreplaceable.clone();
        let windows = &settings.maintenance_windows;
        let reporter = Reporter { snapshot, failures, loops: &loops, windows, irreplaceable: &irreplaceable, now };
        report_pools(&reporter, memory, &mut plan);
        memory.loops = loops;
        refuse_standalone_claims(snapshot, now, &mut plan);
    }
    plan
}

fn report_classes(snapshot: &Snapshot, memory: &mut StatusMemory, now: Timestamp, plan: &mut Plan) {
    let valid = snapshot
        .classes()
        .values()
        .filter(|class| snapshot.invalid_classes().get(&class.name).is_none())
        .map(|class| (&class.name, &class.uid, &class.conditions, class::conditions_of(class)));
    let invalid = snapshot
        .invalid_classes()
        .values()
        .map(|class| (&class.name, &class.uid, &class.status, class::conditions_of_invalid(class)));
    let objects = valid.chain(invalid).map(|(name, uid, known, wanted)| ConditionsOf { name, uid, known, wanted });
    let command = |(class, uid, conditions)| Command::ReportClass(Box::new(ClassReport { class, uid, conditions }));
    ConditionsReporter { snapshot, now, times: &mut memory.classes, plan }.report(objects.collect(), command);
}

fn report_pools(reporter: &Reporter<'_>, memory: &mut StatusMemory, plan: &mut Plan) {
    let snapshot = reporter.snapshot;
    let exists =
        |name: &NodePoolName| snapshot.pools().get(name).is_some() || snapshot.invalid_pools().get(name).is_some();
    memory.pools.retain(exists);
    let mut usage = usage_by_pool(snapshot);
    for pool in snapshot.pools().values().filter(|pool| snapshot.invalid_pools().get(&pool.name).is_none()) {
        let wanted = reporter.status_of(pool, usage.remove(&pool.name).unwrap_or_default());
        reporter.write(Target { name: &pool.name, uid: &pool.uid, known: &pool.status }, wanted, memory, plan);
    }
    for pool in snapshot.invalid_pools().values() {
        let wanted = reporter.status_of_invalid(pool, usage.remove(&pool.name).unwrap_or_default());
        reporter.write(Target { name: &pool.name, uid: &pool.uid, known: &pool.status }, wanted, memory, plan);
    }
}

/// An object that has nothing but conditions, valid or not: as they are, and as they are to be.
struct ConditionsOf<'a, N> {
    name: &'a N,
    uid: &'a Uid,
    known: &'a Conditions,
    wanted: Conditions,
}

/// Has conditions written if they are to change, and may.
struct ConditionsReporter<'a, N> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    times: &'a mut WriteTimes<N, Conditions>,
    plan: &'a mut Plan,
}

impl<N: Ord + Clone> ConditionsReporter<'_, N> {
    /// For all objects of a kind.
    fn report(self, objects: Vec<ConditionsOf<'_, N>>, command: impl Fn((N, Uid, Conditions)) -> Command) {
        let Self { snapshot, now, times, plan } = self;
        let names: BTreeSet<&N> = objects.iter().map(|object| object.name).collect();
        times.retain(|name| names.contains(name));
        for ConditionsOf { name, uid, known, wanted } in objects {
            if wanted == *known {
                times.settled(name, now);
                continue;
            }
            let is_news = !wanted.says_the_same(known);
            let report = command((name.clone(), uid.clone(), wanted.clone()));
            if snapshot.in_progress.contains(&report.key()) {
                continue;
            }
            match times.begin(name, wanted, is_news, now) {
                Ok(()) => plan.push(report, "its status has changed"),
                Err(due) => plan.wake_at(due),
            }
        }
    }
}

/// A NodePool, valid or not, and its status as it is.
struct Target<'a> {
    name: &'a NodePoolName,
    uid: &'a Uid,
    known: &'a PoolStatus,
}

/// Decides the statuses of NodePools.
struct Reporter<'a> {
    snapshot: &'a Snapshot,
    failures: &'a PoolFailures,
    loops: &'a ReplacementLoops,
    windows: &'a MaintenanceWindows,
    irreplaceable: &'a BTreeMap<ClaimName, PodWithoutRoom>,
    now: Timestamp,
}

impl Reporter<'_> {
    /// Has the status of a NodePool written if it is to change, and may.
    fn write(
        &self,
        Target { name, uid, known }: Target<'_>,
        wanted: PoolStatus,
        memory: &mut StatusMemory,
        plan: &mut Plan,
    ) {
        if wanted == *known {
            memory.pools.settled(name, self.now);
            return;
        }
        if self.snapshot.in_progress.contains(&CommandKey::Pool(name.clone())) {
            return;
        }
        let is_news = !wanted.conditions.says_the_same(&known.conditions);
        match memory.pools.begin(name, wanted.clone(), is_news, self.now) {
            Ok(()) => {
                let report = PoolReport { pool: name.clone(), uid: uid.clone(), status: wanted };
                plan.push(Command::ReportPool(Box::new(report)), "its status has changed");
            }
            Err(due) => plan.wake_at(due),
        }
    }

    fn status_of(&self, pool: &NodePool, usage: PoolUsage) -> PoolStatus {
        let mut by_type = self.pool_conditions(pool, &usage);
        by_type.insert(ConditionType::Ready, ready(&by_type));
        self.status(pool.generation, by_type, self.class_generation(pool), usage)
    }

    fn status_of_invalid(&self, pool: &InvalidPool, usage: PoolUsage) -> PoolStatus {
        let wrong = StatusCondition::failing("NodePoolValidationFailed", &pool.reason);
        let mut by_type = BTreeMap::from([(ConditionType::ValidationSucceeded, wrong)]);
        by_type.insert(ConditionType::Ready, ready(&by_type));
        // What these say survives a version that cannot be read.
        for kind in [
            ConditionType::NodeRegistrationHealthy,
            ConditionType::LaunchesAllowed,
            ConditionType::ReplacementsEffective,
        ] {
            by_type.extend(pool.status.conditions.get(kind).map(|known| (kind, known.clone())));
        }
        // The last version that could be read is in use.
        let removed = match self.snapshot.pools().get(&pool.name) {
            Some(known) => deletion::nodes_removed(known, &usage, self),
            None => deletion::nodes_of_unreadable(pool, &usage),
        };
        by_type.extend(removed.map(|condition| (ConditionType::NodesRemoved, condition)));
        self.status(pool.generation, by_type, None, usage)
    }

    fn status(
        &self,
        generation: i64,
        by_type: BTreeMap<ConditionType, StatusCondition>,
        class_generation: Option<i64>,
        usage: PoolUsage,
    ) -> PoolStatus {
        let conditions = Conditions { by_type, observed_generation: Some(generation) };
        PoolStatus { conditions, class_generation, nodes: Some(usage.nodes), resources: usage.resources() }
    }
}

/// The conditions of an object whose readiness is its validation alone.
fn validity(validation: StatusCondition, generation: i64) -> Conditions {
    let mut by_type = BTreeMap::from([(ConditionType::ValidationSucceeded, validation)]);
    by_type.insert(ConditionType::Ready, ready(&by_type));
    Conditions { by_type, observed_generation: Some(generation) }
}

/// Conditions without which an object is not ready.
const NEEDED: [ConditionType; 2] = [ConditionType::ValidationSucceeded, ConditionType::NodeClassReady];

/// Whether the conditions that an object needs to be ready are True; why those are False that are.
fn ready(by_type: &BTreeMap<ConditionType, StatusCondition>) -> StatusCondition {
    let failing = NEEDED.iter().filter_map(|kind| by_type.get(kind)).find(|condition| !condition.holds);
    match failing {
        Some(condition) => condition.clone(),
        None => StatusCondition::holding(ConditionType::Ready.as_str()),
    }
}
