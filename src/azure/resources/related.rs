//! Lists other resources in and around the node resource group that may use its resources.
//!
//! Machines of every agent pool, scale-set instances, snapshots, public IPs and load-balancer frontends. A listing is
//! complete or a failure: a pool deleted since the pools were listed is a failure too, and so is a page that cannot be
//! read. Machines are listed by a stable version of the API, [`CONTAINER_SERVICE_VERSION`], so that no sweep
//! depends on a preview; it has neither tags nor states.

use super::convert::{self, ResourceHead};
use super::listing::complete_listing;
use super::network;
use crate::arm::error::unreadable;
use crate::arm::pages::{ListRequest, MAX_PAGES, all_pages};
use crate::client::Azure;
use azure_mgmt_compute::package_2024_07_01::models;
use napkeeper_core::model::azure::cloud::{ProvisioningState, Tags};
use napkeeper_core::model::azure::inventory::Listing;
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::errors::{CloudError, CloudErrorCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The stable API version of `Microsoft.ContainerService` by which agent pools and their Machines are listed.
pub(crate) const CONTAINER_SERVICE_VERSION: &str = "2025-07-01";

/// An agent pool.
#[derive(Debug, Deserialize)]
struct AgentPool {
    name: String,
}

/// A Machine.
#[derive(Debug, Deserialize)]
pub(crate) struct AksMachine {
    id: String,
    #[serde(default)]
    properties: AksMachineProperties,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AksMachineProperties {
    resource_id: Option<String>,
    #[serde(default)]
    tags: Tags,
    provisioning_state: Option<String>,
    status: Option<AksMachineStatus>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AksMachineStatus {
    creation_timestamp: Option<jiff::Timestamp>,
}

impl Azure {
    /// Lists Machines, scale-set instances, snapshots, public IPs and frontends, by id.
    ///
    /// # Errors
    /// `ListFailure` if any page of any listing cannot be read.
    pub async fn list_related(&self) -> Listing<RelatedResource> {
        complete_listing("other resources of the node resource group", self.related_resources()).await
    }

    async fn related_resources(&self) -> Result<Vec<Arc<RelatedResource>>, CloudError> {
        let mut found = self.aks_machines().await?;
        found.extend(self.scale_set_instances().await?);
        found.extend(self.snapshots().await?);
        for ip in
            self.list_all::<network::PublicIp>(&self.in_group("Microsoft.Network/publicIPAddresses"), None).await?
        {
            found.push(ip.related()?);
        }
        for lb in
            self.list_all::<network::LoadBalancer>(&self.in_group("Microsoft.Network/loadBalancers"), None).await?
        {
            found.extend(lb.frontends()?);
        }
        let by_id: BTreeMap<_, _> = found.into_iter().map(|one| (one.id.clone(), Arc::new(one))).collect();
        Ok(by_id.into_values().collect())
    }

    async fn aks_machines(&self) -> Result<Vec<RelatedResource>, CloudError> {
        let Some(cluster) = &self.settings.aks else { return Ok(Vec::new()) };
        let pools = match self
            .list_all::<AgentPool>(&format!("{}/agentPools", cluster.id), Some(CONTAINER_SERVICE_VERSION))
            .await
        {
            Err(error) if error.code == CloudErrorCode::NotFound && cluster.may_be_absent => return Ok(Vec::new()),
            pools => pools?,
        };
        let mut machines = Vec::new();
        for AgentPool { name } in pools {
            let path = format!("{}/agentPools/{name}/machines", cluster.id);
            for machine in self.list_all::<AksMachine>(&path, Some(CONTAINER_SERVICE_VERSION)).await? {
                machines.push(machine.related()?);
            }
        }
        Ok(machines)
    }

    /// Instances of scale sets. Those of flexible sets are in the listing of VMs.
    async fn scale_set_instances(&self) -> Result<Vec<RelatedResource>, CloudError> {
        let (group, subscription) = (self.group.as_str(), self.subscription.as_str());
        let sets = self.compute.virtual_machine_scale_sets_client().list(group, subscription);
        let sets = all_pages(sets.into_stream()).await?.into_iter().flat_map(|page| page.value);
        let client = self.compute.virtual_machine_scale_set_v_ms_client();
        let mut instances = Vec::new();
        for set in sets.filter(|set| !is_flexible(set)) {
            let name = set.resource.name.ok_or_else(|| unreadable("a scale set has no name"))?;
            for page in all_pages(client.list(group, name, subscription).into_stream()).await? {
                page.value.into_iter().try_for_each(|vm| instance(vm).map(|one| instances.push(one)))?;
            }
        }
        Ok(instances)
    }

    async fn snapshots(&self) -> Result<Vec<RelatedResource>, CloudError> {
        let request = self.compute.snapshots_client().list_by_resource_group(&self.subscription, &self.group);
        let pages = all_pages(request.into_stream()).await?;
        pages.into_iter().flat_map(|page| page.value).map(snapshot).collect()
    }

    fn in_group(&self, of: &str) -> String {
        format!("{}/providers/{of}", self.settings.group)
    }

    /// Everything in a listing that the ARM crates do not know.
    async fn list_all<T: DeserializeOwned>(&self, path: &str, version: Option<&str>) -> Result<Vec<T>, CloudError> {
        self.arm.list(ListRequest { path, version, parameters: &[], max_pages: MAX_PAGES }).await
    }
}

impl AksMachine {
    /// The Machine as the domain has it. The stable API returns no state: then it exists.
    pub(crate) fn related(self) -> Result<RelatedResource, CloudError> {
        let id = convert::id(&self.id)?;
        let AksMachineProperties { resource_id, tags, provisioning_state, status } = self.properties;
        let vm = resource_id.filter(|id| !id.is_empty()).map(|id| convert::id(&id)).transpose()?;
        let state = provisioning_state.map_or(ProvisioningState::Succeeded, |state| convert::state(Some(&state)));
        let created_at = status.and_then(|status| status.creation_timestamp);
        Ok(RelatedResource { id, tags, created_at, detail: RelatedDetail::AksMachine { vm, state } })
    }
}

fn is_flexible(set: &models::VirtualMachineScaleSet) -> bool {
    let mode = set.properties.as_ref().and_then(|properties| properties.orchestration_mode.as_ref());
    mode.is_some_and(|mode| convert::text(mode) == "Flexible")
}

fn instance(vm: models::VirtualMachineScaleSetVm) -> Result<RelatedResource, CloudError> {
    let head = ResourceHead::of(vm.resource)?;
    let properties = vm.properties.unwrap_or_default();
    let storage = properties.storage_profile.unwrap_or_default();
    let data = storage.data_disks.into_iter().filter_map(|disk| convert::managed_disk(disk.managed_disk));
    let disks = storage.os_disk.and_then(convert::managed_os_disk).into_iter().chain(data);
    let nics = properties.network_profile.map(|n| n.network_interfaces).unwrap_or_default();
    let detail = RelatedDetail::ScaleSetInstance {
        nics: head.ids(nics.into_iter().filter_map(|nic| nic.sub_resource.id))?,
        disks: head.ids(disks)?,
    };
    Ok(head.related(convert::timestamp(properties.time_created), detail))
}

/// A snapshot reads its disk until its own copy is complete: an incremental one copies in the background.
fn snapshot(snapshot: models::Snapshot) -> Result<RelatedResource, CloudError> {
    let head = ResourceHead::of(snapshot.resource)?;
    let Some(properties) = snapshot.properties else { return Err(head.unreadable(&"it has no properties")) };
    let source = properties.creation_data.source_resource_id.filter(|id| !id.is_empty());
    let is_partial = properties.completion_percent.is_some_and(|percent| percent < 100.0);
    let is_under_way = matches!(properties.provisioning_state.as_deref(), Some("Creating" | "Updating"));
    let detail = RelatedDetail::Snapshot {
        source: source.map(|id| head.id(&id)).transpose()?,
        in_progress: is_partial || is_under_way,
    };
    Ok(head.related(convert::timestamp(properties.time_created), detail))
}
