//! Bystanders: what else lies in and around the node resource group, and what does it link to?
//!
//! Machines of every agent pool, scale-set instances, snapshots, public IPs and load-balancer frontends. A listing is
//! whole or it is a failure: a pool that is gone since the pools were listed is a failure too, and so is a page that
//! cannot be read. The listing of Machines is the published one, [`MACHINES`], so that no sweep hangs on a preview; it
//! tells neither tags nor states.

use crate::azure::Azure;
use crate::error::unavailable;
use crate::listing::{LONGEST, MOST_PAGES, whole};
use crate::pages::List;
use crate::read::Head;
use crate::{network, read};
use azure_mgmt_compute::package_2024_07_01::models;
use napkeeper_core::model::azure::cloud::{ProvisioningState, Tags};
use napkeeper_core::model::azure::inventory::{ListFailure, Listing};
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use napkeeper_core::model::names::ArmId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::timeout;

/// The stable API version of `Microsoft.ContainerService` by which agent pools and their Machines are listed.
pub(crate) const MACHINES: &str = "2025-07-01";

/// A managed cluster with agent pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AksCluster {
    /// Its id.
    pub id: ArmId,
    /// It may be absent: then it has no Machines, and `ResourceNotFound` is the proof of it. Otherwise an absent
    /// cluster is a wrong setting, and no listing is whole.
    pub may_be_absent: bool,
}

impl AksCluster {
    /// A cluster that must be there.
    #[must_use]
    pub fn present(id: ArmId) -> Self {
        Self { id, may_be_absent: false }
    }

    /// The cluster of this id, where it is the id of a managed cluster of AKS.
    #[must_use]
    pub fn of(id: &ArmId) -> Option<Self> {
        let words: Vec<&str> = id.folded().split('/').collect();
        let is_aks = words.len() == 9 && words[6..8] == ["microsoft.containerservice", "managedclusters"];
        is_aks.then(|| Self::present(id.clone()))
    }
}

/// An agent pool.
#[derive(Debug, Deserialize)]
struct Pool {
    name: String,
}

