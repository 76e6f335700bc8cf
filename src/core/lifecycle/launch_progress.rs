//! Progress of a launch through its planned offerings.

use super::ClassInstanceTypes;
use crate::catalog::{CapacityType, InstanceType, Offering, OfferingKey, node_labels};
use crate::model::azure::cloud::Tags;
use crate::model::azure::naming::resource_ids;
use crate::model::cluster::claim::{LaunchFailure, LaunchIntent, PlannedOffering};
use crate::model::errors::{CloudErrorCode, LaunchRefusal, OperationId};
use crate::model::labels;
use crate::model::names::{ArmId, ProviderId, VmSize};
use crate::plan::{ClaimUpdate, ClusterWrite, Effect, KubeletSpec, Launch};
use jiff::Timestamp;
use std::sync::Arc;

/// A launch, and its position in its list of offerings.
#[derive(Debug)]
pub(super) struct LaunchProgress {
    pub(super) launch: Launch,
    pub(super) instance_types: ClassInstanceTypes,
    /// Index of the current offering.
    pub(super) offering_index: usize,
}

impl LaunchProgress {
    /// The launch, at the offering of its intent.
    pub(super) fn new(launch: Launch, sizes: ClassInstanceTypes) -> Self {
        let intended = launch.intent.as_ref().map(|intent| &intent.offering.key);
        let offering_index = launch.offerings.iter().position(|o| Some(&o.key) == intended).unwrap_or(0);
        Self { launch, instance_types: sizes, offering_index }
    }

    /// The offering being tried.
    pub(super) fn current_offering(&self) -> Option<&PlannedOffering> {
        self.launch.offerings.get(self.offering_index)
    }

    /// An instance type of the claim's class; the kubelet of an unknown one cannot be configured.
    pub(super) fn instance_type(&self, name: &VmSize) -> Option<&InstanceType> {
        self.instance_types.iter().find(|t| t.facts.name == *name).map(Arc::as_ref)
    }

    /// The first known and fitting offering from this index on.
    pub(super) fn next_offering(&self, from: usize, fits: impl Fn(&PlannedOffering) -> bool) -> Option<usize> {
        let open = |o: &PlannedOffering| self.is_launchable(o) && fits(o);
        self.launch.offerings.iter().enumerate().skip(from).find(|(_, o)| open(o)).map(|(index, _)| index)
    }

    /// True when tags have this claim's UID.
    pub(super) fn owns(&self, tags: &Tags) -> bool {
        tags.get(labels::TAG_CLAIM_UID).is_some_and(|uid| **uid == *self.launch.claim.uid.as_str())
    }

    /// The kubelet configuration of the current offering.
    pub(super) fn kubelet_spec(&self) -> KubeletSpec {
        let known =
            self.current_offering().and_then(|offering| Some((offering, self.instance_type(&offering.key.size)?)));
        let Some((offering, size)) = known else { return KubeletSpec::default() };
        let OfferingKey { zone, capacity_type, .. } = offering.key.clone();
        let labels = node_labels(size, &Offering { zone, capacity_type, price: offering.price });
        KubeletSpec { labels, max_pods: u32::try_from(size.capacity.pods).unwrap_or(u32::MAX) }
    }

    /// The capacity reservation group of the current offering; that of the intent, if an earlier run has written one.
    pub(super) fn reservation(&self) -> Option<&ArmId> {
        self.reservation_of(self.current_offering()?)
    }

    /// The same of any planned offering.
    pub(super) fn reservation_of(&self, offering: &PlannedOffering) -> Option<&ArmId> {
        if offering.key.capacity_type != CapacityType::Reserved {
            return None;
        }
        let intended = self.launch.intent.as_ref().filter(|intent| intent.offering.key == offering.key);
        intended.and_then(|intent| intent.reservation.as_ref()).or(self.launch.capacity_reservation_group.as_ref())
    }

    /// True when an offering can be requested: its size is known, and its group if it is reserved. Without the group it
    /// would be launched at the full price.
    pub(super) fn is_launchable(&self, offering: &PlannedOffering) -> bool {
        let has_group = offering.key.capacity_type != CapacityType::Reserved || self.reservation_of(offering).is_some();
        has_group && self.instance_type(&offering.key.size).is_some()
    }

    /// Writes the intent for the current offering; `None` where there is none.
    pub(super) fn write_intent(
        &self,
        machine: Option<ArmId>,
        operation: Option<OperationId>,
        written_at: Timestamp,
    ) -> Option<Effect> {
        let ids = resource_ids(&self.launch.group, &self.launch.claim.name);
        let intent = LaunchIntent {
            offering: self.current_offering()?.clone(),
            vm: ids.vm,
            nic: ids.nic,
            os_disk: ids.os_disk,
            machine,
            reservation: self.reservation().cloned(),
            written_at,
            refused: u32::try_from(self.offering_index).unwrap_or(u32::MAX),
            operation,
        };
        Some(Effect::Cluster(ClusterWrite::WriteIntent(self.launch.claim.clone(), Box::new(intent))))
    }

    /// Records on the claim that the VM of the current offering exists; `None` where there is no offering.
    pub(super) fn mark_launched(&self, vm: &ArmId) -> Option<Effect> {
        let offering = self.current_offering()?;
        let size = self.instance_type(&offering.key.size);
        let (capacity, allocatable) = size.map(|t| (t.capacity.clone(), t.allocatable.clone())).unwrap_or_default();
        let (offering, image) = (offering.key.clone(), self.launch.image.clone());
        let step = ClaimUpdate::Launched { provider_id: ProviderId::of_vm(vm), offering, image, capacity, allocatable };
        Some(Effect::Cluster(ClusterWrite::UpdateClaim(self.launch.claim.clone(), step)))
    }

    /// Records on the claim that no offering is available.
    pub(super) fn mark_failed(&self, code: CloudErrorCode, message: Arc<str>, now: Timestamp) -> Effect {
        let failure = LaunchFailure { at: now, code: Arc::from(code.category()), message };
        Effect::Cluster(ClusterWrite::UpdateClaim(self.launch.claim.clone(), ClaimUpdate::LaunchFailed(failure)))
    }
}

/// True where a refusal of an offering has been heard.
pub(super) fn is_refused(refusals: &[LaunchRefusal], key: &OfferingKey) -> bool {
    refusals.iter().any(|refusal| refusal.offering == *key)
}
