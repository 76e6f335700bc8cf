//! The attach-detach controller: which volume is on which node.

use super::AttachedVolume;
use crate::cluster::{Cluster, ClusterEvent, Delta, Timer};
use napkeeper_core::model::cluster::volume::Attachment;
use napkeeper_core::model::names::{NodeName, ObjectName};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Cluster {
    pub(super) fn detach_unused(&mut self) {
        let mut used: BTreeSet<(ObjectName, NodeName)> = BTreeSet::new();
        for pod in self.pods_with_volumes() {
            let node = pod.node.as_ref().filter(|_| !pod.is_terminal());
            let volumes = pod.volumes.iter().filter_map(|v| self.bound_volume(&pod, v));
            used.extend(node.map_or_else(Vec::new, |n| volumes.map(|v| (v, n.clone())).collect()));
        }
        let unused = |(volume, attached): (&ObjectName, &AttachedVolume)| {
            let attachment = (volume.clone(), attached.object.node.clone());
            (!attached.is_detaching && !used.contains(&attachment)).then_some(attachment.0)
        };
        let unused_volumes: Vec<ObjectName> = self.volumes.attached.iter().filter_map(unused).collect();
        for volume in unused_volumes {
            let Some(attached) = self.volumes.attached.get_mut(&volume) else { continue };
            attached.is_detaching = true;
            let name = attached.object.name.clone();
            let delay = self.timings.disk_detaches.of(self.seed, "detach", name.as_str());
            self.set_timer(delay, Timer::Detach(name));
        }
    }

    /// A disk has left its node; pods that need it elsewhere get it.
    pub(in crate::cluster) fn detached(&mut self, attachment: &ObjectName) {
        let mut attached = self.volumes.attached.iter();
        let found =
            attached.find(|(_, attached)| attached.object.name == *attachment).map(|(volume, _)| volume.clone());
        let removed = found.and_then(|volume| self.volumes.attached.remove(&volume));
        self.store.remove_attachment(attachment);
        self.deltas.push(Delta::AttachmentGone(attachment.clone()));
        if let Some(AttachedVolume { disk: Some(disk), vm: Some(vm), .. }) = removed {
            self.emit(ClusterEvent::DiskDetached { disk, vm });
        }
        self.dirty.volumes = true;
    }

    /// Attaches a volume to a node; true if it is attached.
    pub(super) fn attach(&mut self, volume: ObjectName, node: &NodeName) -> bool {
        if let Some(attached) = self.volumes.attached.get(&volume) {
            return attached.object.node == *node && !attached.is_detaching;
        }
        let Some(object) = self.store.volumes().get(&volume) else {
            return false;
        };
        let disk = object.handle.clone();
        let vm = self.store.nodes().get(node);
        let vm = vm.and_then(|n| n.provider_id.clone());
        if let (Some(disk), Some(vm)) = (disk.clone(), vm.clone()) {
            self.emit(ClusterEvent::DiskAttached { disk, vm });
        }
        let object =
            Arc::new(Attachment { name: self.ids.name(&volume), volume: Some(volume.clone()), node: node.clone() });
        self.store.put_attachment(object.name.clone(), Arc::clone(&object));
        self.deltas.push(Delta::Attachment(Arc::clone(&object)));
        let attached = AttachedVolume { object, disk, vm, is_detaching: false };
        self.volumes.attached.insert(volume, attached);
        true
    }

    /// True while a volume is attached to a node.
    pub(crate) fn has_attachments(&self, node: &NodeName) -> bool {
        self.volumes.attachments().any(|attachment| attachment.node == *node)
    }
}
