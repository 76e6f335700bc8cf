//! OrphanSweeps, `napkeeper.io/v1alpha1`.

use crate::crds::schedule_rules::{SCHEDULE_SHAPE, schedule_rules};
use crate::types::common::{Condition, DURATION, wire};
use kube::CustomResource;
use serde_json::{Value, json};

/// Kinds of cloud resource, as manifests spell them.
pub(crate) const KINDS: [&str; 4] = ["Nic", "OsDisk", "Vm", "DataDisk"];
/// What was found about a resource.
const STANDINGS: [&str; 7] = ["Owned", "InFlight", "Protected", "Foreign", "Suspect", "Orphan", "Unknown"];
/// What may be wrong with an object that stands for something in Azure.
const MISMATCHES: [&str; 6] =
    ["ClaimWithoutVm", "NeverJoined", "MachineWithoutVm", "NodeWithoutVm", "NodeWithoutClaim", "StuckFinalizer"];
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

/// Most approvals that a status speaks of.
pub const MAX_APPROVALS: usize = 100;

/// Id of a resource in a resource group. Azure compares ids without case.
const RESOURCE: &str = "(?i)^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/[^/]+(/[^/]+/[^/]+)+$";

/// The floor of the law of deleting, as a rule of the API server.
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

wire! {
    /// What the sweep found.
    OrphanSweepStatus {
        /// Addresses of subnets that orphans hold.
        addresses?: i64,
        /// The approvals of the spec and what has become of them, those first that something is to be done about.
        #[schemars(extend("maxItems" = MAX_APPROVALS, "x-kubernetes-list-type" = "atomic"))]
        approvals?: Vec<ApprovalStatus>,
        /// Deletions of the cluster over the last 24 h, all sweeps together, that count for the cap.
        collected_last_day?: i64,
        /// Aspects of the state.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions?: Vec<Condition>,
        /// What orphans cost, in nano-USD per hour.
        cost_per_hour_nano_usd?: i64,
        /// What orphans cost over 730 h, for people.
        cost_per_month?: String,
        /// Resources by kind and standing.
        #[schemars(extend("maxItems" = 4, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
        counts?: Vec<KindCount>,
        /// NodeClaims, Nodes and AKS Machines that stand for nothing in Azure, or cannot go.
        #[schemars(extend("maxItems" = 20, "x-kubernetes-list-type" = "atomic"))]
        discrepancies?: Vec<SweepDiscrepancy>,
        /// The dearest findings.
        #[schemars(extend("maxItems" = 50, "x-kubernetes-list-type" = "atomic"))]
        findings?: Vec<SweepFinding>,
        /// Why orphans are kept: how many of each kind, by refusal. One may be kept for several reasons.
        #[schemars(extend("maxItems" = 100, "x-kubernetes-list-type" = "atomic"))]
        kept?: Vec<KeptCount>,
        /// The last run.
        last_run?: LastRun,
        /// When the last whole inventory was complete. Nothing is collected by an older one.
        #[schemars(extend("format" = "date-time"))]
        last_whole_inventory?: String,
        /// Most deletions over 24 h that this sweep may have a part in.
        most_per_day?: i64,
        /// When orphans may next be collected; absent when the mode does not collect.
        #[schemars(extend("format" = "date-time"))]
        next_collection?: String,
        /// When the node resource group is next observed.
        #[schemars(extend("format" = "date-time"))]
        next_observation?: String,
        /// Generation of the spec that was last acted upon.
        observed_generation?: i64,
        /// Number of orphans.
        orphans?: i64,
        /// Public IPs and load-balancer frontends that nothing uses. Nothing deletes them.
        #[schemars(extend("maxItems" = 20, "x-kubernetes-list-type" = "atomic"))]
        report_only?: Vec<SweepReportOnly>,
    }
}

wire! {
    /// What has become of an approval.
    ApprovalStatus {
        /// What to do about it; absent when nothing.
        advice?: String,
        /// When it expires.
        #[schemars(extend("format" = "date-time"))]
        expires_at: String,
        /// Resource id.
        id: String,
        /// Incarnation.
        incarnation: String,
        /// Active: it holds. Spent: the resource was collected or is gone. Expired, TooFarAhead: its time does not count. Unmatched: it names nothing that this sweep could delete.
        #[schemars(extend("enum" = ["Unmatched", "TooFarAhead", "Expired", "Spent", "Active"]))]
        state: String,
    }
}

wire! {
    /// How many orphans of a kind are kept for a reason.
    KeptCount {
        /// How many.
        count: i64,
        /// Kind.
        #[schemars(extend("enum" = KINDS))]
        kind: String,
        /// The reason.
        refusal: String,
    }
}

wire! {
    /// Resources of one kind by standing.
    KindCount {
        /// Not this cluster's.
        foreign?: i64,
        /// Being made.
        in_flight?: i64,
        /// Kind.
        #[schemars(extend("enum" = KINDS))]
        kind: String,
        /// Nothing alive has linked to it for long enough.
        orphan?: i64,
        /// A NodeClaim, Node, AKS Machine or VM has it.
        owned?: i64,
        /// Wanted by something other than a node: a volume, a snapshot, AKS, an exclusion.
        protected?: i64,
        /// Without references, not yet for long enough.
        suspect?: i64,
        /// A listing was not whole.
        unknown?: i64,
    }
}

wire! {
    /// The last run.
    LastRun {
        /// Deletions sent.
        collected?: i64,
        /// When it ended.
        #[schemars(extend("format" = "date-time"))]
        finished_at?: String,
        /// When it began.
        #[schemars(extend("format" = "date-time"))]
        started_at: String,
    }
}

wire! {
    /// An object that stands for nothing in Azure, or cannot go.
    SweepDiscrepancy {
        /// What shows it.
        #[schemars(extend("maxItems" = 20, "x-kubernetes-list-type" = "atomic"))]
        evidence?: Vec<String>,
        /// What is wrong.
        #[schemars(extend("enum" = MISMATCHES))]
        kind: String,
        /// The object: its kind and name.
        object: String,
        /// What a person can do.
        remedy?: String,
        /// Since when, as far as known.
        #[schemars(extend("format" = "date-time"))]
        since?: String,
    }
}

wire! {
    /// A public IP or frontend that nothing uses.
    SweepReportOnly {
        /// By what: rules, tags.
        #[schemars(extend("maxItems" = 20, "x-kubernetes-list-type" = "atomic"))]
        evidence?: Vec<String>,
        /// Resource id.
        id: String,
        /// Kind.
        #[schemars(extend("enum" = ["PublicIp", "Frontend"]))]
        kind: String,
        /// The Services that it was made for, by its tag.
        service?: String,
    }
}

wire! {
    /// What was found about one resource.
    SweepFinding {
        /// Addresses of the subnet that it holds.
        addresses?: i64,
        /// What it costs, in nano-USD per hour.
        cost_per_hour_nano_usd?: i64,
        /// By what: links, tags, sightings.
        #[schemars(extend("maxItems" = 20, "x-kubernetes-list-type" = "atomic"))]
        evidence?: Vec<String>,
        /// First seen without references.
        #[schemars(extend("format" = "date-time"))]
        first_seen?: String,
        /// Resource id.
        id: String,
        /// Incarnation: what an approval names.
        incarnation: String,
        /// Kind.
        #[schemars(extend("enum" = KINDS))]
        kind: String,
        /// Why it is not deleted now.
        #[schemars(extend("maxItems" = 20, "x-kubernetes-list-type" = "set"))]
        refusals?: Vec<String>,
        /// What it is.
        #[schemars(extend("enum" = STANDINGS))]
        standing: String,
    }
}
