//! Concurrency limits per class of request.
//!
//! A request to Azure may wait in a queue, and a throttled one is repeated. So each class of requests has its own
//! concurrency: however many launches wait, deletes, sweeps and requests to Kubernetes proceed.

use crate::plan::Command;
use std::collections::BTreeMap;

/// Classes of requests that do not wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RequestClass {
    /// Requests to Kubernetes.
    ApiServer,
    /// Requests of launches to Azure.
    Launch,
    /// Requests of lifecycle deletes to Azure.
    Terminate,
    /// Requests of sweeps to Azure.
    Sweep,
    /// Taking inventory, which may last for minutes.
    Inventory,
}

impl RequestClass {
    /// The class of a command's requests to Azure.
    #[must_use]
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            Command::Terminate(_) | Command::CheckVm(_) => Self::Terminate,
            Command::SweepDelete(_) | Command::Mark { .. } | Command::Unmark { .. } => Self::Sweep,
            Command::TakeInventory { .. } => Self::Inventory,
            _ => Self::Launch,
        }
    }

    /// Most effects that may run concurrently.
    #[must_use]
    pub(crate) fn limit(self) -> usize {
        match self {
            Self::ApiServer => 64,
            Self::Launch | Self::Terminate => 32,
            Self::Sweep => 16,
            Self::Inventory => 1,
        }
    }
}

/// Running commands by class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConcurrencyLimiter(BTreeMap<RequestClass, usize>);

impl ConcurrencyLimiter {
    /// True when one more may begin.
    #[must_use]
    pub(crate) fn has_capacity(&self, class: RequestClass) -> bool {
        self.0.get(&class).copied().unwrap_or_default() < class.limit()
    }

    /// One has started.
    pub(crate) fn start(&mut self, class: RequestClass) {
        *self.0.entry(class).or_default() += 1;
    }

    /// One has ended.
    pub(crate) fn end(&mut self, class: RequestClass) {
        if let Some(running) = self.0.get_mut(&class) {
            *running = running.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CapacityType::OnDemand;
    use crate::engine::executor::Executor;
    use crate::fixtures::{offering, settings, start};
    use crate::model::azure::cloud::Tags;
    use crate::model::azure::naming::{VM_TYPE, resource_ids};
    use crate::model::cluster::claim::ClaimRef;
    use crate::model::names::{ClaimName, Uid};
    use crate::model::settings::Settings;
    use crate::plan::{CheckVm, IfVmLost, Launch, PlannedCommand, Reply};
    use crate::snapshot::{CommandKey, Snapshot};

    fn launch(n: usize, settings: &Settings) -> PlannedCommand {
        let name = ClaimName::new(format!("general-{n:03}")).unwrap();
        let claim = ClaimRef { name, uid: Uid::new("uid").unwrap() };
        let ids = resource_ids(&settings.cluster.node_resource_group, &claim.name);
        let offering = offering("Standard_D2s_v5", 1, OnDemand);
        let intent = crate::model::cluster::claim::LaunchIntent {
            offering: offering.clone(),
            vm: ids.vm,
            nic: ids.nic,
            os_disk: ids.os_disk,
            machine: None,
            reservation: None,
            written_at: start(),
            refused: 0,
            operation: None,
        };
        let launch = Launch {
            claim,
            pool: None,
            offerings: vec![offering],
            intent: Some(intent),
            group: settings.cluster.node_resource_group.clone(),
            tags: Tags::new(),
            os_disk_gb: 128,
            image: None,
            security: Default::default(),
            subnet: None,
            capacity_reservation_group: None,
        };
        PlannedCommand { command: Command::Launch(Box::new(launch)), reason: "".into(), preconditions: None }
    }

    #[test]
    fn waiting_launches_leave_capacity_for_deletes() {
        let (settings, snapshot) = (settings(), Snapshot::default());
        let mut executor = Executor::default();
        let mut plan: Vec<PlannedCommand> = (0..200).map(|n| launch(n, &settings)).collect();
        // Last of all by its key.
        let vm = settings.cluster.node_resource_group.resource(VM_TYPE, "aks-zzz");
        let claim = ClaimRef { name: ClaimName::new("zzz").unwrap(), uid: Uid::new("uid").unwrap() };
        let check = CheckVm { claim, vm, if_lost: IfVmLost::DeleteClaim };
        plan.push(PlannedCommand {
            command: Command::CheckVm(Box::new(check)),
            reason: "".into(),
            preconditions: None,
        });
        for planned in plan {
            assert!(executor.start(planned, &snapshot, &settings, start()));
        }
        let mut running = Vec::new();
        while let Some((key, _)) = executor.next_effect(start(), &mut Vec::new()) {
            running.push(key);
        }
        assert_eq!(running.len(), RequestClass::Launch.limit() + 1);
        assert_eq!(running.last(), Some(&CommandKey::Claim(ClaimName::new("zzz").unwrap())));
        assert_eq!(executor.next_wake(), None, "commands without capacity do not wake it");
        executor.reply(&running[0], Ok(Reply::Resource(None)), start(), &mut Vec::new());
        let (next, _) = executor.next_effect(start(), &mut Vec::new()).unwrap();
        assert!(!running[1..].contains(&next), "an ended command frees capacity for another");
    }
}
