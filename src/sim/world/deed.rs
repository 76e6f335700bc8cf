//! Deeds: what can a scenario do to the world?
//!
//! Each deed is what users, Azure or bad luck do. Deeds are data, read from a scenario file.

use super::mischief::Mischief;
use super::timeline::Kind;
use super::{Violation, World};
use crate::cloud::{DiskDraft, Lasting, ListingFault, Shortage};
use crate::scenario::text;
use jiff::SignedDuration;
use napkeeper_core::catalog::{CapacityType, OfferingKey};
use napkeeper_core::cluster::cloud::{ResourceKind, Tags};
use napkeeper_core::cluster::pod::PodPhase;
use napkeeper_core::cluster::sweep::{Approval, Sweep, SweepMode};
use napkeeper_core::cluster::volume::{ReclaimPolicy, Volume};
use napkeeper_core::labels;
use napkeeper_core::names::{ArmId, ObjectKey, ObjectName, Uid, VmSize, Zone};
use napkeeper_core::orphans::Refusal;
use napkeeper_core::plan::{Pause, Switch};
use napkeeper_core::requirements::{Requirement, Requirements};
use serde::Deserialize;
use std::sync::Arc;

/// Something that happens to the world at a time.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Deed {
    /// A workload gets another number of replicas.
    Scale {
        /// Namespace and name.
        #[serde(deserialize_with = "text::key")]
        workload: ObjectKey,
        /// Replicas, or the parallelism of a Job.
        replicas: u32,
    },
    /// A suspended Job of the manifests is run once, under a name of its own.
    StartJob {
        /// Namespace and name.
        #[serde(deserialize_with = "text::key")]
        workload: ObjectKey,
    },
    /// A workload is deleted.
    Delete {
        /// Namespace and name.
        #[serde(deserialize_with = "text::key")]
        workload: ObjectKey,
    },
    /// Azure takes spot VMs back.
    EvictSpot {
        /// How many.
        count: usize,
    },
    /// Azure's quotas change.
    Quota {
        /// Cores at the full price of a VM family.
        #[serde(default)]
        family: Option<Arc<str>>,
        /// The capacity type whose regional quota it is, where no family is named.
        #[serde(default)]
        capacity_type: Option<CapacityType>,
        /// Cores; absent lifts the quota.
        #[serde(default)]
        cores: Option<u32>,
    },
    /// Azure refuses some offerings at once (`SkuNotAvailable`).
    Refuse(Scarce),
    /// Azure accepts some offerings and then finds no hardware (`AllocationFailed`).
    NoCapacity(Scarce),
    /// Azure answers 429 for a while.
    Throttle {
        /// For how long.
        #[serde(rename = "for", deserialize_with = "text::duration")]
        lasting: SignedDuration,
    },
    /// Azure answers 500 for a while.
    AzureDown {
        /// For how long.
        #[serde(rename = "for", deserialize_with = "text::duration")]
        lasting: SignedDuration,
    },
    /// The API server cannot be reached for a while.
    ApiServerDown {
        /// For how long.
        #[serde(rename = "for", deserialize_with = "text::duration")]
        lasting: SignedDuration,
    },
    /// The last page of Azure's listings cannot be read for a while.
    BrokenListing {
        /// For how long.
        #[serde(rename = "for", deserialize_with = "text::duration")]
        lasting: SignedDuration,
    },
    /// A NIC is left over from a NodeClaim that is gone: tagged with this cluster and the claim's UID.
    LeakNic {
        /// Its name.
        name: ObjectName,
    },
    /// Somebody runs a VM of their own in the group, with NIC and OS disk.
    ForeignVm {
        /// Its name.
        name: ObjectName,
    },
    /// A PersistentVolume with its disk.
    AddVolume {
        /// Its name; the disk has the same.
        name: ObjectName,
        /// The PersistentVolumeClaim that it is bound to.
        #[serde(default, deserialize_with = "text::some_key")]
        claim: Option<ObjectKey>,
        /// What becomes of the disk.
        reclaim: ReclaimPolicy,
        /// Size in GiB.
        size_gib: u32,
    },
    /// A PersistentVolume is removed with its finalizers: its disk stays behind.
    LoseVolume {
        /// Its name.
        name: ObjectName,
    },
    /// The API server loses NodeClaims, managed Nodes, PersistentVolumes and pods, as after a restore from an old backup.
    EmptyApiServer {},
    /// Somebody merges an approval of everything that waits for one.
    Approve {},
    /// Somebody merges `breaker.clearedAt`.
    ClearBreaker {},
    /// The pause switch is set.
    Pause {
        /// What is held back; an empty list lifts the pause.
        switches: Vec<Switch>,
    },
    /// Every OrphanSweep gets another mode.
    SweepMode {
        /// The mode.
        mode: SweepMode,
    },
    /// Somebody deletes a NodeClaim with kubectl.
    DeleteClaim {
        /// Which, counted in the order of names, modulo their number.
        nth: usize,
    },
    /// Somebody deletes a Node with kubectl.
    DeleteNode {
        /// Which managed Node, counted in the order of names, modulo their number.
        nth: usize,
    },
    /// Somebody makes a resource of ours theirs: all its tags change.
    TakeOver {
        /// Which resource, counted in the order of ids, modulo their number.
        nth: usize,
        /// Of this kind.
        kind: ResourceKind,
    },
    /// VMs leave NIC and OS disk behind when they are deleted, `deleteOption` or not.
    KeepChildren {
        /// From now on, or no longer.
        on: bool,
    },
    /// Listings spell some ids in capitals.
    ShoutingIds {
        /// From now on, or no longer.
        on: bool,
    },
    /// The group is another cluster's by its `managedBy`.
    Misdirect {
        /// From now on, or no longer.
        on: bool,
    },
    /// What only the search for faults does.
    #[serde(skip)]
    Mischief(Mischief),
    /// The controller crashes.
    Crash {
        /// It is down this long.
        #[serde(rename = "for", deserialize_with = "text::duration")]
        lasting: SignedDuration,
    },
}

