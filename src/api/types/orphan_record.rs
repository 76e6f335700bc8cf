//! OrphanRecords, `napkeeper.io/v1alpha1`.
//!
//! Nobody writes these by hand. Each object holds at most [`MAX_ENTRIES`] entries, so that it stays far below what
//! etcd takes. Their lists are atomic: there is one writer, and keeping track of who owns each entry would double them.

use crate::types::common::wire;
use crate::types::orphan_sweep::KINDS;
use kube::CustomResource;
use std::collections::BTreeMap;

/// Most entries of an OrphanRecord, of all sorts together.
pub const MAX_ENTRIES: usize = 500;
/// What is counted fits 32 bits.
const MAX_COUNT: i64 = u32::MAX as i64;
/// The id of something in Azure.
const ARM_ID: &str = "(?i)^/subscriptions/";

wire! {
    /// OrphanRecordSpec is what has been seen and done, kept across restarts.
    #[derive(CustomResource)]
    #[kube(
        group = "napkeeper.io",
        version = "v1alpha1",
        kind = "OrphanRecord",
        plural = "orphanrecords",
        doc = "OrphanRecord holds the observations and deletions of sweeps. napkeeper writes it; deleting it resets them.",
        category = "napkeeper",
        derive = "PartialEq",
        printcolumn(name = "LastObserved", type_ = "date", json_path = ".spec.lastObserved"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
    )]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": format!(
            "(has(self.sightings) ? size(self.sightings) : 0) + (has(self.volumes) ? size(self.volumes) : 0) \
             + (has(self.deletions) ? size(self.deletions) : 0) + (has(self.trips) ? size(self.trips) : 0) <= {MAX_ENTRIES}"
        ),
        "message": format!("an OrphanRecord has at most {MAX_ENTRIES} entries: put the rest into another object"),
    }]))]
    OrphanRecordSpec {
        /// Deletions of the last 24 h, oldest first.
        #[schemars(extend("maxItems" = MAX_ENTRIES, "x-kubernetes-list-type" = "atomic"))]
        deletions?: Vec<DeletionEntry>,
        /// When a whole inventory was last judged.
        #[schemars(extend("format" = "date-time"))]
        last_observed?: String,
        /// Resources that were seen without references.
        #[schemars(extend("maxItems" = MAX_ENTRIES, "x-kubernetes-list-type" = "atomic"))]
        sightings?: Vec<SightingEntry>,
        /// When the breaker tripped.
        #[schemars(extend("maxItems" = MAX_ENTRIES, "x-kubernetes-list-type" = "atomic"))]
        trips?: Vec<TripEntry>,
        /// PersistentVolumes that this cluster has had.
        #[schemars(extend("maxItems" = MAX_ENTRIES, "x-kubernetes-list-type" = "atomic"))]
        volumes?: Vec<VolumeEntry>,
    }
}

wire! {
    /// A resource that was seen without references.
    SightingEntry {
        /// First time.
        #[schemars(extend("format" = "date-time"))]
        first_seen: String,
        /// Resource id.
        #[schemars(extend("pattern" = ARM_ID))]
        id: String,
        /// Incarnation.
        incarnation: String,
        /// Kind.
        #[schemars(extend("enum" = KINDS))]
        kind: String,
        /// Last time.
        #[schemars(extend("format" = "date-time"))]
        last_seen: String,
        /// Tags as first seen.
        tags?: BTreeMap<String, String>,
        /// How many times.
        #[schemars(extend("minimum" = 1, "maximum" = MAX_COUNT))]
        times: i64,
    }
}

wire! {
    /// A PersistentVolume that this cluster has had.
    VolumeEntry {
        /// Resource id of its disk.
        #[schemars(extend("pattern" = ARM_ID))]
        disk: String,
        /// Since when whole listings show neither the disk nor anything that names it.
        #[schemars(extend("format" = "date-time"))]
        gone_since?: String,
        /// When last seen.
        #[schemars(extend("format" = "date-time"))]
        last_seen: String,
        /// Name of the PersistentVolume.
        #[schemars(extend("minLength" = 1, "maxLength" = 253))]
        name: String,
        /// Reclaim policy when last seen.
        #[schemars(extend("enum" = ["Delete", "Retain"]))]
        reclaim: String,
        /// `uniqueId` of the disk, as last listed together with its volume.
        unique_id?: String,
    }
}

wire! {
    /// A deletion that was, or is about to be, sent.
    DeletionEntry {
        /// When.
        #[schemars(extend("format" = "date-time"))]
        at: String,
        /// The evidence.
        #[schemars(extend("maxItems" = 20, "x-kubernetes-list-type" = "atomic"))]
        evidence?: Vec<String>,
        /// How many tries have failed.
        #[schemars(extend("minimum" = 0, "maximum" = MAX_COUNT))]
        failures?: i64,
        /// Resource id.
        #[schemars(extend("pattern" = ARM_ID))]
        id: String,
        /// Incarnation.
        incarnation: String,
        /// Kind.
        #[schemars(extend("enum" = KINDS))]
        kind: String,
        /// Why Azure certainly deleted nothing; then it counts for no cap.
        refused?: String,
    }
}

wire! {
    /// The breaker tripped.
    TripEntry {
        /// When.
        #[schemars(extend("format" = "date-time"))]
        at: String,
        /// The kind whose resources turned suspect.
        #[schemars(extend("enum" = KINDS))]
        kind: String,
        /// Of how many that are owned.
        #[schemars(extend("minimum" = 0, "maximum" = MAX_COUNT))]
        owned: i64,
        /// How many turned suspect within the hour.
        #[schemars(extend("minimum" = 0, "maximum" = MAX_COUNT))]
        suspects: i64,
        /// `breaker.clearedAt` that lay in the future then, and clear nothing.
        #[schemars(extend("maxItems" = 20, "x-kubernetes-list-type" = "atomic"))]
        void?: Vec<String>,
    }
}
