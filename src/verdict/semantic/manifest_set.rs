//! The objects of an input: one at a time, and retained in small form to compare them.

use crate::semantic::azure::{self, DeclaredRequirement};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_api::yaml::Chunk;
use napkeeper_core::model::labels::DO_NOT_DISRUPT;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One object that matches its schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValidObject<'s> {
    /// The object as written.
    pub(crate) value: &'s Value,
    /// As it would be stored: with defaults, without nulls.
    pub(crate) stored: &'s Value,
    /// As the domain knows it.
    pub(crate) object: &'s Object,
    /// `value` is the output of `migrate` for an older version: it may contain defaults that were not written.
    pub(crate) migrated: bool,
}

/// The location of a document in the input.
#[derive(Debug, Clone)]
pub(crate) struct DocumentLocation {
    /// Which of the sources.
    pub(crate) source: usize,
    /// Which part of it.
    pub(crate) chunk: Chunk,
    /// Which document of that part.
    pub(crate) nth: usize,
}

/// The part of an object that is retained to check it together with all others. Small: there may be thousands.
#[derive(Debug, Clone)]
pub(crate) struct RetainedObject {
    /// Its location.
    pub(crate) at: DocumentLocation,
    /// Its root in the document; not the document's own for an item of a List.
    pub(crate) root: Path,
    /// As the domain knows it.
    pub(crate) object: Object,
    /// `metadata.annotations`.
    pub(crate) annotations: BTreeMap<Arc<str>, Arc<str>>,
    /// The label `app.kubernetes.io/managed-by` is Helm.
    pub(crate) managed_by_helm: bool,
    /// The requirements of a NodePool in their order: the domain has them only combined.
    pub(crate) requirements: Option<Box<[DeclaredRequirement]>>,
    /// The text of `karpenter.sh/do-not-disrupt` on the pods of a workload.
    pub(crate) do_not_disrupt: Option<Arc<str>>,
    /// Fields that only an API server writes, not in the order of the file.
    pub(crate) server_fields: Vec<&'static str>,
    /// The pods of a workload are spread, by a topology spread or a pod anti-affinity.
    pub(crate) spreads: bool,
    /// The whole object, of kinds that only a family of rules reads (CustomResourceDefinitions' metadata, and the
    /// objects of Argo CD, Flux and Azure's networks).
    pub(crate) raw: Option<Arc<Value>>,
}

/// All objects of an input.
#[derive(Debug, Clone, Default)]
pub(crate) struct ManifestSet {
    /// In the order of the input.
    pub(crate) objects: Vec<RetainedObject>,
    /// Names of the sources.
    files: Vec<Arc<str>>,
    /// Of each object that is in several files, the source of the second. If there is one, each folder is a cluster.
    repeated: Vec<usize>,
}

impl ManifestSet {
    /// All objects of the files of these names.
    pub(crate) fn new(objects: Vec<RetainedObject>, files: Vec<Arc<str>>) -> Self {
        let (mut first, mut second) = (BTreeMap::new(), BTreeMap::new());
        for retained in &objects {
            let (Some(identity), source) = (ObjectIdentity::of(&retained.object), retained.at.source) else { continue };
            if *first.entry(identity).or_insert(source) != source {
                second.entry(identity).or_insert(source);
            }
        }
        let repeated = second.into_values().collect();
        Self { objects, files, repeated }
    }

    /// Of each object that is in several files, the source of the second.
    pub(crate) fn repeated(&self) -> &[usize] {
        &self.repeated
    }

