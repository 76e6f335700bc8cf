//! Conversion of NodePools and AKSNodeClasses.

use crate::convert::common;
use crate::convert::karpenter::conditions::read_conditions;
use crate::convert::karpenter::node_pool_status::read_status;
use crate::convert::karpenter::refusals;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::aks_node_class::{
    AKSNodeClass, AKSNodeClassSpec, DEFAULT_IMAGE_FAMILY, DEFAULT_OS_DISK_GB, TrustedLaunch,
};
use crate::types::common::ResourceList;
use crate::types::duration;
use crate::types::karpenter::{
    Budget as WireBudget, DEFAULT_BUDGET_NODES, DEFAULT_CONSOLIDATE_AFTER, DEFAULT_CONSOLIDATION_POLICY,
    DEFAULT_EXPIRE_AFTER, Disruption as WireDisruption, NodeClassRef, NodePool as WirePool,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Resource;
use napkeeper_core::catalog::live::parse_reservation_group;
use napkeeper_core::model::cluster::pool::{
    Budget, BudgetNodes, ConsolidationPolicy, Disruption, DisruptionReason, Limits, NodeClass, NodePool,
};
use napkeeper_core::model::cluster::status::PoolDeletion;
use napkeeper_core::model::cron::Schedule;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NodeClassName, NodePoolName};
use napkeeper_core::model::requirements::Requirements;
use serde_json::Value;
use std::sync::Arc;

/// Reads a NodePool.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn node_pool(object: &WirePool) -> Result<NodePool, Violations> {
    let mut found = Violations::default();
    let at = Path::from_dotted("spec.template.spec");
    let template = &object.spec.template;
    let spec = &template.spec;
    let name = common::name(&object.metadata, &mut found, |n| NodePoolName::new(n));
    let uid = common::uid(&object.metadata, &mut found);
    let class = class_name(&spec.node_class_ref, &at.key("nodeClassRef"), &mut found);
    let metadata = template.metadata.as_ref();
    let labels = common::labels(metadata.and_then(|m| m.labels.as_ref()));
    let annotations = common::labels(metadata.and_then(|m| m.annotations.as_ref()));
    let mut requirements = common::requirements(&spec.requirements, &at.key("requirements"), &mut found);
    requirements.add_all(&Requirements::from_labels(&labels));
    let taints = common::taints(spec.taints.as_ref(), &at.key("taints"), &mut found);
    let startup_taints = common::taints(spec.startup_taints.as_ref(), &at.key("startupTaints"), &mut found);
    refusals::check(object, &mut found);
    let limits = limits(object.spec.limits.as_ref(), &mut found);
    let expire_after = expire_after(spec.expire_after.as_deref(), &at, &mut found);
    let grace = spec.termination_grace_period.as_deref();
    let grace = found.take_some(&at.key("terminationGracePeriod"), grace, duration::parse);
    let disruption = disruption(object.spec.disruption.as_ref(), &mut found);
    let replicas = found.take_some(&Path::from_dotted("spec.replicas"), object.spec.replicas.as_ref(), |n| {
        u64::try_from(*n).map_err(|_| "must not be negative")
    });
    let built = name.zip(uid).zip(class).zip(disruption);
    let built = built.map(|(((name, uid), class), disruption)| NodePool {
        name,
        uid,
        deletion: pool_deletion(&object.metadata),
        weight: object.spec.weight.unwrap_or(0),
        requirements,
        labels,
        annotations,
        taints,
        startup_taints,
        class,
        limits,
        expire_after,
        termination_grace_period: grace,
        disruption,
        replicas,
        generation: object.metadata.generation.unwrap_or_default(),
        status: read_status(object.status.as_ref()),
    });
    found.finish(built)
}

