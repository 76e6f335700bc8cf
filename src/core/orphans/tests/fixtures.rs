//! A small cluster for the tests of this folder: its listings, its records, and a way to let time pass.

use crate::catalog::{CapacityType, OfferingKey};
use crate::model::amounts::money::HourlyPrice;
use crate::model::amounts::resources::Resources;
use crate::model::azure::cloud::{
    CloudResource, Disk, DiskState, Nic, ProvisioningState, ResourceDetail, ResourceKind, Tags, Vm,
};
use crate::model::azure::inventory::{Inventory, Listing};
use crate::model::azure::naming::{DISK_TYPE, NIC_TYPE, VM_TYPE, resource_ids};
use crate::model::azure::related::{RelatedDetail, RelatedResource};
use crate::model::cluster::claim::{Claim, ClaimSpec, ClaimStatus, LaunchIntent, PlannedOffering};
use crate::model::cluster::node::Node;
use crate::model::cluster::volume::{ReclaimPolicy, Volume};
use crate::model::errors::{CloudError, CloudErrorCode, EffectError};
use crate::model::labels;
use crate::model::names::{
    ArmId, ClaimName, NodeClassName, NodeName, ObjectName, ProviderId, Region, Uid, VmSize, Zone,
};
use crate::model::orphans::finding::DeletionRefusal;
use crate::model::orphans::sweep::{Approval, Sweep, SweepMode};
use crate::model::settings::{ClusterIdentity, DeletionRule, DeletionRules, Settings};
use crate::orphans::{MarkScript, SweepDeleteScript, SweepMemory, apply, sweep};
use crate::plan::{
    CloudRequest, ClusterRead, ClusterWrite, Command, Effect, Plan, RecordChange, Reply, Script, Step, SweepDelete,
    SweepReport,
};
use crate::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const MINUTES: fn(i64) -> SignedDuration = SignedDuration::from_mins;
pub(crate) const HOURS: fn(i64) -> SignedDuration = SignedDuration::from_hours;

pub(crate) fn start() -> Timestamp {
    "2026-03-02T00:00:00Z".parse().unwrap()
}

pub(crate) fn group() -> ArmId {
    ArmId::new("/subscriptions/s/resourceGroups/MC_g").unwrap()
}

pub(crate) fn settings() -> Settings {
    Settings::new(ClusterIdentity {
        id: ArmId::new("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c")
            .unwrap(),
        tag_value: Arc::from("c-1"),
        node_resource_group: group(),
        region: Region::new("westeurope").unwrap(),
    })
}

/// Tags of resources that this cluster created for a claim.
pub(crate) fn tags(claim: &str, uid: &str) -> Tags {
    [(labels::TAG_CLUSTER, "c-1"), (labels::TAG_CLAIM, claim), (labels::TAG_CLAIM_UID, uid)]
        .map(|(k, v)| (Arc::from(k), Arc::from(v)))
        .into()
}

pub(crate) fn tag(key: &str, value: &str) -> (Arc<str>, Arc<str>) {
    (Arc::from(key), Arc::from(value))
}

fn resource(kind: &str, name: &str, tags: Tags, detail: ResourceDetail) -> CloudResource {
    CloudResource {
        id: group().resource(kind, name),
        incarnation: Arc::from(format!("{name}-1")),
        tags,
        created_at: Some(start() - HOURS(1000)),
        zone: None,
        detail,
    }
}

pub(crate) fn nic(name: &str, tags: Tags) -> CloudResource {
    let detail = Nic { vm: None, serves: None, addresses: 1, subnet: None };
    resource(NIC_TYPE, name, tags, ResourceDetail::Nic(detail))
}

/// A NIC of this cluster whose NodeClaim is deleted.
pub(crate) fn gone_nic(name: &str) -> CloudResource {
    nic(name, tags("gone", "uid-gone"))
}

pub(crate) fn vm(name: &str, tags: Tags) -> CloudResource {
    let detail = Vm {
        size: VmSize::new("Standard_D4s_v5").unwrap(),
        capacity_type: CapacityType::OnDemand,
        state: ProvisioningState::Succeeded,
        nics: Vec::new(),
        os_disk: None,
        data_disks: Vec::new(),
        image: None,
    };
    resource(VM_TYPE, name, tags, ResourceDetail::Vm(detail))
}

