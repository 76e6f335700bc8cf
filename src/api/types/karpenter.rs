//! NodePools and NodeClaims, `karpenter.sh/v1`.
//!
//! Fields, defaults and limits are those of `karpenter-core` v1.14. As upstream, the values of a requirement are not
//! checked by the schema.

use crate::types::common::{
    BUDGET_DURATION, BUDGET_NODES, CONDITION_TYPE, Condition, DURATION, DURATION_OR_NEVER, LABEL_VALUE, OPERATORS,
    QUALIFIED_NAME, ResourceList, wire,
};
use kube::CustomResource;
use std::collections::BTreeMap;

/// Default of `expireAfter`.
pub const DEFAULT_EXPIRE_AFTER: &str = "720h";
/// Default of `consolidateAfter`.
pub const DEFAULT_CONSOLIDATE_AFTER: &str = "0s";
/// Default of `consolidationPolicy`.
pub const DEFAULT_CONSOLIDATION_POLICY: &str = "WhenEmptyOrUnderutilized";
/// Default of a budget's `nodes`.
pub const DEFAULT_BUDGET_NODES: &str = "10%";

fn without_format(schema: &mut schemars::Schema) {
    schema.remove("format");
}

wire! {
    /// NodePoolSpec says which nodes Karpenter may make, and when it may disrupt them.
    #[derive(CustomResource)]
    #[kube(
        group = "karpenter.sh",
        version = "v1",
        kind = "NodePool",
        plural = "nodepools",
        doc = "NodePool is a template for nodes that Karpenter creates.",
        category = "karpenter",
        status = "NodePoolStatus",
        derive = "PartialEq",
        scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.nodes"),
        printcolumn(name = "NodeClass", type_ = "string", json_path = ".spec.template.spec.nodeClassRef.name"),
        printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
        printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
        printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
        printcolumn(name = "CPU", type_ = "string", json_path = ".status.resources.cpu", priority = 1),
        printcolumn(name = "Memory", type_ = "string", json_path = ".status.resources.memory", priority = 1)
    )]
    NodePoolSpec {
        /// When nodes may be disrupted.
        #[schemars(extend("default" = { "consolidateAfter": DEFAULT_CONSOLIDATE_AFTER }))]
        disruption?: Disruption,
        /// Most that all nodes of the pool together may have.
        limits?: ResourceList,
        /// Fixed number of nodes (alpha). A pool with it is static: it takes no part in scheduling.
        #[schemars(extend("minimum" = 0))]
        replicas?: i64,
        /// What each NodeClaim of the pool asks for.
        template: NodeClaimTemplate,
        /// A pool with a higher weight is tried first; absent is 0.
        #[schemars(extend("minimum" = 1, "maximum" = 100))]
        weight?: i32,
    }
}

wire! {
    /// When nodes may be disrupted.
    Disruption {
        /// How many nodes may be disrupted at once. The strictest budget that holds counts.
        #[schemars(extend(
            "default" = [{ "nodes": DEFAULT_BUDGET_NODES }],
            "maxItems" = 50,
            "x-kubernetes-list-type" = "atomic"
        ))]
        budgets?: Vec<Budget>,
        /// Quiet time before a node may be consolidated; Never turns consolidation off, and the removal of empty
        /// nodes with it.
        //
        // As upstream, it must be there as soon as `disruption` is: only a `disruption` that is absent gets a default.
        #[schemars(required, extend("pattern" = DURATION_OR_NEVER))]
        consolidate_after?: String,
        /// Which nodes may be consolidated.
        #[schemars(extend(
            "default" = DEFAULT_CONSOLIDATION_POLICY,
            "enum" = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]
        ))]
        consolidation_policy?: String,
    }
}

