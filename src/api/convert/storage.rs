//! PersistentVolumeClaims, StorageClasses, VolumeAttachments, inline disks: who uses which disk, and where can it be?

use super::meta;
use super::violations::Violations;
use super::volume::one_of;
use crate::path::Path;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass as WireStorageClass, VolumeAttachment};
use napkeeper_core::cluster::volume::{Attachment, DiskUse};
use napkeeper_core::names::{ArmId, NodeName, ObjectKey, ObjectName};
use napkeeper_core::requirements::{Requirement, Requirements};
use std::sync::Arc;

/// A PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeClaim {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The PersistentVolume that it is, or will be, bound to.
    pub volume: Option<ObjectName>,
    /// The StorageClass; `None` where it waits for a PersistentVolume that somebody writes by hand.
    pub class: Option<ObjectName>,
    /// It is asked to go: no new pod gets it.
    pub deleting: bool,
}

/// A StorageClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    /// Name.
    pub name: ObjectName,
    /// Volumes are made where the first pod is placed (`WaitForFirstConsumer`).
    pub waits_for_pod: bool,
    /// Where volumes may be made.
    pub topologies: Requirements,
}

/// Reads a PersistentVolumeClaim.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn volume_claim(object: &PersistentVolumeClaim) -> Result<VolumeClaim, Violations> {
    let mut found = Violations::default();
    let key = meta::key(&object.metadata, &mut found);
    let spec = object.spec.as_ref();
    let mut name = |field: Option<&String>, path: &str| {
        let given = field.filter(|text| !text.is_empty());
        found.take_some(&Path::of(path), given, |text| ObjectName::new(text))
    };
    let volume = name(spec.and_then(|s| s.volume_name.as_ref()), "spec.volumeName");
    let class = name(spec.and_then(|s| s.storage_class_name.as_ref()), "spec.storageClassName");
    let deleting = object.metadata.deletion_timestamp.is_some();
    found.finish(key.map(|key| VolumeClaim { key, volume, class, deleting }))
}

/// Reads a StorageClass.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn storage_class(object: &WireStorageClass) -> Result<StorageClass, Violations> {
    let mut found = Violations::default();
    let name = meta::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let waits_for_pod = object.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    let terms = object.allowed_topologies.iter().flatten().map(|term| {
        let mut all = Requirements::new();
        for expression in term.match_label_expressions.iter().flatten() {
            all.add(&expression.key, Requirement::any_of(&expression.values));
        }
        all
    });
    let topologies = one_of(&terms.collect::<Vec<_>>(), &Path::of("allowedTopologies"), &mut found);
    found.finish(name.map(|name| StorageClass { name, waits_for_pod, topologies }))
}

/// Reads a VolumeAttachment, and the disk that it names by itself if it names no PersistentVolume.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn attachment(object: &VolumeAttachment) -> Result<(Attachment, Option<DiskUse>), Violations> {
    let mut found = Violations::default();
    let name = meta::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let source = &object.spec.source;
    let volume = source.persistent_volume_name.as_ref();
    let volume = found.take_some(&Path::of("spec.source.persistentVolumeName"), volume, |n| ObjectName::new(n));
    let node = found.take(&Path::of("spec.nodeName"), NodeName::new(&object.spec.node_name));
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

/// The disks that a pod names by itself (`azureDisk` volumes). Disks that are blobs have no resource id and are none
/// of ours.
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