fn disk(name: &str, tags: Tags, is_os: bool) -> CloudResource {
    let detail = Disk {
        is_os,
        size_gib: 128,
        sku: Arc::from("Premium_LRS"),
        state: DiskState::Unattached,
        managed_by: Vec::new(),
        max_shares: 1,
        last_ownership_update: None,
    };
    resource(DISK_TYPE, name, tags, ResourceDetail::Disk(detail))
}

pub(crate) fn os_disk(name: &str, tags: Tags) -> CloudResource {
    disk(name, tags, true)
}

pub(crate) fn data_disk(name: &str) -> CloudResource {
    disk(name, Tags::new(), false)
}

/// An orphaned VM of this cluster, with its NIC and OS disk.
pub(crate) fn lone_vm(name: &str) -> [CloudResource; 3] {
    let of_deleted_claim = || tags("gone", "uid-gone");
    let (mut machine, mut card, mut boot) = (
        vm(name, of_deleted_claim()),
        nic(&format!("{name}-nic"), of_deleted_claim()),
        os_disk(&format!("{name}-os"), of_deleted_claim()),
    );
    as_vm(&mut machine).nics = vec![card.id.clone()];
    as_vm(&mut machine).os_disk = Some(boot.id.clone());
    as_nic(&mut card).vm = Some(machine.id.clone());
    as_disk(&mut boot).state = DiskState::Attached;
    as_disk(&mut boot).managed_by = vec![machine.id.clone()];
    [machine, card, boot]
}

pub(crate) fn as_disk(resource: &mut CloudResource) -> &mut Disk {
    match &mut resource.detail {
        ResourceDetail::Disk(disk) => disk,
        other => panic!("no disk: {other:?}"),
    }
}

pub(crate) fn as_nic(resource: &mut CloudResource) -> &mut Nic {
    match &mut resource.detail {
        ResourceDetail::Nic(nic) => nic,
        other => panic!("no NIC: {other:?}"),
    }
}

pub(crate) fn as_vm(resource: &mut CloudResource) -> &mut Vm {
    match &mut resource.detail {
        ResourceDetail::Vm(vm) => vm,
        other => panic!("no VM: {other:?}"),
    }
}

pub(crate) fn claim(name: &str, uid: &str) -> Claim {
    let name = ClaimName::new(name).unwrap();
    Claim {
        uid: Uid::new(uid).unwrap(),
        created_at: start() - HOURS(1000),
        deleting_at: None,
        termination_at: None,
        owned_by_pool: false,
        has_finalizer: true,
        spec: ClaimSpec::of_class(NodeClassName::new("default").unwrap()),
        intent: None,
        status: ClaimStatus::default(),
        name,
    }
}

pub(crate) fn intent(vm: &ArmId, nic: &ArmId, os_disk: &ArmId) -> LaunchIntent {
    LaunchIntent {
        offering: PlannedOffering {
            key: OfferingKey {
                size: VmSize::new("Standard_D4s_v5").unwrap(),
                zone: Zone::regional(),
                capacity_type: CapacityType::OnDemand,
            },
            price: HourlyPrice::ZERO,
        },
        vm: vm.clone(),
        nic: nic.clone(),
        os_disk: os_disk.clone(),
        machine: None,
        reservation: None,
        written_at: start(),
        refused: 0,
        operation: None,
    }
}

pub(crate) fn node(name: &str, vm: &ArmId) -> Node {
    Node {
        name: NodeName::new(name).unwrap(),
        uid: Uid::new(format!("node-{name}")).unwrap(),
        provider_id: Some(ProviderId::of_vm(vm)),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        capacity: Resources::default(),
        allocatable: Resources::default(),
        ready: true,
        ready_since: start(),
        created_at: start(),
        deleting_at: None,
        cordoned: false,
        has_finalizer: false,
        kubelet_version: None,
        do_not_disrupt: false,
        conditions: Vec::new(),
    }
}

pub(crate) fn volume(name: &str, disk: &CloudResource, reclaim: ReclaimPolicy) -> Volume {
    Volume {
        name: ObjectName::new(name).unwrap(),
        uid: Uid::new(format!("pv-{name}")).unwrap(),
        handle: Some(disk.id.clone()),
        reclaim,
        claim: None,
        affinity: Vec::new(),
        driver: None,
        deleting: false,
    }
}

