//! Draws the actions and faults of a history from its seed.

mod controller_faults;
mod delays;
mod disks;
mod external_edits;
mod failed_joins;
mod identities;
mod manual_deletions;
mod node_outages;
mod restores;
mod stale_reads;
mod sweep_edits;

use super::initial_objects::{budgets, class, pool, sweeps, workloads};
use super::{AFTERWARDS, FAULTS, Hazard};
use crate::cluster::ClusterListing;
use crate::random::Random;
use crate::workload::Workload;
use crate::world::{Action, Crash, InjectedFault, Manifests, ShortageSpec, SoleUser, WorldSetup};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::names::{Namespace, ObjectKey, ObjectName, Region};
use napkeeper_core::model::orphans::sweep::SweepMode;
use napkeeper_core::model::settings::{ControllerMode, DeletionRules, PauseSwitch};

/// A world with its faults.
#[derive(Debug, Clone)]
pub struct History {
    /// The initial state, and the actions with their times.
    pub setup: WorldSetup,
    /// At which writes the controller crashes.
    pub crashes: Vec<Crash>,
    /// Beside managed NAP, or instead of it.
    pub mode: ControllerMode,
    /// How long it lasts.
    pub duration: SignedDuration,
}

/// Draws actions at random times of the first hours.
struct HistoryBuilder {
    random: Random,
    actions: Vec<(SignedDuration, Action)>,
}

/// The history of a seed, with the hazard that it stresses.
#[must_use]
pub fn history(seed: u64) -> History {
    history_with(Hazard::of(seed), seed)
}

/// The history of a seed that stresses this hazard: which one a seed stresses changes with their number.
pub(super) fn history_with(hazard: Hazard, seed: u64) -> History {
    let mut history = HistoryBuilder { random: Random::of(seed, "history"), actions: Vec::new() };
    let workloads = workloads(&mut history.random);
    let actions = match hazard {
        Hazard::Shortages => 24,
        Hazard::ApiServerRestore => 0,
        _ => 6,
    };
    history.shortages(&workloads, actions);
    history.hazard(hazard);
    history.end_faults();
    let mode = if hazard == Hazard::Companion { ControllerMode::Companion } else { ControllerMode::Provisioner };
    let crashes = history.crashes(hazard);
    if hazard == Hazard::DataDisks && crashes.is_empty() {
        history.retained_at_the_end();
    }
    let sweeps = sweeps(hazard, &mut history.random);
    let setup = WorldSetup {
        region: known(Region::new("westeurope")),
        seed,
        at: Timestamp::from_second(1_785_736_800).unwrap_or_default(),
        manifests: Manifests {
            pools: vec![pool("general", 10, &["on-demand", "spot"], 160), pool("spot", 50, &["spot"], 48)],
            classes: vec![class()],
            sweeps,
            budgets: budgets(),
            workloads: if mode == ControllerMode::Companion { Vec::new() } else { workloads },
            ..Manifests::default()
        },
        system_nodes: 2,
        actions: history.actions,
        deletion_rules: DeletionRules::all(),
    };
    History { setup, crashes, mode, duration: FAULTS + AFTERWARDS }
}

/// Names here are constants that are good by their spelling.
#[expect(clippy::expect_used, reason = "constants of this file; a bad one would fail every seed")]
pub(super) fn known<T, E: std::fmt::Debug>(name: Result<T, E>) -> T {
    name.expect("a constant that is right")
}

pub(super) fn object(name: &str) -> ObjectName {
    known(ObjectName::new(name))
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey { namespace: known(Namespace::new("default")), name: object(name) }
}

impl HistoryBuilder {
    /// A time within the hours of faults, in whole seconds.
    fn random_time(&mut self) -> SignedDuration {
        SignedDuration::from_secs(
            i64::try_from(self.random.between(600, FAULTS.as_secs().unsigned_abs())).unwrap_or(600),
        )
    }

    fn add(&mut self, at: SignedDuration, action: Action) {
        self.actions.push((at, action));
    }

    fn inject(&mut self, at: SignedDuration, fault: InjectedFault) {
        self.add(at, Action::InjectFault(fault));
    }

