//! A cluster with a scheduler, real or emulated.

use super::spread_owners::SpreadOwners;
use super::storage::Storage;
use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::CSINode;
use std::collections::BTreeMap;

/// Namespaces with their labels.
pub(crate) type Namespaces = Vec<(String, BTreeMap<String, String>)>;

/// The verdict of a scheduler on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is bound to this node.
    Bound(String),
    /// It is unschedulable, and why.
    Waits(String),
}

/// A cluster with nothing in it but what a round puts there, and a scheduler.
pub(crate) trait Scheduler {
    /// The scheduler is not the emulation itself: each is held against the other.
    const IS_REAL: bool;

    /// Makes Services and sets.
    async fn add_spread_owners(&mut self, spread_owners: &SpreadOwners) -> Result<()>;

    /// Creates volumes and claims, except ephemeral ones.
    async fn add_storage(&mut self, storage: &Storage) -> Result<()>;

    /// Sets the volume limits of nodes that will be created.
    async fn add_csi_nodes(&mut self, nodes: &[CSINode]) -> Result<()>;

    /// Creates nodes, and waits until the scheduler knows this many.
    async fn add_nodes(&mut self, nodes: &[Node], in_all: usize) -> Result<()>;

    /// Pods as the API server would have them; none is made.
    async fn admitted(&mut self, pods: &[Pod]) -> Result<Vec<Pod>>;

    /// Makes a pod.
    async fn add_pod(&mut self, pod: &Pod) -> Result<Pod>;

    /// The verdict on a pod, with this many known nodes.
    async fn verdict(&mut self, pod: &Pod, nodes: usize) -> Result<Verdict>;

    /// The nodes that pending pods are finally bound to.
    async fn bound_in_the_end(&mut self, pods: &[Pod]) -> Result<Vec<Option<String>>>;

    /// Deletes the pods of these namespaces, or those alone that a selector names (a label, as `key=value`), and waits
    /// until the scheduler counts none of them any more.
    async fn remove_pods(&mut self, namespaces: &[&str], selector: &str) -> Result<()>;

    /// Deletes all nodes, and the Services, sets, volumes and claims of these namespaces.
    async fn remove_nodes(&mut self, namespaces: &[&str]) -> Result<()>;
}
