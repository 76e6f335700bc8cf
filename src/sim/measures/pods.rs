//! Follows every pod: when it was bound, ran and was evicted, and what replaced it.

use super::figures::{DisruptionFigures, PodFigures};
use super::waits::Waits;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::cluster::pod::{Pod, PodOwner, PodPhase};
use napkeeper_core::model::names::{NodeName, ObjectKey, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A replacement that is evicted within this time of the eviction that it makes up for was evicted again.
const AGAIN_WITHIN: SignedDuration = SignedDuration::from_hours(1);
/// The reason of an eviction for which the policy gave none.
const NO_REASON: &str = "unspecified";

/// Follows the pods of a cluster.
#[derive(Debug, Clone, Default)]
pub struct PodMeasures {
    pods: BTreeMap<Uid, LivePod>,
    /// Evicted pods without a replacement, by workload, the earliest eviction first.
    vacancies: BTreeMap<ObjectKey, Vec<Vacancy>>,
    /// Why the policy disrupts a node.
    reasons: BTreeMap<NodeName, Arc<str>>,
    tallies: Tallies,
}

/// By NodePool and workload, as far as a pod has them.
type Tallies = BTreeMap<(Option<Arc<str>>, Option<ObjectKey>), Tally>;

/// What a pod belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodGroup {
    /// Its workload and how that names the replacement; `None` when nothing replaces it.
    pub workload: Option<(ObjectKey, ReplicaName)>,
    /// The NodePool, or node group, of its node.
    pub pool: Option<Arc<str>>,
}

/// How a workload names the replacement of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaName {
    /// Newly.
    New,
    /// As the pod that it replaces, as a StatefulSet does.
    Same,
}

/// A pod that exists.
#[derive(Debug, Clone)]
struct LivePod {
    group: (Option<Arc<str>>, Option<ObjectKey>),
    created_at: Timestamp,
    is_bound: bool,
    running_since: Option<Timestamp>,
    /// When the pod that it replaces was evicted.
    replaces: Option<Timestamp>,
    /// The eviction since which its replica is not ready.
    unavailable_since: Option<Timestamp>,
    /// It was evicted itself.
    is_evicted: bool,
}

/// An evicted pod that has no replacement yet.
#[derive(Debug, Clone)]
struct Vacancy {
    pod: ObjectKey,
    pool: Option<Arc<str>>,
    evicted_at: Timestamp,
}

/// The sums of one group.
#[derive(Debug, Clone, Default)]
struct Tally {
    evictions: BTreeMap<Arc<str>, u64>,
    re_evictions: u64,
    running: SignedDuration,
    unavailable: SignedDuration,
    new: Waits,
    replacements: Waits,
}

impl PodMeasures {
    /// Gives the reason of the evictions from a node from now on.
    pub fn set_reason(&mut self, node: &NodeName, reason: &str) {
        self.reasons.insert(node.clone(), Arc::from(reason));
    }

    /// A node is gone.
    pub fn node_removed(&mut self, node: &NodeName) {
        self.reasons.remove(node);
    }

    /// A pod is new or has changed.
    pub fn pod_changed(&mut self, pod: &Pod, group: PodGroup, now: Timestamp) {
        if belongs_to_node(pod) {
            return;
        }
        if !self.pods.contains_key(&pod.uid) {
            let live = self.new_pod(pod, &group);
            self.pods.insert(pod.uid.clone(), live);
        }
        let Some(live) = self.pods.get_mut(&pod.uid) else { return };
        if pod.node.is_some() && !live.is_bound {
            live.is_bound = true;
            live.group.0 = group.pool;
            live.waits(&mut self.tallies).bound(now.duration_since(live.created_at));
        }
        if pod.deleting_at.is_some() || pod.is_terminal() {
            live.end(&mut self.tallies, now);
        } else if pod.phase == PodPhase::Running && !live.is_evicted {
            live.running_since.get_or_insert(now);
            if pod.ready {
                live.available(&mut self.tallies, now);
            }
        }
    }

    fn new_pod(&mut self, pod: &Pod, group: &PodGroup) -> LivePod {
        let replaced = group.workload.as_ref().and_then(|(workload, name)| self.fill_vacancy(workload, *name, pod));
        let since = replaced.as_ref().map(|vacancy| vacancy.evicted_at);
        LivePod {
            // Until it is bound, its pool is that of the pod that it replaces.
            group: (replaced.and_then(|vacancy| vacancy.pool), group.workload.as_ref().map(|(key, _)| key.clone())),
            created_at: pod.created_at,
            is_bound: false,
            running_since: None,
            replaces: since,
            unavailable_since: since,
            is_evicted: false,
        }
    }

    /// The evicted pod that a new pod replaces.
    fn fill_vacancy(&mut self, workload: &ObjectKey, name: ReplicaName, pod: &Pod) -> Option<Vacancy> {
        let vacancies = self.vacancies.get_mut(workload)?;
        let position = match name {
            ReplicaName::New => 0,
            ReplicaName::Same => vacancies.iter().position(|vacancy| vacancy.pod == pod.key)?,
        };
        (position < vacancies.len()).then(|| vacancies.remove(position))
    }

    /// A pod is gone.
    pub fn pod_removed(&mut self, pod: &Pod, now: Timestamp) {
        if let Some(mut live) = self.pods.remove(&pod.uid) {
            live.end(&mut self.tallies, now);
            if !live.is_bound {
                live.waits(&mut self.tallies).unbound(now.duration_since(live.created_at));
            }
        }
    }

