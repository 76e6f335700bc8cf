//! Metrics of what is asked of Azure: VMs that are requested, and how long launches, deletions and listings take.

use super::commands::pool_text;
use super::{Counters, Histograms, Label, Registered};
use napkeeper_core::catalog::OfferingKey;
use napkeeper_core::model::errors::{CloudErrorCode, EffectError};
use napkeeper_core::model::labels;
use napkeeper_core::plan::{ClaimUpdate, CloudRequest, ClusterWrite, Command, CommandReport, Effect, Launch, VmSpec};
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
    /// When the commands began that ask Azure.
    began: BTreeMap<CommandKey, Instant>,
}

impl AzureMetrics {
    pub(super) fn new(registered: &mut Registered<'_>) -> Self {
        Self {
            errors: registered.counters("cloudprovider_errors", "Launches and deletions that Azure refused"),
            durations: registered
                .durations("cloudprovider_duration_seconds", "Duration of launches, deletions and listings"),
            vms_begun: registered.counters("instance_vm_create_start", "VMs requested"),
            vms_failed: registered.counters("instance_vm_create_failure", "VMs that Azure refused or did not create"),
            began: BTreeMap::new(),
        }
    }

    /// What this replica knew as a leader is not so any more.
    pub(super) fn clear(&mut self) {
        self.began.clear();
    }

    /// A command has started.
    pub(super) fn command_started(&mut self, command: &Command) {
        if method(command).is_some() {
            self.began.insert(command.key(), Instant::now());
        }
    }

    /// An effect is about to be performed.
    pub(super) fn effect_started(&self, effect: &Effect, snapshot: &Snapshot) {
        match effect {
            Effect::Cloud(CloudRequest::PutVm(vm)) => drop(self.vms_begun.get_or_create(&of_vm(vm, snapshot)).inc()),
            Effect::Cluster(ClusterWrite::UpdateClaim(_, ClaimUpdate::LaunchFailed(failure))) => {
                let error = if is_capacity(&failure.code) { "InsufficientCapacityError" } else { "" };
                self.count_error("Create", error);
            }
            _ => {}
        }
    }

    /// A command has ended: how long it took, if it asked Azure.
    pub(super) fn command_ended(
        &mut self,
        command: &Command,
        report: &CommandReport,
        snapshot: &Snapshot,
    ) -> Option<Duration> {
        match command {
            Command::Launch(launch) => self.launch_ended(launch, report, snapshot),
            Command::Terminate(_) if matches!(report.error, Some(EffectError::Cloud(_))) => {
                self.count_error("Delete", "");
            }
            _ => {}
        }
        let (controller, name) = method(command)?;
        let took = self.began.remove(&command.key())?.elapsed();
        self.durations.get_or_create(&of_method(controller, name)).observe(took.as_secs_f64());
        Some(took)
    }

    /// A launch has ended: counts the VMs that Azure refused on the way.
    fn launch_ended(&self, launch: &Launch, report: &CommandReport, snapshot: &Snapshot) {
        for refusal in report.launch_refusals.iter().filter(|refusal| !refusal.applies_to_all_offerings) {
            let phase = if refusal.error.is_operation_result { "async" } else { "sync" };
            let more = [("phase", Arc::from(phase)), ("error_code", Arc::from(format!("{:?}", refusal.error.code)))];
            let labels = of_offering(&refusal.offering, pool_text(launch.pool.as_ref()), snapshot);
            self.vms_failed.get_or_create(&labels.into_iter().chain(more).collect()).inc();
        }
    }

    fn count_error(&self, name: &'static str, error: &'static str) {
        let labels = of_method("nodeclaim.lifecycle", name).into_iter().chain([("error", Arc::from(error))]).collect();
        self.errors.get_or_create(&labels).inc();
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

fn of_vm(vm: &VmSpec, snapshot: &Snapshot) -> Vec<Label> {
    let pool = vm.tags.get(labels::TAG_KARPENTER_NODEPOOL).cloned().unwrap_or_default();
    of_offering(&vm.offering, pool, snapshot)
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
