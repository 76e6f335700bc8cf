//! What does a pod ask for?
//!
//! As kube-scheduler counts (`k8s.io/component-helpers/resource`, PodRequests): containers and sidecars together, or
//! the greediest moment of the start if that is more, plus the overhead of the runtime class.

use super::meta;
use super::violations::Violations;
use crate::path::Path;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use napkeeper_core::resources::Resources;

/// The requests of a pod, `pods: 1` included. `at` is the path of the pod spec.
pub(super) fn requests(spec: &PodSpec, at: &Path, found: &mut Violations) -> Resources {
    let mut running = Resources::default();
    for (i, container) in spec.containers.iter().enumerate() {
        running.add(&of_container(container, &at.key("containers").index(i), found));
    }
    let mut starting = Resources::default();
    let mut sidecars = Resources::default();
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        let own = of_container(container, &at.key("initContainers").index(i), found);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add(&own);
            starting.raise_to(&sidecars);
        } else {
            starting.raise_to(&own.plus(&sidecars));
        }
    }
    let mut total = running.plus(&sidecars);
    total.raise_to(&starting);
    if let Some(resources) = &spec.resources {
        override_by_pod(&mut total, resources, &at.key("resources"), found);
    }
    let overhead = spec.overhead.iter().flatten().map(|(k, q)| (k, &q.0));
    total.add(&meta::resources(overhead, &at.key("overhead"), found));
    total.pods = 1;
    total
}

/// A request that is absent is the limit, as the API server defaults it.
fn of_container(container: &Container, at: &Path, found: &mut Violations) -> Resources {
    container.resources.as_ref().map(|r| requests_or_limits(r, &at.key("resources"), found)).unwrap_or_default()
}

fn requests_or_limits(resources: &ResourceRequirements, at: &Path, found: &mut Violations) -> Resources {
    let requests = resources.requests.iter().flatten().map(|(k, q)| (k, &q.0));
    let mut all = meta::resources(requests, &at.key("requests"), found);
    let asked = |name: &String| resources.requests.as_ref().is_some_and(|r| r.contains_key(name));
    for (name, quantity) in resources.limits.iter().flatten().filter(|(name, _)| !asked(name)) {
        let path = at.key("limits").key(name);
        if let Some(amount) = found.take(&path, meta::amount(name, &quantity.0)) {
            meta::set_amount(&mut all, name, amount);
        }
    }
    all
}

/// What the pod as a whole asks for stands in place of the sum of its containers.
fn override_by_pod(total: &mut Resources, resources: &ResourceRequirements, at: &Path, found: &mut Violations) {
    for (name, quantity) in resources.requests.iter().flatten() {
        let path = at.key("requests").key(name);
        if let Some(amount) = found.take(&path, meta::amount(name, &quantity.0)) {
            meta::set_amount(total, name, amount);
        }
    }
}
