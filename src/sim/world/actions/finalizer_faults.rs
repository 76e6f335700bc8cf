//! Finalizers that users strip from NodeClaims and Nodes, and those that other controllers add.

use crate::cluster::FinalizedObject;
use crate::world::World;
use crate::world::timeline::EventKind;

/// What happens to finalizers. Nodes in use are counted in the order of their names, modulo their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalizerFault {
    /// Another controller adds its own to a NodeClaim, or to its Node. `kubectl delete --cascade=orphan` adds one too.
    AddOther {
        /// Of which node.
        nth: usize,
        /// To the Node instead of the NodeClaim.
        to_node: bool,
        /// A user deletes the NodeClaim then.
        then_delete: bool,
    },
    /// Other controllers remove theirs.
    RemoveOthers,
    /// A user removes ours from a NodeClaim, or from its Node.
    Strip {
        /// Of which node.
        nth: usize,
        /// From the Node instead of the NodeClaim.
        from_node: bool,
        /// A user deletes the NodeClaim then.
        then_delete: bool,
    },
    /// A user removes ours from the NodeClaims that are being deleted.
    StripDeleting,
}

impl World {
    pub(super) fn strike_finalizers(&mut self, fault: FinalizerFault) {
        match fault {
            FinalizerFault::AddOther { nth, to_node, then_delete } => {
                let object = self.finalized_object(nth, to_node);
                object.into_iter().for_each(|object| self.cluster.add_other_finalizer(object));
                self.delete_claim_in_use(nth, then_delete);
            }
            FinalizerFault::RemoveOthers => self.cluster.remove_other_finalizers(self.now),
            FinalizerFault::Strip { nth, from_node, then_delete } => {
                let object = self.finalized_object(nth, from_node);
                object.into_iter().for_each(|object| self.strip_finalizer(&object));
                self.delete_claim_in_use(nth, then_delete);
            }
            FinalizerFault::StripDeleting => {
                let claims = self.cluster.state().claims().values();
                let deleting = claims.filter(|claim| claim.deleting_at.is_some()).map(|claim| claim.name.clone());
                let objects: Vec<_> = deleting.map(FinalizedObject::Claim).collect();
                objects.iter().for_each(|object| self.strip_finalizer(object));
            }
        }
    }

    fn strip_finalizer(&mut self, object: &FinalizedObject) {
        self.log(EventKind::Scenario, format!("{object:?}"), "a user removes our finalizer");
        self.cluster.strip_finalizer(object, self.now);
    }

    fn delete_claim_in_use(&mut self, nth: usize, is_wanted: bool) {
        for claim in self.claims_in_use(nth, usize::from(is_wanted)) {
            self.delete_claim_as_user(&claim.name);
        }
    }

    fn finalized_object(&self, nth: usize, is_node: bool) -> Option<FinalizedObject> {
        let claim = self.claims_in_use(nth, 1).pop()?;
        if !is_node {
            return Some(FinalizedObject::Claim(claim.name.clone()));
        }
        let node = self.cluster.state().node_by_provider_id(claim.status.provider_id.as_ref()?)?;
        Some(FinalizedObject::Node(node.name.clone()))
    }
}