/// Offerings that cannot be had, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scarce {
    /// Of this size; absent is any.
    #[serde(default)]
    pub size: Option<VmSize>,
    /// In this zone; absent is any.
    #[serde(default)]
    pub zone: Option<Zone>,
    /// Bought this way; absent is any.
    #[serde(default)]
    pub capacity_type: Option<CapacityType>,
    /// For how long; absent is for the next VM.
    #[serde(default, rename = "for", deserialize_with = "text::some_duration")]
    pub lasting: Option<SignedDuration>,
}

impl Deed {
    /// How the steps of a scenario file are called.
    pub const NAMES: [&str; 27] = [
        "scale",
        "startJob",
        "delete",
        "evictSpot",
        "quota",
        "refuse",
        "noCapacity",
        "throttle",
        "azureDown",
        "apiServerDown",
        "brokenListing",
        "leakNic",
        "foreignVm",
        "addVolume",
        "loseVolume",
        "emptyApiServer",
        "approve",
        "clearBreaker",
        "pause",
        "sweepMode",
        "deleteClaim",
        "deleteNode",
        "takeOver",
        "keepChildren",
        "shoutingIds",
        "misdirect",
        "crash",
    ];
}

impl Scarce {
    pub(crate) fn shortage(&self, now: jiff::Timestamp) -> Shortage {
        let lasting = self.lasting.map_or(Lasting::Times(1), |time| Lasting::Until(now + time));
        Shortage { size: self.size.clone(), zone: self.zone.clone(), capacity_type: self.capacity_type, lasting }
    }
}

