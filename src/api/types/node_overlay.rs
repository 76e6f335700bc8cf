//! NodeOverlays, `karpenter.sh/v1alpha1`.
//!
//! Fields and limits are those of `karpenter-core` v1.14. Its rules, in our own words, stand here beside their fields; the
//! rules that NodePools have too are in `cel_rules.rs`.

use crate::crds::cel_rules::{KARPENTER_KEYS, Rule, domain, hostname, requirements, rule};
use crate::types::common::{Condition, OPERATORS, QUALIFIED_NAME, ResourceList, wire};
use kube::CustomResource;

/// Resources that an overlay cannot change: what a VM has of them is no matter of opinion.
pub const FIXED_RESOURCES: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pods"];

wire! {
    /// NodeOverlaySpec says which offerings are meant, and what is known better of them.
    #[derive(CustomResource)]
    #[kube(
        group = "karpenter.sh",
        version = "v1alpha1",
        kind = "NodeOverlay",
        plural = "nodeoverlays",
        doc = "NodeOverlay overrides the prices and resources of instance types in scheduling and consolidation decisions.",
        shortname = "overlays",
        category = "karpenter",
        status = "NodeOverlayStatus",
        derive = "PartialEq",
        printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
        printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
        printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1)
    )]
    NodeOverlaySpec {
        /// Extended resources that nodes have beside those that are known; cpu, memory, ephemeral-storage and pods stay.
        capacity?: ResourceList,
        /// Price in USD per hour, such as 0.192.
        #[schemars(extend("pattern" = r"^\d+(\.\d+)?$"))]
        price?: String,
        /// A sign with USD per hour or a percentage, such as -0.05 or +10%.
        #[schemars(extend("pattern" = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"))]
        price_adjustment?: String,
        /// Which offerings are meant, by the labels that their nodes have for certain.
        #[schemars(extend("maxItems" = 100))]
        requirements: Vec<OverlayRequirement>,
        /// The overlay of the greatest weight decides; absent is 0.
        #[schemars(extend("minimum" = 1, "maximum" = 10_000))]
        weight?: i32,
    }
}

wire! {
    /// A requirement on one node label.
    OverlayRequirement {
        /// Label key.
        #[schemars(extend("maxLength" = 316, "pattern" = QUALIFIED_NAME))]
        key: String,
        /// How values constrain the label.
        #[schemars(extend("enum" = OPERATORS))]
        operator: String,
        /// Values: at least one for In and NotIn, none for Exists and DoesNotExist, one integer for the others.
        #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
        values?: Vec<String>,
    }
}

wire! {
    /// State of a NodeOverlay.
    NodeOverlayStatus {
        /// Aspects of the state.
        #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
        conditions?: Vec<Condition>,
    }
}

/// Where rules stand in the schema.
pub(crate) fn rules() -> Vec<(&'static str, Vec<Rule>)> {
    let listed = FIXED_RESOURCES.map(|name| format!("'{name}'")).join(", ");
    let mut entries = requirements();
    // There is no minValues here.
    entries.truncate(2);
    entries.push(rule(
        "self.all(entry, entry.operator != 'NotIn' || (has(entry.values) && size(entry.values) > 0))",
        "operator NotIn needs at least one entry in values: add one, or use Exists for any value",
    ));
    let key = |condition: &str| condition.replace("KEY", "self");
    vec![
        (
            "spec",
            vec![rule(
                "!has(self.price) || !has(self.priceAdjustment)",
                "price and priceAdjustment are mutually exclusive: remove one of them",
            )],
        ),
        (
            "spec.capacity",
            vec![rule(
                format!("self.all(resource, !(resource in [{listed}]))"),
                format!("an overlay can add only extended resources: remove {}", FIXED_RESOURCES.join(", ")),
            )],
        ),
        ("spec.requirements", entries),
        ("spec.requirements[].key", vec![domain("karpenter.sh", &KARPENTER_KEYS, &key), hostname(&key)]),
    ]
}
