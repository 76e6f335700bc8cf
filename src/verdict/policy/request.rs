//! The admission request that the API server would make for an object.

use crate::policy::inputs::Inputs;
use crate::policy::model::RuleOperation;
use crate::policy::resources::Resource;
use napkeeper_core::model::labels::NAMESPACE_NAME;
use serde_json::{Map, Value, json};

/// A request to create an object, or to change it.
#[derive(Debug)]
pub(crate) struct Request<'r> {
    /// The object as it would be stored.
    pub(crate) object: &'r Value,
    /// The stored object; `None` for a create.
    pub(crate) old: Option<&'r Value>,
    pub(crate) resource: Resource,
    pub(crate) inputs: &'r Inputs,
}

impl<'r> Request<'r> {
    /// The request for an object. `None` without a kind, or for a policy itself, which no policy can match.
    pub(crate) fn of(object: &'r Value, old: Option<&'r Value>, inputs: &'r Inputs) -> Option<Self> {
        let resource = Resource::of(object)?;
        let exempt = resource.group == "admissionregistration.k8s.io" && resource.plural.contains("admissionpolic");
        (!exempt).then_some(Self { object, old, resource, inputs })
    }

    pub(crate) fn operation(&self) -> RuleOperation {
        if self.old.is_some() { RuleOperation::Update } else { RuleOperation::Create }
    }

    pub(crate) fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && self.resource.kind == "Namespace"
    }

    /// The namespace of the object, if it has one and it is known.
    pub(crate) fn namespace(&self) -> Option<&'r str> {
        if self.resource.namespaced == Some(false) {
            return None;
        }
        let named = self.object["metadata"]["namespace"].as_str().filter(|n| !n.is_empty());
        named.or_else(|| self.resource.namespaced.and_then(|_| self.inputs.default_namespace()))
    }

    pub(crate) fn namespace_object(&self) -> Option<&'r Value> {
        self.inputs.namespace(self.namespace()?)
    }

    /// The labels of an object that is itself a Namespace, with the one that the API server adds.
    pub(crate) fn labels_of_namespace(&self) -> Value {
        let metadata = &self.object["metadata"];
        let mut labels = metadata["labels"].as_object().cloned().unwrap_or_default();
        labels.insert(NAMESPACE_NAME.to_owned(), metadata["name"].clone());
        Value::Object(labels)
    }

    /// The name, if it is not made up by the API server.
    fn name(&self) -> Option<&'r str> {
        self.object["metadata"]["name"].as_str().filter(|n| !n.is_empty())
    }

    /// The known part of `request`, and its fields with an unknown value.
    pub(crate) fn facts(&self) -> (Value, Vec<(&'static str, Option<Value>)>) {
        let Resource { group, version, kind, plural, .. } = &self.resource;
        let kind = json!({ "group": group, "version": version, "kind": kind });
        let resource = json!({ "group": group, "version": version, "resource": plural });
        let operation = if self.old.is_some() { "UPDATE" } else { "CREATE" };
        let mut request = json!({
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "operation": operation,
        });
        // A user may also have a uid and extra fields, which are unknown.
        let server_only = ["request.dryRun", "request.options", "request.userInfo.uid", "request.userInfo.extra"];
        let mut parts: Vec<_> = server_only.map(|name| (name, None)).into();
        parts.push(("request.userInfo", self.inputs.user_info()));
        // Absent for cluster-scoped objects, as is a name that is yet to be generated.
        if self.resource.namespaced != Some(false) {
            parts.push(("request.namespace", self.namespace().map(Value::from)));
        }
        parts.push(("request.name", self.name().map(Value::from)));
        if let Some(map) = request.as_object_mut() {
            add_known(map, &parts);
        }
        (request, parts)
    }

    /// Fields of the object that the API server fills in.
    pub(crate) fn server_set_fields(&self) -> Vec<(&'static str, Option<Value>)> {
        let mut fields = Vec::new();
        for field in SERVER_SET_FIELDS {
            let (_, name) = field.rsplit_once('.').unwrap_or_default();
            let given = &self.object["metadata"][name];
            if given.is_null() {
                let value = (name == "namespace").then(|| self.namespace().map(Value::from)).flatten();
                if name != "namespace" || self.resource.namespaced != Some(false) {
                    fields.push((field, value));
                }
            } else {
                fields.push((field, Some(given.clone())));
            }
        }
        fields
    }
}

/// Fields of an object's metadata that the API server fills in where they are absent.
pub(crate) const SERVER_SET_FIELDS: [&str; 7] = [
    "object.metadata.creationTimestamp",
    "object.metadata.generation",
    "object.metadata.managedFields",
    "object.metadata.name",
    "object.metadata.namespace",
    "object.metadata.resourceVersion",
    "object.metadata.uid",
];

fn add_known(request: &mut Map<String, Value>, parts: &[(&'static str, Option<Value>)]) {
    for (name, value) in parts {
        if let (Some((_, field)), Some(value)) = (name.split_once('.'), value) {
            request.insert(field.to_owned(), value.clone());
        }
    }
}