impl World {
    /// Plays a deed now.
    pub(super) fn play(&mut self, deed: Deed) -> Result<(), Violation> {
        let now = self.now;
        match deed {
            Deed::Scale { workload, replicas } => {
                self.note(Kind::Scenario, &workload, format!("scaled to {replicas}"));
                self.cluster.scale(&workload, replicas, now);
            }
            Deed::StartJob { workload } => self.start_job(&workload),
            Deed::Delete { workload } => {
                self.note(Kind::Scenario, &workload, "deleted");
                self.cluster.delete_workload(&workload, now);
            }
            Deed::DeleteClaim { nth } => self.delete_claim(nth),
            Deed::DeleteNode { nth } => self.delete_node(nth),
            Deed::Pause { switches } => {
                let held: Vec<String> = switches.iter().map(|s| format!("{s:?}").to_lowercase()).collect();
                let text = if held.is_empty() { "lifted".to_owned() } else { format!("set for {}", held.join(", ")) };
                self.note(Kind::Scenario, "pause switch", text);
                self.cluster.set_pause(Pause::of(switches));
            }
            Deed::SweepMode { mode } => {
                self.note(Kind::Scenario, "sweeps", format!("mode {mode}"));
                self.edit_sweeps(|sweep| sweep.mode = mode);
            }
            Deed::ClearBreaker {} => {
                self.note(Kind::Scenario, "sweeps", format!("merged: breaker.clearedAt: {now}"));
                self.truth.unbereave();
                self.edit_sweeps(|sweep| sweep.breaker_cleared_at = Some(now));
            }
            Deed::Approve {} => self.approve(),
            Deed::EmptyApiServer {} => {
                self.note(
                    Kind::Scenario,
                    "API server",
                    "restored from an old backup: NodeClaims, Nodes and PersistentVolumes are gone",
                );
                self.truth.bereave(self.cloud.resources().values(), self.cluster.state());
                self.cluster.empty(now);
            }
            Deed::Crash { lasting } => {
                self.note(Kind::Controller, "controller", format!("crashed; back in {lasting:#}"));
                self.controller.crash(now + lasting);
            }
            Deed::AddVolume { name, claim, reclaim, size_gib } => self.add_volume(name, claim, reclaim, size_gib),
            Deed::LoseVolume { name } => {
                self.note(Kind::Scenario, &name, "the PersistentVolume is removed with its finalizers; its disk stays");
                self.cluster.lose_volume(&name, now);
            }
            Deed::Mischief(mischief) => self.play_mischief(mischief)?,
            other => self.play_in_azure(other),
        }
        Ok(())
    }

    fn start_job(&mut self, workload: &ObjectKey) {
        let Some(job) = self.suspended.get(workload).cloned() else { return };
        self.jobs_started += 1;
        let Ok(name) = ObjectName::new(format!("{}-{}", workload.name, self.jobs_started)) else { return };
        let key = ObjectKey { namespace: workload.namespace.clone(), name };
        self.note(Kind::Scenario, &key, "job started");
        self.cluster.apply_workload(key, job, self.now);
    }

    fn delete_claim(&mut self, nth: usize) {
        let names: Vec<_> = self.cluster.state().claims().iter().map(|(name, _)| name.clone()).collect();
        if let Some(name) = names.get(nth % names.len().max(1)) {
            self.note(Kind::Scenario, name, "somebody deletes the NodeClaim");
            self.cluster.delete_claim(name, self.now);
        }
    }

    fn delete_node(&mut self, nth: usize) {
        let managed = |n: &&Arc<napkeeper_core::cluster::node::Node>| n.label(labels::NODEPOOL).is_some();
        let names: Vec<_> = self.cluster.state().nodes().values().filter(managed).map(|n| n.name.clone()).collect();
        if let Some(name) = names.get(nth % names.len().max(1)) {
            self.note(Kind::Scenario, name, "somebody deletes the Node");
            self.cluster.delete_node(name, self.now);
        }
    }

    pub(super) fn edit_sweeps(&mut self, edit: impl Fn(&mut Sweep)) {
        let sweeps: Vec<Sweep> = self.cluster.state().sweeps().values().map(|s| Sweep::clone(s)).collect();
        for mut sweep in sweeps {
            edit(&mut sweep);
            self.cluster.apply_sweep(sweep);
        }
    }

    /// Approves what the reports say waits for an approval, for a week.
    fn approve(&mut self) {
        let expires_at = self.now + SignedDuration::from_hours(7 * 24);
        let waiting = self.waiting_for_approval();
        for (id, _) in &waiting {
            self.note(Kind::Scenario, id.name(), "merged: an approval of its deletion, valid for 7 days");
        }
        self.edit_sweeps(|sweep| {
            let fresh = |(id, incarnation): &(ArmId, Arc<str>)| Approval {
                id: id.clone(),
                incarnation: Arc::clone(incarnation),
                expires_at,
            };
            sweep.approvals.extend(waiting.iter().map(fresh));
        });
    }

