//! A controller that manages a simulated cluster on a simulated Azure.
//!
//! [`World`] joins the two, runs a controller between them, plays a scenario's actions at their times, and checks after
//! every step that no invariant is broken. It moves from one instant at which something happens to the next.

mod accounting;
pub(crate) mod actions;
pub(crate) mod controller;
mod events;
mod invariants;
mod orphan_summary;
mod setup;
#[cfg(test)]
mod tests;
mod timeline;

use crate::cloud::Cloud;
use crate::cluster::Cluster;
use crate::workload::SuspendedJobs;
pub(crate) use accounting::NewVm;
pub use accounting::{Accounting, Summary};
use actions::InjectedState;
pub(crate) use actions::LoadTargets;
pub use actions::{
    Action, ControllerFault, ExternalEdit, FaultyNodes, FinalizerFault, IdentityFault, InjectedFault, IntentEdit,
    NodeFault, OtherImage, RestoreFault, ShortageSpec, SoleUser, TagEdit,
};
pub use controller::{
    AzureAccess, ChoosesNodes, Crash, CrashPoint, DirectAccess, Freeze, LaunchReason, WatchedKind, WriteSide,
};
use controller::{LaunchReasons, SimulatedController};
use invariants::GroundTruth;
pub use invariants::Violation;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::{InstanceTypeOptions, RegionCatalog};
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::cluster::node_base::NodeBase;
use napkeeper_core::model::settings::{ControllerMode, Settings};
pub use orphan_summary::{CollectedOrphan, OrphanSummary, RetainedResource};
pub use setup::{Manifests, SetupError, WorldSetup};
pub(crate) use setup::{identity, install_objects, region_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use timeline::Timeline;
pub use timeline::{EventKind, TimelineEntry};

/// Most rounds of one instant. More means an endless loop.
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
    /// How the controller reaches it.
    azure: Box<dyn AzureAccess>,
    cluster: Cluster,
    controller: SimulatedController,
    truth: GroundTruth,
    accounting: Accounting,
    timeline: Timeline,
    /// Actions by their time, then in the order in which they were scheduled.
    agenda: BTreeMap<(Timestamp, u64), Action>,
    /// How many have ever been scheduled.
    scheduled: u64,
    jobs: SuspendedJobs,
    injected: InjectedState,
    /// The version of the kubelet of nodes that join.
    kubelet_version: Arc<str>,
    /// What chooses the nodes for pods that wait, if it is not napkeeper.
    provisioner: Option<Box<dyn ChoosesNodes>>,
    /// Why nodes were launched, where that is wanted.
    launch_reasons: Option<LaunchReasons>,
}

impl World {
    /// The control plane has this version from now on.
    fn set_control_plane_version(&mut self, version: Arc<str>) {
        let base = NodeBase { kubernetes_version: Some(version), ..NodeBase::default() };
        self.controller.inner.set_node_base(Arc::new(base));
    }

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

    /// The timeline, oldest first.
    #[must_use]
    pub fn timeline(&self) -> &[TimelineEntry] {
        self.timeline.entries()
    }

    /// The simulated Azure.
    #[must_use]
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The simulated cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Sets how the controller reaches Azure from now on.
    pub fn set_azure_access(&mut self, access: Box<dyn AzureAccess>) {
        self.azure = access;
    }

    /// Sets when the faults are over: from then on, unused resources must be deleted in time.
    pub fn set_faults_end(&mut self, faults_end: Timestamp) {
        self.injected.faults_end = Some(faults_end);
    }

    /// Bills nodes launched from now on by AKS's extension.
    pub fn set_billing(&mut self, billing: bool) {
        self.settings.billing_extension = billing;
    }

    /// Sets what nodes count beside their VM, before anything is planned.
    pub fn set_node_options(&mut self, options: InstanceTypeOptions) {
        self.controller.options = options;
    }

    /// Lets something else choose the nodes for pods that wait.
    pub fn set_provisioner(&mut self, provisioner: Box<dyn ChoosesNodes>) {
        self.provisioner = Some(provisioner);
    }

    /// Runs the controller beside managed NAP, or instead of it.
    pub fn set_mode(&mut self, mode: ControllerMode) {
        self.settings.mode = mode;
    }

    /// The mode of the controller.
    #[must_use]
    pub fn mode(&self) -> ControllerMode {
        self.settings.mode
    }

    /// Resources that nothing uses, by the world's own knowledge. What a launch intent names counts as used, and so does
    /// what a user has given other tags.
    #[must_use]
    pub fn unused_resources(&self) -> Vec<Arc<CloudResource>> {
        let cluster = self.cluster.state();
        let named = invariants::named_by_intents(cluster);
        let dead = |r: &&Arc<CloudResource>| {
            self.truth.usage_of(r, cluster) == invariants::Usage::Unused
                && !named.contains(&r.id)
                && !self.truth.is_retagged(r)
        };
        self.cloud.resources().values().filter(dead).cloned().collect()
    }

    /// Schedules an action.
    pub fn schedule_action(&mut self, at: Timestamp, action: Action) {
        self.agenda.insert((at.max(self.now), self.scheduled), action);
        self.scheduled += 1;
    }

    /// Schedules crashes of the controller at some of its writes.
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

    /// Runs until an instant, reporting progress in between.
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
        let action = self.agenda.keys().next().map(|(at, _)| *at);
        let facts = self.reservations_due();
        [action, facts, self.cloud.next_event(), self.cluster.next_event(), self.controller.next_wake()]
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.max(self.now))
    }

    /// Plays everything that happens at one instant.
    fn step(&mut self, at: Timestamp) -> Result<(), Violation> {
        self.pass_time(at);
        while let Some(entry) = self.agenda.first_entry().filter(|e| e.key().0 <= at) {
            let action = entry.remove();
            self.apply_action(action);
        }
        self.controller.restart_if_due(&self.cluster, at);
        for _ in 0..MOST_ROUNDS {
            self.cloud.advance(at);
            self.cluster.advance(at);
            let moved = self.exchange();
            let changed = self.watch();
            let overdue = self.check_overdue_writes();
            let compared = self.compare_clocks();
            let decided = self.decide(changed);
            let acted = self.perform_effects()?;
            if !(moved || changed || overdue || compared || decided || acted) {
                return self.check();
            }
        }
        Err(self.violation("busy-loop", format!("{MOST_ROUNDS} rounds at one instant")))
    }

    fn pass_time(&mut self, to: Timestamp) {
        self.accounting.advance(self.now, to);
        self.now = to;
    }
}
