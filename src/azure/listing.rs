//! Listings: what does the node resource group hold, and whose is it?
//!
//! A listing is whole or it is a failure: whatever goes wrong on any page ends it, and the failure says how many pages
//! had been read. Each page is tried several times (the transport), the whole listing for a bounded time.

use crate::azure::Azure;
use crate::error::unavailable;
use crate::pages::{List, endless, partial};
use crate::transport::meant;
use crate::{nic, read};
use azure_core::Pageable;
use futures::StreamExt;
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

/// Most pages of a listing. More means that the links run in circles.
pub(crate) const MOST_PAGES: usize = 1_000;
/// Longest that a listing may take. 100,000 resources are some hundred pages of a second or two.
pub(crate) const LONGEST: Duration = Duration::from_secs(900);

impl Azure {
    /// Lists VMs, NICs and disks of the group, by id.
    ///
    /// # Errors
    /// [`ListFailure`] where any page cannot be read, by whatever cause.
    pub async fn list(&self) -> Listing<CloudResource> {
        let what = || Arc::from("the node resource group");
        let listed = timeout(LONGEST, self.everything()).await;
        let listed = listed.unwrap_or_else(|_| Err(unavailable(format!("incomplete after {} s", LONGEST.as_secs()))));
        listed.map_err(|error| ListFailure { listing: what(), reason: error.message })
    }

    /// `managedBy` of the group: the cluster that it belongs to.
    ///
    /// # Errors
    /// [`ListFailure`] where the group cannot be read.
    pub async fn group_managed_by(&self) -> Result<Option<ArmId>, ListFailure> {
        let what = || Arc::from("managedBy of the node resource group");
        self.owner().await.map_err(|error| ListFailure { listing: what(), reason: error.message })
    }

    async fn owner(&self) -> Result<Option<ArmId>, CloudError> {
        let request = self.resources.resource_groups_client().get(&self.group, &self.subscription);
        let group = request.send().await.map_err(meant)?.into_body().await.map_err(meant)?;
        let id = group.managed_by.filter(|id| !id.is_empty()).map(ArmId::new).transpose();
        id.map_err(|e| unavailable(format!("managedBy cannot be read: {e}")))
    }

    async fn everything(&self) -> Result<Vec<Arc<CloudResource>>, CloudError> {
        let (group, subscription) = (self.group.as_str(), self.subscription.as_str());
        let mut found = BTreeMap::new();
        let mut put = |resource: CloudResource| drop(found.insert(resource.id.clone(), Arc::new(resource)));
        let vms = self.compute.virtual_machines_client().list(group, subscription);
        for page in whole(vms.into_stream()).await? {
            page.value.into_iter().try_for_each(|vm| read::vm(vm).map(&mut put))?;
        }
        let nics = self.nics().await?;
        let born = self.born().await?;
        for nic in nics {
            let id = nic.id.to_ascii_lowercase();
            put(read::nic(nic, born.get(&id).copied())?);
        }
        let disks = self.compute.disks_client().list_by_resource_group(subscription, group);
        for page in whole(disks.into_stream()).await? {
            page.value.into_iter().try_for_each(|disk| read::disk(disk).map(&mut put))?;
        }
        Ok(found.into_values().collect())
    }

    async fn nics(&self) -> Result<Vec<nic::NetworkInterface>, CloudError> {
        let path = format!("{}/providers/{NIC_TYPE}", self.settings.group);
        self.pages(List { path: &path, version: None, parameters: &[], most: MOST_PAGES }).await
    }

    /// When each NIC was created, by its id in lower case.
    async fn born(&self) -> Result<BTreeMap<String, Timestamp>, CloudError> {
        let request = self.resources.resources_client().list_by_resource_group(&self.group, &self.subscription);
        let request = request.filter(format!("resourceType eq '{NIC_TYPE}'")).expand("createdTime");
        let pages = whole(request.into_stream()).await?;
        let born = pages.into_iter().flat_map(|page| page.value).filter_map(|resource| {
            let id = resource.generic_resource.resource.id?.to_ascii_lowercase();
            Some((id, read::timestamp(resource.created_time)?))
        });
        Ok(born.collect())
    }
}

/// All pages of a listing.
pub(crate) async fn whole<T>(pages: Pageable<T, azure_core::Error>) -> Result<Vec<T>, CloudError>
where
    T: azure_core::Continuable,
{
    let mut pages = std::pin::pin!(pages);
    let mut whole = Vec::new();
    while let Some(page) = pages.next().await {
        whole.push(page.map_err(|error| partial(whole.len(), meant(error)))?);
        if whole.len() == MOST_PAGES {
            return Err(endless(MOST_PAGES));
        }
    }
    Ok(whole)
}
