//! Requests to the API server: what exists, deletions, and finalizers.

use super::ours::{Kind, Owned};
use anyhow::{Context, anyhow};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// The name under which this command writes fields.
const FIELD_MANAGER: &str = "napkeeper-uninstall";
/// How often a request is sent that another writer was faster than, or that cannot be answered yet.
const TRIES: usize = 10;
/// Permits the deletion of what a policy of `napkeeper policies export` guards.
const ACKNOWLEDGED: &str = "napkeeper.io/delete-acknowledged";

/// Groups whose objects are views of others.
const MADE_UP: [&str; 4] = ["metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io", "events.k8s.io"];
/// What Kubernetes makes and deletes with other objects.
const TRANSIENT: [&str; 3] = ["endpoints", "endpointslices", "events"];
/// What Kubernetes makes in each namespace.
const IN_EACH_NAMESPACE: [(&str, &str); 2] = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];

/// An object that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) uid: String,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.kind, self.name),
            None => write!(f, "{} {}", self.kind.kind, self.name),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let api_version = resource(self.kind).api_version;
        json!({ "apiVersion": api_version, "kind": self.kind.kind, "namespace": self.namespace, "name": self.name })
            .serialize(serializer)
    }
}

impl Object {
    fn of(kind: Kind, found: &impl ResourceExt) -> Self {
        let uid = found.uid().unwrap_or_default();
        Self { kind, namespace: found.namespace(), name: found.name_any(), uid }
    }
}

fn resource(kind: Kind) -> ApiResource {
    let Kind { group, version, kind, plural } = kind;
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource { group: group.into(), version: version.into(), api_version, kind: kind.into(), plural: plural.into() }
}

/// The API server.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    /// The namespace of napkeeper.
    pub(super) namespace: String,
}

