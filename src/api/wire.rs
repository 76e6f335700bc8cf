//! What do the objects of all kinds have in common on the wire?
//!
//! [`wire!`] declares an object of the API. `name: Type` is a required field, `name?: Type` one that may be absent.
//! Every object keeps the fields that it does not know in `extra`, so they survive a round trip; the generated
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
/// A quantity of Kubernetes.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// The name part of a label key, and a label value.
pub(crate) const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// A label key, with or without its domain.
pub(crate) const QUALIFIED_NAME: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
const CONDITION_TYPE: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
/// Operators of `requirements[]`.
pub(crate) const OPERATORS: [&str; 8] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"];

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
