//! The schemas of CRDs, embedded or given.

mod api_server;
#[cfg(test)]
mod schedules;

use crate::cel::{RuleError, Rules};
use crate::schema::structural::{
    self, CompileError, Fault, MAX_KEPT, ObjectSchema, Scale, SchemaOrigin, ValidationResult,
};
pub use api_server::{ApiServerResponse, StatusCause};
use napkeeper_api::crds;
use serde_json::Value;

/// Why definitions cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The embedded definitions cannot be written.
    #[error("cannot write the embedded CRDs: {0}")]
    Embedded(#[from] serde_json::Error),
    /// The catalogue cannot be read.
    #[error(transparent)]
    Catalog(#[from] napkeeper_core::catalog::CatalogError),
    /// The API server would reject a definition.
    #[error("{origin}: CRD {name}, version {version}: {source}")]
    Refused {
        /// Where the definition comes from.
        origin: String,
        /// Its name.
        name: String,
        /// The version whose schema is rejected.
        version: String,
        /// Where in the schema, and why.
        source: CompileError,
    },
    /// A cross-field rule of a definition cannot be evaluated. A rule is never passed over.
    #[error("{origin}: CRD {name}, version {version}: {source}")]
    Rule {
        /// Where the definition comes from.
        origin: String,
        /// Its name.
        name: String,
        /// The version of the rule.
        version: String,
        /// Which rule, and why.
        source: Box<RuleError>,
    },
    /// An object is no definition.
    #[error("{origin}: {name} is not a CustomResourceDefinition of apiextensions.k8s.io/v1: {reason}")]
    NoDefinition {
        /// Where the object comes from.
        origin: String,
        /// Its name or kind.
        name: String,
        /// The missing part.
        reason: &'static str,
    },
    /// No definition was found.
    #[error("{0}: contains no CustomResourceDefinition")]
    Empty(String),
    /// The embedded definitions follow other versions.
    #[error("no embedded CRD schemas for version {requested}; available: {known}")]
    NoSuchVersion {
        /// The requested version.
        requested: String,
        /// The embedded versions.
        known: String,
    },
    /// The schema of napkeeper.yaml, or of a kind of Kubernetes itself, cannot be read; a test rules it out.
    #[error("the schema of {schema}: {source}")]
    OwnSchema {
        /// Which schema.
        schema: &'static str,
        /// Where in it, and why.
        source: CompileError,
    },
}

/// A kind.
#[derive(Debug)]
pub(crate) struct CrdKind {
    pub(crate) group: String,
    pub(crate) name: String,
    /// Versions that are served, the one to write last.
    pub(crate) versions: Vec<CrdVersion>,
}

/// A version of a kind.
#[derive(Debug)]
pub(crate) struct CrdVersion {
    pub(crate) name: String,
    pub(crate) form: ObjectSchema,
    /// Its cross-field rules.
    pub(crate) rules: Rules,
    /// The deprecation warning of the API server.
    pub(crate) deprecated: Option<String>,
}

impl CrdVersion {
    /// Judges an object that is created.
    pub(crate) fn create(&self, value: &Value) -> ValidationResult {
        let mut result = structural::create(value, &self.form);
        self.across_fields(&mut result);
        result
    }

    /// Adds the violations of cross-field rules. They are evaluated only if every field is valid, as on the API server.
    fn across_fields(&self, result: &mut ValidationResult) {
        let broken = !result.unreadable.is_empty() || !result.unknown.is_empty();
        // Of too many faults some are not kept, and those may block.
        let blocked = result.faults.len() >= MAX_KEPT || result.faults.iter().any(|fault| fault.reason.blocks());
        if broken || blocked {
            return;
        }
        let found = self.rules.check(&result.stored);
        result.faults.extend(found.into_iter().map(|finding| Fault {
            field: self.form.schema.server_path(&finding.path),
            reason: finding.reason.into(),
            issue: Some(finding.into_issue()),
            secondary: false,
        }));
    }
}

/// The definitions that objects are judged by.
#[derive(Debug)]
pub struct CrdSchemas {
    origin: String,
    embedded: bool,
    kinds: Vec<CrdKind>,
}

/// Versions of upstream that the embedded definitions follow.
const UPSTREAM_VERSIONS: [&str; 2] = ["karpenter-v1.14", "v1.14"];
/// The same, as text.
const UPSTREAM: &str = "karpenter v1.14, Azure provider of August 2026";

impl CrdSchemas {
    /// The definitions of this build.
    ///
    /// # Errors
    /// [`SchemaError`] when they are broken, which a test rules out.
    pub fn embedded() -> Result<Self, SchemaError> {
        let origin = format!("embedded ({UPSTREAM})");
        let all = crds::all()?;
        let definitions = Self::from_crds(&origin, all.iter().map(|crd| &crd.definition))?;
        Ok(Self { embedded: true, ..definitions })
    }

    /// The embedded definitions that follow a version of upstream.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchVersion`] when none do.
    pub fn embedded_at(version: &str) -> Result<Self, SchemaError> {
        let plain = version.trim();
        if UPSTREAM_VERSIONS.iter().any(|known| *known == plain || known.trim_start_matches('v') == plain) {
            return Self::embedded();
        }
        Err(SchemaError::NoSuchVersion { requested: plain.to_owned(), known: UPSTREAM_VERSIONS.join(", ") })
    }

    /// The upstream versions of the embedded definitions, as text.
    #[must_use]
    pub const fn embedded_version() -> &'static str {
        UPSTREAM
    }

    /// The definitions of a folder or of a cluster. `origin` names them. Other objects are ignored.
    ///
    /// # Errors
    /// [`SchemaError`] if an API server would reject one, or if there is none.
    pub fn from_crds<'v>(origin: &str, crds: impl Iterator<Item = &'v Value>) -> Result<Self, SchemaError> {
        let is_definition = |crd: &&Value| crd["kind"] == "CustomResourceDefinition";
        let kinds: Vec<CrdKind> = crds.filter(is_definition).map(|crd| kind(origin, crd)).collect::<Result<_, _>>()?;
        if kinds.is_empty() {
            return Err(SchemaError::Empty(origin.to_owned()));
        }
        Ok(Self { origin: origin.to_owned(), embedded: false, kinds })
    }

    /// Their origin, as text.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// True for those of this build.
    pub(crate) const fn is_embedded(&self) -> bool {
        self.embedded
    }

    /// All kinds of a group.
    pub(crate) fn group(&self, group: &str) -> Vec<&CrdKind> {
        self.kinds.iter().filter(|kind| kind.group == group).collect()
    }

    /// The version of a kind.
    pub(crate) fn version(&self, group: &str, kind: &str, version: &str) -> Option<(&CrdKind, &CrdVersion)> {
        let kind = self.kinds.iter().find(|k| k.group == group && k.name == kind)?;
        let version = kind.versions.iter().find(|v| v.name == version)?;
        Some((kind, version))
    }
}

