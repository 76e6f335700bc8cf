//! The end of a NodeClaim: its node is drained, its volumes are detached, its VM is deleted.

use super::Karpenter;
use super::node_claims::Phase;
use super::pods;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::cluster::pod::{DoNotDisrupt, Pod, Taint};
use napkeeper_core::model::names::{NodeName, Uid};
use napkeeper_core::plan::ClusterWrite;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Drains are looked at again this often.
const TICK: SignedDuration = SignedDuration::from_secs(1);
/// A drain takes at least this long, so that pods are seen which came just before the taint.
const SHORTEST_DRAIN: SignedDuration = SignedDuration::from_secs(5);
/// First and longest pause after a refused eviction; it doubles.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_millis(100);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// A deletion under way.
#[derive(Debug, Clone)]
pub(super) struct Termination {
    since: Timestamp,
    /// The end of its `terminationGracePeriod`.
    deadline: Option<Timestamp>,
    /// Refused evictions: how many, and when the next one is due.
    refused: BTreeMap<Uid, (u32, Timestamp)>,
    /// When its drain is looked at next.
    pub(super) look_at: Option<Timestamp>,
    /// Since when its VM is being deleted.
    pub(super) vm_since: Option<Timestamp>,
}

impl Karpenter {
    /// Deletes a NodeClaim.
    pub(super) fn delete(&mut self, name: &NodeName) {
        let now = self.now;
        let Some(claim) = self.claims.get_mut(name).filter(|claim| claim.termination.is_none()) else { return };
        let deadline = claim.grace.map(|grace| now.saturating_add(grace).unwrap_or(Timestamp::MAX));
        let termination =
            Termination { since: now, deadline, refused: BTreeMap::new(), look_at: Some(now), vm_since: None };
        claim.termination = Some(termination);
        let has_node = claim.has_node();
        self.observed.nodes_changed(now);
        if has_node {
            self.taint(name, true);
            self.trigger();
        } else {
            self.delete_vm(name);
        }
    }

    /// Adds the taint of nodes that are disrupted, or takes it away.
    pub(super) fn taint(&mut self, name: &NodeName, on: bool) {
        let taint = Taint::disrupted();
        let edit = |node: &mut napkeeper_core::model::cluster::node::Node| {
            node.taints.retain(|other| other.key != taint.key);
            if on {
                node.taints.push(taint);
            }
        };
        self.cluster.edit_node(name, edit, self.now);
    }

    /// Deletes nodes that are too old. No budget limits it, and nothing replaces them before.
    pub(super) fn expire(&mut self) {
        let is_old = |claim: &&super::NodeClaim| {
            claim.termination.is_none() && claim.expires_at.is_some_and(|at| at <= self.now)
        };
        let old: Vec<NodeName> = self.claims.values().filter(is_old).map(|claim| claim.node.name.clone()).collect();
        old.iter().for_each(|name| self.delete(name));
    }

    /// Something has changed: drains are looked at on their next second.
    pub(super) fn look_at_drains(&mut self) {
        let now = self.now;
        for termination in self.claims.values_mut().filter_map(|claim| claim.termination.as_mut()) {
            if termination.vm_since.is_some() {
                continue;
            }
            let ticks = (now.duration_since(termination.since).as_nanos() + TICK.as_nanos() - 1) / TICK.as_nanos();
            let seconds = i64::try_from(ticks).unwrap_or(0);
            let next = termination.since + SignedDuration::from_secs(seconds);
            termination.look_at = Some(termination.look_at.map_or(next, |at| at.min(next)));
        }
    }

    /// Continues the drains that are due.
    pub(super) fn terminate(&mut self) {
        let is_due = |claim: &&super::NodeClaim| {
            let look = claim.termination.as_ref().and_then(|termination| termination.look_at);
            look.is_some_and(|at| at <= self.now)
        };
        let due: Vec<NodeName> = self.claims.values().filter(is_due).map(|claim| claim.node.name.clone()).collect();
        for name in due {
            self.drain(&name);
        }
    }

    fn drain(&mut self, name: &NodeName) {
        let Some(claim) = self.claims.get_mut(name) else { return };
        let is_lost = claim.phase == Phase::Lost;
        let Some(termination) = &mut claim.termination else { return };
        termination.look_at = None;
        let (since, deadline) = (termination.since, termination.deadline);
        if is_lost || termination.vm_since.is_some() {
            return;
        }
        let pods = self.waited_pods(name);
        self.delete_expiring(&pods, deadline);
        let pods = self.waited_pods(name);
        if let Some(tier) = pods.iter().map(|pod| pods::tier(pod)).min() {
            let group: Vec<Arc<Pod>> = pods.iter().filter(|pod| pods::tier(pod) == tier).cloned().collect();
            self.evict(name, &group);
            self.look_again(name, &pods, deadline);
            return;
        }
        let drained_at = since + SHORTEST_DRAIN;
        let is_late = deadline.is_some_and(|deadline| self.now > deadline);
        if self.now < drained_at {
            self.look_at(name, drained_at);
        } else if self.cluster.has_attachments(name) && !is_late {
            self.look_at(name, self.now + TICK);
        } else {
            self.delete_vm(name);
        }
    }