    /// An index or a count.
    fn index(&mut self, least: u64, most: u64) -> usize {
        usize::try_from(self.random.between(least, most)).unwrap_or_default()
    }

    /// So that there are enough nodes to lose.
    fn many_nodes(&mut self) {
        for name in ["web", "api", "cache"] {
            self.add(SignedDuration::from_mins(5), Action::Scale { workload: key(name), replicas: 14 });
        }
    }

    /// How many of something.
    fn count(&mut self, least: u64, most: u64) -> u32 {
        u32::try_from(self.random.between(least, most)).unwrap_or(1)
    }

    fn seconds(&mut self, least: u64, most: u64) -> SignedDuration {
        SignedDuration::from_secs(i64::try_from(self.random.between(least, most)).unwrap_or(1))
    }

    fn minutes(&mut self, least: u64, most: u64) -> SignedDuration {
        SignedDuration::from_mins(i64::try_from(self.random.between(least, most)).unwrap_or(1))
    }

    /// Shortages, evictions, scaling and outages, in every history.
    fn shortages(&mut self, workloads: &[(ObjectKey, Workload)], actions: u64) {
        for _ in 0..actions {
            let at = self.random_time();
            let shortage =
                ShortageSpec { size: None, zone: None, capacity_type: None, duration: Some(self.minutes(5, 40)) };
            if self.random.one_in(12) {
                let (lag, duration) = (self.minutes(1, 15), self.minutes(10, 90));
                self.inject(at, InjectedFault::ListLag(lag));
                self.inject(at + duration, InjectedFault::ListLag(SignedDuration::ZERO));
            }
            let action = match self.random.between(0, 9) {
                0..=3 => {
                    let workload = self.random.pick(workloads).map_or_else(|| key("web"), |(key, _)| key.clone());
                    Action::Scale { workload, replicas: self.count(0, 14) }
                }
                4 => Action::EvictSpot { count: self.index(1, 3) },
                5 => Action::Refuse(ShortageSpec { capacity_type: Some(CapacityType::Spot), ..shortage }),
                6 => Action::NoCapacity(shortage),
                7 => Action::Quota { family: None, capacity_type: Some(CapacityType::Spot), cores: Some(8) },
                8 => Action::Throttle { duration: self.minutes(1, 20) },
                _ => Action::AzureDown { duration: self.minutes(1, 15) },
            };
            self.add(at, action);
        }
    }

    fn hazard(&mut self, hazard: Hazard) {
        match hazard {
            Hazard::Shortages => self.late_failures(),
            Hazard::Crashes => {
                self.manual_deletions();
                self.late_failures();
            }
            Hazard::Leaks => self.leaks(),
            Hazard::DataDisks => {
                self.data_disks();
                self.restored_disk();
                self.moved_volume();
            }
            Hazard::ForeignResources => self.foreign_resources(),
            Hazard::ApiServerRestore => self.api_server_restore(),
            Hazard::Outages => self.outages(),
            Hazard::ManualChanges => self.manual_changes(),
            Hazard::Races => self.races(),
            Hazard::Caps => self.caps(),
            Hazard::WrongGroup => self.wrong_group(),
            Hazard::Companion => {
                self.leaks();
                self.data_disks();
            }
            Hazard::ListingLag => self.listing_lag(),
            Hazard::NapGarbageCollection => self.nap_garbage_collection(),
            Hazard::RelatedResources => self.related_resources(),
            Hazard::NodeOutages => self.node_outages(),
            Hazard::FailedJoins => self.failed_joins(),
            Hazard::Identities => self.identities(),
            Hazard::PartialRestores => self.partial_restores(),
            Hazard::WatchLag => self.watch_lag(),
            Hazard::InterruptedWrites => self.interrupted_writes(),
            Hazard::ClockJumps => self.clock_jumps(),
            Hazard::LostEvents => self.lost_events(),
            Hazard::ExternalEdits => self.external_edits(),
            Hazard::Finalizers => self.finalizers(),
            Hazard::StaleReads => self.stale_reads(),
            Hazard::ClusterMaintenance => self.cluster_maintenance(),
            Hazard::NapEnabled => self.nap_enabled(),
        }
    }