pub(crate) fn a_sweep() -> Sweep {
    Sweep {
        name: ObjectName::new("all").unwrap(),
        uid: Uid::new("sweep").unwrap(),
        inventory_interval: MINUTES(10),
        schedule: None,
        mode: SweepMode::Collect,
        kinds: ResourceKind::ALL.into(),
        minimum_age: BTreeMap::new(),
        approval_required: [ResourceKind::Vm, ResourceKind::DataDisk].into(),
        cap: None,
        exclusions: Vec::new(),
        approvals: Vec::new(),
        breaker_cleared_at: None,
        generation: None,
    }
}

/// The cluster: three nodes of three claims and a system node, all well, and whatever a test adds.
pub(crate) struct SweepWorld {
    pub(crate) settings: Settings,
    pub(crate) sweep: Sweep,
    pub(crate) inventory: Inventory,
    pub(crate) snapshot: Snapshot,
    pub(crate) memory: SweepMemory,
    pub(crate) now: Timestamp,
    /// Everything that was decided to be deleted, with the time.
    pub(crate) deleted: Vec<(Timestamp, SweepDelete)>,
    pub(crate) report: Option<SweepReport>,
    /// Why deletions were aborted right before the DELETE.
    pub(crate) aborted: Vec<DeletionRefusal>,
    /// Azure's error for a DELETE, by name.
    pub(crate) refusing: BTreeMap<String, CloudErrorCode>,
    /// Marks are added to and removed from listed resources.
    pub(crate) tagging: bool,
    /// Names of attempted deletions.
    pub(crate) tried: Vec<String>,
    /// Records are not written.
    pub(crate) records_lost: bool,
    /// The actual resources in Azure, where a listing lags.
    pub(crate) actual: Option<Vec<Arc<CloudResource>>>,
}

/// A world that collects every kind without approval.
pub(crate) fn eager_world() -> SweepWorld {
    let mut world = SweepWorld::new();
    world.sweep.approval_required.clear();
    world
}

/// A world with many owned resources, so that the cap is high, with the breaker closed and everything approved.
pub(crate) fn wide_world() -> SweepWorld {
    let mut world = SweepWorld::new();
    world.settings.deletion_rules = DeletionRules::without_in_tests(&[DeletionRule::Breaker]);
    world.sweep.approval_required.clear();
    for n in 4..=140 {
        world.add_claim(&format!("live-{n}"), &format!("uid-{n}"));
    }
    world
}

fn find<T>(rows: &Listing<T>, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
    rows.as_ref().unwrap().iter().find(|row| wanted(row)).cloned()
}

impl SweepWorld {
    pub(crate) fn new() -> Self {
        let settings = settings();
        let mut world = Self {
            inventory: Inventory {
                started_at: start(),
                finished_at: start(),
                group_managed_by: Ok(Some(settings.cluster.id.clone())),
                resources: Ok(Vec::new()),
                related: Ok(Vec::new()),
                claims: Ok(Vec::new()),
                nodes: Ok(Vec::new()),
                volumes: Ok(Vec::new()),
                attachments: Ok(Vec::new()),
                disk_uses: Ok(Vec::new()),
            },
            settings,
            sweep: a_sweep(),
            snapshot: Snapshot::default(),
            memory: SweepMemory::default(),
            now: start(),
            deleted: Vec::new(),
            report: None,
            aborted: Vec::new(),
            refusing: BTreeMap::new(),
            tagging: false,
            tried: Vec::new(),
            records_lost: false,
            actual: None,
        };
        let system = group().resource("Microsoft.Compute/virtualMachineScaleSets", "system/virtualMachines/0");
        world.nodes().push(Arc::new(node("system-0", &system)));
        for n in 1..=3 {
            world.add_claim(&format!("live-{n}"), &format!("uid-{n}"));
        }
        world
    }

