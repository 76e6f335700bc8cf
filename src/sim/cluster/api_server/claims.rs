//! Writes of the controller to NodeClaims and Nodes.

use crate::cluster::kubelet::add_taints;
use crate::cluster::{Cluster, Delta, FinalizedObject};
use jiff::Timestamp;
use napkeeper_core::model::cluster::claim::{Claim, ClaimRef, ClaimSpec, ClaimStatus, DriftedCondition, LaunchIntent};
use napkeeper_core::model::cluster::node::Node;
use napkeeper_core::model::cluster::pod::Taint;
use napkeeper_core::model::errors::ClusterError;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ClaimName, NodeClassName, NodeName, Uid};
use napkeeper_core::plan::{ClaimDraft, ClaimUpdate, NodeUpdate};
use std::sync::Arc;

impl Cluster {
    pub(in crate::cluster) fn create_claim(&mut self, draft: &ClaimDraft) -> Result<(), ClusterError> {
        if self.store.claims().get(&draft.name).is_some() {
            return Err(ClusterError::Conflict);
        }
        let pool = draft.spec.pool.as_ref().and_then(|name| self.store.pools().get(name));
        if pool.is_some_and(|pool| pool.deletion.requested_at.is_some()) {
            return Err(ClusterError::NotFound);
        }
        let claim = Claim {
            name: draft.name.clone(),
            uid: self.ids.uid(),
            created_at: self.now,
            deleting_at: None,
            termination_at: None,
            owned_by_pool: false,
            has_finalizer: true,
            spec: draft.spec.clone(),
            intent: None,
            status: ClaimStatus::default(),
        };
        self.put_claim(claim);
        Ok(())
    }

    /// A NodeClaim without our plan, as another Karpenter creates it.
    pub(super) fn put_foreign_claim(&mut self, name: ClaimName, class: NodeClassName) {
        let claim = Claim {
            name,
            uid: self.ids.uid(),
            created_at: self.now,
            deleting_at: None,
            termination_at: None,
            owned_by_pool: false,
            has_finalizer: true,
            spec: ClaimSpec::of_class(class),
            intent: None,
            status: ClaimStatus::default(),
        };
        self.put_claim(claim);
    }

    pub(in crate::cluster) fn write_intent(
        &mut self,
        claim: &ClaimRef,
        intent: &LaunchIntent,
    ) -> Result<(), ClusterError> {
        let mut claim = self.claim(claim)?;
        // Without our finalizer the resources of the intent would leak.
        if claim.deleting_at.is_some() || !claim.has_finalizer {
            return Err(ClusterError::Conflict);
        }
        claim.intent = Some(intent.clone());
        let labels = intent.offering.key.labels();
        claim.spec.labels.extend(labels.map(|(key, value)| (Arc::from(key), Arc::from(value))));
        self.put_claim(claim);
        Ok(())
    }

    pub(in crate::cluster) fn advance_claim(
        &mut self,
        claim: &ClaimRef,
        step: &ClaimUpdate,
    ) -> Result<(), ClusterError> {
        let mut claim = self.claim(claim)?;
        let status = &mut claim.status;
        match step {
            ClaimUpdate::Launched { provider_id, offering: _, image, capacity, allocatable } => {
                status.launched = Some(self.now);
                status.launch_failed = None;
                status.provider_id = Some(provider_id.clone());
                status.image = image.clone().or_else(|| status.image.take());
                status.capacity = capacity.clone();
                status.allocatable = allocatable.clone();
            }
            ClaimUpdate::BillingExtensionInstalled => status.billed = Some(self.now),
            ClaimUpdate::LaunchFailed(failure) => status.launch_failed = Some(failure.clone()),
            ClaimUpdate::Registered { node } => {
                status.registered = Some(self.now);
                status.node_name = Some(node.clone());
            }
            ClaimUpdate::Initialized => status.initialized = Some(self.now),
            ClaimUpdate::Drifted { reason, message } => {
                let since = status.drifted.as_ref().map_or(self.now, |drifted| drifted.since);
                let (reason, message) = (Arc::clone(reason), Arc::clone(message));
                status.drifted = Some(DriftedCondition { since, reason, message });
            }
            ClaimUpdate::NotDrifted => status.drifted = None,
            ClaimUpdate::Disrupted(reason) => (status.disrupted, status.forced) = (Some(*reason), None),
            ClaimUpdate::Forced(reason) => (status.disrupted, status.forced) = (None, Some(*reason)),
            ClaimUpdate::NotDisrupted => (status.disrupted, status.forced) = (None, None),
            ClaimUpdate::Terminating(conditions) => status.termination.set(conditions),
            ClaimUpdate::Report(report) => {
                status.last_pod_event = report.last_pod_event.or(status.last_pod_event);
                status.consolidatable = report.consolidatable;
                status.consistent_state = Some(report.consistent_state.clone());
            }
        }
        self.put_claim(claim);
        Ok(())
    }

