//! How the controller's requests reach the simulated Azure.

use crate::cloud::Cloud;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::related::RelatedResource;
use napkeeper_core::model::errors::EffectError;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::{CloudRequest, Reply};
use std::fmt::Debug;

/// Access to the simulated Azure. Every implementation has the same results.
pub trait AzureAccess: Debug + Send {
    /// Sends a request to Azure.
    ///
    /// # Errors
    /// As [`Cloud::perform`].
    fn perform(&mut self, cloud: &mut Cloud, request: &CloudRequest, now: Timestamp) -> Result<Reply, EffectError>;

    /// Lists VMs, NICs and disks of the group, by id.
    ///
    /// # Errors
    /// As [`Cloud::list`].
    fn list(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<CloudResource>;

    /// Lists related resources: Machines, scale-set instances, snapshots, addresses and frontends, by id.
    ///
    /// # Errors
    /// As [`Cloud::list_related`].
    fn list_related(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<RelatedResource>;

    /// `managedBy` of the group.
    ///
    /// # Errors
    /// As [`Cloud::group_managed_by`].
    fn group_managed_by(&mut self, cloud: &mut Cloud, now: Timestamp) -> Result<Option<ArmId>, ListFailure>;
}

/// Direct calls, without HTTP and without the Azure adapter.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirectAccess;

impl AzureAccess for DirectAccess {
    fn perform(&mut self, cloud: &mut Cloud, request: &CloudRequest, now: Timestamp) -> Result<Reply, EffectError> {
        cloud.perform(request, now)
    }

    fn list(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<CloudResource> {
        cloud.list(now)
    }

    fn list_related(&mut self, cloud: &mut Cloud, now: Timestamp) -> Listing<RelatedResource> {
        cloud.list_related(now)
    }

    fn group_managed_by(&mut self, cloud: &mut Cloud, now: Timestamp) -> Result<Option<ArmId>, ListFailure> {
        cloud.group_managed_by(now)
    }
}