    /// A claim with its node, VM, NIC and OS disk.
    pub(crate) fn add_claim(&mut self, name: &str, uid: &str) {
        let mut claim = claim(name, uid);
        let ids = resource_ids(&group(), &claim.name);
        claim.intent = Some(intent(&ids.vm, &ids.nic, &ids.os_disk));
        let full = format!("aks-{name}");
        self.nodes().push(Arc::new(node(&full, &ids.vm)));
        let mut machine = vm(&full, tags(name, uid));
        as_vm(&mut machine).nics = vec![ids.nic];
        as_vm(&mut machine).os_disk = Some(ids.os_disk);
        let mut card = nic(&full, tags(name, uid));
        as_nic(&mut card).vm = Some(ids.vm.clone());
        let mut boot = os_disk(&full, tags(name, uid));
        as_disk(&mut boot).state = DiskState::Attached;
        as_disk(&mut boot).managed_by = vec![ids.vm];
        self.claims().push(Arc::new(claim));
        for resource in [machine, card, boot] {
            self.add(resource);
        }
    }

    pub(crate) fn add(&mut self, resource: CloudResource) {
        self.inventory.resources.as_mut().unwrap().push(Arc::new(resource));
    }

    pub(crate) fn claims(&mut self) -> &mut Vec<Arc<Claim>> {
        self.inventory.claims.as_mut().unwrap()
    }

    pub(crate) fn nodes(&mut self) -> &mut Vec<Arc<Node>> {
        self.inventory.nodes.as_mut().unwrap()
    }

    pub(crate) fn add_related(&mut self, role: RelatedDetail, kind: &str, name: &str, tags: Tags) {
        let id = group().resource(kind, name);
        let other = RelatedResource { id, tags, created_at: Some(start() - HOURS(1000)), detail: role };
        self.inventory.related.as_mut().unwrap().push(Arc::new(other));
    }

    pub(crate) fn volumes(&mut self) -> &mut Vec<Arc<Volume>> {
        self.inventory.volumes.as_mut().unwrap()
    }

    /// Lets a volume of this disk be seen, and then go.
    pub(crate) fn had_volume(&mut self, name: &str, disk: &CloudResource, reclaim: ReclaimPolicy) {
        self.volumes().push(Arc::new(volume(name, disk, reclaim)));
        self.observe();
        self.volumes().pop();
        self.now += MINUTES(1);
    }

    pub(crate) fn approve(&mut self, resource: &CloudResource) {
        self.sweep.approvals.push(Approval {
            id: resource.id.clone(),
            incarnation: Arc::clone(&resource.incarnation),
            expires_at: self.now + HOURS(13 * 24),
        });
    }

    /// One pass of the decider; its records are written.
    pub(crate) fn decide(&mut self) -> Plan {
        self.snapshot.put_sweep(self.sweep.name.clone(), self.sweep.clone());
        let plan = sweep(&self.snapshot, &mut self.memory, &self.settings, self.now);
        for planned in &plan.commands {
            match &planned.command {
                Command::WriteRecords(change) => self.write((**change).clone()),
                Command::SweepDelete(delete) => self.execute((**delete).clone()),
                Command::ReportSweep(report) => self.report = Some((**report).clone()),
                Command::Mark { resource, first_seen } if self.tagging => {
                    self.tag(MarkScript::mark(resource, *first_seen));
                }
                Command::Unmark { resource } if self.tagging => self.tag(MarkScript::unmark(resource)),
                _ => {}
            }
        }
        plan
    }

    /// Runs the script of a deletion against the actual world, which may differ from the listing.
    fn execute(&mut self, delete: SweepDelete) {
        let mut script = SweepDeleteScript::new(delete.clone(), &self.settings);
        let mut reply = None;
        loop {
            let effect = match script.step(reply.take(), self.now) {
                Step::Perform(effect) => *effect,
                Step::Wait(_) => continue,
                Step::End(report) => {
                    self.memory.record(&report);
                    return self.aborted.extend(report.abort_reason);
                }
            };
            if let Effect::Cloud(CloudRequest::Delete(id, _)) = &effect {
                self.tried.push(id.name().to_owned());
                if let Some(code) = self.refusing.get(id.name()) {
                    let error = CloudError::new(*code, "no");
                    reply = Some(Err(EffectError::Cloud(error)));
                    continue;
                }
            }
            let inventory = &mut self.inventory;
            reply = Some(Ok(match effect {
                Effect::Cloud(CloudRequest::Get(id)) => Reply::Resource(match &self.actual {
                    Some(actual) => actual.iter().find(|r| r.id == id).cloned(),
                    None => find(&inventory.resources, |r| r.id == id),
                }),
                Effect::Read(ClusterRead::Claim(name)) => Reply::Claim(find(&inventory.claims, |c| c.name == name)),
                Effect::Read(ClusterRead::Node(vm)) => {
                    Reply::Node(find(&inventory.nodes, |n| n.provider_id.as_ref() == Some(&vm)))
                }
                Effect::Read(ClusterRead::Volume(name)) => Reply::Volume(find(&inventory.volumes, |v| v.name == name)),
                Effect::Cluster(ClusterWrite::WriteRecords(change)) => {
                    self.write(*change);
                    Reply::Done
                }
                Effect::Cloud(CloudRequest::Delete(id, _)) => {
                    inventory.resources.as_mut().unwrap().retain(|r| r.id != id);
                    self.deleted.push((self.now, delete.clone()));
                    Reply::Done
                }
                other => panic!("a sweep delete does no {other:?}"),
            }));
        }
    }

