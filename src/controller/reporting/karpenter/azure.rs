//! Metrics of what is asked of Azure: VMs that are requested, and how long launches, deletions and listings take.

use super::commands::pool_text;
use super::{Counters, Histograms, Label, Registered};
use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::errors::{CloudErrorCode, EffectError};
use napkeeper_core::model::labels;
use napkeeper_core::plan::{
    AksMachineRequest, ClaimUpdate, CloudRequest, ClusterWrite, Command, CommandReport, Effect, Launch,
};
use napkeeper_core::snapshot::{CommandKey, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The name of Karpenter's Azure provider (`pkg/cloudprovider`, `Name`).
const PROVIDER: &str = "azure";

/// Refusals that its Azure provider calls a lack of capacity.
const CAPACITY: [CloudErrorCode; 10] = [
    CloudErrorCode::FamilyQuota,
    CloudErrorCode::RegionalQuota,
    CloudErrorCode::SpotQuota,
    CloudErrorCode::SkuNotAvailable,
    CloudErrorCode::AllocationFailed,
    CloudErrorCode::ZonalAllocationFailed,
    CloudErrorCode::Overconstrained,
    CloudErrorCode::OverconstrainedZonal,
    CloudErrorCode::Reservation,
    CloudErrorCode::SubnetFull,
];

/// True where a launch has failed, by the code on its NodeClaim, because Azure has no capacity or quota.
pub(in super::super) fn is_capacity(code: &str) -> bool {
    CAPACITY.iter().any(|one| one.category() == code)
}

/// Metrics of what is asked of Azure.
#[derive(Debug)]
pub(super) struct AzureMetrics {
    errors: Counters,
    durations: Histograms,
    vms_begun: Counters,
    vms_failed: Counters,
    /// The commands that ask Azure.
    running: BTreeMap<CommandKey, Running>,
}

/// A command that asks Azure.
#[derive(Debug)]
struct Running {
    since: Instant,
    /// Karpenter's word for the error, once its launch has failed for good.
    failed: Option<&'static str>,
}

impl AzureMetrics {
    pub(super) fn new(registered: &mut Registered<'_>) -> Self {
        Self {
            errors: registered.counters("cloudprovider_errors", "Launches and deletions that Azure refused"),
            durations: registered
                .durations("cloudprovider_duration_seconds", "Duration of launches, deletions and listings"),
            vms_begun: registered.counters("instance_vm_create_start", "VMs requested"),
            vms_failed: registered.counters("instance_vm_create_failure", "VMs that Azure refused or did not create"),
            running: BTreeMap::new(),
        }
    }

    /// The commands that were running are forgotten: none of them will end.
    pub(super) fn clear(&mut self) {
        self.running.clear();
    }

    /// A command has started.
    pub(super) fn command_started(&mut self, command: &Command) {
        if method(command).is_some() {
            self.running.insert(command.key(), Running { since: Instant::now(), failed: None });
        }
    }

    /// An effect is about to be performed.
    pub(super) fn effect_started(&mut self, effect: &Effect, snapshot: &Snapshot) {
        match effect {
            Effect::Cloud(CloudRequest::PutVm(vm)) => self.vm_requested(&vm.offering, &vm.tags, snapshot),
            Effect::Cloud(CloudRequest::AksMachine(AksMachineRequest::Put(machine))) => {
                self.vm_requested(&machine.offering, &machine.tags, snapshot);
            }
            Effect::Cluster(ClusterWrite::UpdateClaim(claim, ClaimUpdate::LaunchFailed(failure))) => {
                // It may have to be written again, and one that nobody launches is refused without asking Azure.
                if let Some(running) = self.running.get_mut(&CommandKey::Claim(claim.name.clone())) {
                    let error = if is_capacity(&failure.code) { "InsufficientCapacityError" } else { "" };
                    running.failed = Some(error);
                }
            }
            _ => {}
        }
    }

    fn vm_requested(&self, offering: &OfferingKey, tags: &Tags, snapshot: &Snapshot) {
        let pool = tags.get(labels::TAG_KARPENTER_NODEPOOL).cloned().unwrap_or_default();
        self.vms_begun.get_or_create(&of_offering(offering, pool, snapshot)).inc();
    }

    /// A command has ended: how long it took, if it asked Azure.
    pub(super) fn command_ended(
        &mut self,
        command: &Command,
        report: &CommandReport,
        snapshot: &Snapshot,
    ) -> Option<Duration> {
        let (controller, name) = method(command)?;
        let Running { since, failed } = self.running.remove(&command.key())?;
        if let Command::Launch(launch) = command {
            self.count_refusals(launch, report, snapshot);
        }
        let (took, labels) = (since.elapsed(), of_method(controller, name));
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        let error = match (command, &report.error) {
            (Command::Launch(_), None) => failed,
            (Command::Launch(_) | Command::Terminate(_), Some(EffectError::Cloud(_))) => Some(""),
            _ => None,
        };
        if let Some(error) = error {
            self.errors.get_or_create(&labels.into_iter().chain([("error", Arc::from(error))]).collect()).inc();
        }
        Some(took)
    }

    /// A launch has ended: counts the VMs that Azure refused on the way.
    fn count_refusals(&self, launch: &Launch, report: &CommandReport, snapshot: &Snapshot) {
        for refusal in report.launch_refusals.iter().filter(|refusal| !refusal.applies_to_all_offerings) {
            let phase = if refusal.error.is_operation_result { "async" } else { "sync" };
            let more = [("phase", Arc::from(phase)), ("error_code", Arc::from(format!("{:?}", refusal.error.code)))];
            let labels = of_offering(&refusal.offering, pool_text(launch.pool.as_ref()), snapshot);
            self.vms_failed.get_or_create(&labels.into_iter().chain(more).collect()).inc();
        }
    }
}

/// Karpenter's controller and method for what a command asks of Azure.
fn method(command: &Command) -> Option<(&'static str, &'static str)> {
    match command {
        Command::Launch(_) => Some(("nodeclaim.lifecycle", "Create")),
        Command::Terminate(_) => Some(("nodeclaim.lifecycle", "Delete")),
        Command::CheckVm(_) => Some(("nodeclaim.garbagecollection", "Get")),
        Command::TakeInventory { .. } => Some(("nodeclaim.garbagecollection", "List")),
        _ => None,
    }
}

fn of_method(controller: &'static str, name: &'static str) -> Vec<Label> {
    [("controller", controller), ("method", name), ("provider", PROVIDER)].map(|(k, v)| (k, Arc::from(v))).into()
}

fn of_offering(key: &OfferingKey, pool: Arc<str>, snapshot: &Snapshot) -> Vec<Label> {
    vec![
        ("image", snapshot.node_base.image.clone().unwrap_or_default()),
        ("size", key.size.text()),
        ("zone", Arc::from(key.zone.as_str())),
        ("capacity_type", Arc::from(key.capacity_type.as_str())),
        ("nodepool", pool),
    ]
}
