//! Tests of default spread constraints: which pods get them, and which pods they count.

use super::*;
use crate::fixtures::{pod, shape};
use crate::model::labels::ZONE;
use crate::model::names::Namespace;

/// Namespace, name and selector.
type Service<'s> = (&'s str, &'s str, &'s [(&'s str, &'s str)]);

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect()
}

fn default(is_hard: bool) -> DefaultSpread {
    DefaultSpread { spread: Spread::over(ZONE, 1, Requirements::new()), is_hard }
}

/// A cluster whose default profile has a hard constraint, and `other` a soft one.
fn snapshot(name: &str, services: &[Service<'_>]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let defaults = BTreeMap::from([
        (Arc::from(DEFAULT_SCHEDULER), vec![default(true)]),
        (Arc::from("other"), vec![default(false)]),
    ]);
    snapshot.put_scheduler(ObjectName::new(name).unwrap(), SchedulerProfiles { defaults });
    for (namespace, name, selector) in services {
        let key = ObjectKey { namespace: Namespace::new(*namespace).unwrap(), name: ObjectName::new(*name).unwrap() };
        snapshot.put_service(key, labels(selector));
    }
    snapshot
}

/// The constraints of a pod with these labels, as `hard zone: selector`.
fn constraints_of(snapshot: &Snapshot, own: &[(&str, &str)], more: impl FnOnce(Pod) -> Pod) -> Vec<String> {
    let mut shape = shape("a", 100, 1);
    shape.labels = labels(own);
    let pod = more(pod("p", &Arc::new(shape)));
    let Some(completed) = SpreadDefaults::of(snapshot).and_then(|defaults| defaults.complete(&pod)) else {
        return Vec::new();
    };
    let describe = |strength: &str, spread: &Spread| {
        let pairs = spread.selector.iter().map(|(key, r)| format!("{key}={}", r.single().map_or("?", |v| v)));
        format!("{strength}: {}", pairs.collect::<Vec<_>>().join(","))
    };
    let preferred = completed.shape.preferences.iter().flat_map(|preferences| &preferences.spread);
    completed.shape.spread.iter().map(|s| describe("hard", s)).chain(preferred.map(|s| describe("soft", s))).collect()
}

fn of_set(pod: Pod) -> Pod {
    Pod { of_set: true, ..pod }
}

#[test]
fn default_constraints_by_profile_services_and_set() {
    let web: &[(&str, &str)] = &[("app", "web")];
    let tier: &[(&str, &str)] = &[("tier", "front")];
    let both: &[(&str, &str)] = &[("app", "web"), ("tier", "front"), ("x", "1")];
    let services: &[Service<'_>] = &[
        ("aaa", "before", &[("x", "1")]),
        ("default", "front", tier),
        ("default", "headless", &[]),
        ("default", "web", web),
        ("zzz", "after", &[("x", "1")]),
    ];
    let cluster = snapshot("upstream", services);
    assert_eq!(
        constraints_of(&cluster, both, |p| p),
        ["hard: app=web,tier=front"],
        "Services of the namespace, all that select"
    );
    assert_eq!(constraints_of(&cluster, &[("app", "db")], |p| p), [""; 0], "no Service selects it");
    assert_eq!(
        constraints_of(&cluster, &[("app", "db"), ("x", "1")], of_set),
        ["hard: app=db,x=1"],
        "its set has a selector"
    );
    let of_one = &[
        ("app", "db"),
        ("apps.kubernetes.io/pod-index", "0"),
        ("controller-revision-hash", "db-6f"),
        ("statefulset.kubernetes.io/pod-name", "db-0"),
    ];
    assert_eq!(constraints_of(&cluster, of_one, of_set), ["hard: app=db"], "but not by labels of a single pod");
    let other = |name: &str| {
        let scheduler = Some(Arc::from(name));
        constraints_of(&cluster, web, |pod| Pod { scheduler, ..pod })
    };
    assert_eq!(other("other"), ["soft: app=web"], "each profile has its own");
    assert_eq!(other("unknown"), [""; 0]);
    let own = constraints_of(&cluster, web, |pod| {
        let mut shape = PodShape::clone(&pod.shape);
        let likes = Preferences { spread: vec![Spread::over("rack", 1, Requirements::new())], ..Default::default() };
        shape.preferences = Some(Box::new(likes));
        Pod { shape: Arc::new(shape), ..pod }
    });
    assert_eq!(own, [""; 0], "a pod with a constraint of its own, even if only preferred");
    assert_eq!(constraints_of(&snapshot("mine", services), both, |p| p), [""; 0], "AKS reads no other configuration");
    assert!(SpreadDefaults::of(&Snapshot::default()).is_none());
}