    /// Changes the tags of listed resources; a name that Azure refuses is refused here too.
    fn tag(&mut self, mut script: MarkScript) {
        let Step::Perform(look) = script.step(None, self.now) else { return };
        let Effect::Cloud(CloudRequest::Get(id)) = *look else { panic!("no look before a mark: {look:?}") };
        let current = match &self.actual {
            Some(actual) => actual.iter().find(|r| r.id == id).cloned(),
            None => find(&self.inventory.resources, |r| r.id == id),
        };
        let effect = match script.step(Some(Ok(Reply::Resource(current))), self.now) {
            Step::Perform(effect) => effect,
            Step::End(report) => return self.memory.record(&report),
            Step::Wait(_) => panic!("a mark does not wait"),
        };
        let (id, change): (&ArmId, &dyn Fn(&mut Tags)) = match &*effect {
            Effect::Cloud(CloudRequest::Tag(id, tags)) => (id, &|all: &mut Tags| all.extend(tags.clone())),
            Effect::Cloud(CloudRequest::Untag(id, tags)) => {
                (id, &|all: &mut Tags| all.retain(|k, v| tags.get(k) != Some(v)))
            }
            other => panic!("no tagging: {other:?}"),
        };
        let refused = self.refusing.get(id.name());
        let reply = match refused {
            Some(code) => Err(EffectError::Cloud(CloudError::new(*code, "no"))),
            None => {
                for resource in self.inventory.resources.as_mut().unwrap().iter_mut().filter(|r| r.id == *id) {
                    change(&mut Arc::make_mut(resource).tags);
                }
                Ok(Reply::Done)
            }
        };
        let Step::End(report) = script.step(Some(reply), self.now) else { panic!("a mark is one write") };
        self.memory.record(&report);
    }

    pub(crate) fn pass(&mut self) {
        drop(self.decide());
    }

    fn write(&mut self, change: RecordChange) {
        if self.records_lost {
            return;
        }
        apply(Arc::make_mut(&mut self.snapshot.records), change);
    }

    /// Takes an inventory now, lets it be recorded, and lets the decider act on it.
    pub(crate) fn observe(&mut self) {
        self.observe_without_apply();
        self.pass();
    }

    /// Takes an inventory now and lets it be recorded, no more.
    pub(crate) fn observe_without_apply(&mut self) {
        self.inventory.started_at = self.now;
        self.inventory.finished_at = self.now;
        self.snapshot.inventory = Some(Arc::new(self.inventory.clone()));
        self.pass();
    }

    /// Observes every ten minutes, from now to the end of this time.
    pub(crate) fn run(&mut self, time: SignedDuration) {
        let end = self.now + time;
        self.observe();
        while self.now < end {
            self.now += MINUTES(10);
            self.observe();
        }
    }

    pub(crate) fn deleted_names(&self) -> Vec<&str> {
        self.deleted.iter().map(|(_, d)| d.resource.id.name()).collect()
    }

    /// The refusals of a resource in the last report.
    pub(crate) fn refusals(&self, name: &str) -> Vec<DeletionRefusal> {
        let report = self.report.as_ref().unwrap();
        let finding = report.findings.iter().find(|f| f.id.name() == name);
        finding.map(|f| f.refusals.clone()).unwrap_or_default()
    }

    /// Forgets all that a crash forgets.
    pub(crate) fn crash(&mut self) {
        self.memory = SweepMemory::default();
        self.snapshot.inventory = None;
        self.snapshot.in_progress = BTreeSet::new();
    }
}
