//! NodeOverlays in the Snapshot.

use super::Snapshot;
use super::table::Table;
use crate::catalog::overlay::Overlay;
use crate::model::cluster::status::InvalidOverlay;
use crate::model::names::ObjectName;
use std::sync::Arc;

impl Snapshot {
    /// All NodeOverlays that can be read.
    #[must_use]
    pub fn overlays(&self) -> &Table<ObjectName, Overlay> {
        &self.overlays
    }

    /// All NodeOverlays that cannot be read: none of them has an effect.
    #[must_use]
    pub fn invalid_overlays(&self) -> &Table<ObjectName, InvalidOverlay> {
        &self.invalid_overlays
    }

    /// Adds or replaces a NodeOverlay. If only its status is another, what is computed from the NodeOverlays stays.
    pub fn put_overlay(&mut self, name: ObjectName, overlay: impl Into<Arc<Overlay>>) {
        let overlay = overlay.into();
        self.invalid_overlays.remove(&name);
        if self.overlays.get(&name).is_some_and(|known| known.has_spec_of(&overlay)) {
            self.overlays.put_status(&name, overlay);
        } else {
            self.overlays.put(name, overlay);
        }
    }

    /// Adds or replaces a NodeOverlay that cannot be read. As with Karpenter, its last version is not used any more.
    pub fn put_invalid_overlay(&mut self, overlay: impl Into<Arc<InvalidOverlay>>) {
        let overlay = overlay.into();
        self.overlays.remove(&overlay.name);
        self.invalid_overlays.put(overlay.name.clone(), overlay);
    }

    /// Removes a NodeOverlay.
    pub fn remove_overlay(&mut self, name: &ObjectName) {
        self.overlays.remove(name);
        self.invalid_overlays.remove(name);
    }
}