fn kind(origin: &str, crd: &Value) -> Result<CrdKind, SchemaError> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let spec = &crd["spec"];
    let name = match crd["metadata"]["name"].as_str() {
        Some(name) => name.to_owned(),
        None => format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"])),
    };
    let lacks =
        |reason: &'static str| SchemaError::NoDefinition { origin: origin.to_owned(), name: name.clone(), reason };
    if crd["apiVersion"] != "apiextensions.k8s.io/v1" {
        return Err(lacks("unsupported apiVersion; convert it to v1"));
    }
    let group = spec["group"].as_str().ok_or_else(|| lacks("spec.group is missing"))?.to_owned();
    let kind = spec["names"]["kind"].as_str().ok_or_else(|| lacks("spec.names.kind is missing"))?.to_owned();
    let all = spec["versions"].as_array().ok_or_else(|| lacks("spec.versions is missing"))?;
    let mut versions = Vec::new();
    // The stored one last, and before it the order of the definition.
    let served = |stored: bool| all.iter().filter(move |v| v["served"] == true && (v["storage"] == true) == stored);
    for given in served(false).chain(served(true)) {
        let version = text(&given["name"]);
        let schema = &given["schema"]["openAPIV3Schema"];
        let warning = given["deprecationWarning"].as_str().map(ToOwned::to_owned);
        let default = || format!("{group}/{version} {kind} is deprecated");
        let rules = Rules::compile(schema).map_err(|source| SchemaError::Rule {
            origin: origin.to_owned(),
            name: name.clone(),
            version: version.clone(),
            source: Box::new(source),
        })?;
        versions.push(CrdVersion {
            rules,
            deprecated: (given["deprecated"] == true).then(|| warning.unwrap_or_else(default)),
            form: form(schema, &given["subresources"]).map_err(|source| SchemaError::Refused {
                origin: origin.to_owned(),
                name: name.clone(),
                version: version.clone(),
                source,
            })?,
            name: version,
        });
    }
    Ok(CrdKind { group, name: kind, versions })
}

fn form(schema: &Value, subresources: &Value) -> Result<ObjectSchema, CompileError> {
    Ok(ObjectSchema {
        schema: structural::compile(schema, SchemaOrigin::Crd)?,
        has_status: subresources["status"].is_object(),
        scale: Scale::of(&subresources["scale"]),
    })
}