    fn waited_pods(&self, name: &NodeName) -> Vec<Arc<Pod>> {
        let pods = self.cluster.state().pods_on(name);
        pods.filter(|pod| pods::is_waited_for(pod, self.now)).cloned().collect()
    }

    /// Deletes pods that would otherwise not get their grace before the node's time is up, past budgets and annotations.
    fn delete_expiring(&mut self, pods: &[Arc<Pod>], deadline: Option<Timestamp>) {
        let Some(deadline) = deadline else { return };
        for pod in pods.iter().filter(|pod| pod.deleting_at.is_none()) {
            if self.now > deadline - pod.termination_grace {
                // It has just been read.
                let _ = self.cluster.delete_pod_by_policy(&pod.key, &pod.uid, self.now);
            }
        }
    }

    fn evict(&mut self, name: &NodeName, group: &[Arc<Pod>]) {
        let now = self.now;
        for pod in group.iter().filter(|pod| pods::is_evictable(pod, now)) {
            let refused =
                self.claims.get(name).and_then(|c| c.termination.as_ref()).and_then(|t| t.refused.get(&pod.uid));
            let (times, at) = refused.copied().unwrap_or((0, now));
            if at > now {
                continue;
            }
            let evict = ClusterWrite::Evict(pod.key.clone(), pod.uid.clone());
            if self.cluster.write(&evict, now).is_ok() {
                continue;
            }
            let pause = FIRST_PAUSE.saturating_mul(1 << times.min(10)).min(LONGEST_PAUSE).max(TICK);
            let next = (times + 1, now + pause);
            if let Some(termination) = self.claims.get_mut(name).and_then(|claim| claim.termination.as_mut()) {
                termination.refused.insert(pod.uid.clone(), next);
            }
        }
    }

    /// Looks again when time alone changes something: a refused eviction is due, a pod is stuck, an annotation ends, or
    /// the node's time is up. Everything else is a change of the cluster.
    fn look_again(&mut self, name: &NodeName, pods: &[Arc<Pod>], deadline: Option<Timestamp>) {
        let termination = self.claims.get(name).and_then(|claim| claim.termination.as_ref());
        let retries = termination.into_iter().flat_map(|t| t.refused.values()).map(|(_, at)| *at);
        let stuck = pods.iter().filter_map(|pod| pods::stuck_at(pod)).map(|at| at + TICK);
        let expiring =
            deadline.into_iter().flat_map(|end| pods.iter().map(move |pod| end - pod.termination_grace + TICK));
        let protected = pods.iter().filter_map(|pod| match (pod.do_not_disrupt, pod.started_at) {
            (Some(DoNotDisrupt::For(time)), Some(start)) => Some(start + time),
            _ => None,
        });
        let next = retries.chain(stuck).chain(expiring).chain(protected).filter(|at| *at > self.now).min();
        if let Some(at) = next {
            self.look_at(name, at);
        }
    }

    fn look_at(&mut self, name: &NodeName, at: Timestamp) {
        if let Some(termination) = self.claims.get_mut(name).and_then(|claim| claim.termination.as_mut()) {
            termination.look_at = Some(termination.look_at.map_or(at, |other| other.min(at)));
        }
    }

    fn delete_vm(&mut self, name: &NodeName) {
        self.cluster.vm_deleted_by_policy(name, self.now);
        let due = self.now + self.timings.cloud.vm_delete.of(self.seed, "delete", name.as_str());
        self.enter(name, Phase::Deleting, Some(due));
        if let Some(termination) = self.claims.get_mut(name).and_then(|claim| claim.termination.as_mut()) {
            termination.vm_since = Some(self.now);
            termination.look_at = None;
        }
        self.observed.changed();
    }
}

/// The first time after `now` that Karpenter asks about a VM which it has been deleting since `since`, if it asks so often;
/// where it need not ask, `now`.
pub(super) fn next_poll(since: Timestamp, now: Timestamp, every: SignedDuration) -> Timestamp {
    let every = every.as_millis();
    if every <= 0 {
        return now;
    }
    let polls = now.duration_since(since).as_millis() / every + 1;
    let time = SignedDuration::from_millis(i64::try_from(polls * every).unwrap_or(i64::MAX));
    since.saturating_add(time).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_vm_is_noticed_at_the_next_poll() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        let often = SignedDuration::from_secs(5);
        for (since, now, next) in [(0, 0, 5_000), (0, 4_999, 5_000), (1_000, 6_000, 11_000), (1_000, 27_500, 31_000)] {
            assert_eq!(next_poll(at(since), at(now), often), at(next), "since {since}, now {now}");
            assert_eq!(next_poll(at(since), at(now), SignedDuration::ZERO), at(now));
        }
    }
}
