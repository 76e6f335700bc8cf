//! Reads from which Git revision NodePools are applied, by what Flux and Argo CD tell.

use super::{ListError, list};
use crate::objects::raw_object;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::ApiResource;
use kube::{Api, Client};
use napkeeper_api::convert::Violations;
use napkeeper_api::types::karpenter::NodePool;
use napkeeper_core::model::azure::inventory::ListFailure;
use serde_json::Value;

/// Labels of what Flux applies.
const FLUX_NAMESPACE: &str = "kustomize.toolkit.fluxcd.io~1namespace";
const FLUX_NAME: &str = "kustomize.toolkit.fluxcd.io~1name";
/// Annotation of what Argo CD applies: `APP:GROUP/KIND:NAMESPACE/NAME`, where the app may be `NAMESPACE_APP`. The label
/// `app.kubernetes.io/instance`, by which it can track too, others set as well.
const ARGO_TRACKING: &str = "argocd.argoproj.io~1tracking-id";

/// What applies a NodePool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSource {
    /// The NodePool.
    pub pool: String,
    /// What applies it, for people.
    pub applied_by: String,
    /// The revision that it applies now.
    pub current: Option<String>,
    /// The revisions that it has applied, with the time of each, the oldest first; empty where it does not tell.
    deployed: Vec<(Timestamp, String)>,
}

impl GitSource {
    /// The revision that was applied at a time, if that is known.
    #[must_use]
    pub fn revision_at(&self, at: Timestamp) -> Option<&str> {
        self.deployed.iter().rev().find(|(since, _)| *since <= at).map(|(_, revision)| revision.as_str())
    }
}

/// What applies the NodePools. Those that nothing is known to apply are left out.
///
/// # Errors
/// [`ListFailure`] where the objects of Flux or Argo CD may not be listed, and a NodePool is applied by them.
pub async fn read_git_sources(client: &Client) -> Result<Vec<GitSource>, ListFailure> {
    let pools = ApiResource::erase::<NodePool>(&());
    let pools = objects(client, &pools).await.map_err(|error| error.of("nodepools"))?;
    let flux: Vec<(&str, String)> = pools.iter().filter_map(|pool| Some((name(pool)?, kustomization(pool)?))).collect();
    let argo: Vec<(&str, &str)> = pools.iter().filter_map(|pool| Some((name(pool)?, application(pool)?))).collect();
    let mut sources = Vec::new();
    if !flux.is_empty() {
        let found = listed(client, ["kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"]).await?;
        let source = |(pool, key): (&str, String)| {
            let object = found.iter().find(|object| key_of(object) == key);
            source(pool, format!("Flux Kustomization {key}"), object.map(flux_revision), Vec::new())
        };
        sources.extend(flux.into_iter().map(source));
    }
    if !argo.is_empty() {
        let found = listed(client, ["argoproj.io", "v1alpha1", "Application", "applications"]).await?;
        let source = |(pool, app): (&str, &str)| {
            let mut named = found.iter().filter(|object| is_named(object, app));
            // Of several it is not known which.
            let object = named.next().filter(|_| named.next().is_none());
            let applied_by = format!("Argo CD Application {}", object.map_or_else(|| app.to_owned(), key_of));
            source(pool, applied_by, object.map(argo_revision), object.map(argo_history).unwrap_or_default())
        };
        sources.extend(argo.into_iter().map(source));
    }
    sources.sort_by(|a, b| (&a.pool, &a.applied_by).cmp(&(&b.pool, &b.applied_by)));
    Ok(sources)
}

fn source(
    pool: &str,
    applied_by: String,
    current: Option<Option<String>>,
    deployed: Vec<(Timestamp, String)>,
) -> GitSource {
    GitSource { pool: pool.to_owned(), applied_by, current: current.flatten(), deployed }
}

async fn listed(client: &Client, [group, version, kind, plural]: [&str; 4]) -> Result<Vec<Value>, ListFailure> {
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    objects(client, &resource).await.map_err(|error| error.of(plural))
}

async fn objects(client: &Client, resource: &ApiResource) -> Result<Vec<Value>, ListError> {
    let api: Api<raw_object::RawObject> = Api::all_with(client.clone(), resource);
    list(&api, ListParams::default(), |value: &Value| Ok::<_, Violations>(Some(value.clone()))).await
}

fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn name(object: &Value) -> Option<&str> {
    text(object, "/metadata/name")
}

