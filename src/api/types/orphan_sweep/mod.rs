//! OrphanSweeps, `napkeeper.io/v1alpha1`.

mod status;

pub use status::*;

use crate::crds::schedule_rules::{SCHEDULE_SHAPE, schedule_rules};
use crate::types::common::{DURATION, wire};
use kube::CustomResource;
use serde_json::{Value, json};

/// Kinds of cloud resource, as manifests spell them.
pub(crate) const KINDS: [&str; 4] = ["Nic", "OsDisk", "Vm", "DataDisk"];
/// Default of `observeEvery`.
pub const DEFAULT_OBSERVE_EVERY: &str = "10m";
/// Default of `mode`.
pub const DEFAULT_MODE: &str = "Report";
/// Default of `approvalRequired`.
pub const DEFAULT_APPROVAL_REQUIRED: [&str; 2] = ["Vm", "DataDisk"];
/// Default of `minimumAge` for NICs, OS disks and VMs.
pub const DEFAULT_MINIMUM_AGE: &str = "30m";
/// Default of `minimumAge` for data disks.
pub const DEFAULT_MINIMUM_AGE_DATA_DISK: &str = "168h";

/// Id of a resource in a resource group. Azure compares ids without case.
const RESOURCE: &str = "(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/[^/]+(/[^/]+/[^/]+)+$";

/// The least that the deletion rules allow, as a rule of the API server.
fn at_least(floor: &str) -> Value {
    json!([{
        "rule": format!("duration(self) >= duration('{floor}')"),
        "message": format!("must be at least {floor}: write {floor} or more"),
    }])
}

/// A list of kinds, each named once.
fn kinds_items() -> Value {
    json!({ "type": "string", "enum": KINDS })
}

wire! {
    /// OrphanSweepSpec says what may be swept, when, and with whose leave.
    #[derive(CustomResource)]
    #[kube(
        group = "napkeeper.io",
        version = "v1alpha1",
        kind = "OrphanSweep",
        plural = "orphansweeps",
        doc = "OrphanSweep finds, and optionally deletes, orphaned VMs, NICs and disks in the node resource group.",
        shortname = "sweep",
        category = "napkeeper",
        status = "OrphanSweepStatus",
        derive = "Default", derive = "PartialEq",
        attr = "cfg_attr(all(), serde(default))",
        printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
        printcolumn(name = "Orphans", type_ = "integer", json_path = ".status.orphans"),
        printcolumn(name = "Monthly", type_ = "string", json_path = ".status.costPerMonth"),
        printcolumn(name = "Addresses", type_ = "integer", json_path = ".status.addresses"),
        printcolumn(name = "Collected", type_ = "integer", json_path = ".status.collectedLastDay"),
        printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
        printcolumn(name = "Halted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Halted\")].status"),
        printcolumn(name = "Degraded", type_ = "string", json_path = ".status.conditions[?(@.type==\"Degraded\")].status"),
        printcolumn(name = "LastWhole", type_ = "date", json_path = ".status.lastWholeInventory"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
        printcolumn(name = "LastRun", type_ = "date", json_path = ".status.lastRun.finishedAt", priority = 1),
        printcolumn(name = "NextCollection", type_ = "string", json_path = ".status.nextCollection", priority = 1),
        printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule", priority = 1)
    )]
    OrphanSweepSpec {
        /// Kinds of which each deletion needs an approval.
        #[schemars(extend(
            "default" = DEFAULT_APPROVAL_REQUIRED,
            "items" = kinds_items(),
            "maxItems" = 4,
            "x-kubernetes-list-type" = "set"
        ))]
        approval_required?: Vec<String>,
        /// Deletions that somebody approved.
        #[schemars(extend("maxItems" = 500, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
        approvals?: Vec<Approval>,
        /// The breaker, which stops all sweeps when too much turns suspect at once.
        breaker?: Breaker,
        /// Most deletions.
        caps?: Caps,
        /// Resources that are never touched.
        #[schemars(extend("maxItems" = 100, "x-kubernetes-list-type" = "atomic"))]
        exclusions?: Vec<Exclusion>,
        /// Kinds that this sweep looks at.
        #[schemars(extend(
            "default" = KINDS,
            "items" = kinds_items(),
            "maxItems" = 4,
            "minItems" = 1,
            "x-kubernetes-list-type" = "set"
        ))]
        kinds?: Vec<String>,
        /// How long a resource must have been an orphan before it is deleted.
        #[schemars(extend("default" = {}))]
        minimum_age?: MinimumAge,
        /// Report says what is there, Mark tags what is suspect, Collect deletes what is proven.
        #[schemars(extend("default" = DEFAULT_MODE, "enum" = ["Report", "Mark", "Collect"]))]
        mode?: String,
        /// How often the node resource group is observed.
        #[schemars(extend(
            "default" = DEFAULT_OBSERVE_EVERY,
            "maxLength" = 32,
            "pattern" = DURATION,
            "x-kubernetes-validations" = at_least("1m")
        ))]
        observe_every?: String,
        /// When orphans may be collected, as cron in UTC; absent is after every observation.
        #[schemars(extend("maxLength" = 128, "pattern" = SCHEDULE_SHAPE, "x-kubernetes-validations" = schedule_rules()))]
        schedule?: String,
    }
}

