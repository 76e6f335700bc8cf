//! Conversion of resource requests.
//!
//! As kube-scheduler counts (`k8s.io/component-helpers/resource`, PodRequests): containers and sidecars together, or
//! the greediest moment of the start if that is more, plus the overhead of the runtime class.

use crate::convert::common;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use napkeeper_core::model::amounts::resources::Resources;

const HUGE_PAGES: &str = "hugepages-";

/// The requests of a pod, `pods: 1` included. `at` is the path of the pod spec.
pub(crate) fn requests(spec: &PodSpec, at: &Path, found: &mut Violations) -> Resources {
    let mut total =
        greatest_sum(spec, |container, (list, i)| container_requests(container, &at.key(list).index(i), found));
    override_by_pod(&mut total, spec, &at.key("resources"), found);
    let overhead = spec.overhead.iter().flatten().map(|(k, q)| (k, &q.0));
    total.add(&common::resources_by(amount, overhead, &at.key("overhead"), found));
    total.pods = 1;
    total
}

/// The limits of its containers, `pods: 1` included. What cannot be read counts as none: nothing is decided by them.
pub(crate) fn limits(spec: &PodSpec) -> Resources {
    let (at, mut unreadable) = (Path::root(), Violations::default());
    let limits = greatest_sum(spec, |container, _| {
        let limits = container.resources.iter().flat_map(|resources| resources.limits.iter().flatten());
        common::resources_by(amount, limits.map(|(name, quantity)| (name, &quantity.0)), &at, &mut unreadable)
    });
    Resources { pods: 1, ..limits }
}

/// The sum of what its containers have, or the greatest moment of their start if that is more. Containers are passed with
/// their list and index.
fn greatest_sum(spec: &PodSpec, mut of: impl FnMut(&Container, (&'static str, usize)) -> Resources) -> Resources {
    let mut running = Resources::default();
    for (i, container) in spec.containers.iter().enumerate() {
        running.add(&of(container, ("containers", i)));
    }
    let mut starting = Resources::default();
    let mut sidecars = Resources::default();
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let own = of(container, ("initContainers", i));
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&own);
            starting.raise_to_at_least(&sidecars);
        } else {
            starting.raise_to_at_least(&own.plus(&sidecars));
        }
    }
    let mut total = running.plus(&sidecars);
    total.raise_to_at_least(&starting);
    total
}

/// The amount of a request.
fn amount(name: &str, text: &str) -> Result<i64, String> {
    let amount = common::amount(name, text).map_err(|error| error.to_string())?;
    if amount < 0 { Err(format!("{text} must not be negative")) } else { Ok(amount) }
}

/// An absent request defaults to the limit, as on the API server.
fn container_requests(container: &Container, at: &Path, found: &mut Violations) -> Resources {
    container.resources.as_ref().map(|r| requests_or_limits(r, &at.key("resources"), found)).unwrap_or_default()
}

fn requests_or_limits(resources: &ResourceRequirements, at: &Path, found: &mut Violations) -> Resources {
    let requests = resources.requests.iter().flatten().map(|(k, q)| (k, &q.0));
    let mut all = common::resources_by(amount, requests, &at.key("requests"), found);
    let is_requested = |name: &String| resources.requests.as_ref().is_some_and(|r| r.contains_key(name));
    for (name, quantity) in resources.limits.iter().flatten().filter(|(name, _)| !is_requested(name)) {
        let path = at.key("limits").key(name);
        if let Some(amount) = found.take(&path, amount(name, &quantity.0)) {
            common::set_amount(&mut all, name, amount);
        }
    }
    all
}

/// Pod-level requests replace the sum of the containers; pod-level limits do so if no container requests the resource,
/// as the API server defaults them. For huge pages, limits always do.
fn override_by_pod(total: &mut Resources, spec: &PodSpec, at: &Path, found: &mut Violations) {
    let Some(resources) = &spec.resources else { return };
    let limits = resources.limits.iter().flatten().map(|limit| ("limits", limit));
    let limits = limits.filter(|(_, (name, _))| {
        let is_requested = resources.requests.as_ref().is_some_and(|r| r.contains_key(*name));
        !is_requested && (name.starts_with(HUGE_PAGES) || !is_requested_by_container(spec, name))
    });
    let requests = resources.requests.iter().flatten().map(|request| ("requests", request));
    for (field, (name, quantity)) in requests.chain(limits).filter(|(_, (name, _))| is_pod_level_resource(name)) {
        let path = at.key(field).key(name);
        if let Some(amount) = found.take(&path, amount(name, &quantity.0)) {
            common::set_amount(total, name, amount);
        }
    }
}

/// The pod-level resources; kube-scheduler ignores others.
fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(HUGE_PAGES)
}

fn is_requested_by_container(spec: &PodSpec, name: &str) -> bool {
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    containers.any(|container| {
        let lists = container.resources.iter().flat_map(|r| [&r.requests, &r.limits]);
        lists.flatten().any(|list| list.contains_key(name))
    })
}