/// How far the deletion of a NodePool is.
pub(crate) fn pool_deletion(meta: &ObjectMeta) -> PoolDeletion {
    let has = |name: &str| meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
    let requested_at = meta.deletion_timestamp.as_ref().map(|at| at.0);
    PoolDeletion {
        requested_at,
        has_finalizer: has(labels::POOL_FINALIZER),
        keeps_nodes: requested_at.is_some() && has(labels::ORPHAN_FINALIZER),
    }
}

/// `expireAfter` under the spec at `at`; absent is the default.
pub(crate) fn expire_after(text: Option<&str>, at: &Path, found: &mut Violations) -> Option<jiff::SignedDuration> {
    let text = text.unwrap_or(DEFAULT_EXPIRE_AFTER);
    found.take(&at.key("expireAfter"), duration::parse_or_never(text)).flatten()
}

/// The AKSNodeClass that a reference names.
pub(crate) fn class_name(reference: &NodeClassRef, path: &Path, found: &mut Violations) -> Option<NodeClassName> {
    let group = AKSNodeClass::group(&());
    if reference.group != group {
        found.add(&path.key("group"), format!("must be {group}"));
    }
    let kind = AKSNodeClass::kind(&());
    if reference.kind != kind {
        found.add(&path.key("kind"), format!("must be {kind}"));
    }
    found.take(&path.key("name"), NodeClassName::new(&reference.name))
}

fn limits(list: Option<&ResourceList>, found: &mut Violations) -> Limits {
    let path = Path::from_dotted("spec.limits");
    let mut limits = Limits::default();
    for (name, amount) in common::amounts(list.into_iter().flatten(), &path, found) {
        match &*name {
            "nodes" => limits.nodes = Some(amount),
            _ => drop(limits.resources.insert(name, amount)),
        }
    }
    limits
}

fn disruption(wire: Option<&WireDisruption>, found: &mut Violations) -> Option<Disruption> {
    let path = Path::from_dotted("spec.disruption");
    let policy = wire.and_then(|d| d.consolidation_policy.as_deref());
    let policy = match policy.unwrap_or(DEFAULT_CONSOLIDATION_POLICY) {
        "WhenEmpty" => Ok(ConsolidationPolicy::WhenEmpty),
        "WhenEmptyOrUnderutilized" => Ok(ConsolidationPolicy::WhenEmptyOrUnderutilized),
        "Balanced" => Ok(ConsolidationPolicy::Balanced),
        _ => Err("must be WhenEmpty, WhenEmptyOrUnderutilized or Balanced"),
    };
    let policy = found.take(&path.key("consolidationPolicy"), policy);
    let after = wire.and_then(|d| d.consolidate_after.as_deref());
    let after = duration::parse_or_never(after.unwrap_or(DEFAULT_CONSOLIDATE_AFTER));
    let after = found.take(&path.key("consolidateAfter"), after);
    let default = [WireBudget { nodes: DEFAULT_BUDGET_NODES.to_owned(), ..WireBudget::default() }];
    let budgets = wire.and_then(|d| d.budgets.as_deref()).unwrap_or(&default);
    let budgets =
        budgets.iter().enumerate().filter_map(|(i, b)| budget(b, &path.key("budgets").index(i), found)).collect();
    Some(Disruption { policy: policy?, consolidate_after: after?, budgets })
}

fn budget(wire: &WireBudget, path: &Path, found: &mut Violations) -> Option<Budget> {
    let nodes = found.take(&path.key("nodes"), budget_nodes(&wire.nodes));
    let reasons = wire.reasons.as_ref().map(|list| {
        let reasons = list.iter().enumerate();
        reasons.filter_map(|(i, r)| found.take(&path.key("reasons").index(i), reason(r))).collect()
    });
    let length = found.take_some(&path.key("duration"), wire.duration.as_deref(), duration::parse);
    found.take_some(&path.key("schedule"), wire.schedule.as_deref(), |text| Schedule::parse(text).map(drop));
    if wire.schedule.is_some() != wire.duration.is_some() {
        found.add(path, "schedule and duration must be set together");
    }
    Some(Budget { nodes: nodes?, reasons, window: wire.schedule.as_deref().map(Arc::from).zip(length) })
}