wire! {
    /// How long a resource must have been an orphan before it is deleted, counted from its first sighting as one.
    MinimumAge {
        /// Data disks.
        #[schemars(extend(
            "default" = DEFAULT_MINIMUM_AGE_DATA_DISK,
            "maxLength" = 32,
            "pattern" = DURATION,
            "x-kubernetes-validations" = at_least("10m")
        ))]
        data_disk?: String,
        /// Network interfaces.
        #[schemars(extend(
            "default" = DEFAULT_MINIMUM_AGE,
            "maxLength" = 32,
            "pattern" = DURATION,
            "x-kubernetes-validations" = at_least("10m")
        ))]
        nic?: String,
        /// OS disks.
        #[schemars(extend(
            "default" = DEFAULT_MINIMUM_AGE,
            "maxLength" = 32,
            "pattern" = DURATION,
            "x-kubernetes-validations" = at_least("10m")
        ))]
        os_disk?: String,
        /// Virtual machines.
        #[schemars(extend(
            "default" = DEFAULT_MINIMUM_AGE,
            "maxLength" = 32,
            "pattern" = DURATION,
            "x-kubernetes-validations" = at_least("10m")
        ))]
        vm?: String,
    }
}

wire! {
    /// Most deletions.
    Caps {
        /// Most deletions over a rolling 24 h. The stricter of this and the cluster's own cap holds.
        #[schemars(extend("minimum" = 0, "maximum" = 1000))]
        deletions_per_day?: i32,
    }
}

wire! {
    /// A resource that is never touched: by tag or by name.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "has(self.tag) != has(self.name)",
        "message": "an exclusion is by tag or by name: use two exclusions for both",
    }]))]
    Exclusion {
        /// Name of the resource, compared without case.
        #[schemars(extend("minLength" = 1, "maxLength" = 260, "pattern" = r"^\S+$"))]
        name?: String,
        /// A tag that the resource carries.
        tag?: ExcludedTag,
    }
}

wire! {
    /// A tag that a resource carries.
    ExcludedTag {
        /// Key, exactly.
        #[schemars(extend("minLength" = 1, "maxLength" = 512))]
        key: String,
        /// Value, exactly; absent is any.
        #[schemars(extend("maxLength" = 256))]
        value?: String,
    }
}

wire! {
    /// Leave to delete one incarnation of one resource.
    Approval {
        /// No longer valid from this time on; at most 14 days ahead.
        #[schemars(extend("format" = "date-time"))]
        expires_at: String,
        /// Resource id.
        #[schemars(extend("maxLength" = 1024, "pattern" = RESOURCE))]
        id: String,
        /// `vmId`, `resourceGuid` or `uniqueId`, as the finding shows it.
        #[schemars(extend("minLength" = 1, "maxLength" = 128))]
        incarnation: String,
    }
}

wire! {
    /// The breaker, which stops all sweeps when too much turns suspect at once.
    Breaker {
        /// Trips before this time are cleared. A time in the future is refused.
        #[schemars(extend("format" = "date-time"))]
        cleared_at?: String,
    }
}
