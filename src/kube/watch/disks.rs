//! Disks: where can the volumes of a pod be used?
//!
//! A pod can only run where its PersistentVolumes are, or where the StorageClasses of those that are still to be made
//! allow. That is added to the selector of its shape. A pod whose claims lack a volume that no node would bring is not
//! helped by a new node: it does not count as unschedulable.

use napkeeper_core::cluster::Snapshot;
use napkeeper_core::cluster::pod::{Pod, PodShape};
use napkeeper_core::cluster::volume::{StorageClass, Volume, VolumeClaim};
use napkeeper_core::cluster::volume_needs::volume_needs;
use napkeeper_core::names::{ObjectKey, ObjectName};
use napkeeper_core::requirements::Requirements;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All that is known of disks, and the pods that use them.
#[derive(Debug, Default)]
pub(super) struct Disks {
    /// Volumes, claims and classes, and nothing else.
    store: Snapshot,
    pods: BTreeMap<ObjectKey, Placed>,
    /// Pods by the claims that they use.
    users: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
}

/// A pod with volumes, as it is and as it was last passed on.
#[derive(Debug)]
struct Placed {
    pod: Arc<Pod>,
    placed: Arc<Pod>,
}

impl Disks {
    /// The pod as it can be placed.
    pub(super) fn put_pod(&mut self, pod: &Arc<Pod>) -> Arc<Pod> {
        self.take_pod(&pod.key);
        let placed = self.place(pod);
        for claim in claims_of(pod) {
            self.users.entry(claim).or_default().insert(pod.key.clone());
        }
        if !pod.volumes.is_empty() {
            self.pods.insert(pod.key.clone(), Placed { pod: Arc::clone(pod), placed: Arc::clone(&placed) });
        }
        placed
    }

    pub(super) fn take_pod(&mut self, key: &ObjectKey) {
        let Some(old) = self.pods.remove(key) else { return };
        for claim in claims_of(&old.pod) {
            if let Some(users) = self.users.get_mut(&claim) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(&claim);
                }
            }
        }
    }

    /// A claim is new, has changed or is gone; the pods that are placed otherwise from now on.
    pub(super) fn set_claim(&mut self, key: &ObjectKey, claim: Option<Arc<VolumeClaim>>) -> Vec<Arc<Pod>> {
        match claim {
            Some(claim) => self.store.put_volume_claim(key.clone(), claim),
            None => self.store.take_volume_claim(key),
        }
        self.place_users([key.clone()])
    }

    /// A volume is new, has changed or is gone; the pods that are placed otherwise from now on.
    pub(super) fn set_volume(&mut self, name: &ObjectName, volume: Option<Arc<Volume>>) -> Vec<Arc<Pod>> {
        match volume {
            Some(volume) => self.store.put_volume(name.clone(), volume),
            None => self.store.take_volume(name),
        }
        let claims = self.store.volume_claims().values();
        let bound = claims.filter(|c| c.volume.as_ref() == Some(name) && self.users.contains_key(&c.key));
        let bound: Vec<_> = bound.map(|c| c.key.clone()).collect();
        self.place_users(bound)
    }

    /// A class is new, has changed or is gone; the pods that are placed otherwise from now on.
    pub(super) fn set_class(&mut self, name: &ObjectName, class: Option<Arc<StorageClass>>) -> Vec<Arc<Pod>> {
        match class {
            Some(class) => self.store.put_storage_class(name.clone(), class),
            None => self.store.take_storage_class(name),
        }
        let used: Vec<_> = self.users.keys().cloned().collect();
        self.place_users(used)
    }

    fn place_users(&mut self, claims: impl IntoIterator<Item = ObjectKey>) -> Vec<Arc<Pod>> {
        let users: BTreeSet<_> = claims.into_iter().filter_map(|c| self.users.get(&c)).flatten().cloned().collect();
        let mut changed = Vec::new();
        for key in users {
            let Some(pod) = self.pods.get(&key).map(|p| Arc::clone(&p.pod)) else { continue };
            let placed = self.place(&pod);
            if let Some(known) = self.pods.get_mut(&key).filter(|known| known.placed != placed) {
                known.placed = Arc::clone(&placed);
                changed.push(placed);
            }
        }
        changed
    }

    fn place(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        match volume_needs(&self.store, pod) {
            Ok(needs) if needs.alternatives.is_empty() => Arc::clone(pod),
            Ok(needs) => {
                let mut placed = Pod::clone(pod);
                narrow(Arc::make_mut(&mut placed.shape), &needs.alternatives);
                Arc::new(placed)
            }
            Err(_) => Arc::new(Pod { unschedulable: false, ..Pod::clone(pod) }),
        }
    }
}

/// Asks for one of the places beside all else.
fn narrow(shape: &mut PodShape, places: &[Requirements]) {
    if let [only] = places {
        shape.selector.add_all(only);
    } else if shape.alternatives.is_empty() {
        shape.alternatives = places.to_vec();
    } else {
        let both = shape.alternatives.iter().flat_map(|one| places.iter().map(|place| one.intersect(place)));
        shape.alternatives = both.collect();
    }
}

fn claims_of(pod: &Pod) -> impl Iterator<Item = ObjectKey> {
    pod.volumes.iter().map(|name| ObjectKey { namespace: pod.key.namespace.clone(), name: name.clone() })
}