/// A Machine.
#[derive(Debug, Deserialize)]
pub(crate) struct Machine {
    id: String,
    #[serde(default)]
    properties: MachineProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineProperties {
    resource_id: Option<String>,
    #[serde(default)]
    tags: Tags,
    provisioning_state: Option<String>,
    status: Option<MachineStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineStatus {
    creation_timestamp: Option<jiff::Timestamp>,
}

impl Azure {
    /// Lists Machines, scale-set instances, snapshots, public IPs and frontends, by id.
    ///
    /// # Errors
    /// [`ListFailure`] where any page of any listing cannot be read, by whatever cause.
    pub async fn bystanders(&self) -> Listing<RelatedResource> {
        let what = || Arc::from("other resources of the node resource group");
        let listed = timeout(LONGEST, self.standing_by()).await;
        let listed = listed.unwrap_or_else(|_| Err(unavailable(format!("incomplete after {} s", LONGEST.as_secs()))));
        listed.map_err(|error| ListFailure { listing: what(), reason: error.message })
    }

    async fn standing_by(&self) -> Result<Vec<Arc<RelatedResource>>, CloudError> {
        let mut found = self.machines_of_cluster().await?;
        found.extend(self.instances().await?);
        found.extend(self.snapshots().await?);
        for ip in self.beside::<network::PublicIp>(&self.in_group("Microsoft.Network/publicIPAddresses"), None).await? {
            found.push(ip.bystander()?);
        }
        for lb in self.beside::<network::LoadBalancer>(&self.in_group("Microsoft.Network/loadBalancers"), None).await? {
            found.extend(lb.frontends()?);
        }
        let by_id: BTreeMap<_, _> = found.into_iter().map(|one| (one.id.clone(), Arc::new(one))).collect();
        Ok(by_id.into_values().collect())
    }

    async fn machines_of_cluster(&self) -> Result<Vec<RelatedResource>, CloudError> {
        let Some(cluster) = &self.settings.aks else { return Ok(Vec::new()) };
        let pools = match self.beside::<Pool>(&format!("{}/agentPools", cluster.id), Some(MACHINES)).await {
            Err(error) if error.code == CloudErrorCode::NotFound && cluster.may_be_absent => return Ok(Vec::new()),
            pools => pools?,
        };
        let mut machines = Vec::new();
        for Pool { name } in pools {
            let path = format!("{}/agentPools/{name}/machines", cluster.id);
            for machine in self.beside::<Machine>(&path, Some(MACHINES)).await? {
                machines.push(machine.bystander()?);
            }
        }
        Ok(machines)
    }

    /// Instances of scale sets. A flexible set has none of its own: they are in the listing of VMs.
    async fn instances(&self) -> Result<Vec<RelatedResource>, CloudError> {
        let (group, subscription) = (self.group.as_str(), self.subscription.as_str());
        let sets = self.compute.virtual_machine_scale_sets_client().list(group, subscription);
        let sets = whole(sets.into_stream()).await?.into_iter().flat_map(|page| page.value);
        let client = self.compute.virtual_machine_scale_set_v_ms_client();
        let mut instances = Vec::new();
        for set in sets.filter(|set| !is_flexible(set)) {
            let name = set.resource.name.ok_or_else(|| unavailable("a scale set has no name"))?;
            for page in whole(client.list(group, name, subscription).into_stream()).await? {
                page.value.into_iter().try_for_each(|vm| instance(vm).map(|one| instances.push(one)))?;
            }
        }
        Ok(instances)
    }

    async fn snapshots(&self) -> Result<Vec<RelatedResource>, CloudError> {
        let request = self.compute.snapshots_client().list_by_resource_group(&self.subscription, &self.group);
        let pages = whole(request.into_stream()).await?;
        pages.into_iter().flat_map(|page| page.value).map(snapshot).collect()
    }

    fn in_group(&self, of: &str) -> String {
        format!("{}/providers/{of}", self.settings.group)
    }

    /// Everything of a list beside the node resource group's own.
    async fn beside<T: DeserializeOwned>(&self, path: &str, version: Option<&str>) -> Result<Vec<T>, CloudError> {
        self.pages(List { path, version, parameters: &[], most: MOST_PAGES }).await
    }
}

impl Machine {
    /// What is told of the Machine. The published API tells no state: then it is there.
    pub(crate) fn bystander(self) -> Result<RelatedResource, CloudError> {
        let id = read::id(&self.id)?;
        let MachineProperties { resource_id, tags, provisioning_state, status } = self.properties;
        let vm = resource_id.filter(|id| !id.is_empty()).map(|id| read::id(&id)).transpose()?;
        let state = provisioning_state.map_or(ProvisioningState::Succeeded, |state| read::state(Some(&state)));
        let created_at = status.and_then(|status| status.creation_timestamp);
        Ok(RelatedResource { id, tags, created_at, detail: RelatedDetail::AksMachine { vm, state } })
    }
}

fn is_flexible(set: &models::VirtualMachineScaleSet) -> bool {
    let mode = set.properties.as_ref().and_then(|properties| properties.orchestration_mode.as_ref());
    mode.is_some_and(|mode| read::text(mode) == "Flexible")
}

fn instance(vm: models::VirtualMachineScaleSetVm) -> Result<RelatedResource, CloudError> {
    let head = Head::of(vm.resource)?;
    let properties = vm.properties.unwrap_or_default();
    let storage = properties.storage_profile.unwrap_or_default();
    let disk = |disk: Option<models::ManagedDiskParameters>| disk.and_then(|d| d.sub_resource.id);
    let data = storage.data_disks.into_iter().filter_map(|d| disk(d.managed_disk));
    let disks = storage.os_disk.and_then(|d| disk(d.managed_disk)).into_iter().chain(data);
    let nics = properties.network_profile.map(|n| n.network_interfaces).unwrap_or_default();
    let role = RelatedDetail::ScaleSetInstance {
        nics: head.ids(nics.into_iter().filter_map(|nic| nic.sub_resource.id))?,
        disks: head.ids(disks)?,
    };
    Ok(head.bystander(read::timestamp(properties.time_created), role))
}

/// A snapshot reads its disk until its own copy is complete: an incremental one goes on copying in the background.
fn snapshot(snapshot: models::Snapshot) -> Result<RelatedResource, CloudError> {
    let head = Head::of(snapshot.resource)?;
    let Some(properties) = snapshot.properties else { return Err(head.unreadable(&"it has no properties")) };
    let source = properties.creation_data.source_resource_id.filter(|id| !id.is_empty());
    let is_partial = properties.completion_percent.is_some_and(|percent| percent < 100.0);
    let is_under_way = matches!(properties.provisioning_state.as_deref(), Some("Creating" | "Updating"));
    let role = RelatedDetail::Snapshot {
        source: source.map(|id| head.id(&id)).transpose()?,
        in_progress: is_partial || is_under_way,
    };
    Ok(head.bystander(read::timestamp(properties.time_created), role))
}