wire! {
    /// How many nodes may be disrupted at once.
    Budget {
        /// How long the budget holds from each time of the schedule.
        #[schemars(extend("pattern" = BUDGET_DURATION))]
        duration?: String,
        /// A number of nodes, or a percentage of the pool's nodes, rounded up.
        #[schemars(extend("default" = DEFAULT_BUDGET_NODES, "pattern" = BUDGET_NODES))]
        nodes: String,
        /// Reasons that the budget limits; absent is all.
        #[schemars(extend(
            "maxItems" = 50,
            "x-kubernetes-list-type" = "set",
            "items" = { "type": "string", "enum": ["Underutilized", "Empty", "Drifted"] }
        ))]
        reasons?: Vec<String>,
        /// When the budget holds, as cron in UTC; absent is always.
        #[schemars(extend("pattern" = r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$"))]
        schedule?: String,
    }
}

wire! {
    /// What each NodeClaim of a pool asks for.
    NodeClaimTemplate {
        /// Labels and annotations for the nodes.
        metadata?: TemplateMeta,
        /// What to make.
        spec: NodeClaimTemplateSpec,
    }
}

wire! {
    /// Labels and annotations for the nodes.
    TemplateMeta {
        /// Annotations.
        #[schemars(extend("x-kubernetes-map-type" = "granular"))]
        annotations?: BTreeMap<String, String>,
        /// Labels.
        #[schemars(extend(
            "maxProperties" = 100,
            "x-kubernetes-map-type" = "atomic",
            "additionalProperties" = { "type": "string", "maxLength": 63, "pattern": LABEL_VALUE }
        ))]
        labels?: BTreeMap<String, String>,
    }
}

wire! {
    /// What to make.
    NodeClaimTemplateSpec {
        /// After this time a node is replaced; Never is never.
        #[schemars(extend("default" = DEFAULT_EXPIRE_AFTER, "pattern" = DURATION_OR_NEVER))]
        expire_after?: String,
        /// The AKSNodeClass.
        node_class_ref: NodeClassRef,
        /// Which nodes may be made.
        #[schemars(extend("maxItems" = 100, "x-kubernetes-list-type" = "atomic"))]
        requirements: Vec<RequirementEntry>,
        /// Taints that something else removes once a node is set up.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        startup_taints?: Vec<Taint>,
        /// Taints for the nodes.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        taints?: Vec<Taint>,
        /// How long a drain may take; absent is for ever.
        #[schemars(extend("pattern" = DURATION))]
        termination_grace_period?: String,
    }
}

wire! {
    /// Reference to a node class.
    NodeClassRef {
        /// API group, `karpenter.azure.com`.
        #[schemars(extend("pattern" = "^[^/]*$"))]
        group: String,
        /// Kind, `AKSNodeClass`.
        kind: String,
        /// Name.
        name: String,
    }
}

wire! {
    /// A requirement on one node label.
    RequirementEntry {
        /// Label key.
        #[schemars(extend("maxLength" = 316, "pattern" = QUALIFIED_NAME))]
        key: String,
        /// At least this many distinct values must remain on offer (alpha).
        // As upstream, without a format.
        #[schemars(transform = without_format, extend("minimum" = 1, "maximum" = 50))]
        min_values?: i64,
        /// How values constrain the label.
        #[schemars(extend("enum" = OPERATORS))]
        operator: String,
        /// Values: at least one for In and NotIn, none for Exists and DoesNotExist, one integer for the others.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        values?: Vec<String>,
    }
}

wire! {
    /// A taint of a node.
    Taint {
        /// Effect.
        #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute"]))]
        effect: String,
        /// Key.
        #[schemars(extend("minLength" = 1, "pattern" = QUALIFIED_NAME))]
        key: String,
        /// When the taint was added.
        #[schemars(extend("format" = "date-time"))]
        time_added?: String,
        /// Value.
        #[schemars(extend("pattern" = QUALIFIED_NAME))]
        value?: String,
    }
}

wire! {
    /// State of a NodePool.
    NodePoolStatus {
        /// Aspects of the state.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions?: Vec<Condition>,
        /// Generation of the node class that was last looked at.
        node_class_observed_generation?: i64,
        /// Number of nodes.
        #[schemars(extend("default" = 0))]
        nodes?: i64,
        /// All that the nodes have.
        resources?: ResourceList,
    }
}