    /// Managed NAP's collectors look every few minutes, at times right between our listing and our deletion.
    fn nap_garbage_collection(&mut self) {
        self.leaks();
        for i in 0..4 {
            let at = self.random_time();
            self.add(at, Action::LeakNic { name: object(&format!("shared-{i}")) });
            self.inject(at, InjectedFault::LeakDisk(object(&format!("shared-{i}"))));
        }
        for _ in 0..40 {
            let at = self.random_time();
            let racing = self.random.one_in(2);
            let janitor = InjectedFault::NapGarbageCollection { every_other: self.random.one_in(2) };
            let race = |action| InjectedFault::AfterNextInventory(Box::new(Action::InjectFault(action)));
            self.inject(at, if racing { race(janitor) } else { janitor });
        }
    }

    fn related_resources(&mut self) {
        self.leaks();
        for holder in SoleUser::ALL {
            let at = self.minutes(5, 300);
            self.inject(at, InjectedFault::UsedOnlyBy(object(&format!("held-{}", holder.as_str())), holder));
        }
        for _ in 0..3 {
            let (at, duration) = (self.random_time(), self.minutes(10, 300));
            self.inject(at, InjectedFault::FailRelatedListing(duration.min(FAULTS - at)));
        }
    }

    fn leaks(&mut self) {
        for (i, suffix) in ["one", "two", "three"].into_iter().enumerate() {
            let at = self.random_time();
            match i {
                0 => self.add(at, Action::LeakNic { name: object(&format!("leak-{suffix}")) }),
                1 => self.inject(at, InjectedFault::LeakDisk(object(&format!("leak-{suffix}")))),
                _ => self.inject(at, InjectedFault::LeakVm(object(&format!("leak-{suffix}")))),
            }
        }
        let at = self.random_time();
        self.add(at, Action::LeakNic { name: object("served") });
        self.inject(at + SignedDuration::from_mins(1), InjectedFault::ServeNic(object("served")));
        self.inject(at, InjectedFault::LeakDisk(object("copied")));
        self.inject(at + SignedDuration::from_mins(1), InjectedFault::CopyDisk(object("copied")));
        let on = self.random_time();
        self.add(on, Action::KeepChildren { on: true });
        let shouting = self.random_time();
        self.add(shouting, Action::ShoutingIds { on: true });
        self.add(FAULTS + SignedDuration::from_hours(2), Action::Approve {});
    }

    fn data_disks(&mut self) {
        let volume = |name: &str, claim: Option<&str>, reclaim| Action::AddVolume {
            name: object(name),
            claim: claim.map(key),
            reclaim,
            size_gib: 64,
        };
        let at = self.minutes(10, 60);
        self.add(at, volume("pvc-claimed", Some("data"), ReclaimPolicy::Delete));
        self.add(at, volume("pvc-retained", None, ReclaimPolicy::Retain));
        self.add(at, volume("pvc-lost", None, ReclaimPolicy::Delete));
        self.inject(at, InjectedFault::ForeignDisk(object("their-disk")));
        let lost = at + self.minutes(60, 600);
        self.add(lost, Action::LoseVolume { name: object("pvc-lost") });
        self.add(lost, Action::LoseVolume { name: object("pvc-retained") });
        for hours in [2, 30] {
            self.add(FAULTS + SignedDuration::from_hours(hours), Action::Approve {});
        }
    }

    fn foreign_resources(&mut self) {
        let at = self.random_time();
        self.add(at, Action::ForeignVm { name: object("bastion") });
        self.inject(at, InjectedFault::ForeignNic(object("their-nic")));
        self.inject(at, InjectedFault::ForeignDisk(object("their-disk")));
        // An unused VM with a disk that another owner uses: the first of its name, which is its disk.
        self.inject(SignedDuration::from_hours(1), InjectedFault::LeakVm(object("mixed")));
        self.inject(SignedDuration::from_mins(61), InjectedFault::TakeOver(object("mixed")));
        for kind in [ResourceKind::Nic, ResourceKind::OsDisk, ResourceKind::Vm] {
            let (at, nth) = (self.random_time(), self.index(0, 7));
            self.add(at, Action::TakeOver { nth, kind });
        }
        for nth in 0..8 {
            let at = self.random_time();
            self.add(at, Action::DeleteClaim { nth });
        }
        self.add(FAULTS + SignedDuration::from_hours(2), Action::Approve {});
    }

