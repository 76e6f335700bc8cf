//! Durations in the cluster.

use crate::random::Delay;
use jiff::SignedDuration;

/// How long everything in the cluster takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// From a running VM to its Node.
    pub node_joins: Delay,
    /// From a Node to a ready one.
    pub node_ready: Delay,
    /// From a ready and registered Node until its startup taints are taken away.
    pub startup: Delay,
    /// From a bound pod to a running one.
    pub pod_starts: Delay,
    /// From the end of the last pod that uses a disk on its node until the disk is detached.
    pub disk_detaches: Delay,
    /// From a lost kubelet to a Node that is not ready (`--node-monitor-grace-period`).
    pub node_unreachable: SignedDuration,
    /// From a lost kubelet until the cloud controller deletes the Node object.
    pub node_reaped: Delay,
    /// From a Node that is not ready until its pods are deleted (`DefaultTolerationSeconds`).
    pub pods_given_up: SignedDuration,
    /// How long a terminated pod is kept in the API server.
    pub ended_pods_retention: SignedDuration,
}

impl Default for Timings {
    /// As seen on AKS, and Kubernetes' own defaults: 40 s until a node counts as unreachable, 300 s until its pods are
    /// given up.
    fn default() -> Self {
        Self {
            node_joins: Delay::secs(20, 50),
            node_ready: Delay::secs(10, 20),
            startup: Delay::secs(5, 15),
            pod_starts: Delay::secs(1, 5),
            disk_detaches: Delay::secs(5, 20),
            node_unreachable: SignedDuration::from_secs(40),
            node_reaped: Delay::secs(60, 120),
            pods_given_up: SignedDuration::from_mins(5),
            ended_pods_retention: SignedDuration::from_mins(5),
        }
    }
}
