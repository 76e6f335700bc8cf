//! Concurrency limits per class of request.
//!
//! A request to Azure may wait for its turn, and a throttled one comes back again and again. So each sort of work has
//! room of its own: however many launches wait, deletes, sweeps and whatever goes to Kubernetes go on.

use crate::plan::Command;
use std::collections::BTreeMap;

/// Sorts of work that do not wait for one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RequestClass {
    /// Requests to Kubernetes.
    ApiServer,
    /// What launches ask of Azure.
    Launch,
    /// What the ends of NodeClaims ask of Azure.
    Terminate,
    /// What sweeps ask of Azure.
    Sweep,
    /// Taking inventory, which may last for minutes.
    Inventory,
}

impl RequestClass {
    /// The lane of what a command asks of Azure.
    #[must_use]
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            Command::Terminate(_) | Command::CheckVmGone { .. } => Self::Terminate,
            Command::SweepDelete(_) | Command::Mark { .. } | Command::Unmark { .. } => Self::Sweep,
            Command::TakeInventory { .. } => Self::Inventory,
            _ => Self::Launch,
        }
    }

    /// Most effects that may be under way at once.
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

/// What is under way in each lane.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ConcurrencyLimiter(BTreeMap<RequestClass, usize>);

impl ConcurrencyLimiter {
    /// True when one more may begin.
    #[must_use]
    pub(crate) fn has_capacity(&self, lane: RequestClass) -> bool {
        self.0.get(&lane).copied().unwrap_or_default() < lane.limit()
    }

    /// One has begun.
    pub(crate) fn start(&mut self, lane: RequestClass) {
        *self.0.entry(lane).or_default() += 1;
    }

    /// One has ended.
    pub(crate) fn end(&mut self, lane: RequestClass) {
        if let Some(under_way) = self.0.get_mut(&lane) {
            *under_way = under_way.saturating_sub(1);
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
    use crate::plan::{Launch, PlannedCommand, Reply};
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
            security: Default::default(),
            subnet: None,
            capacity_reservation_group: None,
        };
        PlannedCommand { command: Command::Launch(Box::new(launch)), reason: "".into() }
    }

    #[test]
    fn launches_that_wait_leave_room_for_what_goes_away() {
        let (settings, snapshot) = (settings(), Snapshot::default());
        let mut executor = Executor::default();
        let mut plan: Vec<PlannedCommand> = (0..200).map(|n| launch(n, &settings)).collect();
        // Last of all by its key.
        let vm = settings.cluster.node_resource_group.resource(VM_TYPE, "aks-zzz");
        let claim = ClaimRef { name: ClaimName::new("zzz").unwrap(), uid: Uid::new("uid").unwrap() };
        plan.push(PlannedCommand { command: Command::CheckVmGone { claim, vm }, reason: "".into() });
        for planned in plan {
            assert!(executor.start(planned, &snapshot, &settings, start()));
        }
        let mut under_way = Vec::new();
        while let Some((key, _)) = executor.next_effect(start(), &mut Vec::new()) {
            under_way.push(key);
        }
        assert_eq!(under_way.len(), RequestClass::Launch.limit() + 1);
        assert_eq!(under_way.last(), Some(&CommandKey::Claim(ClaimName::new("zzz").unwrap())));
        assert_eq!(executor.next_wake(), None, "nobody is woken for what has no room");
        executor.reply(&under_way[0], Ok(Reply::Resource(None)), start(), &mut Vec::new());
        let (next, _) = executor.next_effect(start(), &mut Vec::new()).unwrap();
        assert!(!under_way[1..].contains(&next), "what has ended makes room for another");
    }
}