    fn api_server_restore(&mut self) {
        self.many_nodes();
        let at = self.minutes(120, 900);
        self.add(at, Action::EmptyApiServer {});
        self.add(at + SignedDuration::from_hours(2), Action::Approve {});
        self.settled_by_a_person();
    }

    fn outages(&mut self) {
        self.leaks();
        for _ in 0..6 {
            let (at, duration) = (self.random_time(), self.minutes(5, 120));
            let listed = *self.random.pick(&ClusterListing::ALL).unwrap_or(&ClusterListing::Claims);
            match self.random.between(0, 3) {
                0 => self.add(at, Action::ApiServerDown { duration: duration / 4 }),
                1 => self.add(at, Action::BrokenListing { duration: duration.min(FAULTS - at) }),
                _ => self.inject(at, InjectedFault::FailListing(listed, (duration * 2).min(FAULTS - at))),
            }
        }
    }

    fn manual_changes(&mut self) {
        self.leaks();
        self.actions.retain(|(_, action)| *action != Action::Approve {});
        self.add(SignedDuration::from_hours(1), Action::LeakNic { name: object("excluded") });
        let at = self.random_time();
        self.add(at, Action::Pause { switches: vec![PauseSwitch::Delete.into()], duration: None });
        let lifted = at + self.minutes(60, 400);
        self.add(lifted, Action::Pause { switches: Vec::new(), duration: None });
        let at = self.random_time();
        let switch = *self.random.pick(&[PauseSwitch::Launch, PauseSwitch::Disrupt]).unwrap_or(&PauseSwitch::Launch);
        self.add(at, Action::Pause { switches: vec![switch.into(), PauseSwitch::Delete.into()], duration: None });
        let at = self.random_time();
        self.add(at, Action::SweepMode { mode: SweepMode::Report });
        if self.random.one_in(2) {
            self.unreadable_sweep();
        }
        self.inject(FAULTS + SignedDuration::from_hours(1), InjectedFault::ApproveStale);
        self.add(FAULTS + SignedDuration::from_hours(20), Action::Approve {});
    }

    /// One race a seed: the cap allows only one deletion a day.
    fn races(&mut self) {
        if self.random.one_in(2) { self.race_for_a_tag() } else { self.race_for_a_volume() }
    }

    /// A resource becomes foreign at about the time when an inventory is the last proof against it.
    fn race_for_a_tag(&mut self) {
        let name = object("raced-nic");
        self.add(SignedDuration::from_hours(1), Action::LeakNic { name: name.clone() });
        let race = InjectedFault::AfterNextInventory(Box::new(Action::InjectFault(InjectedFault::TakeOver(name))));
        let about_when = self.minutes(88, 125);
        self.inject(about_when, race);
    }

    fn caps(&mut self) {
        for i in 0..6 {
            let at = self.minutes(30, 400);
            self.add(at, Action::LeakNic { name: object(&format!("leak-{i}")) });
        }
    }

    fn wrong_group(&mut self) {
        self.leaks();
        let at = self.minutes(10, 60);
        self.add(at, Action::Misdirect { on: true });
    }

    /// The faults end, so that everything can settle.
    fn end_faults(&mut self) {
        for capacity_type in CapacityType::FOR_SALE {
            self.add(FAULTS, Action::Quota { family: None, capacity_type: Some(capacity_type), cores: None });
        }
        self.inject(FAULTS, InjectedFault::ListLag(SignedDuration::ZERO));
        self.add(FAULTS, Action::KeepChildren { on: false });
        self.add(FAULTS, Action::ShoutingIds { on: false });
        self.add(FAULTS, Action::Misdirect { on: false });
        self.add(FAULTS, Action::Pause { switches: Vec::new(), duration: None });
        self.add(FAULTS, Action::SweepMode { mode: SweepMode::Collect });
    }
}
