//! Types that several kinds have in common.
//!
//! The macro `wire!` declares an object of the API. `name: Type` is a required field, `name?: Type` one that may be
//! absent. Every object keeps the fields that it does not know in `extra`, so they survive a round trip; the generated
//! schemas do not show it.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Declares an object of the API: see the module's documentation.
macro_rules! wire {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$field_meta:meta])* $field:ident $(? : $optional:ty)? $(: $required:ty)?),* $(,)?
    }) => {
        #[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[$field_meta])*
                $(#[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$optional>,)?
                $(pub $field: $required,)?
            )*
            /// Fields that this version does not know.
            #[serde(flatten)]
            #[schemars(skip)]
            pub extra: std::collections::BTreeMap<String, serde_json::Value>,
        }
    };
}
pub(crate) use wire;

/// Karpenter's duration: hours, minutes and seconds.
pub(crate) const DURATION: &str = "^([0-9]+(s|m|h))+$";
/// Karpenter's duration, or `Never`.
pub(crate) const DURATION_OR_NEVER: &str = "^(([0-9]+(s|m|h))+|Never)$";
/// Duration of a disruption budget.
pub(crate) const BUDGET_DURATION: &str = "^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$";
/// Nodes of a disruption budget.
pub(crate) const BUDGET_NODES: &str = "^((100|[0-9]{1,2})%|[0-9]+)$";
/// A quantity of Kubernetes.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// The name part of a label key, and a label value.
pub(crate) const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// A label key, with or without its domain.
pub(crate) const QUALIFIED_NAME: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// Type of a condition, with or without a domain.
pub(crate) const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
/// Operators of `requirements[]`.
pub(crate) const OPERATORS: [&str; 8] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];

/// The form of values that a pattern of the schemas requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueForm {
    /// Hours, minutes and seconds.
    Duration,
    /// The same, or `Never`.
    DurationOrNever,
    /// Hours and minutes.
    BudgetDuration,
    /// Nodes of a disruption budget.
    BudgetNodes,
    /// A quantity of Kubernetes.
    Quantity,
    /// The value of a label.
    LabelValue,
    /// The key of a label.
    LabelKey,
}

impl ValueForm {
    /// The form that a pattern requires; `None` for a pattern that is clear by itself.
    #[must_use]
    pub fn of_pattern(pattern: &str) -> Option<Self> {
        match pattern {
            DURATION => Some(Self::Duration),
            DURATION_OR_NEVER => Some(Self::DurationOrNever),
            BUDGET_DURATION => Some(Self::BudgetDuration),
            BUDGET_NODES => Some(Self::BudgetNodes),
            QUANTITY => Some(Self::Quantity),
            LABEL_VALUE => Some(Self::LabelValue),
            QUALIFIED_NAME => Some(Self::LabelKey),
            _ => None,
        }
    }

    /// The form in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Duration => "a duration such as 90s, 30m or 720h",
            Self::DurationOrNever => "a duration such as 90s, 30m or 720h, or Never",
            Self::BudgetDuration => "a duration in hours and minutes, such as 8h or 1h30m",
            Self::BudgetNodes => "a number of nodes such as 5, or a percentage from 0% to 100%",
            Self::Quantity => "a quantity such as 500m, 2 or 4Gi",
            Self::LabelValue => "a label value: letters, digits, '-', '_' and '.'",
            Self::LabelKey => "a label key such as example.com/name",
        }
    }
}

/// A quantity as written: a number, or text such as `500m` or `4Gi`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Amount(pub Value);

/// Quantities by resource name.
pub type ResourceList = BTreeMap<String, Amount>;

impl Amount {
    /// A quantity as text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self(Value::String(text.into()))
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Value::String(text) => f.write_str(text),
            other => write!(f, "{other}"),
        }
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        })
    }
}

wire! {
    /// An aspect of an object's state.
    Condition {
        /// When the condition last changed from one status to another.
        #[schemars(extend("format" = "date-time"))]
        last_transition_time: String,
        /// Details of the transition, for people. It may be empty.
        #[schemars(extend("maxLength" = 32_768))]
        message: String,
        /// The generation of the object that the condition was set upon.
        #[schemars(extend("minimum" = 0))]
        observed_generation?: i64,
        /// A word for the reason of the last transition.
        #[schemars(extend("maxLength" = 1024, "minLength" = 1, "pattern" = CONDITION_REASON))]
        reason: String,
        /// True, False or Unknown.
        #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
        status: String,
        /// Type of the condition, in CamelCase.
        #[schemars(extend("maxLength" = 316, "pattern" = CONDITION_TYPE))]
        #[serde(rename = "type")]
        kind: String,
    }
}

#[cfg(test)]
mod tests {
    use crate::types::aks_node_class::AKSNodeClass;
    use crate::types::karpenter::{NodeClaim, NodePool};
    use crate::types::orphan_record::OrphanRecord;
    use crate::types::orphan_sweep::OrphanSweep;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn round_trip<T: Serialize + DeserializeOwned>(value: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<T>(value.clone()).unwrap()).unwrap()
    }

    #[test]
    fn objects_without_a_spec_are_read_if_the_api_server_accepts_them() {
        let class =
            json!({ "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "a" } });
        assert_eq!(round_trip::<AKSNodeClass>(&class)["spec"], json!({}));
        let sweep =
            json!({ "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanSweep", "metadata": { "name": "a" } });
        assert_eq!(round_trip::<OrphanSweep>(&sweep)["spec"], json!({}));
    }

    #[test]
    fn fields_that_we_do_not_know_survive_a_round_trip() {
        let reference = json!({ "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "a", "new": 1 });
        let claim_spec = json!({
            "nodeClassRef": reference, "new": [1],
            "requirements": [{ "key": "a", "operator": "Exists", "new": null }],
            "taints": [{ "key": "a", "effect": "NoSchedule", "new": 1.5 }],
        });
        let pool = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "a" },
            "spec": {
                "template": { "metadata": { "labels": { "a": "b" }, "new": 2 }, "spec": claim_spec, "new": {} },
                "disruption": { "budgets": [{ "nodes": "1", "new": true }], "new": "x" },
                "limits": { "cpu": 4, "memory": "4Gi" },
                "new": { "deep": [{}] },
            },
            "status": { "new": 3, "conditions": [{
                "type": "Ready", "status": "True", "reason": "r", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "new": 1,
            }] },
        });
        assert_eq!(round_trip::<NodePool>(&pool), pool);
        let claim = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": { "name": "a" }, "spec": claim_spec,
        });
        assert_eq!(round_trip::<NodeClaim>(&claim), claim);
        let class = json!({
            "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": { "name": "a" },
            "spec": { "new": 1, "gpu": { "new": 2 }, "linuxOSConfig": { "sysctls": { "new": 3, "netIPv4TCPTwReuse": true } } },
        });
        assert_eq!(round_trip::<AKSNodeClass>(&class), class);
        let sweep = json!({
            "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanSweep", "metadata": { "name": "a" },
            "spec": { "new": 1, "minimumAge": { "new": 2 }, "breaker": { "new": 3 } },
        });
        assert_eq!(round_trip::<OrphanSweep>(&sweep), sweep);
        let record = json!({
            "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanRecord", "metadata": { "name": "a" },
            "spec": { "new": 1 },
        });
        assert_eq!(round_trip::<OrphanRecord>(&record), record);
    }
}
