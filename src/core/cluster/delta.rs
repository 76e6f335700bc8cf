//! Deltas: what has changed in the API server since the last look?

use super::Snapshot;
use super::claim::Claim;
use super::node::Node;
use super::pod::Pod;
use super::pool::{DaemonSet, NodeClass, NodePool};
use super::record::Records;
use super::sweep::Sweep;
use super::volume::Volume;
use crate::names::{ClaimName, NodeClassName, NodeName, NodePoolName, ObjectKey, ObjectName};
use crate::plan::Pause;
use std::sync::Arc;

/// One change of one object: its new state, or that it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// A pod is new or has changed.
    Pod(Arc<Pod>),
    /// A pod is gone.
    PodGone(ObjectKey),
    /// A node is new or has changed.
    Node(Arc<Node>),
    /// A node is gone.
    NodeGone(NodeName),
    /// A NodeClaim is new or has changed.
    Claim(Arc<Claim>),
    /// A NodeClaim is gone.
    ClaimGone(ClaimName),
    /// A NodePool is new or has changed.
    Pool(Arc<NodePool>),
    /// A NodePool is gone.
    PoolGone(NodePoolName),
    /// An AKSNodeClass is new or has changed.
    Class(Arc<NodeClass>),
    /// An AKSNodeClass is gone.
    ClassGone(NodeClassName),
    /// A DaemonSet is new or has changed.
    DaemonSet(ObjectKey, Arc<DaemonSet>),
    /// A DaemonSet is gone.
    DaemonSetGone(ObjectKey),
    /// An OrphanSweep is new or has changed.
    Sweep(Arc<Sweep>),
    /// An OrphanSweep is gone.
    SweepGone(ObjectName),
    /// A PersistentVolume is new or has changed.
    Volume(Arc<Volume>),
    /// A PersistentVolume is gone.
    VolumeGone(ObjectName),
    /// The durable records have changed.
    Records(Arc<Records>),
    /// The pause switch has changed.
    Pause(Pause),
}

/// Brings a Snapshot up to date with a change.
pub fn apply(delta: &Delta, to: &mut Snapshot) {
    match delta {
        Delta::Pod(pod) => to.put_pod(Arc::clone(pod)),
        Delta::PodGone(key) => to.take_pod(key),
        Delta::Node(node) => to.put_node(Arc::clone(node)),
        Delta::NodeGone(name) => to.take_node(name),
        Delta::Claim(claim) => to.put_claim(Arc::clone(claim)),
        Delta::ClaimGone(name) => to.take_claim(name),
        Delta::Pool(pool) => to.put_pool(pool.name.clone(), Arc::clone(pool)),
        Delta::PoolGone(name) => to.take_pool(name),
        Delta::Class(class) => to.put_class(class.name.clone(), Arc::clone(class)),
        Delta::ClassGone(name) => to.take_class(name),
        Delta::DaemonSet(key, set) => to.put_daemon_set(key.clone(), Arc::clone(set)),
        Delta::DaemonSetGone(key) => to.take_daemon_set(key),
        Delta::Sweep(sweep) => to.put_sweep(sweep.name.clone(), Arc::clone(sweep)),
        Delta::SweepGone(name) => to.take_sweep(name),
        Delta::Volume(volume) => to.put_volume(volume.name.clone(), Arc::clone(volume)),
        Delta::VolumeGone(name) => to.take_volume(name),
        Delta::Records(records) => to.records = Arc::clone(records),
        Delta::Pause(pause) => to.pause = pause.clone(),
    }
}