fn budget_nodes(text: &str) -> Result<BudgetNodes, &'static str> {
    let refused = "must be a number of nodes such as 5, or a percentage such as 10%";
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(|p| *p <= 100).map(BudgetNodes::Percent).ok_or(refused),
        None => text.parse().map(BudgetNodes::Count).map_err(|_| refused),
    }
}

fn reason(text: &str) -> Result<DisruptionReason, &'static str> {
    match text {
        "Underutilized" => Ok(DisruptionReason::Underutilized),
        "Empty" => Ok(DisruptionReason::Empty),
        "Drifted" => Ok(DisruptionReason::Drifted),
        _ => Err("must be Underutilized, Empty or Drifted"),
    }
}

/// Reads an AKSNodeClass, of either version.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn node_class(object: &AKSNodeClass) -> Result<NodeClass, Violations> {
    let mut found = Violations::default();
    let spec = &object.spec;
    let name = common::name(&object.metadata, &mut found, |n| NodeClassName::new(n));
    let uid = common::uid(&object.metadata, &mut found);
    let disk = spec.os_disk_size_gb.unwrap_or(DEFAULT_OS_DISK_GB);
    let disk = u32::try_from(disk).map_err(|_| "must be 30 to 2048");
    let disk = found.take(&Path::from_dotted("spec.osDiskSizeGB"), disk);
    let pods = found.take_some(&Path::from_dotted("spec.maxPods"), spec.max_pods.as_ref(), |n| {
        u32::try_from(*n).map_err(|_| "must be 10 to 250")
    });
    let annotations = object.metadata.annotations.as_ref();
    let group = annotations.and_then(|all| all.get(labels::RESERVATION_GROUP)).map(String::as_str);
    let at = Path::from_dotted("metadata.annotations").key(labels::RESERVATION_GROUP);
    let reservations = found.take_some(&at, group, parse_reservation_group);
    let launch = spec.security.as_ref().and_then(|s| s.trusted_launch.as_ref());
    let is_set = |field: fn(&TrustedLaunch) -> Option<bool>| launch.and_then(field) == Some(true);
    let built = name.zip(uid).zip(disk).map(|((name, uid), os_disk_gb)| NodeClass {
        name,
        uid,
        image_family: Arc::from(spec.image_family.as_deref().unwrap_or(DEFAULT_IMAGE_FAMILY)),
        os_disk_gb,
        max_pods: pods,
        subnet: spec.vnet_subnet_id.as_deref().map(Arc::from),
        reservations,
        encryption_at_host: spec.security.as_ref().and_then(|s| s.encryption_at_host) == Some(true),
        trusted_launch: is_set(|l| l.vtpm) || is_set(|l| l.secure_boot),
        secure_boot: is_set(|l| l.secure_boot),
        vtpm: is_set(|l| l.vtpm),
        fips: spec.fips_mode.as_deref() == Some("FIPS"),
        gpu_drivers: spec.gpu.as_ref().and_then(|g| g.mode.as_deref()) != Some("None"),
        local_dns: spec.local_dns.as_ref().is_some_and(|d| d.mode == "Required"),
        artifact_streaming: spec.artifact_streaming.as_ref().and_then(|a| a.enabled) == Some(true),
        tags: common::labels(spec.tags.as_ref()),
        unhonoured: unsupported_fields(spec),
        generation: object.metadata.generation.unwrap_or_default(),
        conditions: read_conditions(object.status.as_ref().and_then(|status| status.conditions.as_deref())),
    });
    found.finish(built)
}

