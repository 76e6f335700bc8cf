//! The fields of a NodePool, an AKSNodeClass and of what is beside them that make a node what it is.
//!
//! A NodeClaim is created with those of its time, so that a later change can be told field by field. They are read from the
//! domain's types, so that order, spelling and defaults of a manifest make no difference.

use super::claim::ClaimSpec;
use super::node_base::NodeBase;
use super::pod::{Labels, Taint};
use super::pool::{NodeClass, NodePool};
use crate::model::labels::RESERVATION_GROUP;
use crate::model::support::hash::fnv1a;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The version of the list of fields. Templates of other versions are not compared: what they lack says nothing.
const VERSION: u32 = 1;
/// Longer values are recorded by their beginning, length and hash.
const MAX_VALUE: usize = 200;
/// How much of a longer value is recorded, in characters.
const BEGINNING: usize = 40;
/// Most bytes of the names and values of one object's fields; of more only a hash is recorded.
const MAX_BYTES: usize = 3_500;

/// The fields of an object that make a node what it is, by their paths.
type Fields = BTreeMap<String, String>;

/// What a NodeClaim is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    version: u32,
    node_pool: Fields,
    /// `None` where the class is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_class: Option<Fields>,
    /// Fields of `napkeeper.yaml`; those that it does not have are not known.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    configuration: Fields,
    /// The version of the control plane. Not compared: what version a node has is up to its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubernetes_version: Option<String>,
}

/// An object that a node is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplateObject {
    /// Its NodePool.
    NodePool,
    /// Its AKSNodeClass.
    NodeClass,
    /// The file `napkeeper.yaml`.
    Configuration,
    /// The kubelet.
    Kubelet,
}

impl TemplateObject {
    /// Its kind, or the name of the file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodePool => "NodePool",
            Self::NodeClass => "AKSNodeClass",
            Self::Configuration => "napkeeper.yaml",
            Self::Kubelet => "kubelet",
        }
    }
}

/// A field that has changed since a NodeClaim was created.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldChange {
    /// Of which object.
    pub object: TemplateObject,
    /// Its path.
    pub field: String,
    /// What it was; `None` if it was not set.
    pub from: Option<String>,
    /// What it is; `None` if it is not set any more.
    pub to: Option<String>,
}

/// A roll of nodes for which AKS knows maintenance windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollKind {
    /// Of the image of nodes.
    NodeImage,
    /// Of the Kubernetes version.
    KubernetesVersion,
}

impl FieldChange {
    /// The roll that this change is part of, if it is one that waits for maintenance windows.
    #[must_use]
    pub fn roll(&self) -> Option<RollKind> {
        match self.object {
            TemplateObject::Configuration if self.field == IMAGE => Some(RollKind::NodeImage),
            TemplateObject::Kubelet => Some(RollKind::KubernetesVersion),
            TemplateObject::NodePool | TemplateObject::NodeClass | TemplateObject::Configuration => None,
        }
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.object.as_str(), self.field)?;
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => write!(f, "{from:?} is now {to:?}"),
            (None, Some(to)) => write!(f, "set to {to:?}"),
            (Some(from), None) => write!(f, "{from:?} was removed"),
            (None, None) => f.write_str("changed"),
        }
    }
}

impl NodeTemplate {
    /// The template of a NodePool and its AKSNodeClass, if that is known, with what is beside them.
    #[must_use]
    pub fn of(pool: &NodePool, class: Option<&NodeClass>, base: &NodeBase) -> Self {
        // Azure compares ids without case.
        let image = base.image.as_ref().map(|image| (IMAGE.to_owned(), shortened(&image.to_ascii_lowercase())));
        Self {
            version: VERSION,
            node_pool: bounded(fields_of_pool(pool)),
            node_class: class.map(|class| bounded(fields_of_class(class, base))),
            configuration: image.into_iter().collect(),
            kubernetes_version: base.kubernetes_version.as_ref().map(ToString::to_string),
        }
    }

