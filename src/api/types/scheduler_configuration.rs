//! SchedulerConfigurations, `aks.azure.com/v1alpha1`.
//!
//! The kind is AKS's own (configurable scheduler profiles); it reads the one that is named `upstream`. Of its fields the
//! one stands here that is read.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// What kube-scheduler is given.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[kube(
    group = "aks.azure.com",
    version = "v1alpha1",
    kind = "SchedulerConfiguration",
    plural = "schedulerconfigurations",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerConfigurationSpec {
    /// A KubeSchedulerConfiguration, as YAML.
    #[serde(default)]
    pub raw_config: String,
}
