//! Which kinds have a schema, and in which versions?

use crate::patterns::Patterns;
use napkeeper_api::{config, crds};
use serde_json::{Value, json};

/// Why the embedded schemas cannot be used. A test rules all of it out.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The definitions cannot be written.
    #[error("writing the embedded definitions: {0}")]
    Definitions(#[from] serde_json::Error),
    /// The catalogue cannot be read.
    #[error(transparent)]
    Catalog(#[from] napkeeper_core::catalog::CatalogError),
    /// A pattern is not a regular expression.
    #[error("compiling the pattern {pattern}: {source}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// Why.
        source: Box<regex::Error>,
    },
}

/// A kind.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) name: String,
    /// Versions, the stored one last.
    pub(crate) versions: Vec<Version>,
}

/// A version of a kind.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) schema: Value,
    /// What the API server says about its use.
    pub(crate) deprecated: Option<String>,
}

/// All schemas.
#[derive(Debug)]
pub(crate) struct Schemas {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) config: Value,
    pub(crate) patterns: Patterns,
}

impl Schemas {
    pub(crate) fn embedded() -> Result<Self, SchemaError> {
        let kinds: Vec<Kind> = crds::all()?.iter().map(|crd| kind(&crd.definition["spec"])).collect();
        let config = config::schema();
        let mut patterns = Patterns::default();
        patterns.learn(&config)?;
        for version in kinds.iter().flat_map(|k| &k.versions) {
            patterns.learn(&version.schema)?;
        }
        Ok(Self { kinds, config, patterns })
    }
}

fn kind(spec: &Value) -> Kind {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().into_iter().flatten();
    Kind {
        group: text(&spec["group"]),
        name: text(&spec["names"]["kind"]),
        versions: versions
            .map(|v| Version {
                name: text(&v["name"]),
                schema: with_metadata(&v["schema"]["openAPIV3Schema"]),
                deprecated: (v["deprecated"] == true).then(|| text(&v["deprecationWarning"])),
            })
            .collect(),
    }
}

/// The API server checks metadata by its own type, not by the definition.
fn with_metadata(schema: &Value) -> Value {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    let map = json!({ "type": "object", "additionalProperties": text });
    let open = json!({ "type": "array", "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let mut schema = schema.clone();
    schema["properties"]["apiVersion"] = text.clone();
    schema["properties"]["kind"] = text.clone();
    schema["properties"]["metadata"] = json!({
        "type": "object",
        "properties": {
            "name": text, "generateName": text, "namespace": text, "uid": text, "resourceVersion": text,
            "selfLink": text, "labels": map, "annotations": map, "creationTimestamp": time,
            "deletionTimestamp": time, "generation": { "type": "integer", "format": "int64" },
            "deletionGracePeriodSeconds": { "type": "integer", "format": "int64" },
            "finalizers": { "type": "array", "items": text },
            "ownerReferences": open, "managedFields": open,
        },
    });
    schema
}