    /// Records until when a drain must be over; an earlier time stays.
    pub(super) fn record_deadline(&mut self, claim: &ClaimRef, deadline: Timestamp) -> Result<(), ClusterError> {
        let mut claim = self.claim(claim)?;
        claim.termination_at = Some(claim.termination_at.map_or(deadline, |known| known.min(deadline)));
        self.put_claim(claim);
        Ok(())
    }

    pub(super) fn disown_claim(&mut self, claim: &ClaimRef) -> Result<(), ClusterError> {
        let claim = self.claim(claim)?;
        self.put_claim(Claim { owned_by_pool: false, ..claim });
        Ok(())
    }

    /// Deletes a NodeClaim; the finalizer keeps the object.
    pub(in crate::cluster) fn delete_claim_object(&mut self, claim: &ClaimRef) -> Result<(), ClusterError> {
        let mut claim = self.claim(claim)?;
        if !claim.has_finalizer && !self.is_held(&FinalizedObject::Claim(claim.name.clone())) {
            self.forget_claim(&claim.name);
        } else if claim.deleting_at.is_none() {
            claim.deleting_at = Some(self.now);
            self.put_claim(claim);
        }
        Ok(())
    }

    pub(in crate::cluster) fn release_claim(&mut self, claim: &ClaimRef) -> Result<(), ClusterError> {
        let mut claim = self.claim(claim)?;
        claim.has_finalizer = false;
        if claim.deleting_at.is_some() && !self.is_held(&FinalizedObject::Claim(claim.name.clone())) {
            self.forget_claim(&claim.name);
        } else {
            self.put_claim(claim);
        }
        Ok(())
    }

    pub(in crate::cluster) fn advance_node(
        &mut self,
        name: &NodeName,
        uid: &Uid,
        step: &NodeUpdate,
    ) -> Result<(), ClusterError> {
        let mut node = self.node(name, uid)?;
        let yes: Arc<str> = Arc::from("true");
        match step {
            NodeUpdate::Register { labels, annotations, taints } => {
                node.has_finalizer = true;
                node.do_not_disrupt |= annotations.get(labels::DO_NOT_DISRUPT).is_some_and(|value| &**value == "true");
                node.labels.extend(labels.clone());
                node.labels.insert(Arc::from(labels::REGISTERED), yes);
                node.taints.retain(|t| &*t.key != labels::TAINT_UNREGISTERED);
                add_taints(&mut node.taints, taints.iter().cloned());
                self.start_up(&node);
            }
            NodeUpdate::Initialize => {
                node.labels.insert(Arc::from(labels::INITIALIZED), yes);
            }
            NodeUpdate::AddTaint(taint) => {
                add_taints(&mut node.taints, [taint.clone()]);
            }
            NodeUpdate::RemoveTaint(removed) => {
                node.taints.retain(|taint| taint.key != removed.key);
            }
            NodeUpdate::TaintOutOfService => {
                self.put_out_of_service(name, self.now);
                return Ok(());
            }
            NodeUpdate::BeginDrain => {
                add_taints(&mut node.taints, [Taint::disrupted()]);
                node.labels
                    .entry(Arc::from(labels::EXCLUDE_FROM_LOAD_BALANCERS))
                    .or_insert_with(|| Arc::from("karpenter"));
            }
        }
        self.put_node(node);
        Ok(())
    }

    /// A NodeClaim of this name and UID.
    fn claim(&self, claim: &ClaimRef) -> Result<Claim, ClusterError> {
        let found = self.store.claims().get(&claim.name);
        let found = found.ok_or(ClusterError::NotFound)?;
        if found.uid == claim.uid { Ok(Claim::clone(found)) } else { Err(ClusterError::Conflict) }
    }

    /// A Node of this name and UID.
    pub(in crate::cluster) fn node(&self, name: &NodeName, uid: &Uid) -> Result<Node, ClusterError> {
        let found = self.store.nodes().get(name).ok_or(ClusterError::NotFound)?;
        if found.uid == *uid { Ok(Node::clone(found)) } else { Err(ClusterError::Conflict) }
    }

    pub(super) fn put_claim(&mut self, claim: Claim) {
        let claim = Arc::new(claim);
        self.store.put_claim(Arc::clone(&claim));
        self.deltas.push(Delta::Claim(claim));
    }

    /// Removes a NodeClaim and nothing else: no Node has it as its owner.
    pub(in crate::cluster) fn forget_claim(&mut self, name: &ClaimName) {
        self.store.remove_claim(name);
        self.deltas.push(Delta::ClaimGone(name.clone()));
    }
}
