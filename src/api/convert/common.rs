//! Conversion of metadata and of fields that several kinds have.

use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::common::{Amount, Condition, ResourceList};
use crate::types::karpenter::{RequirementEntry, Taint as WireTaint};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use napkeeper_core::model::amounts::quantity::{Quantity, QuantityError};
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{Labels, Taint, TaintEffect};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{NameError, Namespace, ObjectKey, ObjectName, Uid};
use napkeeper_core::model::requirements::{Operator, Requirement, Requirements};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The object's name, checked.
pub(crate) fn name<T>(
    meta: &ObjectMeta,
    found: &mut Violations,
    new: impl FnOnce(&str) -> Result<T, NameError>,
) -> Option<T> {
    let path = Path::from_dotted("metadata.name");
    found.take(&path, new(meta.name.as_deref().unwrap_or_default()))
}

/// Namespace (absent is `default`) and name.
pub(crate) fn key(meta: &ObjectMeta, found: &mut Violations) -> Option<ObjectKey> {
    let namespace = namespace(meta, found);
    let name = name(meta, found, |n| ObjectName::new(n));
    Some(ObjectKey { namespace: namespace?, name: name? })
}

/// The namespace; absent is `default`.
pub(crate) fn namespace(meta: &ObjectMeta, found: &mut Violations) -> Option<Namespace> {
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    found.take(&Path::from_dotted("metadata.namespace"), Namespace::new(namespace))
}

/// The UID, or a placeholder for a manifest that was never created.
pub(crate) fn uid(meta: &ObjectMeta, found: &mut Violations) -> Option<Uid> {
    let stand_in = || format!("unsaved-{}", meta.name.as_deref().unwrap_or_default());
    let uid = meta.uid.clone().unwrap_or_else(stand_in);
    found.take(&Path::from_dotted("metadata.uid"), Uid::new(uid))
}

/// When the object was created; the epoch for a manifest that no API server has seen.
pub(crate) fn created_at(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0)
}

/// Labels, tags and annotations as the domain keeps them.
pub(crate) fn labels(map: Option<&BTreeMap<String, String>>) -> Labels {
    map.into_iter().flatten().map(|(k, v)| (labels::interned(k), Arc::from(v.as_str()))).collect()
}

/// A map of text as the wire has it; absent when empty.
pub(crate) fn text_map(map: &Labels) -> Option<BTreeMap<String, String>> {
    let text: BTreeMap<String, String> = map.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    (!text.is_empty()).then_some(text)
}

/// Entries of `requirements[]` together, as Karpenter reads them. Old label keys become their current ones.
pub(crate) fn requirements(entries: &[RequirementEntry], path: &Path, found: &mut Violations) -> Requirements {
    let mut all = Requirements::new();
    for (i, entry) in entries.iter().enumerate() {
        let at = path.index(i);
        let operator = found.take(&at.key("operator"), entry.operator.parse::<Operator>());
        let Some(operator) = operator else { continue };
        let values = entry.values.as_deref().unwrap_or_default();
        let requirement = found.take(&at.key("values"), Requirement::of_karpenter(operator, values));
        let least = found.take_some(&at.key("minValues"), entry.min_values.as_ref(), |n| {
            u32::try_from(*n).map_err(|_| "must be 1 to 50")
        });
        if operator == Operator::In && least.is_some_and(|n| values.len() < n as usize) {
            found.add(&at.key("values"), "must have at least minValues entries");
        }
        if let Some(requirement) = requirement {
            let key = labels::normalize(&entry.key);
            all.add(key, requirement.with_min_values(least));
        }
    }
    all
}

/// Requirements as entries of `requirements[]`.
pub(crate) fn requirement_entries(requirements: &Requirements) -> Vec<RequirementEntry> {
    let entries = requirements.iter().flat_map(|(key, requirement)| {
        let least = requirement.min_values().map(i64::from);
        requirement.entries().into_iter().map(move |(operator, values)| RequirementEntry {
            key: key.to_string(),
            operator: operator.as_str().to_owned(),
            values: (!values.is_empty()).then(|| values.iter().map(ToString::to_string).collect()),
            min_values: least,
            ..RequirementEntry::default()
        })
    });
    entries.collect()
}

/// Effect of a taint or a toleration.
pub(crate) fn effect(text: &str) -> Result<TaintEffect, &'static str> {
    match text {
        "NoSchedule" => Ok(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Ok(TaintEffect::PreferNoSchedule),
        "NoExecute" => Ok(TaintEffect::NoExecute),
        _ => Err("must be NoSchedule, PreferNoSchedule or NoExecute"),
    }
}

