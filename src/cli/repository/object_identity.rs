//! Which object a manifest is of.

use serde_json::Value;
use std::fmt;

/// An object as its manifest names it. All is empty for a finding about no object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ObjectIdentity {
    api_version: String,
    kind: String,
    namespace: String,
    /// Its name, or else the beginning of one that the API server completes.
    name: String,
}

impl ObjectIdentity {
    /// That of a manifest.
    pub(crate) fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &value["metadata"];
        let name = Some(text(&metadata["name"])).filter(|name| !name.is_empty());
        Self {
            api_version: text(&value["apiVersion"]),
            kind: text(&value["kind"]),
            namespace: text(&metadata["namespace"]),
            name: name.unwrap_or_else(|| text(&metadata["generateName"])),
        }
    }

    /// True if there is no object.
    pub(crate) fn is_none(&self) -> bool {
        self.api_version.is_empty() && self.kind.is_empty()
    }

    fn full_name(&self) -> String {
        let namespace = if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        format!("{namespace}{}", self.name)
    }

    /// Kind, namespace and name for people, such as `NodePool general` or `Deployment shop/web`; empty if it has no kind.
    pub(crate) fn label(&self) -> String {
        let name = if self.kind.is_empty() { String::new() } else { self.full_name() };
        format!("{} {name}", self.kind).trim().to_owned()
    }
}

/// `apiVersion/kind/namespace/name`; empty if there is no object. Baselines hold it.
impl fmt::Display for ObjectIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return Ok(());
        }
        write!(f, "{}/{}/{}", self.api_version, self.kind, self.full_name())
    }
}
