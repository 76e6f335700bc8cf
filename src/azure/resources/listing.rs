//! Lists VMs, NICs and disks of the node resource group, and reads its `managedBy`.
//!
//! A listing is complete or a failure: an error on any page ends it, and the failure has the number of pages read. Each
//! page is retried by the ARM client, the whole listing takes a bounded time.

use super::{convert, nic};
use crate::arm::client::cloud_error;
use crate::arm::error::{unavailable, unreadable};
use crate::arm::pages::{ListRequest, MAX_PAGES, all_pages};
use crate::client::Azure;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::naming::NIC_TYPE;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest that a listing may take. 100,000 resources are some hundred pages of a second or two.
const LISTING_TIMEOUT: Duration = Duration::from_secs(900);

/// A listing within the time limit, and its failure under this name.
pub(super) async fn complete_listing<T>(
    name: &str,
    listing: impl Future<Output = Result<Vec<Arc<T>>, CloudError>>,
) -> Listing<T> {
    let late = |_| Err(unavailable(format!("incomplete after {} s", LISTING_TIMEOUT.as_secs())));
    let listed = timeout(LISTING_TIMEOUT, listing).await.unwrap_or_else(late);
    listed.map_err(|error| ListFailure::of_azure(name, error))
}

impl Azure {
    /// Lists VMs, NICs and disks of the group, by id.
    ///
    /// # Errors
    /// [`ListFailure`] if any page cannot be read.
    pub async fn list(&self) -> Listing<CloudResource> {
        complete_listing("the node resource group", self.vms_nics_and_disks()).await
    }

    /// `managedBy` of the group: the cluster that it belongs to.
    ///
    /// # Errors
    /// [`ListFailure`] where the group cannot be read.
    pub async fn group_managed_by(&self) -> Result<Option<ArmId>, ListFailure> {
        let failed = |error| ListFailure::of_azure("managedBy of the node resource group", error);
        self.managed_by().await.map_err(failed)
    }

    pub(super) async fn managed_by(&self) -> Result<Option<ArmId>, CloudError> {
        let request = self.resources.resource_groups_client().get(&self.group, &self.subscription);
        let group = request.send().await.map_err(cloud_error)?.into_body().await.map_err(cloud_error)?;
        let id = group.managed_by.filter(|id| !id.is_empty()).map(ArmId::new).transpose();
        id.map_err(|e| unreadable(format!("managedBy cannot be read: {e}")))
    }

    async fn vms_nics_and_disks(&self) -> Result<Vec<Arc<CloudResource>>, CloudError> {
        let (group, subscription) = (self.group.as_str(), self.subscription.as_str());
        let mut found = BTreeMap::new();
        let mut put = |resource: CloudResource| drop(found.insert(resource.id.clone(), Arc::new(resource)));
        let vms = self.compute.virtual_machines_client().list(group, subscription);
        for page in all_pages(vms.into_stream()).await? {
            page.value.into_iter().try_for_each(|vm| convert::vm(vm).map(&mut put))?;
        }
        let nics = self.nics().await?;
        let created = self.nic_creation_times().await?;
        for nic in nics {
            let id = nic.id.to_ascii_lowercase();
            put(convert::nic(nic, created.get(&id).copied())?);
        }
        let disks = self.compute.disks_client().list_by_resource_group(subscription, group);
        for page in all_pages(disks.into_stream()).await? {
            page.value.into_iter().try_for_each(|disk| convert::disk(disk).map(&mut put))?;
        }
        Ok(found.into_values().collect())
    }

    async fn nics(&self) -> Result<Vec<nic::NetworkInterface>, CloudError> {
        let path = format!("{}/providers/{NIC_TYPE}", self.settings.group);
        self.arm.list(ListRequest { path: &path, version: None, parameters: &[], max_pages: MAX_PAGES }).await
    }

    /// When each NIC was created, by its id in lower case.
    async fn nic_creation_times(&self) -> Result<BTreeMap<String, Timestamp>, CloudError> {
        let request = self.resources.resources_client().list_by_resource_group(&self.group, &self.subscription);
        let request = request.filter(format!("resourceType eq '{NIC_TYPE}'")).expand("createdTime");
        let pages = all_pages(request.into_stream()).await?;
        let times = pages.into_iter().flat_map(|page| page.value).filter_map(|resource| {
            let id = resource.generic_resource.resource.id?.to_ascii_lowercase();
            Some((id, convert::timestamp(resource.created_time)?))
        });
        Ok(times.collect())
    }
}