    /// The names of all files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| &**file)
    }

    /// The name of the file of an object.
    pub(crate) fn file(&self, retained: &RetainedObject) -> &str {
        self.files.get(retained.at.source).map(|file| &**file).unwrap_or_default()
    }

    /// Which of several clusters an object is for: the folder of its file, or what it is rendered from. Empty where all are for one.
    pub(crate) fn cluster_folder(&self, index: usize) -> &str {
        let Some(retained) = self.objects.get(index).filter(|_| !self.repeated.is_empty()) else { return "" };
        let file = self.file(retained);
        if file.starts_with('<') {
            return file;
        }
        file.rfind(['/', '\\']).and_then(|end| file.get(..end)).unwrap_or_default()
    }

    /// Two objects may be in one cluster: they are of one part, and no two versions of the same object.
    pub(crate) fn may_share_cluster(&self, a: usize, b: usize) -> bool {
        let identity = |index: usize| self.objects.get(index).and_then(|d| ObjectIdentity::of(&d.object));
        let same = || identity(a).is_some_and(|of_a| identity(b) == Some(of_a));
        self.cluster_folder(a) == self.cluster_folder(b) && (a == b || !same())
    }
}

/// Kind, namespace and name: a cluster has one object of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectIdentity<'o> {
    pub(crate) kind: &'static str,
    namespace: Option<&'o str>,
    name: &'o str,
}

impl<'o> ObjectIdentity<'o> {
    /// The location and value of an object that is retained as a whole.
    pub(crate) fn of(object: &'o Object) -> Option<Self> {
        let bare = |kind, name: &'o str| Some(Self { kind, namespace: None, name });
        let (kind, key) = match object {
            Object::NodePool(o) => return bare("NodePool", o.name.as_str()),
            Object::NodeClass(o) => return bare("AKSNodeClass", o.name.as_str()),
            Object::NodeClaim(o) => return bare("NodeClaim", o.name.as_str()),
            Object::NodeOverlay(o) => return bare("NodeOverlay", o.name.as_str()),
            Object::Deployment(o) => ("Deployment", &o.key),
            Object::StatefulSet(o) => ("StatefulSet", &o.key),
            Object::DaemonSet(o) => ("DaemonSet", &o.key),
            Object::PodDisruptionBudget(o) => ("PodDisruptionBudget", &o.key),
            Object::Pod(o) => ("Pod", &o.key),
            Object::Job(o) => ("Job", &o.key),
            Object::OrphanSweep(_)
            | Object::PlacementPolicy(_)
            | Object::PersistentVolume(_)
            | Object::Other { .. } => return None,
        };
        Some(Self { kind, namespace: Some(key.namespace.as_str()), name: key.name.as_str() })
    }
}

/// The name, after its namespace if there is one.
impl fmt::Display for ObjectIdentity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(self.name),
        }
    }
}

/// API groups whose objects are retained as a whole.
const RAW_GROUPS: [&str; 6] = [
    "admissionregistration.k8s.io",
    "kustomize.toolkit.fluxcd.io",
    "helm.toolkit.fluxcd.io",
    "argoproj.io",
    "source.toolkit.fluxcd.io",
    "network.azure.com",
];

impl RetainedObject {
    /// Retains the parts of an object.
    pub(crate) fn of(at: DocumentLocation, root: Path, value: &Value, object: Object) -> Self {
        let annotations = value["metadata"]["annotations"].as_object().into_iter().flatten();
        let text = |(k, v): (&String, &Value)| Some((Arc::from(k.as_str()), Arc::from(v.as_str()?)));
        let annotations = annotations.filter_map(text).collect();
        let managed_by_helm = value["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm";
        let requirements = azure::declared_requirements(value, &object);
        let do_not_disrupt =
            value["spec"]["template"]["metadata"]["annotations"][DO_NOT_DISRUPT].as_str().map(Arc::from);
        let server_fields = server_fields(value);
        let pod = &value["spec"]["template"]["spec"];
        let spreads = pod["topologySpreadConstraints"].is_array() || pod["affinity"]["podAntiAffinity"].is_object();
        let raw = raw(value);
        Self {
            at,
            root,
            annotations,
            managed_by_helm,
            requirements,
            do_not_disrupt,
            server_fields,
            spreads,
            raw,
            object,
        }
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
        // Its schemas would be the largest part.
        let mut small = value.clone();
        if let Some(map) = small.as_object_mut() {
            map.shift_remove("spec");
            map.shift_remove("status");
        }
        return Some(Arc::new(small));
    }
    RAW_GROUPS.contains(&group).then(|| Arc::new(value.clone()))
}