impl Cluster {
    fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource(kind)),
            None => Api::all_with(self.client.clone(), &resource(kind)),
        }
    }

    /// An object with all its fields; `None` if it or its kind is not there.
    pub(super) async fn get(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<Option<DynamicObject>> {
        let api = self.api(kind, namespace);
        asked(async || api.get(name).await).await.with_context(|| format!("reading {} {name}", kind.kind))
    }

    /// What exists of a table, in its order. Of Secrets and the others only the metadata is read.
    pub(super) async fn existing(&self, table: &[Owned]) -> anyhow::Result<Vec<Object>> {
        let mut all = Vec::new();
        for row in table {
            let api = self.api(row.kind, row.place.namespace(&self.namespace));
            for name in row.names {
                let metadata = asked(async || api.get_metadata(name).await).await;
                let metadata = metadata.with_context(|| format!("reading {} {name}", row.kind.kind))?;
                all.extend(metadata.map(|metadata| Object::of(row.kind, &metadata)));
            }
        }
        Ok(all)
    }

    /// The metadata of objects in a namespace, or without one, that a selector of labels selects.
    pub(super) async fn select(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        labels: &str,
    ) -> anyhow::Result<Vec<Object>> {
        let (api, selection) = (self.api(kind, namespace), ListParams::default().labels(labels));
        let listed = asked(async || api.list_metadata(&selection).await).await;
        let listed = listed.with_context(|| format!("listing {}", kind.plural))?;
        Ok(listed.iter().flatten().map(|one| Object::of(kind, one)).collect())
    }

    /// All objects of a kind without a namespace; none if it is not served.
    pub(super) async fn all(&self, kind: Kind) -> anyhow::Result<Vec<DynamicObject>> {
        let api = self.api(kind, None);
        let listed = asked(async || api.list(&ListParams::default()).await).await;
        let listed = listed.with_context(|| format!("listing {}", kind.plural))?;
        Ok(listed.map(|listed| listed.items).unwrap_or_default())
    }

    /// How many objects of a kind there are; `None` if it is not served in this version.
    pub(super) async fn count(&self, kind: Kind) -> anyhow::Result<Option<usize>> {
        let api = self.api(kind, None);
        let listed = asked(async || api.list_metadata(&ListParams::default()).await).await;
        Ok(listed.with_context(|| format!("listing {}", kind.plural))?.map(|listed| listed.items.len()))
    }

    /// Kind and name of what is in the namespace, without what Kubernetes makes in each, events, and what has an owner.
    pub(super) async fn contents(&self) -> anyhow::Result<Vec<(String, String)>> {
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await.context("asking for the kinds")?;
        let mut all = Vec::new();
        for group in discovery.groups().filter(|group| !MADE_UP.contains(&group.name())) {
            for (resource, capabilities) in group.recommended_resources() {
                let is_listed = capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
                if !is_listed || TRANSIENT.contains(&resource.plural.as_str()) {
                    continue;
                }
                let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.namespace, &resource);
                let listed = asked(async || api.list_metadata(&ListParams::default()).await).await;
                let listed = listed.with_context(|| format!("listing {}", resource.plural))?;
                let own = listed.into_iter().flatten().filter(|found| found.metadata.owner_references.is_none());
                all.extend(own.map(|found| (resource.kind.clone(), found.name_any())));
            }
        }
        all.retain(|(kind, name)| !IN_EACH_NAMESPACE.contains(&(kind.as_str(), name.as_str())));
        Ok(all)
    }

    /// True while this object exists; another one of its name does not count.
    pub(super) async fn exists(&self, object: &Object) -> anyhow::Result<bool> {
        let api = self.api(object.kind, object.namespace.as_deref());
        let metadata =
            asked(async || api.get_metadata(&object.name).await).await.with_context(|| format!("reading {object}"))?;
        Ok(metadata.is_some_and(|same| same.metadata.uid.as_ref() == Some(&object.uid)))
    }

    /// Deletes this object, and no other one of its name. That it is gone already is no error.
    pub(super) async fn delete(&self, object: &Object) -> anyhow::Result<()> {
        let uid = Some(object.uid.clone());
        let params = DeleteParams::background().preconditions(Preconditions { uid, resource_version: None });
        let deleted = self.api(object.kind, object.namespace.as_deref()).delete(&object.name, &params).await;
        found(deleted).map(drop).with_context(|| format!("deleting {object}"))
    }

    /// Deletes it, past the guards of `napkeeper policies export`.
    pub(super) async fn delete_acknowledged(&self, object: &Object) -> anyhow::Result<()> {
        self.change(object, |_| Some(json!({ "annotations": { ACKNOWLEDGED: "uninstall" } }))).await?;
        self.delete(object).await
    }

    /// Takes one finalizer off, and leaves those of others.
    pub(super) async fn remove_finalizer(&self, object: &Object, finalizer: &str) -> anyhow::Result<()> {
        self.change(object, |found| {
            let kept: Vec<_> = found.finalizers().iter().filter(|one| *one != finalizer).collect();
            (kept.len() < found.finalizers().len()).then(|| json!({ "finalizers": kept }))
        })
        .await
    }

    /// Changes metadata of this object upon the version that was read, anew if another writer was faster.
    async fn change(&self, object: &Object, change: impl Fn(&DynamicObject) -> Option<Value>) -> anyhow::Result<()> {
        let api = self.api(object.kind, object.namespace.as_deref());
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        for attempt in 1.. {
            let same = found(api.get(&object.name).await).with_context(|| format!("reading {object}"))?;
            let Some(same) = same.filter(|same| same.uid().as_ref() == Some(&object.uid)) else { return Ok(()) };
            let Some(mut metadata) = change(&same) else { return Ok(()) };
            metadata["resourceVersion"] = json!(same.resource_version());
            let patched = api.patch(&object.name, &params, &Patch::Merge(json!({ "metadata": metadata }))).await;
            match patched {
                Err(error) if code(&error) == Some(409) && attempt < TRIES => {}
                other => return found(other).map(drop).with_context(|| format!("changing {object}")),
            }
        }
        Ok(())
    }
}

fn code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error { Some(status.code) } else { None }
}

/// An answer; `None` where the API server does not know the object or its kind. An error has the words of the server alone.
fn found<T>(answer: kube::Result<T>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if code(&error) == Some(404) => Ok(None),
        Err(kube::Error::Api(status)) if !status.message.is_empty() => Err(anyhow!("{}", status.message)),
        Err(error) => Err(error.into()),
    }
}

/// The answer to a request that may be repeated: a kind that has just been defined, or goes, is not served for a moment.
async fn asked<T>(ask: impl AsyncFn() -> kube::Result<T>) -> anyhow::Result<Option<T>> {
    for _ in 1..TRIES {
        match ask().await {
            Err(error) if code(&error) == Some(429) => tokio::time::sleep(Duration::from_secs(1)).await,
            other => return found(other),
        }
    }
    found(ask().await)
}

/// An object of a listing.
pub(super) fn object(kind: Kind, found: &DynamicObject) -> Object {
    Object::of(kind, found)
}
