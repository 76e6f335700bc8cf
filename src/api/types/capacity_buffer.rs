//! CapacityBuffers, `autoscaling.x-k8s.io/v1beta1`.
//!
//! The kind is shared by autoscalers of nodes (Kubernetes SIG Autoscaling); its definition is not ours to install. Of its
//! fields those stand here that are read or written.

use crate::types::common::{Condition, ResourceList};
use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The strategy that is followed; buffers of others are left alone.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

/// What room is wanted.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[kube(
    group = "autoscaling.x-k8s.io",
    version = "v1beta1",
    kind = "CapacityBuffer",
    plural = "capacitybuffers",
    namespaced,
    schema = "disabled",
    status = "CapacityBufferStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct CapacityBufferSpec {
    /// Absent is [`ACTIVE_CAPACITY`].
    pub provisioning_strategy: Option<String>,
    /// A PodTemplate of the namespace: a chunk is as large as its pod.
    pub pod_template_ref: Option<LocalObjectRef>,
    /// A workload of the namespace: a chunk is as large as one of its pods.
    pub scalable_ref: Option<ScalableRef>,
    /// How many chunks.
    pub replicas: Option<i32>,
    /// How many chunks in a hundred of the workload's replicas.
    pub percentage: Option<i32>,
    /// Most that the chunks may ask for together.
    pub limits: Option<ResourceList>,
}

/// An object of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LocalObjectRef {
    /// Its name.
    pub name: String,
}

/// A workload of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalableRef {
    /// `apps`; absent is taken for that too, as by Karpenter.
    #[serde(default)]
    pub api_group: String,
    /// `Deployment`, `StatefulSet` or `ReplicaSet`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityBufferStatus {
    /// The PodTemplate that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_ref: Option<LocalObjectRef>,
    /// Its generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_generation: Option<i64>,
    /// How many chunks there are to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The strategy that is followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioning_strategy: Option<String>,
    /// `ReadyForProvisioning` and `Provisioning`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