fn key_of(object: &Value) -> String {
    let parts = [text(object, "/metadata/namespace"), name(object)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("/")
}

/// The Kustomization that applies an object.
fn kustomization(object: &Value) -> Option<String> {
    let label = |key: &str| text(object, &format!("/metadata/labels/{key}"));
    Some(format!("{}/{}", label(FLUX_NAMESPACE)?, label(FLUX_NAME)?))
}

/// The Application that applies an object.
fn application(object: &Value) -> Option<&str> {
    let tracking = text(object, &format!("/metadata/annotations/{ARGO_TRACKING}"))?;
    tracking.split(':').next().filter(|app| !app.is_empty())
}

fn is_named(object: &Value, app: &str) -> bool {
    let own = name(object);
    own == Some(app)
        || app.split_once('_').is_some_and(|(namespace, app)| key_of(object) == format!("{namespace}/{app}"))
}

fn flux_revision(object: &Value) -> Option<String> {
    text(object, "/status/lastAppliedRevision").map(ToOwned::to_owned)
}

fn argo_revision(object: &Value) -> Option<String> {
    revision(object.pointer("/status/sync")?)
}

fn argo_history(object: &Value) -> Vec<(Timestamp, String)> {
    let entries = object.pointer("/status/history").and_then(Value::as_array).into_iter().flatten();
    let entry = |entry: &Value| Some((text(entry, "/deployedAt")?.parse().ok()?, revision(entry)?));
    let mut deployed: Vec<(Timestamp, String)> = entries.filter_map(entry).collect();
    deployed.sort();
    deployed
}

/// The revision, or those of an Application with several sources.
fn revision(of: &Value) -> Option<String> {
    let several = of.get("revisions").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let several = several.collect::<Vec<_>>().join(", ");
    text(of, "/revision").map(ToOwned::to_owned).or_else(|| Some(several).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, Fault};
    use serde_json::json;

    const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
    const KUSTOMIZATIONS: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations";
    const APPLICATIONS: &str = "/apis/argoproj.io/v1alpha1/applications";

    fn cluster() -> Fake {
        let fake = Fake::serving(&[POOLS, KUSTOMIZATIONS, APPLICATIONS]);
        let flux = json!({ "kustomize.toolkit.fluxcd.io/name": "nodes", "kustomize.toolkit.fluxcd.io/namespace": "flux-system" });
        let argo =
            |app: &str| json!({ "argocd.argoproj.io/tracking-id": format!("{app}:karpenter.sh/NodePool:argocd/b") });
        let instance = json!({ "app.kubernetes.io/instance": "nodes" });
        for metadata in [
            json!({ "name": "a", "labels": flux }),
            json!({ "name": "b", "annotations": argo("nodes") }),
            json!({ "name": "c", "annotations": argo("team_other") }),
            json!({ "name": "d", "labels": instance }),
        ] {
            fake.put(POOLS, json!({ "metadata": metadata }));
        }
        fake
    }

    #[tokio::test]
    async fn the_revision_now_and_at_a_time_is_told_as_far_as_it_is_known() {
        let fake = cluster();
        fake.put(
            KUSTOMIZATIONS,
            json!({
                "metadata": { "name": "nodes", "namespace": "flux-system" },
                "status": { "lastAppliedRevision": "main@sha1:abc" },
            }),
        );
        let history = json!([
            { "revision": "r1", "deployedAt": "2026-08-01T00:00:00Z" },
            { "revision": "r2", "deployedAt": "2026-08-02T00:00:00Z" },
        ]);
        fake.put(
            APPLICATIONS,
            json!({
                "metadata": { "name": "nodes", "namespace": "argocd" },
                "status": { "sync": { "revision": "r3" }, "history": history },
            }),
        );
        let sources = read_git_sources(&fake.client()).await.unwrap();
        let told: Vec<_> =
            sources.iter().map(|s| (s.pool.as_str(), s.applied_by.as_str(), s.current.as_deref())).collect();
        assert_eq!(
            told,
            [
                ("a", "Flux Kustomization flux-system/nodes", Some("main@sha1:abc")),
                ("b", "Argo CD Application argocd/nodes", Some("r3")),
                ("c", "Argo CD Application team_other", None),
            ]
        );
        let at = |day: u8| sources[1].revision_at(format!("2026-08-0{day}T12:00:00Z").parse().unwrap());
        assert_eq!((at(1), at(2), at(3)), (Some("r1"), Some("r2"), Some("r2")));
        assert_eq!(sources[1].revision_at("2026-07-01T00:00:00Z".parse().unwrap()), None, "before all that it tells");
        assert_eq!(sources[0].revision_at("2026-08-02T00:00:00Z".parse().unwrap()), None, "Flux tells none");
    }

    #[tokio::test]
    async fn objects_of_a_tool_are_listed_only_where_it_applies_a_pool() {
        let fake = Fake::serving(&[POOLS]);
        fake.put(POOLS, json!({ "metadata": { "name": "a" } }));
        assert_eq!(read_git_sources(&fake.client()).await, Ok(Vec::new()));
        let fake = cluster();
        fake.fail(APPLICATIONS, Some(Fault::Status(403)));
        assert!(read_git_sources(&fake.client()).await.unwrap_err().to_string().contains("applications"));
    }
}
