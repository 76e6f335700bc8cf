//! Recently admitted pods that the cluster does not show yet, with the placements of their hints.
//!
//! An admitted pod is not bound, and perhaps not listed, for a moment. Until then its placement is reserved, or five
//! hundred pods at once would all get the same node as a hint. This is an estimate: another webhook may deny a pod
//! afterwards, and other replicas admit pods too.

use super::PlacementHint;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::cluster::pod::{Pod, PodShape};
use napkeeper_core::model::names::ObjectKey;
use napkeeper_core::scheduling::{IncrementalScheduler, Placement};
use napkeeper_core::snapshot::Snapshot;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How long a pod counts that the cluster does not show.
pub(crate) const ADMITTED_TTL: SignedDuration = SignedDuration::from_secs(10);
/// Most pods that count; beyond, the oldest no longer do.
pub(crate) const MAX_ADMITTED: usize = 2_000;
/// How far the API server's clock may be behind.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(2);

/// A pod that is admitted with a hint.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) pod: Arc<Pod>,
    /// Its `generateName`, if its name is not known yet.
    pub(crate) generate_name: Option<Arc<str>>,
    pub(crate) placement: Placement,
    pub(crate) hint: PlacementHint,
}

/// A pod that was admitted.
#[derive(Debug, Clone)]
struct AdmittedPod {
    /// Grows from one to the next.
    sequence: u64,
    at: Timestamp,
    pod: Arc<Pod>,
    /// Its `generateName`, if its name is not known yet.
    generate_name: Option<Arc<str>>,
    placement: Placement,
    hint: PlacementHint,
}

/// Pods that were admitted recently, oldest first.
#[derive(Debug, Default, Clone)]
pub(crate) struct RecentAdmissions {
    admitted: VecDeque<Arc<AdmittedPod>>,
    /// How many have been noted.
    last_sequence: u64,
    /// Pods of the cluster that have answered for one of them, with their creation.
    observed: BTreeMap<ObjectKey, Timestamp>,
}

impl RecentAdmissions {
    /// Notes a pod that is admitted with a hint.
    pub(crate) fn record(&mut self, at: Timestamp, admission: Admission) {
        if self.admitted.len() >= MAX_ADMITTED {
            self.admitted.pop_front();
        }
        self.last_sequence += 1;
        let Admission { pod, generate_name, placement, hint } = admission;
        let sequence = self.last_sequence;
        self.admitted.push_back(Arc::new(AdmittedPod { sequence, at, pod, generate_name, placement, hint }));
    }

    /// True if such a pod was admitted with this hint: the review is repeated.
    pub(crate) fn contains(&self, now: Timestamp, pod: &Pod, hint: &PlacementHint) -> bool {
        let young = |a: &&Arc<AdmittedPod>| is_recent(a.at, now);
        self.admitted.iter().rev().take_while(young).any(|a| a.pod.key == pod.key && a.hint == *hint)
    }

    /// True when some count no longer.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.admitted.front().is_some_and(|oldest| !is_recent(oldest.at, now))
    }

    /// Forgets old pods and those in the cluster, and reserves the placements of the rest.
    pub(crate) fn prune_and_reserve(
        &mut self,
        now: Timestamp,
        snapshot: &Snapshot,
        scheduler: &mut IncrementalScheduler,
    ) {
        self.admitted.retain(|a| is_recent(a.at, now));
        self.forget_observed(now, snapshot);
        self.admitted.iter_mut().for_each(|admitted| reserve(admitted, scheduler));
    }

    /// A pod of every shape.
    pub(crate) fn shapes(&self) -> BTreeMap<&Arc<PodShape>, &Arc<Pod>> {
        self.admitted.iter().map(|admitted| (&admitted.pod.shape, &admitted.pod)).collect()
    }

    /// Adds the admissions recorded by the original since this copy was made.
    pub(crate) fn merge_newer(&mut self, other: &Self, scheduler: &mut IncrementalScheduler) {
        let new = other.admitted.partition_point(|admitted| admitted.sequence <= self.last_sequence);
        for admitted in other.admitted.iter().skip(new) {
            let mut admitted = Arc::clone(admitted);
            reserve(&mut admitted, scheduler);
            self.admitted.push_back(admitted);
        }
        self.admitted.drain(..self.admitted.len().saturating_sub(MAX_ADMITTED));
        self.last_sequence = other.last_sequence;
    }

    /// Forgets those that are bound by now. Pods with generated names cannot be distinguished: any new one of the same
    /// generateName counts as the oldest.
    fn forget_observed(&mut self, now: Timestamp, snapshot: &Snapshot) {
        let horizon = ADMITTED_TTL.saturating_add(CLOCK_SKEW).saturating_add(CLOCK_SKEW);
        self.observed.retain(|_, created| now.duration_since(*created) < horizon);
        let mut shown: BTreeMap<ObjectKey, Vec<(ObjectKey, Timestamp)>> = BTreeMap::new();
        for admitted in &self.admitted {
            let key = &admitted.pod.key;
            if shown.contains_key(key) {
                continue;
            }
            let since = admitted.at - CLOCK_SKEW;
            let new = |pod: &&Arc<Pod>| {
                pod.node.is_some() && pod.created_at >= since && !self.observed.contains_key(&pod.key)
            };
            let mut pods: Vec<(ObjectKey, Timestamp)> = match &admitted.generate_name {
                None => {
                    snapshot.pods().get(key).into_iter().filter(new).map(|p| (p.key.clone(), p.created_at)).collect()
                }
                Some(generate_name) => {
                    let named =
                        |k: &ObjectKey| k.namespace == key.namespace && k.name.as_str().starts_with(&**generate_name);
                    let alike = snapshot.pods().range_from(key).take_while(|(k, _)| named(k)).map(|(_, pod)| pod);
                    alike.filter(new).map(|p| (p.key.clone(), p.created_at)).collect()
                }
            };
            pods.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
            shown.insert(key.clone(), pods);
        }
        let seen = &mut self.observed;
        self.admitted.retain(|admitted| match shown.get_mut(&admitted.pod.key).and_then(Vec::pop) {
            Some((key, created)) => {
                seen.insert(key, created);
                false
            }
            None => true,
        });
    }
}

/// Takes the placement of a pod that was admitted.
fn reserve(admitted: &mut Arc<AdmittedPod>, scheduler: &mut IncrementalScheduler) {
    // The new node may have been requested by now, and then it is a NodeClaim.
    let placement = match admitted.placement {
        Placement::New(_) => scheduler.find_without_new_node(&admitted.pod),
        Placement::Node(_) | Placement::Claim(_) => None,
    };
    if scheduler.take(&admitted.pod, placement.as_ref().unwrap_or(&admitted.placement)) {
        if let Some(placement) = placement {
            Arc::make_mut(admitted).placement = placement;
        }
        return;
    }
    // A NodeClaim has become a node, or a node was deleted: the pod is placed again, if it fits.
    if let Some(placement) = scheduler.find_without_new_node(&admitted.pod) {
        scheduler.take(&admitted.pod, &placement);
        Arc::make_mut(admitted).placement = placement;
    }
}

/// Also false for what lies ahead: the clock was set back.
fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(at);
    age < ADMITTED_TTL && age >= -CLOCK_SKEW
}