wire! {
    /// NodeClaimSpec says which node is asked for. It never changes.
    #[derive(CustomResource)]
    #[kube(
        group = "karpenter.sh",
        version = "v1",
        kind = "NodeClaim",
        plural = "nodeclaims",
        doc = "NodeClaim requests one node.",
        category = "karpenter",
        status = "NodeClaimStatus",
        derive = "PartialEq",
        printcolumn(name = "Type", type_ = "string", json_path = ".metadata.labels.node\\.kubernetes\\.io/instance-type"),
        printcolumn(name = "Capacity", type_ = "string", json_path = ".metadata.labels.karpenter\\.sh/capacity-type"),
        printcolumn(name = "Zone", type_ = "string", json_path = ".metadata.labels.topology\\.kubernetes\\.io/zone"),
        printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
        printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
        printcolumn(name = "ImageID", type_ = "string", json_path = ".status.imageID", priority = 1),
        printcolumn(name = "ID", type_ = "string", json_path = ".status.providerID", priority = 1),
        printcolumn(name = "NodePool", type_ = "string", json_path = ".metadata.labels.karpenter\\.sh/nodepool", priority = 1),
        printcolumn(name = "NodeClass", type_ = "string", json_path = ".spec.nodeClassRef.name", priority = 1),
        printcolumn(name = "Drifted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Drifted\")].status", priority = 1)
    )]
    NodeClaimSpec {
        /// After this time the node is replaced; Never is never.
        #[schemars(extend("default" = DEFAULT_EXPIRE_AFTER, "pattern" = DURATION_OR_NEVER))]
        expire_after?: String,
        /// The AKSNodeClass.
        node_class_ref: NodeClassRef,
        /// Which node satisfies the claim.
        #[schemars(extend("maxItems" = 100, "x-kubernetes-list-type" = "atomic"))]
        requirements: Vec<RequirementEntry>,
        /// The least that the node must have.
        resources?: ClaimResources,
        /// Taints that something else removes once the node is set up.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        startup_taints?: Vec<Taint>,
        /// Taints for the node.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        taints?: Vec<Taint>,
        /// How long a drain may take; absent is for ever.
        #[schemars(extend("pattern" = DURATION))]
        termination_grace_period?: String,
    }
}

wire! {
    /// The least that a node must have.
    ClaimResources {
        /// By resource name.
        requests?: ResourceList,
    }
}

wire! {
    /// State of a NodeClaim.
    NodeClaimStatus {
        /// What pods may use.
        allocatable?: ResourceList,
        /// All that the node has.
        capacity?: ResourceList,
        /// Aspects of the state.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions?: Vec<ClaimCondition>,
        /// Image of the node.
        #[serde(rename = "imageID")]
        image_id?: String,
        /// When a pod last came or left.
        #[schemars(extend("format" = "date-time"))]
        last_pod_event_time?: String,
        /// Name of the Node.
        node_name?: String,
        /// Provider id of the Node.
        #[serde(rename = "providerID")]
        provider_id?: String,
    }
}

wire! {
    /// An aspect of a NodeClaim's state. Looser than elsewhere: reason and message may be absent.
    ClaimCondition {
        /// When the condition last changed from one status to another.
        #[schemars(extend("format" = "date-time"))]
        last_transition_time: String,
        /// Details of the transition, for people.
        #[schemars(extend("maxLength" = 32_768))]
        message?: String,
        /// The generation of the object that the condition was set upon.
        #[schemars(extend("minimum" = 0))]
        observed_generation?: i64,
        /// A word for the reason of the last transition.
        #[schemars(extend("maxLength" = 1024, "pattern" = "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"))]
        reason?: String,
        /// True, False or Unknown.
        #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
        status: String,
        /// Type of the condition, in CamelCase.
        #[schemars(extend("maxLength" = 316, "pattern" = CONDITION_TYPE))]
        #[serde(rename = "type")]
        kind: String,
    }
}
