//! Labels that other clouds set on their nodes, and what Azure has in their place.

use napkeeper_core::model::labels;

/// Domains of labels, and whose they are.
const DOMAINS: [(&str, &str); 5] = [
    ("k8s.aws", "AWS"),
    ("amazonaws.com", "AWS"),
    ("cloud.google.com", "Google Cloud"),
    ("gke.io", "Google Cloud"),
    ("karpenter.k8s.gcp", "Google Cloud"),
];

/// Names of such labels, after the domain, and the label of an Azure node that tells the same.
const LABELS: [(&str, &str); 19] = [
    ("instance-category", labels::SKU_FAMILY),
    ("instance-family", labels::SKU_FAMILY),
    ("instance-generation", labels::SKU_VERSION),
    ("instance-cpu", labels::SKU_CPU),
    ("instance-memory", labels::SKU_MEMORY),
    ("instance-size", labels::INSTANCE_TYPE),
    ("instance-gpu-name", labels::SKU_GPU_NAME),
    ("instance-gpu-count", labels::SKU_GPU_COUNT),
    ("instance-gpu-manufacturer", labels::SKU_GPU_MANUFACTURER),
    ("instance-cpu-manufacturer", labels::SKU_SERIES),
    ("capacityType", labels::CAPACITY_TYPE),
    ("gke-spot", labels::CAPACITY_TYPE),
    ("gke-preemptible", labels::CAPACITY_TYPE),
    ("gke-provisioning", labels::CAPACITY_TYPE),
    ("gke-accelerator", labels::SKU_GPU_NAME),
    ("gke-accelerator-count", labels::SKU_GPU_COUNT),
    ("machine-family", labels::SKU_FAMILY),
    ("instance-type", labels::INSTANCE_TYPE),
    ("instance-shape", labels::INSTANCE_TYPE),
];

/// Whose label this is, and Azure's label in its place, if there is one.
pub(super) fn other_cloud(domain: &str, name: &str) -> Option<(&'static str, Option<&'static str>)> {
    let is_in = |of: &str| domain == of || domain.strip_suffix(of).is_some_and(|rest| rest.ends_with('.'));
    let (_, cloud) = DOMAINS.iter().find(|(of, _)| is_in(of))?;
    let label = LABELS.iter().find(|(known, _)| *known == name).map(|(_, label)| *label);
    Some((cloud, label))
}
