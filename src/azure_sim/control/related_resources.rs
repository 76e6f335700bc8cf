//! Adds resources that refer to the group's VMs, NICs and disks: Machines, scale sets, snapshots, public IPs, frontends.

use super::ControlError;
use super::stage::valid_name;
use jiff::Timestamp;
use napkeeper_core::model::azure::cloud::{ProvisioningState, Tags};
use napkeeper_core::model::azure::related::{RelatedDetail, RelatedResource};
use napkeeper_core::model::names::ArmId;
use napkeeper_sim::cloud::{Cloud, Refusal};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// A new related resource.
#[derive(Debug)]
pub(super) enum RelatedDraft {
    /// A Machine of an agent pool.
    Machine(MachineDraft),
    /// An instance of a scale set.
    ScaleSetInstance(InstanceDraft),
    /// A snapshot, still being copied or complete.
    Snapshot(SnapshotDraft),
    /// A public IP.
    PublicIp(PublicIpDraft),
    /// A frontend of a load balancer.
    Frontend(FrontendDraft),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineDraft {
    pool: String,
    name: String,
    vm: Option<String>,
    #[serde(default)]
    tags: Tags,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InstanceDraft {
    set: String,
    instance: String,
    #[serde(default)]
    nics: u32,
    #[serde(default)]
    disks: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SnapshotDraft {
    name: String,
    disk: Option<String>,
    #[serde(default)]
    in_progress: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PublicIpDraft {
    name: String,
    address: Option<String>,
    used_by: Option<ArmId>,
    #[serde(default)]
    tags: Tags,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct FrontendDraft {
    balancer: String,
    name: String,
    public_ip: Option<String>,
    #[serde(default)]
    rules: u32,
    #[serde(default)]
    outbound_rules: u32,
    #[serde(default)]
    backends: u32,
}

impl RelatedDraft {
    /// Adds it; returns its id.
    pub(super) fn add(self, cloud: &mut Cloud, now: Timestamp) -> Result<ArmId, ControlError> {
        let (id, tags, role) = match self {
            Self::Machine(draft) => machine(cloud, draft)?,
            Self::ScaleSetInstance(draft) => instance(cloud, &draft)?,
            Self::Snapshot(SnapshotDraft { name, disk, in_progress }) => {
                let source = disk.map(|disk| valid_name(&disk).map(|disk| cloud.disk_id(disk))).transpose()?;
                let id = cloud.other_id("Microsoft.Compute/snapshots", valid_name(&name)?);
                (id, Tags::new(), RelatedDetail::Snapshot { source, in_progress })
            }
            Self::PublicIp(PublicIpDraft { name, address, used_by, tags }) => {
                let id = cloud.other_id("Microsoft.Network/publicIPAddresses", valid_name(&name)?);
                (id, tags, RelatedDetail::PublicIp { address: address.map(Arc::from), used_by })
            }
            Self::Frontend(draft) => frontend(cloud, &draft)?,
        };
        let has_no_time = matches!(role, RelatedDetail::PublicIp { .. } | RelatedDetail::LoadBalancerFrontend { .. });
        let created_at = (!has_no_time).then_some(now);
        Ok(cloud.add_related(RelatedResource { id, tags, created_at, detail: role }, now)?)
    }
}

type Parts = (ArmId, Tags, RelatedDetail);

fn machine(cloud: &Cloud, draft: MachineDraft) -> Result<Parts, ControlError> {
    let MachineDraft { pool, name, vm, tags } = draft;
    let id = cloud.machine_id(valid_name(&pool)?, valid_name(&name)?);
    let id = id.ok_or(ControlError::Conflict("the group belongs to no cluster"))?;
    let vm = vm.map(|vm| valid_name(&vm).map(|vm| cloud.vm_id(vm))).transpose()?;
    Ok((id, tags, RelatedDetail::AksMachine { vm, state: ProvisioningState::Succeeded }))
}

fn instance(cloud: &Cloud, draft: &InstanceDraft) -> Result<Parts, ControlError> {
    let path = format!("{}/virtualMachines/{}", valid_name(&draft.set)?, valid_name(&draft.instance)?);
    let id = cloud.other_id("Microsoft.Compute/virtualMachineScaleSets", &path);
    let nic = |n: u32| ArmId::new(format!("{id}/networkInterfaces/nic-{n}"));
    let nics = (0..draft.nics.min(8)).map(nic).collect::<Result<_, _>>()?;
    let disks = draft.disks.iter().map(|disk| valid_name(disk).map(|disk| cloud.disk_id(disk)));
    let role = RelatedDetail::ScaleSetInstance { nics, disks: disks.collect::<Result<_, _>>()? };
    Ok((id, Tags::new(), role))
}

fn frontend(cloud: &Cloud, draft: &FrontendDraft) -> Result<Parts, ControlError> {
    let FrontendDraft { balancer, name, public_ip, rules, outbound_rules, backends } = draft;
    let path = format!("{}/frontendIPConfigurations/{}", valid_name(balancer)?, valid_name(name)?);
    let id = cloud.other_id("Microsoft.Network/loadBalancers", &path);
    let ip = |ip: &String| valid_name(ip).map(|ip| cloud.other_id("Microsoft.Network/publicIPAddresses", ip));
    let role = RelatedDetail::LoadBalancerFrontend {
        public_ip: public_ip.as_ref().map(ip).transpose()?,
        rules: *rules,
        outbound_rules: *outbound_rules,
        backends: *backends,
    };
    Ok((id, Tags::new(), role))
}

/// Completes the copy of a snapshot.
pub(super) fn finish_snapshot(cloud: &mut Cloud, name: &str, now: Timestamp) -> Result<ArmId, ControlError> {
    let id = cloud.other_id("Microsoft.Compute/snapshots", valid_name(name)?);
    if cloud.related(&id).is_none() {
        return Err(Refusal::NotFound(id).into());
    }
    let finish = |one: &mut RelatedResource| {
        if let RelatedDetail::Snapshot { in_progress, .. } = &mut one.detail {
            *in_progress = false;
        }
    };
    cloud.change_related(&id, finish, now)?;
    Ok(id)
}

/// All related resources, as JSON.
pub(super) fn show(cloud: &Cloud) -> Value {
    let shown = cloud.related_resources().map(|one| json!({ "kind": one.detail.as_str(), "id": one.id.as_str() }));
    shown.collect()
}
