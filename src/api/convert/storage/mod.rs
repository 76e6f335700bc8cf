//! Conversion of PersistentVolumeClaims, StorageClasses, CSINodes, VolumeAttachments and inline disks.

#[cfg(test)]
mod tests;
pub(crate) mod volume;

use crate::convert::common;
use crate::convert::storage::volume::alternative_terms;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass as WireStorageClass, VolumeAttachment};
use napkeeper_core::model::cluster::volume::{AttachLimits, Attachment, DiskUse, StorageClass, VolumeClaim, driver};
use napkeeper_core::model::labels::normalize;
use napkeeper_core::model::names::{ArmId, NodeName, ObjectName};
use napkeeper_core::model::requirements::{Requirement, Requirements};
use std::sync::Arc;

/// Annotation of a claim of which both sides of the binding are written.
const BIND_COMPLETED_ANNOTATION: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of a claim with the node that its first pod is to run on.
const SELECTED_NODE_ANNOTATION: &str = "volume.kubernetes.io/selected-node";
/// Annotations of the class of claims that name none; the second is the first's name of old.
const DEFAULT_CLASS_ANNOTATIONS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The access mode of a claim that only one pod may have.
const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";
/// Annotation of a claim with its class, from before there was a field.
const LEGACY_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Reads a PersistentVolumeClaim.
///
/// # Errors
/// [`Violations`]: all of them.
pub fn volume_claim(object: &PersistentVolumeClaim) -> Result<VolumeClaim, Violations> {
    let mut found = Violations::default();
    let metadata = &object.metadata;
    let key = common::key(metadata, &mut found);
    let uid = common::uid(metadata, &mut found);
    let spec = object.spec.as_ref();
    let annotation = |name: &str| metadata.annotations.as_ref().and_then(|all| all.get(name));
    let mut name = |field: Option<&String>, path: &str| {
        let given = field.filter(|text| !text.is_empty());
        found.take_some(&Path::from_dotted(path), given, |text| ObjectName::new(text))
    };
    let volume = name(spec.and_then(|s| s.volume_name.as_ref()), "spec.volumeName");
    // As in Kubernetes, the annotation takes precedence over the field.
    let class = annotation(LEGACY_CLASS_ANNOTATION).or_else(|| spec.and_then(|s| s.storage_class_name.as_ref()));
    let class = name(class, "spec.storageClassName");
    let selected = annotation(SELECTED_NODE_ANNOTATION).filter(|text| !text.is_empty());
    let at = Path::from_dotted("metadata.annotations").key(SELECTED_NODE_ANNOTATION);
    let selected_node = found.take_some(&at, selected, |text| NodeName::new(text));
    let built = key.zip(uid).map(|(key, uid)| VolumeClaim {
        key,
        uid,
        volume,
        bound: annotation(BIND_COMPLETED_ANNOTATION).is_some(),
        class,
        lost: object.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost"),
        deleting: metadata.deletion_timestamp.is_some(),
        for_one_pod: spec
            .and_then(|s| s.access_modes.as_ref())
            .is_some_and(|modes| modes.iter().any(|m| m == READ_WRITE_ONCE_POD)),
        selected_node,
    });
    found.finish(built)
}

/// Reads a StorageClass.
///
/// # Errors
/// [`Violations`]: all of them.
pub fn storage_class(object: &WireStorageClass) -> Result<StorageClass, Violations> {
    let mut found = Violations::default();
    let name = common::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let waits_for_pod = object.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let terms = object.allowed_topologies.iter().flatten().map(|term| {
        let mut all = Requirements::new();
        for expression in term.match_label_expressions.iter().flatten() {
            all.add(normalize(&expression.key), Requirement::any_of(&expression.values));
        }
        all
    });
    let topologies = alternative_terms(&terms.collect::<Vec<_>>());
    let annotations = object.metadata.annotations.as_ref();
    let is_default = DEFAULT_CLASS_ANNOTATIONS
        .iter()
        .any(|key| annotations.and_then(|all| all.get(*key)).is_some_and(|v| v == "true"));
    let provisioner = driver(&object.provisioner);
    found.finish(name.map(|name| StorageClass { name, provisioner, waits_for_pod, topologies, is_default }))
}

/// Reads a CSINode: of each driver on the node, how many volumes it takes there.
///
/// # Errors
/// [`Violations`]: all of them.
pub fn attach_limits(object: &CSINode) -> Result<AttachLimits, Violations> {
    let mut found = Violations::default();
    let node = common::name(&object.metadata, &mut found, |n| NodeName::new(n));
    let mut limits = Vec::new();
    for (i, wire) in object.spec.drivers.iter().enumerate() {
        let at = Path::from_dotted("spec.drivers").index(i).key("allocatable").key("count");
        let count = wire.allocatable.as_ref().and_then(|a| a.count);
        let count = found.take_some(&at, count.as_ref(), |n| u32::try_from(*n).map_err(|_| "must be at least 0"));
        limits.extend(count.map(|count| (driver(&wire.name), count)));
    }
    limits.sort_unstable();
    found.finish(node.map(|node| AttachLimits { node, limits: limits.into() }))
}

/// Reads a VolumeAttachment, and its inline disk if it names no PersistentVolume.
///
/// # Errors
/// [`Violations`]: all of them.
pub fn attachment(object: &VolumeAttachment) -> Result<(Attachment, Option<DiskUse>), Violations> {
    let mut found = Violations::default();
    let name = common::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let source = &object.spec.source;
    let volume = source.persistent_volume_name.as_ref();
    let volume =
        found.take_some(&Path::from_dotted("spec.source.persistentVolumeName"), volume, |n| ObjectName::new(n));
    let node = found.take(&Path::from_dotted("spec.nodeName"), NodeName::new(&object.spec.node_name));
    let inline = source.inline_volume_spec.as_ref();
    let handle = inline.and_then(|s| s.csi.as_ref()).map(|csi| csi.volume_handle.as_str());
    let uri = inline.and_then(|s| s.azure_disk.as_ref()).map(|disk| disk.disk_uri.as_str());
    let built = name.zip(node).map(|(name, node)| {
        let user = format!("VolumeAttachment {name}");
        let disk_use = handle.or(uri).and_then(|id| disk_use(id, &user));
        (Attachment { name, volume, node }, disk_use)
    });
    found.finish(built)
}

/// The inline disks of a pod (`azureDisk` volumes). Blob disks have no resource id and are ignored.
#[must_use]
pub fn inline_disks(pod: &Pod) -> Vec<DiskUse> {
    let meta = &pod.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    let user = format!("Pod {namespace}/{}", meta.name.as_deref().unwrap_or_default());
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.filter_map(|v| disk_use(&v.azure_disk.as_ref()?.disk_uri, &user)).collect()
}

/// The use of a disk, if the text is the id of one.
fn disk_use(id: &str, user: &str) -> Option<DiskUse> {
    Some(DiskUse { disk: ArmId::new(id).ok()?, user: Arc::from(user) })
}
