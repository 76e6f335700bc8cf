//! Kubernetes' controllers of workloads, DaemonSets, volumes and PodDisruptionBudgets.

mod daemon_sets;
mod disruption_budgets;
mod volumes;
mod workloads;

pub(super) use daemon_sets::DaemonSets;
pub(super) use volumes::{VolumeTopology, Volumes};
pub(super) use workloads::Workloads;
