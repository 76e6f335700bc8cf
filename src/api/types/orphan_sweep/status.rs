//! Statuses of OrphanSweeps.

use super::KINDS;
use crate::types::common::{Condition, wire};

/// What was found about a resource.
const STANDINGS: [&str; 7] = ["Owned", "InFlight", "Protected", "Foreign", "Suspect", "Orphan", "Unknown"];
/// What may be wrong with an object that stands for something in Azure.
const MISMATCHES: [&str; 6] =
    ["ClaimWithoutVm", "NeverJoined", "MachineWithoutVm", "NodeWithoutVm", "NodeWithoutClaim", "StuckFinalizer"];
/// Most approvals that a status speaks of.
pub const MAX_APPROVALS: usize = 100;

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
