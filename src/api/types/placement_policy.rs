//! PlacementPolicies, `napkeeper.io/v1alpha1`.

use crate::types::common::{DURATION, QUALIFIED_NAME, wire};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;

/// Default of `maxSkew`.
pub const DEFAULT_MAX_SKEW: i32 = 1;
/// Default of `whenUnsatisfiable`.
pub const DEFAULT_WHEN_UNSATISFIABLE: &str = "ScheduleAnyway";

wire! {
    /// PlacementPolicySpec says which defaults new pods get, and where.
    #[derive(CustomResource)]
    #[kube(
        group = "napkeeper.io",
        version = "v1alpha1",
        kind = "PlacementPolicy",
        plural = "placementpolicies",
        doc = "PlacementPolicy sets scheduling defaults on new pods. It does not override settings of the pod.",
        shortname = "placement",
        category = "napkeeper",
        derive = "PartialEq",
        printcolumn(name = "OnDemand%", type_ = "integer", json_path = ".spec.defaults.spot.onDemandPercent"),
        printcolumn(name = "Jobs", type_ = "string", json_path = ".spec.defaults.jobs.doNotDisruptFor"),
        printcolumn(name = "Architecture", type_ = "string", json_path = ".spec.defaults.architecture"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
    )]
    PlacementPolicySpec {
        /// Defaults for pods.
        defaults?: PlacementDefaults,
        /// Namespaces by labels. If absent, the policy applies only where an annotation names it. Empty selects all.
        namespace_selector?: LabelSelector,
        /// Pods in these namespaces by their labels. Absent or empty selects all.
        pod_selector?: LabelSelector,
    }
}

wire! {
    /// Defaults for pods. They do not override settings of the pod.
    PlacementDefaults {
        /// Preferred architecture of pods that do not specify one.
        #[schemars(extend("enum" = ["amd64", "arm64"]))]
        architecture?: String,
        /// Pods of Jobs.
        jobs?: JobDefaults,
        /// Run pods that do not specify a capacity type on spot nodes, except for a share.
        spot?: SpotDefaults,
        /// Topology spread constraints of pods that have none.
        #[schemars(extend("maxItems" = 3, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["topologyKey"]))]
        topology_spread?: Vec<SpreadConstraint>,
    }
}

wire! {
    /// Pods of Jobs.
    JobDefaults {
        /// How long after its start a pod is protected from voluntary disruption, at most 24h.
        #[schemars(extend(
            "maxLength" = 32,
            "pattern" = DURATION,
            "x-kubernetes-validations" = [{
                "rule": "duration(self) >= duration('1m') && duration(self) <= duration('24h')",
                "message": "must be 1m to 24h: a pod that may never be disrupted keeps its node indefinitely",
            }]
        ))]
        do_not_disrupt_for: String,
    }
}

wire! {
    /// Run pods that do not specify a capacity type on spot nodes, except for a share.
    SpotDefaults {
        /// Percentage of pods that stay on demand, chosen by a hash.
        #[schemars(extend("minimum" = 0, "maximum" = 100))]
        on_demand_percent: i32,
    }
}

wire! {
    /// A topology spread constraint; it counts pods with the labels that the pod itself has.
    SpreadConstraint {
        /// How many more pods a domain may have than the emptiest one.
        #[schemars(extend("default" = DEFAULT_MAX_SKEW, "minimum" = 1, "maximum" = 100))]
        max_skew?: i32,
        /// Node label whose values are the domains.
        #[schemars(extend("minLength" = 1, "maxLength" = 316, "pattern" = QUALIFIED_NAME))]
        topology_key: String,
        /// What becomes of a pod that would break it.
        #[schemars(extend("default" = DEFAULT_WHEN_UNSATISFIABLE, "enum" = ["ScheduleAnyway", "DoNotSchedule"]))]
        when_unsatisfiable?: String,
    }
}
