//! The objects of an input: one at a time, and what is kept of each to compare them.

use super::azure::{self, Said};
use napkeeper_api::manifests::Object;
use napkeeper_api::path::Path;
use napkeeper_api::yaml::Chunk;
use napkeeper_core::labels::DO_NOT_DISRUPT;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One object whose form is right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'s> {
    /// As it is given: what a person wrote.
    pub(crate) value: &'s Value,
    /// As it would be stored: with defaults, without nulls.
    pub(crate) stored: &'s Value,
    /// As the domain knows it.
    pub(crate) object: &'s Object,
    /// `value` is what `migrate` makes of an older shape: values in it may be defaults that nobody wrote.
    pub(crate) mended: bool,
}

/// Where a document stands in the input.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Which of the sources.
    pub(crate) source: usize,
    /// Which part of it.
    pub(crate) chunk: Chunk,
    /// Which document of that part.
    pub(crate) nth: usize,
}

/// What is kept of an object, to look at it together with all others. Small: there may be thousands.
#[derive(Debug, Clone)]
pub(crate) struct Digest {
    /// Where it stands.
    pub(crate) at: Place,
    /// Its root in the document; not the document's own for an item of a List.
    pub(crate) root: Path,
    /// As the domain knows it.
    pub(crate) object: Object,
    /// `metadata.annotations`.
    pub(crate) annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// The label `app.kubernetes.io/managed-by` says Helm.
    pub(crate) of_chart: bool,
    /// What a NodePool asks for, entry by entry in its order: the domain knows only all of it together.
    pub(crate) asked: Option<Box<[Said]>>,
    /// The text of `karpenter.sh/do-not-disrupt` on the pods of a workload.
    pub(crate) do_not_disrupt: Option<Arc<str>>,
    /// What of it an API server writes and nobody else: not in the order of the file.
    pub(crate) server_fields: Vec<&'static str>,
    /// The pods of a workload are kept apart, by a topology spread or a pod anti-affinity.
    pub(crate) spreads: bool,
    /// The whole object, of kinds that only a family of rules reads (CustomResourceDefinitions' metadata, and the
    /// objects of Argo CD, Flux and Azure's networks).
    pub(crate) raw: Option<Arc<Value>>,
}

/// All objects of an input.
#[derive(Debug, Clone, Default)]
pub(crate) struct Render {
    /// In the order of the input.
    pub(crate) digests: Vec<Digest>,
    /// Names of the sources.
    pub(crate) files: Vec<Arc<str>>,
}

/// API groups of which the whole object is kept.
const KEPT_WHOLE: [&str; 6] = [
    "admissionregistration.k8s.io",
    "kustomize.toolkit.fluxcd.io",
    "helm.toolkit.fluxcd.io",
    "argoproj.io",
    "source.toolkit.fluxcd.io",
    "network.azure.com",
];

impl Digest {
    /// What is kept of an object.
    pub(crate) fn of(at: Place, root: Path, value: &Value, object: Object) -> Self {
        let annotations = value["metadata"]["annotations"].as_object().into_iter().flatten();
        let text = |(k, v): (&String, &Value)| Some((Arc::from(k.as_str()), Arc::from(v.as_str()?)));
        let annotations = annotations.filter_map(text).collect();
        let of_chart = value["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm";
        let asked = azure::asked(value, &object);
        let kept = value["spec"]["template"]["metadata"]["annotations"][DO_NOT_DISRUPT].as_str();
        let do_not_disrupt = kept.map(Arc::from);
        let server_fields = server_fields(value);
        let pod = &value["spec"]["template"]["spec"];
        let spreads = pod["topologySpreadConstraints"].is_array() || pod["affinity"]["podAntiAffinity"].is_object();
        let raw = raw(value);
        Self { at, root, annotations, of_chart, asked, do_not_disrupt, server_fields, spreads, raw, object }
    }
}

/// Fields that an API server writes. Null and empty ones come from tools that print objects, and mean nothing.
fn server_fields(value: &Value) -> Vec<&'static str> {
    const METADATA: [&str; 6] =
        ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"];
    let means = |v: &Value| match v {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    let status = means(&value["status"]).then_some("status");
    METADATA.into_iter().filter(|field| means(&value["metadata"][*field])).chain(status).collect()
}

fn raw(value: &Value) -> Option<Arc<Value>> {
    let api_version = value["apiVersion"].as_str().unwrap_or_default();
    let group = api_version.split('/').next().unwrap_or_default();
    if value["kind"] == "CustomResourceDefinition" {
        // Its schemas would be the largest part of all that is kept.
        let mut small = value.clone();
        if let Some(map) = small.as_object_mut() {
            map.shift_remove("spec");
            map.shift_remove("status");
        }
        return Some(Arc::new(small));
    }
    KEPT_WHOLE.contains(&group).then(|| Arc::new(value.clone()))
}
