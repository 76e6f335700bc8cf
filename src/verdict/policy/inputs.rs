//! What policies need that is not in the object: the user, namespaces, parameters.

use crate::policy::Policies;
use crate::policy::model::ParamKind;
use napkeeper_api::manifests::{Source, items};
use napkeeper_core::model::labels::NAMESPACE_NAME;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The requesting user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Groups; `system:authenticated` is always one of them.
    pub groups: Vec<String>,
}

/// Known inputs besides the objects. Everything else is unknown, and a policy that needs it is undecided.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    user: Option<User>,
    namespaces: BTreeMap<String, Arc<Value>>,
    /// The namespace of objects that name none.
    default_namespace: Option<String>,
    params: Vec<Arc<Value>>,
    /// There are no other parameters than these.
    params_are_all: bool,
}

impl Inputs {
    /// With the requesting user.
    #[must_use]
    pub fn with_user(mut self, user: User) -> Self {
        self.user = Some(user);
        self
    }

    /// With these Namespaces. If there is exactly one, objects that name no namespace are taken to be in it.
    #[must_use]
    pub fn with_namespaces(mut self, objects: impl IntoIterator<Item = Value>) -> Self {
        let before = self.namespaces.len();
        objects.into_iter().for_each(|object| self.add_namespace(object));
        if let (0, 1, Some(name)) = (before, self.namespaces.len(), self.namespaces.keys().next()) {
            self.default_namespace = Some(name.clone());
        }
        self
    }

    /// With these objects as parameters, and no others: a parameter that is not among them does not exist.
    #[must_use]
    pub fn with_all_params(mut self, objects: impl IntoIterator<Item = Value>) -> Self {
        self.params.extend(objects.into_iter().map(Arc::new));
        self.params_are_all = true;
        self
    }

    /// With the Namespaces of the input, and its objects of kinds that hold parameters.
    #[must_use]
    pub fn with_render(mut self, policies: &Policies, sources: &[Source]) -> Self {
        let mut kinds: Vec<&ParamKind> = policies.param_kinds().collect();
        kinds.dedup();
        let wanted = |text: &str| text.contains("Namespace") || kinds.iter().any(|k| text.contains(&k.kind));
        // Most files have none, and parsing them twice is slow.
        for source in sources.iter().filter(|s| wanted(&s.text)) {
            for chunk in source.chunks() {
                for document in &source.parse_chunk(chunk).documents {
                    for (_, object) in items(document) {
                        self.take(object, &kinds);
                    }
                }
            }
        }
        self
    }

    fn take(&mut self, object: &Value, kinds: &[&ParamKind]) {
        if object["apiVersion"] == "v1" && object["kind"] == "Namespace" {
            self.add_namespace(object.clone());
        }
        if kinds.iter().any(|k| is_of(object, k)) && !self.params.iter().any(|p| same_name(p, object)) {
            self.params.push(Arc::new(object.clone()));
        }
    }

    fn add_namespace(&mut self, mut object: Value) {
        let Some(name) = object["metadata"]["name"].as_str().map(str::to_owned) else { return };
        if let Some(metadata) = object["metadata"].as_object_mut() {
            let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
            if labels.is_null() {
                *labels = Value::Object(Map::new());
            }
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(NAMESPACE_NAME.to_owned(), Value::String(name.clone()));
            }
        }
        self.namespaces.entry(name).or_insert_with(|| Arc::new(object));
    }

    /// The requesting user, as `request.userInfo`.
    pub(crate) fn user_info(&self) -> Option<Value> {
        let user = self.user.as_ref()?;
        let mut groups = user.groups.clone();
        let everybody = "system:authenticated";
        if !groups.iter().any(|g| g == everybody) {
            groups.push(everybody.to_owned());
        }
        Some(json!({ "username": user.name, "groups": groups }))
    }

    /// The Namespace of a name.
    pub(crate) fn namespace(&self, name: &str) -> Option<&Value> {
        self.namespaces.get(name).map(Arc::as_ref)
    }

    /// The namespace of objects that name none, if it is known.
    pub(crate) fn default_namespace(&self) -> Option<&str> {
        self.default_namespace.as_deref()
    }

    /// The objects of a kind that may hold parameters, those beside the policies included.
    pub(crate) fn params<'s>(
        &'s self,
        kind: &'s ParamKind,
        extra_params: &'s [Arc<Value>],
    ) -> impl Iterator<Item = &'s Value> + 's {
        let given = self.params.iter().map(Arc::as_ref);
        // Given parameters replace those beside the policies.
        let beside = extra_params.iter().map(Arc::as_ref).filter(|o| !self.params.iter().any(|p| same_name(p, o)));
        given.chain(beside).filter(|object| is_of(object, kind))
    }

    /// Whether there are no other parameters than the known ones.
    pub(crate) fn params_are_all(&self) -> bool {
        self.params_are_all
    }
}

fn is_of(object: &Value, kind: &ParamKind) -> bool {
    object["apiVersion"] == kind.api_version.as_str() && object["kind"] == kind.kind.as_str()
}

fn same_name(a: &Value, b: &Value) -> bool {
    let key = |o: &Value| (o["kind"].clone(), o["metadata"]["namespace"].clone(), o["metadata"]["name"].clone());
    key(a) == key(b)
}