/// Kubelet settings that equal the API's defaults, which an API server fills in.
const KUBELET_DEFAULTS: [(&str, &str); 6] = [
    ("containerLogMaxFiles", "5"),
    ("containerLogMaxSize", r#""50Mi""#),
    ("cpuCFSQuota", "true"),
    ("cpuCFSQuotaPeriod", r#""100ms""#),
    ("cpuManagerPolicy", r#""none""#),
    ("topologyManagerPolicy", r#""none""#),
];

/// Fields that are set but have no effect on napkeeper's nodes: settings of the kubelet or operating system that their
/// bootstrap does not include, and unknown fields.
fn unsupported_fields(spec: &AKSNodeClassSpec) -> Vec<Arc<str>> {
    let Ok(Value::Object(fields)) = serde_json::to_value(spec) else { return vec![Arc::from("spec")] };
    let mut found: Vec<Arc<str>> = Vec::new();
    for (key, value) in &fields {
        match key.as_str() {
            "gpu" | "imageFamily" | "maxPods" | "osDiskSizeGB" | "security" | "tags" | "vnetSubnetID" => {}
            "artifactStreaming" if value["enabled"] != true => {}
            "fipsMode" if value != "FIPS" => {}
            "localDNS" if value["mode"] != "Required" => {}
            "kubelet" | "linuxOSConfig" => {
                let is_default = |name: &str, value: &Value| {
                    key == "kubelet" && KUBELET_DEFAULTS.contains(&(name, value.to_string().as_str()))
                };
                let set = value.as_object().into_iter().flatten().filter(|(name, value)| !is_default(name, value));
                found.extend(set.map(|(name, _)| Arc::from(format!("{key}.{name}"))));
            }
            _ => found.push(Arc::from(key.as_str())),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_names_a_group_of_reservations_or_is_wrong() {
        let class = |group: &str| {
            let annotations = json!({ "napkeeper.io/capacity-reservation-group": group });
            let object = json!({ "metadata": { "name": "a", "uid": "u", "annotations": annotations }, "spec": {} });
            node_class(&serde_json::from_value(object).unwrap())
        };
        let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/capacityReservationGroups/paid";
        assert_eq!(class(id).unwrap().reservations.unwrap().as_str(), id);
        let wrong = class("paid").unwrap_err().to_string();
        assert!(
            wrong.contains("metadata.annotations") && wrong.contains("capacityReservationGroups/<name>"),
            "{wrong}"
        );
    }

    #[test]
    fn unsupported_class_fields_are_named() {
        let class = |spec: Value| {
            let object = json!({ "metadata": { "name": "a", "uid": "u" }, "spec": spec });
            node_class(&serde_json::from_value(object).unwrap()).unwrap()
        };
        let named = |spec: Value| class(spec).unhonoured.iter().map(ToString::to_string).collect::<Vec<_>>();
        let honoured = json!({
            "imageFamily": "Ubuntu", "osDiskSizeGB": 64, "maxPods": 30, "tags": { "a": "b" }, "gpu": { "mode": "None" },
            "security": { "encryptionAtHost": true, "trustedLaunch": { "vtpm": true } }, "fipsMode": "Disabled",
            "artifactStreaming": { "enabled": false },
            "kubelet": { "cpuCFSQuota": true, "containerLogMaxSize": "50Mi", "topologyManagerPolicy": "none" },
        });
        assert_eq!(named(honoured.clone()), Vec::<String>::new());
        let class = class(honoured);
        assert_eq!((class.trusted_launch, class.vtpm, class.secure_boot), (true, true, false));
        let others = json!({
            "fipsMode": "FIPS", "artifactStreaming": { "enabled": true }, "kubelet": { "cpuManagerPolicy": "static" },
            "linuxOSConfig": { "sysctls": { "vmSwappiness": 1 } }, "newer": 1,
        });
        let all = ["artifactStreaming", "fipsMode", "kubelet.cpuManagerPolicy", "linuxOSConfig.sysctls", "newer"];
        assert_eq!(named(others), all);
    }
}