    /// What the last reports say waits for an approval.
    pub(super) fn waiting_for_approval(&self) -> Vec<(ArmId, Arc<str>)> {
        let names = self.cluster.state().sweeps().iter().map(|(name, _)| name);
        names
            .filter_map(|name| self.cluster.report(name))
            .flat_map(|report| &report.findings)
            .filter(|f| f.refusals.contains(&Refusal::Approval))
            .map(|f| (f.id.clone(), Arc::clone(&f.incarnation)))
            .collect()
    }

    fn add_volume(&mut self, name: ObjectName, claim: Option<ObjectKey>, reclaim: ReclaimPolicy, size_gib: u32) {
        let zone = Zone::of(&self.catalog.region, 1);
        let draft = DiskDraft {
            name: name.text(),
            tags: Tags::from([(Arc::from("kubernetes.io-created-for-pv-name"), name.text())]),
            size_gib,
            sku: Arc::from("StandardSSD_LRS"),
            is_os: false,
            zone: Some(zone.clone()),
        };
        let Ok(disk) = self.cloud.add_disk(draft, self.now) else { return };
        if reclaim == ReclaimPolicy::Retain
            && let Some(resource) = self.cloud.resources().get(&disk)
        {
            let incarnation = Arc::clone(&resource.incarnation);
            self.truth.retain(&incarnation);
        }
        let Ok(uid) = Uid::new(format!("volume-{name}")) else { return };
        let mut affinity = Requirements::new();
        affinity.add(labels::ZONE, Requirement::any_of([zone.as_str()]));
        let bound = claim.as_ref().map_or("no claim".to_owned(), |c| format!("claim {c}"));
        self.note(
            Kind::Scenario,
            &name,
            format!("a {size_gib} GiB volume with reclaim policy {reclaim:?} for {bound}"),
        );
        let volume = Volume { name, uid, handle: Some(disk), reclaim, claim, affinity };
        self.cluster.apply_volume(volume, self.now);
    }

    fn play_in_azure(&mut self, deed: Deed) {
        let now = self.now;
        let faults = &mut self.cloud.faults;
        let told = match deed {
            Deed::Refuse(scarce) => {
                faults.refused.push(scarce.shortage(now));
                "refuses some sizes"
            }
            Deed::NoCapacity(scarce) => {
                faults.unallocatable.push(scarce.shortage(now));
                "has no hardware for some sizes"
            }
            Deed::Throttle { lasting } => {
                faults.throttled = Some((now + lasting, SignedDuration::from_secs(20)));
                "throttles"
            }
            Deed::AzureDown { lasting } => {
                faults.unavailable_until = Some(now + lasting);
                "fails"
            }
            Deed::BrokenListing { lasting } => {
                faults.listing = Some((now + lasting, ListingFault::BrokenPage));
                "breaks off its listings"
            }
            Deed::KeepChildren { on } => {
                faults.keep_children = on;
                if on { "leaves NICs and disks behind" } else { "cleans up again" }
            }
            Deed::ShoutingIds { on } => {
                faults.shouting_ids = on;
                "spells ids in another case"
            }
            Deed::ApiServerDown { lasting } => {
                self.cluster.unavailable(now + lasting);
                return self.note(Kind::Scenario, "API server", "cannot be reached");
            }
            Deed::Quota { family, capacity_type, cores } => return self.set_quota(family, capacity_type, cores),
            Deed::EvictSpot { count } => return self.evict_spot(count),
            Deed::LeakNic { name } => return self.leak_nic(&name),
            Deed::ForeignVm { name } => return self.add_foreign_vm(&name),
            Deed::TakeOver { nth, kind } => return self.take_over(nth, kind),
            Deed::Misdirect { on } => {
                let other = ArmId::new("/subscriptions/other/resourceGroups/other/providers/Microsoft.ContainerService/managedClusters/other").ok();
                let owner = if on { other } else { self.cloud.settings().managed_by.clone() };
                self.group_is_ours = !on;
                self.cloud.set_group_managed_by(owner);
                return self.note(Kind::Scenario, "node resource group", "its managedBy changes");
            }
            _ => return,
        };
        self.note(Kind::Scenario, "Azure", told);
    }

