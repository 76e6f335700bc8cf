//! Histories: which world, and which misfortunes, follow from a seed?

mod late;

use super::furniture::{class, pool, sweep, workloads};
use super::{AFTERWARDS, FAULTS, Theme};
use crate::chance::Chance;
use crate::cluster::Listed;
use crate::workload::Workload;
use crate::world::{Crash, Deed, Holder, Mischief, Moment, Scarce, Start, When};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::CapacityType;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::names::{Namespace, ObjectKey, ObjectName, Region};
use napkeeper_core::model::orphans::sweep::SweepMode;
use napkeeper_core::model::settings::{ControllerMode, DeletionRules, PauseSwitch};

/// A world and its misfortunes.
#[derive(Debug, Clone)]
pub struct History {
    /// How it begins, and what happens when.
    pub start: Start,
    /// At which writes the controller crashes.
    pub crashes: Vec<Crash>,
    /// Beside managed NAP, or instead of it.
    pub mode: ControllerMode,
    /// How long it lasts.
    pub lasting: SignedDuration,
}

/// Draws deeds at random times of the first hours.
struct Pen {
    chance: Chance,
    deeds: Vec<(SignedDuration, Deed)>,
}

/// The history of a seed.
#[must_use]
pub fn history(seed: u64) -> History {
    let theme = Theme::of(seed);
    let mut pen = Pen { chance: Chance::of(seed, "history"), deeds: Vec::new() };
    let workloads = workloads(&mut pen.chance);
    let deeds = match theme {
        Theme::Weather => 24,
        Theme::Restore => 0,
        _ => 6,
    };
    pen.weather(&workloads, deeds);
    pen.theme(theme);
    pen.mend();
    let mode = if theme == Theme::Companion { ControllerMode::Companion } else { ControllerMode::Provisioner };
    let crashes = pen.crashes(theme);
    let sweeps = vec![sweep(theme, &mut pen.chance)];
    let start = Start {
        region: known(Region::new("westeurope")),
        seed,
        at: Timestamp::from_second(1_785_736_800).unwrap_or_default(),
        pools: vec![pool("general", 10, &["on-demand", "spot"], 160), pool("spot", 50, &["spot"], 48)],
        classes: vec![class()],
        sweeps,
        daemon_sets: Vec::new(),
        workloads: if mode == ControllerMode::Companion { Vec::new() } else { workloads },
        overlays: Vec::new(),
        suspended: Vec::new(),
        budgets: Vec::new(),
        system_nodes: 2,
        deeds: pen.deeds,
        law: DeletionRules::all(),
    };
    History { start, crashes, mode, lasting: FAULTS + AFTERWARDS }
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

impl Pen {
    /// A time within the hours of faults, in whole seconds.
    fn sometime(&mut self) -> SignedDuration {
        SignedDuration::from_secs(
            i64::try_from(self.chance.between(600, FAULTS.as_secs().unsigned_abs())).unwrap_or(600),
        )
    }

    fn write(&mut self, at: SignedDuration, deed: Deed) {
        self.deeds.push((at, deed));
    }

    fn mischief(&mut self, at: SignedDuration, mischief: Mischief) {
        self.write(at, Deed::Mischief(mischief));
    }

    fn minutes(&mut self, least: u64, most: u64) -> SignedDuration {
        SignedDuration::from_mins(i64::try_from(self.chance.between(least, most)).unwrap_or(1))
    }

    /// What happens to everybody.
    fn weather(&mut self, workloads: &[(ObjectKey, Workload)], deeds: u64) {
        for _ in 0..deeds {
            let at = self.sometime();
            let scarce = Scarce { size: None, zone: None, capacity_type: None, lasting: Some(self.minutes(5, 40)) };
            if self.chance.one_in(12) {
                let (lag, lasting) = (self.minutes(1, 15), self.minutes(10, 90));
                self.mischief(at, Mischief::ListLag(lag));
                self.mischief(at + lasting, Mischief::ListLag(SignedDuration::ZERO));
            }
            let deed = match self.chance.between(0, 9) {
                0..=3 => {
                    let workload = self.chance.pick(workloads).map_or_else(|| key("web"), |(key, _)| key.clone());
                    Deed::Scale { workload, replicas: u32::try_from(self.chance.between(0, 14)).unwrap_or(1) }
                }
                4 => Deed::EvictSpot { count: usize::try_from(self.chance.between(1, 3)).unwrap_or(1) },
                5 => Deed::Refuse(Scarce { capacity_type: Some(CapacityType::Spot), ..scarce }),
                6 => Deed::NoCapacity(scarce),
                7 => Deed::Quota { family: None, capacity_type: Some(CapacityType::Spot), cores: Some(8) },
                8 => Deed::Throttle { lasting: self.minutes(1, 20) },
                _ => Deed::AzureDown { lasting: self.minutes(1, 15) },
            };
            self.write(at, deed);
        }
    }

    fn theme(&mut self, theme: Theme) {
        match theme {
            Theme::Weather => self.late_failures(),
            Theme::Crashes => {
                self.meddling();
                self.late_failures();
            }
            Theme::Leaks => self.leaks(),
            Theme::Disks => self.disks(),
            Theme::Neighbours => self.neighbours(),
            Theme::Restore => self.restore(),
            Theme::Outages => self.outages(),
            Theme::People => self.people(),
            Theme::Races => self.races(),
            Theme::Caps => self.caps(),
            Theme::Misdirected => self.misdirected(),
            Theme::Companion => {
                self.leaks();
                self.disks();
            }
            Theme::Lag => self.lag(),
            Theme::Janitor => self.janitor(),
            Theme::Graph => self.graph(),
        }
    }

    /// Managed NAP's collectors look every few minutes, at times right between our listing and our deletion.
    fn janitor(&mut self) {
        self.leaks();
        for i in 0..4 {
            let at = self.sometime();
            self.write(at, Deed::LeakNic { name: object(&format!("shared-{i}")) });
            self.mischief(at, Mischief::LeakDisk(object(&format!("shared-{i}"))));
        }
        for _ in 0..40 {
            let at = self.sometime();
            let racing = self.chance.one_in(2);
            let janitor = Mischief::Janitor { rarely: self.chance.one_in(2) };
            let race = |deed| Mischief::Race(Box::new(Deed::Mischief(deed)));
            self.mischief(at, if racing { race(janitor) } else { janitor });
        }
    }

    fn graph(&mut self) {
        self.leaks();
        for holder in Holder::ALL {
            let at = self.minutes(5, 300);
            self.mischief(at, Mischief::Hold(object(&format!("held-{}", holder.word())), holder));
        }
        for _ in 0..3 {
            let (at, lasting) = (self.sometime(), self.minutes(10, 300));
            self.mischief(at, Mischief::FailBystanders(lasting.min(FAULTS - at)));
        }
    }

    fn meddling(&mut self) {
        for _ in 0..8 {
            let (at, nth) = (self.sometime(), usize::try_from(self.chance.between(0, 9)).unwrap_or(0));
            let deed = if self.chance.one_in(3) { Deed::DeleteNode { nth } } else { Deed::DeleteClaim { nth } };
            self.write(at, deed);
            // New pods make new claims, and a claim that is deleted while it is launched is the hardest.
            let replicas = u32::try_from(self.chance.between(1, 14)).unwrap_or(1);
            let scaled =
                at.saturating_sub(SignedDuration::from_secs(i64::try_from(self.chance.between(2, 60)).unwrap_or(5)));
            self.write(scaled, Deed::Scale { workload: key("web"), replicas });
        }
    }

    fn leaks(&mut self) {
        for (i, place) in ["one", "two", "three"].into_iter().enumerate() {
            let at = self.sometime();
            match i {
                0 => self.write(at, Deed::LeakNic { name: object(&format!("leak-{place}")) }),
                1 => self.mischief(at, Mischief::LeakDisk(object(&format!("leak-{place}")))),
                _ => self.mischief(at, Mischief::LeakVm(object(&format!("leak-{place}")))),
            }
        }
        let at = self.sometime();
        self.write(at, Deed::LeakNic { name: object("served") });
        self.mischief(at + SignedDuration::from_mins(1), Mischief::ServeNic(object("served")));
        self.mischief(at, Mischief::LeakDisk(object("copied")));
        self.mischief(at + SignedDuration::from_mins(1), Mischief::CopyDisk(object("copied")));
        let on = self.sometime();
        self.write(on, Deed::KeepChildren { on: true });
        let shouting = self.sometime();
        self.write(shouting, Deed::ShoutingIds { on: true });
        self.write(FAULTS + SignedDuration::from_hours(2), Deed::Approve {});
    }

    fn disks(&mut self) {
        let volume = |name: &str, claim: Option<&str>, reclaim| Deed::AddVolume {
            name: object(name),
            claim: claim.map(key),
            reclaim,
            size_gib: 64,
        };
        let at = self.minutes(10, 60);
        self.write(at, volume("pvc-claimed", Some("data"), ReclaimPolicy::Delete));
        self.write(at, volume("pvc-retained", None, ReclaimPolicy::Retain));
        self.write(at, volume("pvc-lost", None, ReclaimPolicy::Delete));
        self.mischief(at, Mischief::ForeignDisk(object("their-disk")));
        let lost = at + self.minutes(60, 600);
        self.write(lost, Deed::LoseVolume { name: object("pvc-lost") });
        self.write(lost, Deed::LoseVolume { name: object("pvc-retained") });
        for hours in [2, 30] {
            self.write(FAULTS + SignedDuration::from_hours(hours), Deed::Approve {});
        }
    }

    fn neighbours(&mut self) {
        let at = self.sometime();
        self.write(at, Deed::ForeignVm { name: object("bastion") });
        self.mischief(at, Mischief::ForeignNic(object("their-nic")));
        self.mischief(at, Mischief::ForeignDisk(object("their-disk")));
        // A VM that nobody wants, with a part that somebody does: the first of its name, which is its disk.
        self.mischief(SignedDuration::from_hours(1), Mischief::LeakVm(object("mixed")));
        self.mischief(SignedDuration::from_mins(61), Mischief::TakeOver(object("mixed")));
        for kind in [ResourceKind::Nic, ResourceKind::OsDisk, ResourceKind::Vm] {
            let (at, nth) = (self.sometime(), usize::try_from(self.chance.between(0, 7)).unwrap_or(0));
            self.write(at, Deed::TakeOver { nth, kind });
        }
        for nth in 0..8 {
            let at = self.sometime();
            self.write(at, Deed::DeleteClaim { nth });
        }
        self.write(FAULTS + SignedDuration::from_hours(2), Deed::Approve {});
    }

    fn restore(&mut self) {
        // So that there are more than three VMs to lose.
        for name in ["web", "api", "cache"] {
            self.write(SignedDuration::from_mins(5), Deed::Scale { workload: key(name), replicas: 14 });
        }
        let at = self.minutes(120, 900);
        self.write(at, Deed::EmptyApiServer {});
        self.write(at + SignedDuration::from_hours(2), Deed::Approve {});
        let cleared = FAULTS + SignedDuration::from_hours(4);
        self.write(cleared, Deed::ClearBreaker {});
        for hours in 1..5 {
            self.write(cleared + SignedDuration::from_hours(hours * 12), Deed::Approve {});
        }
    }

    fn outages(&mut self) {
        self.leaks();
        for _ in 0..6 {
            let (at, lasting) = (self.sometime(), self.minutes(5, 120));
            let listed = *self.chance.pick(&Listed::ALL).unwrap_or(&Listed::Claims);
            match self.chance.between(0, 3) {
                0 => self.write(at, Deed::ApiServerDown { lasting: lasting / 4 }),
                1 => self.write(at, Deed::BrokenListing { lasting: lasting.min(FAULTS - at) }),
                _ => self.mischief(at, Mischief::FailListing(listed, (lasting * 2).min(FAULTS - at))),
            }
        }
    }

    fn people(&mut self) {
        self.leaks();
        self.deeds.retain(|(_, deed)| *deed != Deed::Approve {});
        self.write(SignedDuration::from_hours(1), Deed::LeakNic { name: object("excluded") });
        let at = self.sometime();
        self.write(at, Deed::Pause { switches: vec![PauseSwitch::Delete] });
        let lifted = at + self.minutes(60, 400);
        self.write(lifted, Deed::Pause { switches: Vec::new() });
        let at = self.sometime();
        let switch = *self.chance.pick(&[PauseSwitch::Launch, PauseSwitch::Disrupt]).unwrap_or(&PauseSwitch::Launch);
        self.write(at, Deed::Pause { switches: vec![switch, PauseSwitch::Delete] });
        let at = self.sometime();
        self.write(at, Deed::SweepMode { mode: SweepMode::Report });
        self.mischief(FAULTS + SignedDuration::from_hours(1), Mischief::ApproveStale);
        self.write(FAULTS + SignedDuration::from_hours(20), Deed::Approve {});
    }

    /// One race a seed: the cap lets only one resource go a day.
    fn races(&mut self) {
        if self.chance.one_in(2) { self.race_for_a_tag() } else { self.race_for_a_volume() }
    }

    /// Somebody takes over what an inventory has shown, about when that inventory is the last proof.
    fn race_for_a_tag(&mut self) {
        let name = object("raced-nic");
        self.write(SignedDuration::from_hours(1), Deed::LeakNic { name: name.clone() });
        let race = Mischief::Race(Box::new(Deed::Mischief(Mischief::TakeOver(name))));
        let about_when = self.minutes(88, 125);
        self.mischief(about_when, race);
    }

    /// A PersistentVolume is restored right before its disk's deletion is approved: the inventory is older than that.
    fn race_for_a_volume(&mut self) {
        let name = object("pvc-raced");
        let volume = Deed::AddVolume { name: name.clone(), claim: None, reclaim: ReclaimPolicy::Delete, size_gib: 64 };
        self.write(SignedDuration::from_mins(20), volume);
        self.write(SignedDuration::from_hours(3), Deed::LoseVolume { name: name.clone() });
        let approved = SignedDuration::from_hours(9);
        self.write(approved, Deed::Approve {});
        if self.chance.one_in(2) {
            self.mischief(approved - SignedDuration::from_secs(1), Mischief::RestoreVolume(name));
        }
    }

    fn caps(&mut self) {
        for i in 0..6 {
            let at = self.minutes(30, 400);
            self.write(at, Deed::LeakNic { name: object(&format!("leak-{i}")) });
        }
    }

    fn misdirected(&mut self) {
        self.leaks();
        let at = self.minutes(10, 60);
        self.write(at, Deed::Misdirect { on: true });
    }

    /// The faults end, so that everything can come to rest.
    fn mend(&mut self) {
        for capacity_type in CapacityType::FOR_SALE {
            self.write(FAULTS, Deed::Quota { family: None, capacity_type: Some(capacity_type), cores: None });
        }
        self.mischief(FAULTS, Mischief::ListLag(SignedDuration::ZERO));
        self.write(FAULTS, Deed::KeepChildren { on: false });
        self.write(FAULTS, Deed::ShoutingIds { on: false });
        self.write(FAULTS, Deed::Misdirect { on: false });
        self.write(FAULTS, Deed::Pause { switches: Vec::new() });
        self.write(FAULTS, Deed::SweepMode { mode: SweepMode::Collect });
    }

    fn crashes(&mut self, theme: Theme) -> Vec<Crash> {
        let number = match theme {
            Theme::Crashes => 12,
            Theme::Companion => 2,
            _ => self.chance.between(0, 3),
        };
        let mut crashes: Vec<Crash> = (0..number)
            .map(|_| Crash {
                at: Moment::Write(self.chance.between(0, 260)),
                when: if self.chance.one_in(2) { When::Before } else { When::After },
                down_for: SignedDuration::from_secs(i64::try_from(self.chance.between(1, 600)).unwrap_or(5)),
            })
            .collect();
        if theme == Theme::Caps {
            let when = [When::Before, When::After, When::After];
            crashes.extend(when.map(|when| Crash {
                at: Moment::SweepDelete,
                when,
                down_for: SignedDuration::from_secs(30),
            }));
        }
        crashes
    }
}
