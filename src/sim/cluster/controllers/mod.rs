//! Kubernetes' controllers of workloads, DaemonSets and volumes.

mod daemon_sets;
mod volumes;
mod workloads;

pub(super) use daemon_sets::DaemonSets;
pub(super) use volumes::{VolumeTopology, Volumes};
pub(super) use workloads::Workloads;