    fn set_quota(&mut self, family: Option<Arc<str>>, capacity_type: Option<CapacityType>, cores: Option<u32>) {
        let limits = &mut self.cloud.limits;
        let what = match (&family, capacity_type) {
            (Some(family), _) => {
                match cores {
                    Some(cores) => drop(limits.families.insert(Arc::clone(family), cores)),
                    None => drop(limits.families.remove(family)),
                }
                format!("family {family}")
            }
            (None, Some(CapacityType::Spot)) => {
                limits.spot = cores;
                "spot".to_owned()
            }
            (None, _) => {
                limits.regional = cores;
                "regional".to_owned()
            }
        };
        let text = cores.map_or("quota lifted".to_owned(), |n| format!("quota is {n} cores"));
        self.note(Kind::Scenario, what, text);
    }

    fn evict_spot(&mut self, count: usize) {
        let busy = |vm: &&ArmId| {
            let node = self.cluster.state().node_of(&napkeeper_core::names::ProviderId::of_vm(vm));
            let usage = node.and_then(|n| self.cluster.state().usage(&n.name));
            usage.is_some_and(|u| {
                u.pods.iter().filter_map(|k| self.cluster.state().pods().get(k)).any(|p| p.phase == PodPhase::Running)
            })
        };
        let spot: Vec<ArmId> = self
            .cloud
            .resources()
            .values()
            .filter(|r| super::invariants::capacity_type(r) == Some(CapacityType::Spot))
            .map(|r| r.id.clone())
            .collect();
        let mut chosen: Vec<ArmId> = spot.iter().filter(busy).take(count).cloned().collect();
        chosen.extend(
            spot.iter()
                .filter(|id| !chosen.contains(id))
                .take(count - chosen.len().min(count))
                .cloned()
                .collect::<Vec<_>>(),
        );
        for vm in chosen {
            if self.cloud.evict_spot(&vm, self.now).is_ok() {
                self.note(Kind::Scenario, vm.name(), "Azure gives notice of a spot eviction");
            }
        }
    }

    fn leak_nic(&mut self, name: &ObjectName) {
        let tag = |k: &str, v: &str| (Arc::from(k), Arc::from(v));
        let tags = Tags::from([
            tag(labels::TAG_CLUSTER, &self.settings.cluster.tag),
            tag(labels::TAG_CLAIM, "general-purpose-gone0"),
            tag(labels::TAG_CLAIM_UID, "0b5f8e0e-0000-4000-8000-00000000dead"),
        ]);
        if self.cloud.leak_nic(name.as_str(), tags, self.now).is_err() {
            return;
        }
        self.note(Kind::Scenario, name, "a NIC is left over from a NodeClaim that is gone");
    }

    fn add_foreign_vm(&mut self, name: &ObjectName) {
        let size =
            self.catalog.sizes.iter().find(|s| s.facts.vcpus == 4 && !s.zones.is_empty() && s.on_demand.is_some());
        let Some(size) = size else { return };
        let offering = OfferingKey {
            size: size.facts.name.clone(),
            zone: size.zones[0].clone(),
            capacity_type: CapacityType::OnDemand,
        };
        // The value of a tag names Karpenter's key: a text search would take it for ours.
        let tags = Tags::from([(Arc::from("copied-from"), Arc::from("karpenter.sh_nodepool"))]);
        if self.cloud.add_vm(name.as_str(), tags, &offering, self.now).is_err() {
            return;
        }
        for id in [self.cloud.vm_id(name.as_str()), self.cloud.nic_id(name.as_str()), self.cloud.disk_id(name.as_str())]
        {
            if let Some(resource) = self.cloud.resources().get(&id) {
                let incarnation = Arc::clone(&resource.incarnation);
                self.truth.set_foreign(&incarnation);
            }
        }
        self.note(Kind::Scenario, name, "somebody runs a VM of their own in the node resource group");
    }

    fn take_over(&mut self, nth: usize, kind: ResourceKind) {
        let of_kind: Vec<_> = self.cloud.resources().values().filter(|r| r.kind() == kind).cloned().collect();
        let Some(resource) = of_kind.get(nth % of_kind.len().max(1)) else { return };
        let tags = Tags::from([(Arc::from("owner"), Arc::from("somebody else"))]);
        if self.cloud.retag(&resource.id, tags, self.now).is_ok() {
            self.disown(&resource.id);
            self.note(Kind::Scenario, resource.id.name(), format!("somebody makes the {kind} theirs"));
        }
    }
}