/// Taints.
pub(crate) fn taints(list: Option<&Vec<WireTaint>>, path: &Path, found: &mut Violations) -> Vec<Taint> {
    let mut all = Vec::new();
    for (i, taint) in list.into_iter().flatten().enumerate() {
        if let Some(effect) = found.take(&path.index(i).key("effect"), effect(&taint.effect)) {
            all.push(Taint {
                key: Arc::from(taint.key.as_str()),
                value: Arc::from(taint.value.as_deref().unwrap_or_default()),
                effect,
            });
        }
    }
    all
}

/// Taints as the wire has them; absent when there are none.
pub(crate) fn taint_list(taints: &[Taint]) -> Option<Vec<WireTaint>> {
    let list: Vec<WireTaint> = taints
        .iter()
        .map(|taint| WireTaint {
            key: taint.key.to_string(),
            value: (!taint.value.is_empty()).then(|| taint.value.to_string()),
            effect: format!("{:?}", taint.effect),
            ..WireTaint::default()
        })
        .collect();
    (!list.is_empty()).then_some(list)
}

/// The amount of a resource in the units of [`Resources`], rounded up.
pub(crate) fn amount(name: &str, text: &str) -> Result<i64, QuantityError> {
    let quantity = Quantity::parse(text)?;
    Ok(if name == "cpu" { quantity.milli_ceil() } else { quantity.ceil() })
}

/// Sets the amount of a resource by the name that manifests use.
pub(crate) fn set_amount(resources: &mut Resources, name: &str, amount: i64) {
    match name {
        "cpu" => resources.cpu_millis = amount,
        "memory" => resources.memory = amount,
        "ephemeral-storage" => resources.ephemeral_storage = amount,
        "pods" => resources.pods = amount,
        other => resources.set_extended(other, amount),
    }
}

/// Amounts by resource name, those of zero too.
pub(crate) fn amounts<'a, T: ToString + 'a>(
    list: impl IntoIterator<Item = (&'a String, &'a T)>,
    path: &Path,
    found: &mut Violations,
) -> Vec<(Arc<str>, i64)> {
    let read = |(name, quantity): (&'a String, &'a T)| {
        let amount = found.take(&path.key(name), amount(name, &quantity.to_string()))?;
        Some((Arc::from(name.as_str()), amount))
    };
    list.into_iter().filter_map(read).collect()
}

/// Amounts by resource name, each as `read` has it.
pub(crate) fn resources_by<'a, T: ToString + 'a, E: std::fmt::Display>(
    read: impl Fn(&str, &str) -> Result<i64, E>,
    list: impl IntoIterator<Item = (&'a String, &'a T)>,
    path: &Path,
    found: &mut Violations,
) -> Resources {
    let mut all = Resources::default();
    for (name, quantity) in list {
        if let Some(amount) = found.take(&path.key(name), read(name, &quantity.to_string())) {
            set_amount(&mut all, name, amount);
        }
    }
    all
}

/// Amounts by resource name.
pub(crate) fn resources<'a, T: ToString + 'a>(
    list: impl IntoIterator<Item = (&'a String, &'a T)>,
    path: &Path,
    found: &mut Violations,
) -> Resources {
    resources_by(amount, list, path, found)
}

/// Longest message of a condition that the API server takes.
pub(crate) const MAX_MESSAGE: usize = 32_768;

/// The current state of a condition.
pub(crate) struct ConditionState<'a> {
    /// Its `type`.
    pub(crate) name: &'a str,
    /// `True`, `False` or `Unknown`.
    pub(crate) status: &'a str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// The condition on the wire. Its transition time is that of the known one of its type if the status is the same.
pub(crate) fn condition(
    known: &[Condition],
    state: &ConditionState<'_>,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let before = known.iter().find(|c| c.kind == state.name && c.status == state.status);
    Condition {
        kind: state.name.to_owned(),
        status: state.status.to_owned(),
        reason: state.reason.to_owned(),
        message: state.message.chars().take(MAX_MESSAGE).collect(),
        observed_generation: generation,
        last_transition_time: before.map_or_else(|| now.to_string(), |c| c.last_transition_time.clone()),
        ..Condition::default()
    }
}

/// Amounts as the wire has them; absent when there are none.
pub(crate) fn resource_list(resources: &Resources) -> Option<ResourceList> {
    let mut list = ResourceList::new();
    let mut put = |name: &str, amount: i64, unit: &str| {
        if amount != 0 {
            list.insert(name.to_owned(), Amount::text(format!("{amount}{unit}")));
        }
    };
    put("cpu", resources.cpu_millis, "m");
    put("memory", resources.memory, "");
    put("ephemeral-storage", resources.ephemeral_storage, "");
    put("pods", resources.pods, "");
    for (name, amount) in &resources.extended {
        put(name, *amount, "");
    }
    (!list.is_empty()).then_some(list)
}

/// A time in RFC 3339.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| format!("{text:?} must be a time such as 2026-11-21T08:00:00Z"))
}