    /// The version of the control plane.
    #[must_use]
    pub fn kubernetes_version(&self) -> Option<&str> {
        self.kubernetes_version.as_deref()
    }

    /// The fields of a NodePool that are not the same on a NodeClaim of which is not recorded what it was made from. Labels that
    /// the NodePool does not set may have another origin. Annotations that the NodeClaim lacks were once not written to it.
    #[must_use]
    pub fn changes_since_claim(claim: &ClaimSpec, pool: &NodePool) -> Vec<FieldChange> {
        let common = |entries: &Labels, others: &Labels| -> Labels {
            let is_common = |(key, _): &(&Arc<str>, &Arc<str>)| others.contains_key(*key);
            entries.iter().filter(is_common).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let made_it = NodePool {
            labels: common(&claim.labels, &pool.labels),
            annotations: common(&claim.annotations, &pool.annotations),
            taints: claim.taints.clone(),
            startup_taints: claim.startup_taints.clone(),
            class: claim.class.clone(),
            expire_after: claim.expire_after,
            termination_grace_period: claim.termination_grace_period,
            ..pool.clone()
        };
        let now = NodePool { annotations: common(&pool.annotations, &claim.annotations), ..pool.clone() };
        let base = NodeBase::default();
        Self::of(&made_it, None, &base).changes(&Self::of(&now, None, &base))
    }

    /// The fields that are not the same in a later template. None if either has another version, because this is another
    /// program's then.
    #[must_use]
    pub fn changes(&self, later: &Self) -> Vec<FieldChange> {
        if self.version != later.version {
            return Vec::new();
        }
        let mut all = changes(TemplateObject::NodePool, &self.node_pool, &later.node_pool);
        if let (Some(old), Some(new)) = (&self.node_class, &later.node_class) {
            // Without a subnet that of all others is meant, where it was not known.
            let is_known =
                |change: &FieldChange| change.field != SUBNET || change.from.is_some() && change.to.is_some();
            all.extend(changes(TemplateObject::NodeClass, old, new).into_iter().filter(is_known));
        }
        if !self.configuration.is_empty() && !later.configuration.is_empty() {
            all.extend(changes(TemplateObject::Configuration, &self.configuration, &later.configuration));
        }
        all
    }

    /// It can be compared with those that this program makes.
    #[must_use]
    pub fn is_comparable(&self) -> bool {
        self.version == VERSION
    }
}

/// The field of an AKSNodeClass that names the subnet.
const SUBNET: &str = "spec.vnetSubnetID";
/// The field of the configuration that names the image.
const IMAGE: &str = "nodes.image";
/// The path under which the hash of too many fields is.
const ALL: &str = "spec";

/// The same, or their hash if there are too many.
fn bounded(fields: Fields) -> Fields {
    let bytes: usize = fields.iter().map(|(field, value)| field.len() + value.len()).sum();
    if bytes <= MAX_BYTES { fields } else { hashed(&fields) }
}

fn hashed(fields: &Fields) -> Fields {
    let bytes = fields.iter().flat_map(|(field, value)| field.bytes().chain([0]).chain(value.bytes()).chain([0]));
    Fields::from([(ALL.to_owned(), format!("{:016x}", fnv1a(bytes)))])
}

fn changes(object: TemplateObject, old: &Fields, new: &Fields) -> Vec<FieldChange> {
    if old == new {
        return Vec::new();
    }
    let change = |field: &String| {
        let (from, to) = (old.get(field), new.get(field));
        (from != to).then(|| FieldChange { object, field: field.clone(), from: from.cloned(), to: to.cloned() })
    };
    if old.contains_key(ALL) != new.contains_key(ALL) {
        // Of one there is only the hash, which the other's fields cannot have: it has fewer.
        return vec![FieldChange { object, field: ALL.to_owned(), from: None, to: None }];
    }
    let fields: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    fields.into_iter().filter_map(change).collect()
}

fn fields_of_pool(pool: &NodePool) -> Fields {
    let mut fields = Fields::new();
    let metadata = [("labels", &pool.labels), ("annotations", &pool.annotations)];
    for (kind, entries) in metadata {
        fields.extend(map_fields(&format!("spec.template.metadata.{kind}"), entries));
    }
    for (kind, taints) in [("taints", &pool.taints), ("startupTaints", &pool.startup_taints)] {
        fields.extend(taints.iter().map(|taint| taint_field(kind, taint)));
    }
    fields.insert("spec.template.spec.nodeClassRef.name".to_owned(), pool.class.as_str().to_owned());
    let expire_after = pool.expire_after.map_or_else(|| "Never".to_owned(), in_whole_units);
    fields.insert("spec.template.spec.expireAfter".to_owned(), expire_after);
    let grace = pool.termination_grace_period.map(in_whole_units);
    fields.extend(grace.map(|grace| ("spec.template.spec.terminationGracePeriod".to_owned(), grace)));
    fields
}

fn fields_of_class(class: &NodeClass, base: &NodeBase) -> Fields {
    let mut fields = Fields::new();
    let mut set = |field: &str, value: Option<String>| {
        fields.extend(value.map(|value| (field.to_owned(), shortened(&value))));
    };
    let is_set = |holds: bool, value: &str| holds.then(|| value.to_owned());
    set("spec.imageFamily", Some(class.image_family.to_string()));
    set("spec.osDiskSizeGB", Some(class.os_disk_gb.to_string()));
    set("spec.maxPods", class.max_pods.map(|pods| pods.to_string()));
    // Azure compares ids without case. That of all others makes the same nodes as its name in the class.
    let default_subnet = || base.subnet.as_ref().map(|subnet| subnet.folded().to_owned());
    set(SUBNET, class.subnet.as_ref().map(|subnet| subnet.to_ascii_lowercase()).or_else(default_subnet));
    set("spec.security.encryptionAtHost", is_set(class.encryption_at_host, "true"));
    set("spec.security.trustedLaunch.secureBoot", is_set(class.secure_boot, "true"));
    set("spec.security.trustedLaunch.vtpm", is_set(class.vtpm, "true"));
    set("spec.fipsMode", is_set(class.fips, "FIPS"));
    set("spec.gpu.mode", is_set(!class.gpu_drivers, "None"));
    set("spec.localDNS.mode", is_set(class.local_dns, "Required"));
    set("spec.artifactStreaming.enabled", is_set(class.artifact_streaming, "true"));
    let group = class.reservations.as_ref().map(|group| group.folded().to_owned());
    set(&format!("metadata.annotations[{RESERVATION_GROUP}]"), group);
    fields
}

fn map_fields(path: &str, entries: &Labels) -> impl Iterator<Item = (String, String)> {
    entries.iter().map(move |(key, value)| (format!("{path}[{key}]"), shortened(value)))
}

/// Taints are known by key and effect, in any order.
fn taint_field(kind: &str, taint: &Taint) -> (String, String) {
    let field = format!("spec.template.spec.{kind}[{}:{:?}]", taint.key, taint.effect);
    (field, shortened(&taint.value))
}

/// A duration in its largest whole unit.
fn in_whole_units(duration: SignedDuration) -> String {
    match duration.as_secs() {
        secs if secs % 3_600 == 0 => format!("{}h", secs / 3_600),
        secs if secs % 60 == 0 => format!("{}m", secs / 60),
        secs => format!("{secs}s"),
    }
}

/// A value as it is recorded: whole, or its beginning, length and hash.
fn shortened(value: &str) -> String {
    if value.len() <= MAX_VALUE {
        return value.to_owned();
    }
    let beginning: String = value.chars().take(BEGINNING).collect();
    format!("{beginning}… ({} bytes, hash {:016x})", value.len(), fnv1a(value.bytes()))
}
