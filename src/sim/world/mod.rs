//! The world: what happens when the deciders look after a simulated cluster on a simulated Azure?
//!
//! [`World`] joins the two, runs a controller between them, plays a scenario's deeds at their times, and checks after
//! every step that no invariant is broken. It moves from one instant at which something happens to the next.

pub(crate) mod act;
mod books;
mod controller;
mod deed;
mod exchange;
mod invariants;
mod mischief;
mod orphans;
mod play;
mod play_azure;
mod port;
mod reasons;
mod start;
#[cfg(test)]
mod tests;
mod timeline;
mod truth;

use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::workload::Workload;
pub use books::{Books, Summary};
use controller::Keeper;
pub use controller::{Crash, Moment, When};
pub use deed::{Deed, Scarce};
pub use invariants::Violation;
use jiff::{SignedDuration, Timestamp};
pub use mischief::{Holder, Mischief};
use napkeeper_core::catalog::RegionCatalog;
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::azure::related::RelatedResource;
use napkeeper_core::model::names::{ArmId, ClaimName, ObjectKey, Uid};
use napkeeper_core::model::settings::{ControllerMode, Settings};
pub use orphans::{Collected, Kept, Orphans};
pub use port::{ArmPort, Direct};
pub use reasons::Bought;
pub use start::{Start, StartError};
pub(crate) use start::{furnish, identity, region_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use timeline::{Entry, Kind};
use truth::Truth;

/// Most rounds of one instant. More means that something runs in circles.
const MOST_ROUNDS: u32 = 2_000;

/// A cluster on Azure, and the controller that looks after it.
#[derive(Debug)]
pub struct World {
    settings: Settings,
    seed: u64,
    now: Timestamp,
    started_at: Timestamp,
    catalog: RegionCatalog,
    cloud: Cloud,
    /// The deciders' way to it.
    azure: Box<dyn ArmPort>,
    cluster: Cluster,
    controller: Keeper,
    truth: Truth,
    books: Books,
    timeline: Vec<Entry>,
    agenda: BTreeMap<(Timestamp, usize), Deed>,
    /// Jobs that a deed starts.
    suspended: BTreeMap<ObjectKey, Workload>,
    jobs_started: u32,
    /// UIDs of all NodeClaims that ever were.
    uids: BTreeMap<ClaimName, Uid>,
    /// How much of Azure's ledger has been read.
    ledger_read: usize,
    /// The group's `managedBy` is this cluster.
    group_is_ours: bool,
    /// It was when the last inventory was taken. Azure sets `managedBy` once, with the group: that it changes stands for
    /// a controller that is pointed at another group, and is judged by each inventory (clause 0).
    listed_as_ours: bool,
    /// When the scenario's faults are over: from then on, leaks must go in time.
    faults_end: Option<Timestamp>,
    /// Deeds that come between an inventory and what follows from it.
    races: Vec<Deed>,
    /// Machines, instances and snapshots that a mischief has put beside the group.
    beside: Vec<Arc<RelatedResource>>,
    /// Listings of what stands by break off before this time.
    bystanders_fail: Option<Timestamp>,
    /// Why pods have no place, as last told.
    told_waiting: BTreeSet<String>,
    /// Why each resource was kept, as last told.
    kept: BTreeMap<ArmId, String>,
    /// Why nodes were bought, where that is wanted.
    reasons: Option<reasons::Reasons>,
}

impl World {
    /// The virtual instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// When the world began.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// What has happened, oldest first.
    #[must_use]
    pub fn timeline(&self) -> &[Entry] {
        &self.timeline
    }

    /// The simulated Azure, to look at.
    #[must_use]
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The simulated cluster, to look at.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Lets effects on Azure and listings of it go this way from now on.
    pub fn set_arm_port(&mut self, port: Box<dyn ArmPort>) {
        self.azure = port;
    }

    /// Says when the faults are over: from then on, what is nobody's must go in time.
    pub fn expect_order_after(&mut self, faults_end: Timestamp) {
        self.faults_end = Some(faults_end);
    }

    /// Lets AKS count the nodes that are launched from now on.
    pub fn set_billing(&mut self, billing: bool) {
        self.settings.billing_extension = billing;
    }

    /// Puts the deciders beside managed NAP, or instead of it.
    pub fn set_mode(&mut self, mode: ControllerMode) {
        self.settings.mode = mode;
    }

    /// What the deciders may do.
    #[must_use]
    pub fn mode(&self) -> ControllerMode {
        self.settings.mode
    }

    /// Resources that are nobody's, by the world's own knowledge.
    #[must_use]
    pub fn dead_resources(&self) -> Vec<Arc<CloudResource>> {
        let dead = |r: &&Arc<CloudResource>| self.truth.standing(r, self.cluster.state()) == truth::Standing::Dead;
        self.cloud.resources().values().filter(dead).cloned().collect()
    }

    /// Plays a deed at a time from now on.
    pub fn plan_deed(&mut self, at: Timestamp, deed: Deed) {
        let place = self.agenda.len();
        self.agenda.insert((at.max(self.now), place), deed);
    }

    /// Lets the controller crash at some of its writes.
    pub fn plan_crashes(&mut self, crashes: impl IntoIterator<Item = Crash>) {
        self.controller.crashes.extend(crashes);
    }

    /// Runs until an instant.
    ///
    /// # Errors
    /// The first [`Violation`] of an invariant.
    pub fn run_until(&mut self, end: Timestamp) -> Result<(), Violation> {
        while let Some(next) = self.next_instant().filter(|at| *at <= end) {
            self.step(next)?;
        }
        self.pass_time(end.max(self.now));
        Ok(())
    }

    /// Runs until an instant, stopping now and then to tell how far it has come.
    ///
    /// # Errors
    /// The first [`Violation`] of an invariant.
    pub fn run_reporting(&mut self, end: Timestamp, mut tell: impl FnMut(Timestamp)) -> Result<(), Violation> {
        let slice = SignedDuration::from_secs(end.duration_since(self.now).as_secs() / 100 + 1);
        while self.now < end {
            let stop = self.now.saturating_add(slice).unwrap_or(end).min(end);
            self.run_until(stop)?;
            tell(self.now);
        }
        Ok(())
    }

    /// When something happens next.
    fn next_instant(&self) -> Option<Timestamp> {
        let deed = self.agenda.keys().next().map(|(at, _)| *at);
        let facts = self.reservations_due();
        [deed, facts, self.cloud.next_event(), self.cluster.next_event(), self.controller.next_wake()]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.max(self.now))
    }

    /// Plays everything that happens at one instant.
    fn step(&mut self, at: Timestamp) -> Result<(), Violation> {
        self.pass_time(at);
        while let Some(entry) = self.agenda.first_entry().filter(|e| e.key().0 <= at) {
            let deed = entry.remove();
            self.play(deed)?;
        }
        self.controller.restart_if_due(&self.cluster, at);
        for _ in 0..MOST_ROUNDS {
            self.cloud.advance(at);
            self.cluster.advance(at);
            let moved = self.exchange();
            let changed = self.watch();
            let decided = self.decide(changed);
            let acted = self.act()?;
            if !(moved || changed || decided || acted) {
                return self.check();
            }
        }
        Err(self.violation("busy-loop", format!("{MOST_ROUNDS} rounds at one instant")))
    }

    fn pass_time(&mut self, to: Timestamp) {
        self.books.pass(self.now, to);
        self.now = to;
    }
}