    /// The policy evicts a pod, or ends it by force: to be called before the pod changes.
    pub fn pod_evicted(&mut self, pod: &Pod, now: Timestamp) {
        let Some(live) = self.pods.get_mut(&pod.uid) else { return };
        if pod.deleting_at.is_some() || pod.is_terminal() || std::mem::replace(&mut live.is_evicted, true) {
            return;
        }
        let reason = pod.node.as_ref().and_then(|node| self.reasons.get(node));
        let reason = reason.map_or_else(|| Arc::from(NO_REASON), Arc::clone);
        live.end(&mut self.tallies, now);
        let tally = live.tally(&mut self.tallies);
        *tally.evictions.entry(reason).or_default() += 1;
        if live.replaces.is_some_and(|evicted_at| now.duration_since(evicted_at) <= AGAIN_WITHIN) {
            tally.re_evictions += 1;
        }
        if let (pool, Some(workload)) = live.group.clone() {
            let vacancy = Vacancy { pod: pod.key.clone(), pool, evicted_at: now };
            self.vacancies.entry(workload).or_default().push(vacancy);
        }
    }

    /// A workload has as many pods as it wants: it no longer wants the evicted pods without a replacement, but for these.
    pub fn workload_settled(&mut self, workload: &ObjectKey, is_wanted: impl Fn(&ObjectKey) -> bool, now: Timestamp) {
        let Some(vacancies) = self.vacancies.get_mut(workload) else { return };
        for vacancy in vacancies.extract_if(.., |vacancy| !is_wanted(&vacancy.pod)) {
            let group = (vacancy.pool, Some(workload.clone()));
            self.tallies.entry(group).or_default().unavailable += now.duration_since(vacancy.evicted_at);
        }
        if vacancies.is_empty() {
            self.vacancies.remove(workload);
        }
    }

    /// The figures up to now.
    #[must_use]
    pub fn figures(&self, now: Timestamp) -> DisruptionFigures {
        let mut tallies = self.tallies.clone();
        for live in self.pods.values() {
            let mut live = live.clone();
            live.end(&mut tallies, now);
            if !live.is_bound {
                live.waits(&mut tallies).unbound(now.duration_since(live.created_at));
            }
        }
        for (workload, vacancies) in &self.vacancies {
            for vacancy in vacancies {
                let group = (vacancy.pool.clone(), Some(workload.clone()));
                tallies.entry(group).or_default().unavailable += now.duration_since(vacancy.evicted_at);
            }
        }
        figures(&tallies)
    }
}

/// Pods that belong to their node are not replaced elsewhere.
fn belongs_to_node(pod: &Pod) -> bool {
    matches!(pod.owner, PodOwner::DaemonSet | PodOwner::Static)
}

impl LivePod {
    fn tally<'t>(&self, tallies: &'t mut Tallies) -> &'t mut Tally {
        tallies.entry(self.group.clone()).or_default()
    }

    fn waits<'t>(&self, tallies: &'t mut Tallies) -> &'t mut Waits {
        let tally = self.tally(tallies);
        if self.replaces.is_some() { &mut tally.replacements } else { &mut tally.new }
    }

    /// Its replica is ready again, or is no longer wanted, or is evicted again.
    fn available(&mut self, tallies: &mut Tallies, now: Timestamp) {
        if let Some(since) = self.unavailable_since.take() {
            self.tally(tallies).unavailable += now.duration_since(since);
        }
    }

    /// It no longer runs, or is being deleted.
    fn end(&mut self, tallies: &mut Tallies, now: Timestamp) {
        self.available(tallies, now);
        if let Some(since) = self.running_since.take() {
            self.tally(tallies).running += now.duration_since(since);
        }
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        for (reason, evictions) in &other.evictions {
            *self.evictions.entry(Arc::clone(reason)).or_default() += evictions;
        }
        self.re_evictions += other.re_evictions;
        self.running += other.running;
        self.unavailable += other.unavailable;
        self.new.add(&other.new);
        self.replacements.add(&other.replacements);
    }

    fn figures(self) -> PodFigures {
        PodFigures {
            voluntary_evictions: self.evictions.values().sum(),
            evictions_by_reason: self.evictions,
            re_evictions: self.re_evictions,
            running_pod_seconds: self.running.as_secs(),
            unavailable_pod_seconds: self.unavailable.as_secs(),
            pending_new: self.new.figures(),
            pending_evicted: self.replacements.figures(),
        }
    }
}

fn figures(tallies: &Tallies) -> DisruptionFigures {
    let mut all = Tally::default();
    let (mut pools, mut workloads): (BTreeMap<Arc<str>, Tally>, BTreeMap<String, Tally>) = Default::default();
    for ((pool, workload), tally) in tallies {
        all.add(tally);
        if let Some(pool) = pool {
            pools.entry(Arc::clone(pool)).or_default().add(tally);
        }
        if let Some(workload) = workload {
            workloads.entry(workload.to_string()).or_default().add(tally);
        }
    }
    DisruptionFigures {
        all: all.figures(),
        by_pool: pools.into_iter().map(|(pool, tally)| (pool, tally.figures())).collect(),
        by_workload: workloads.into_iter().map(|(workload, tally)| (workload, tally.figures())).collect(),
    }
}
