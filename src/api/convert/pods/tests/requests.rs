//! Tests of pod requests, as kube-scheduler counts them.

use super::shape;
use napkeeper_core::model::amounts::resources::Resources;
use serde_json::{Value, json};

fn of(cpu: i64, memory: i64, extended: &[(&str, i64)]) -> Resources {
    let mut all = Resources { pods: 1, ..Resources::cpu_memory(cpu, memory) };
    extended.iter().for_each(|(name, amount)| all.set_extended(name, *amount));
    all
}

fn container(resources: Value) -> Value {
    json!({ "name": "a", "resources": resources })
}

fn requesting(cpu: &str) -> Value {
    container(json!({ "requests": { "cpu": cpu } }))
}

#[test]
fn the_requests_of_containers_are_counted_as_the_scheduler_counts() {
    let sidecar =
        |cpu: &str| json!({ "name": "a", "restartPolicy": "Always", "resources": { "requests": { "cpu": cpu } } });
    let both = container(json!({ "limits": { "cpu": "2", "memory": "1" }, "requests": { "cpu": "1" } }));
    let gpus = |n: &str| container(json!({ "limits": { "nvidia.com/gpu": n } }));
    let more = container(json!({ "limits": { "nvidia.com/gpu": "1", "example.com/b": "2" } }));
    let rows = [
        ("containers together", json!({ "containers": [requesting("1"), requesting("500m")] }), of(1500, 0, &[])),
        ("a limit where there is no request", json!({ "containers": [both] }), of(1000, 1, &[])),
        (
            "the start is greedier",
            json!({ "containers": [requesting("1")], "initContainers": [requesting("3"), requesting("2")] }),
            of(3000, 0, &[]),
        ),
        (
            "sidecars before an init container run beside it",
            json!({ "containers": [requesting("1")], "initContainers": [sidecar("1"), requesting("3"), sidecar("1")] }),
            of(4000, 0, &[]),
        ),
        (
            "sidecars run beside the containers",
            json!({ "containers": [requesting("1")], "initContainers": [requesting("2"), sidecar("1"), sidecar("1")] }),
            of(3000, 0, &[]),
        ),
        (
            "overhead on top",
            json!({ "containers": [requesting("1")], "overhead": { "cpu": "10m", "memory": "5" } }),
            of(1010, 5, &[]),
        ),
        (
            "extended resources, the greatest of the start and the sum of the rest",
            json!({ "containers": [gpus("1"), more], "initContainers": [gpus("4")] }),
            of(0, 0, &[("example.com/b", 2), ("nvidia.com/gpu", 4)]),
        ),
    ];
    for (case, spec, expected) in rows {
        assert_eq!(shape(spec).requests, expected, "{case}");
    }
}

#[test]
fn pod_level_requests_are_counted_as_by_the_scheduler() {
    let pages = container(json!({ "limits": { "hugepages-2Mi": "4" } }));
    let others = json!({ "requests": { "nvidia.com/gpu": "1", "ephemeral-storage": "9" }, "limits": { "a.b/c": "1" } });
    let rows = [
        (
            "in place of the containers'",
            json!({
                "containers": [requesting("1")],
                "resources": { "requests": { "cpu": "3", "memory": "7", "hugepages-2Mi": "8" } },
            }),
            of(3000, 7, &[("hugepages-2Mi", 8)]),
        ),
        (
            "even where it is less than an init container's",
            json!({
                "containers": [requesting("1")],
                "initContainers": [requesting("3")],
                "resources": { "requests": { "cpu": "2" } },
            }),
            of(2000, 0, &[]),
        ),
        (
            "overhead on top",
            json!({
                "containers": [requesting("1")],
                "overhead": { "cpu": "10m" },
                "resources": { "requests": { "cpu": "2" } },
            }),
            of(2010, 0, &[]),
        ),
        ("other resources do not count", json!({ "resources": others }), of(0, 0, &[])),
        (
            "the limit where no container asks",
            json!({ "containers": [requesting("1")], "resources": { "limits": { "cpu": "4", "memory": "9" } } }),
            of(1000, 9, &[]),
        ),
        (
            "a container that asks for none asks all the same",
            json!({ "containers": [requesting("0")], "resources": { "limits": { "cpu": "4" } } }),
            of(0, 0, &[]),
        ),
        (
            "huge pages to the limit",
            json!({ "containers": [pages], "resources": { "limits": { "hugepages-2Mi": "8" } } }),
            of(0, 0, &[("hugepages-2Mi", 8)]),
        ),
    ];
    for (case, spec, expected) in rows {
        assert_eq!(shape(spec).requests, expected, "{case}");
    }
}
