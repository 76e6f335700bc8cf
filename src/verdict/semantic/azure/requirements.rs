//! The requirements of a NodePool as written, with their paths.

use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_core::catalog::{PoolRequirement, RequirementSource};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::labels;
use napkeeper_core::model::requirements::{Operator, Requirement};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Where a NodePool's requirements are.
pub(crate) const POOL_PATH: &str = "spec.template.spec.requirements";
const CLAIM_PATH: &str = "spec.requirements";
const LABELS_PATH: &str = "spec.template.metadata.labels";

/// The requirements of an object, as written.
pub(crate) struct RequirementEntries<'v> {
    at: &'static str,
    list: &'v [Value],
    labels: Option<&'v Map<String, Value>>,
}

/// One requirement.
pub(crate) struct RequirementEntry<'v> {
    pub(crate) index: usize,
    /// As written.
    pub(crate) key: &'v str,
    pub(crate) operator: Operator,
    values: &'v [Value],
    min_values: Option<u32>,
}

impl<'v> RequirementEntries<'v> {
    pub(crate) fn of_pool(value: &'v Value) -> Self {
        let template = &value["spec"]["template"];
        let labels = template["metadata"]["labels"].as_object();
        Self { at: POOL_PATH, list: list(&template["spec"]["requirements"]), labels }
    }

    pub(crate) fn of_claim(value: &'v Value) -> Self {
        Self { at: CLAIM_PATH, list: list(&value["spec"]["requirements"]), labels: None }
    }

    /// The requirements, by index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RequirementEntry<'v>> {
        self.list.iter().enumerate().filter_map(|(index, entry)| {
            Some(RequirementEntry {
                index,
                key: entry["key"].as_str()?,
                operator: entry["operator"].as_str()?.parse().ok()?,
                values: list(&entry["values"]),
                min_values: entry["minValues"].as_u64().and_then(|n| u32::try_from(n).ok()),
            })
        })
    }

    /// Their keys as written, by index.
    fn keys(&self) -> impl Iterator<Item = (usize, &'v str)> {
        self.list.iter().enumerate().filter_map(|(i, entry)| Some((i, entry["key"].as_str()?)))
    }

    /// The labels of the template.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&'v str, &'v str)> {
        let labels = self.labels.into_iter().flatten();
        labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// Where a requirement is.
    pub(crate) fn path(&self, index: usize) -> Path {
        Path::from_dotted(self.at).index(index)
    }
}

impl<'v> RequirementEntry<'v> {
    /// The values, by index.
    pub(crate) fn values(&self) -> impl Iterator<Item = (usize, &'v str)> {
        self.values.iter().enumerate().filter_map(|(i, v)| Some((i, v.as_str()?)))
    }

    /// The requirement on the label.
    pub(crate) fn requirement(&self) -> Option<Requirement> {
        let values: Vec<&str> = self.values().map(|(_, v)| v).collect();
        Requirement::of_karpenter(self.operator, &values).ok().map(|r| r.with_min_values(self.min_values))
    }

    /// The operator compares numbers.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self.operator, Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte)
    }
}

/// Where a label of a NodePool's template is.
pub(crate) fn label_path(key: &str) -> Path {
    Path::from_dotted(LABELS_PATH).key(key)
}

/// One requirement of a NodePool, as retained with the NodePool.
#[derive(Debug, Clone)]
pub(crate) struct DeclaredRequirement {
    at: RequirementSource,
    key: Arc<str>,
    /// Set if the NodePool has several requirements on the key; otherwise the domain's NodePool has it.
    own: Option<Requirement>,
}

/// The requirements of a NodePool in their order, then the labels of its template.
pub(in crate::semantic) fn declared_requirements(
    value: &Value,
    manifest_object: &Object,
) -> Option<Box<[DeclaredRequirement]>> {
    let Object::NodePool(pool) = manifest_object else { return None };
    let entries = RequirementEntries::of_pool(value);
    let normal = |key: &'_ str| labels::normalize(key).to_owned();
    // Most NodePools have one requirement per key, which the domain has.
    let any_repeated = entries.keys().count() + entries.labels().count() > pool.requirements.iter().count();
    let all: Vec<String> = match any_repeated {
        true => {
            entries.keys().map(|(_, key)| normal(key)).chain(entries.labels().map(|(key, _)| normal(key))).collect()
        }
        false => Vec::new(),
    };
    let declared = |at, key: &str, own: &dyn Fn() -> Option<Requirement>| {
        let (key, _) = pool.requirements.get_key_value(labels::normalize(key))?;
        let repeated = all.iter().filter(|k| **k == **key).count() > 1;
        Some(DeclaredRequirement { at, own: repeated.then(own).flatten(), key: Arc::clone(key) })
    };
    let own = |index| entries.iter().find(|e| e.index == index).and_then(|e| e.requirement());
    let requirements =
        entries.keys().filter_map(|(i, key)| declared(RequirementSource::Requirement(i), key, &|| own(i)));
    let of_labels = entries
        .labels()
        .filter_map(|(key, value)| declared(RequirementSource::Label, key, &|| Some(Requirement::any_of([value]))));
    Some(requirements.chain(of_labels).collect())
}

/// The requirements of a NodePool, for the core.
pub(crate) fn pool_requirements<'r>(
    pool: &'r NodePool,
    declared: &'r [DeclaredRequirement],
) -> Vec<PoolRequirement<'r>> {
    let entry = |declared: &'r DeclaredRequirement| {
        let requirement = declared.own.as_ref().or_else(|| pool.requirements.get(&declared.key))?;
        Some(PoolRequirement { source: declared.at, key: &declared.key, requirement })
    };
    declared.iter().filter_map(entry).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
