//! Watches of a small API server: the changes and failures that they report.

use super::*;
use crate::fake::{Fake, Fault, Real};
use napkeeper_core::model::names::{ClaimName, NodeName};
use napkeeper_core::model::settings::{Pause, PauseSwitch};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";
const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
const OVERLAYS: &str = "/apis/karpenter.sh/v1alpha1/nodeoverlays";
const CLASSES: &str = "/apis/karpenter.azure.com/v1beta1/aksnodeclasses";
const PAUSE: &str = "/api/v1/namespaces/napkeeper/configmaps";

/// A watch, its events, and the resulting snapshot.
struct Watching {
    options: WatchOptions,
    events: Receiver<WatchEvent>,
    received: Vec<WatchEvent>,
    snapshot: Snapshot,
}

impl Watching {
    fn start(fake: &Fake, kinds: &[WatchedKind]) -> Self {
        let options = WatchOptions::new(Arc::new(Real), "napkeeper");
        Self::start_with(fake, WatchOptions { kinds: kinds.iter().copied().collect(), ..options })
    }

    fn start_with(fake: &Fake, options: WatchOptions) -> Self {
        let (sender, events) = channel(4);
        tokio::spawn(watch(fake.client(), options.clone(), sender));
        Self { options, events, received: Vec::new(), snapshot: Snapshot::default() }
    }

    /// All events up to the first that fits, inclusive.
    async fn until(&mut self, fits: impl Fn(&WatchEvent) -> bool) -> Vec<WatchEvent> {
        let mut received = Vec::new();
        loop {
            let next = timeout(Duration::from_secs(20), self.events.recv()).await;
            let event = next.unwrap_or_else(|_| panic!("nothing more after {received:?}")).unwrap();
            fold(&event, &mut self.snapshot);
            assert!(self.snapshot.same_indexes(&self.snapshot.reindexed()));
            self.received.push(event.clone());
            let ends = fits(&event);
            received.push(event);
            if ends {
                return received;
            }
        }
    }

    async fn synced(&mut self) {
        self.until(|e| *e == WatchEvent::Synced).await;
    }

    fn pods(&self) -> Vec<&str> {
        self.snapshot.pods().iter().map(|(key, _)| key.name.as_str()).collect()
    }
}

fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}") },
        "spec": { "containers": [{ "name": "a" }] } })
}

fn claim(name: &str, class: &str) -> Value {
    json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": { "name": name, "uid": "u" },
        "spec": { "nodeClassRef": { "group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": class },
            "requirements": [] } })
}

fn trouble_of(event: &WatchEvent) -> Option<&str> {
    match event {
        WatchEvent::Failing { error, .. } => Some(error),
        _ => None,
    }
}

#[tokio::test]
async fn all_pages_are_listed_and_changes_follow() {
    let fake = Fake::serving(&[PODS, NODES]);
    ["a", "b", "c", "d", "e", "f", "g"].iter().for_each(|name| fake.put(PODS, pod(name)));
    let mut watching = Watching::start(&fake, &[WatchedKind::Pods, WatchedKind::Nodes]);
    watching.synced().await;
    assert_eq!(watching.pods(), ["a", "b", "c", "d", "e", "f", "g"]);

    let mut running = pod("a");
    running["spec"]["nodeName"] = json!("n");
    fake.put(PODS, running);
    fake.delete(PODS, "b");
    fake.put(NODES, json!({ "metadata": { "name": "n", "uid": "u" } }));
    for _ in 0..2 {
        watching.until(|e| matches!(e, WatchEvent::Changed(Delta::PodGone(_) | Delta::Node(_)))).await;
    }
    assert_eq!(watching.pods(), ["a", "c", "d", "e", "f", "g"]);
    assert!(watching.snapshot.node_usage(&NodeName::new("n").unwrap()).is_some());
    assert_eq!(watching.received.iter().filter(|e| **e == WatchEvent::Synced).count(), 1);
}

#[tokio::test]
async fn a_new_listing_reports_missed_deletions_only() {
    let fake = Fake::serving(&[PODS]);
    ["a", "b", "c", "d"].iter().for_each(|name| fake.put(PODS, pod(name)));
    let mut watching = Watching::start(&fake, &[WatchedKind::Pods]);
    watching.synced().await;
    fake.fail(PODS, Some(Fault::Unreachable));
    watching.until(|e| trouble_of(e).is_some_and(|t| t.contains("cannot reach the API server"))).await;
    fake.delete(PODS, "a");
    fake.delete(PODS, "c");
    fake.put(PODS, pod("e"));
    fake.compact();
    fake.fail(PODS, None);
    let received =
        watching.until(|e| matches!(e, WatchEvent::Changed(Delta::PodGone(k)) if k.name.as_str() == "c")).await;
    assert_eq!(watching.pods(), ["b", "d", "e"]);
    let again = received.iter().filter(|e| matches!(e, WatchEvent::Changed(Delta::Pod(_)))).count();
    assert_eq!(again, 1, "only what is new: {received:?}");
}

#[tokio::test]
async fn a_watch_that_works_again_says_so_without_a_change_and_without_a_listing() {
    let fake = Fake::serving(&[PODS]);
    fake.put(PODS, pod("a"));
    let mut watching = Watching::start(&fake, &[WatchedKind::Pods]);
    watching.synced().await;
    let listings = |fake: &Fake| fake.requests().iter().filter(|r| !r.contains("watch=true")).count();
    let before = listings(&fake);
    fake.fail(PODS, Some(Fault::Unreachable));
    watching.until(|e| trouble_of(e).is_some()).await;
    fake.fail(PODS, None);
    watching.until(|e| *e == WatchEvent::Recovered { kind: WatchedKind::Pods }).await;
    assert_eq!(listings(&fake), before);
}

#[tokio::test]
async fn rejections_and_missing_kinds_name_the_remedy_and_are_retried_slowly() {
    let fake = Fake::serving(&[PODS, NODES]);
    fake.fail(NODES, Some(Fault::Status(403)));
    fake.put(PODS, pod("a"));
    let mut watching = Watching::start(&fake, &[WatchedKind::Pods, WatchedKind::Nodes, WatchedKind::NodeClaims]);
    let mut sentences = watching.until(|e| trouble_of(e).is_some()).await;
    sentences.extend(watching.until(|e| trouble_of(e).is_some()).await);
    let sentences: Vec<&str> = sentences.iter().filter_map(trouble_of).collect();
    let found = |words: &str| sentences.iter().any(|s| s.contains(words));
    assert!(found("grant the service account list and watch on nodes"), "{sentences:?}");
    assert!(found("nodeclaims.karpenter.sh is not served by this cluster: install"), "{sentences:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let tries = fake.requests().iter().filter(|r| r.starts_with(NODES)).count();
    assert!((2..=5).contains(&tries), "{tries} tries in 3 s");

    fake.fail(NODES, None);
    fake.put(CLAIMS, claim("c", "default"));
    watching.synced().await;
    let recovered = |kind| watching.received.contains(&WatchEvent::Recovered { kind });
    assert!(
        recovered(WatchedKind::Nodes) && recovered(WatchedKind::NodeClaims) && !recovered(WatchedKind::Pods),
        "{:?}",
        watching.received
    );
    let troubles = watching.received.iter().filter(|e| trouble_of(e).is_some()).count();
    assert_eq!(troubles, 2, "each is said once");
}

#[tokio::test]
async fn invalid_objects_are_reported_once_and_keep_their_last_state() {
    let fake = Fake::serving(&[PODS, CLAIMS]);
    fake.put(PODS, pod("a"));
    fake.put(CLAIMS, claim("c", "default"));
    let mut watching = Watching::start(&fake, &[WatchedKind::Pods, WatchedKind::NodeClaims]);
    watching.synced().await;
    let mut wrong = pod("a");
    wrong["spec"]["tolerations"] = json!([{ "operator": "Perhaps" }]);
    wrong["spec"]["nodeName"] = json!("n");
    fake.put(PODS, wrong.clone());
    let received = watching.until(|e| matches!(e, WatchEvent::Changed(Delta::Pod(_)))).await;
    let opaque = |s: &Snapshot| {
        let on_node = s.node_usage(&NodeName::new("n").unwrap()).map_or(0, |u| u.pods.len());
        let mut pods = s.pods().values();
        (on_node, pods.all(|p| p.opaque && p.refuses_disruption(jiff::Timestamp::MAX)))
    };
    assert_eq!(opaque(&watching.snapshot), (1, true), "its node is in use");
    let WatchEvent::Unreadable { kind, name, reason } = &received[0] else { panic!("{received:?}") };
    assert_eq!((*kind, name.as_str()), (WatchedKind::Pods, "default/a"));
    assert!(reason.contains("spec.tolerations[0].operator: must be Exists or Equal"), "{reason}");

    // Neither the domain's rules nor the wire types.
    wrong["spec"]["tolerations"] = json!("none");
    fake.put(PODS, wrong);
    watching.until(|e| matches!(e, WatchEvent::Unreadable { kind: WatchedKind::Pods, .. })).await;
    assert_eq!(opaque(&watching.snapshot), (1, true), "the last that was known of it holds");
    fake.put(CLAIMS, claim("c", "Not A Name"));
    watching.until(|e| matches!(e, WatchEvent::Unreadable { kind: WatchedKind::NodeClaims, .. })).await;
    let mut undecodable = claim("c", "default");
    undecodable["spec"]["requirements"] = json!("none");
    fake.put(CLAIMS, undecodable);
    watching.until(|e| matches!(e, WatchEvent::Unreadable { kind: WatchedKind::NodeClaims, .. })).await;
    fake.compact();
    fake.put(CLAIMS, claim("d", "default"));
    let received =
        watching.until(|e| matches!(e, WatchEvent::Changed(Delta::Claim(c)) if c.name.as_str() == "d")).await;
    assert!(!received.iter().any(|e| matches!(e, WatchEvent::Unreadable { .. })), "{received:?}");
    let retained = watching.snapshot.claims().get(&ClaimName::new("c").unwrap()).unwrap();
    assert_eq!(retained.spec.class.as_str(), "default");
}

#[tokio::test]
async fn a_pool_or_class_that_cannot_be_read_keeps_its_last_state_and_its_status_is_known() {
    let fake = Fake::serving(&[POOLS, CLASSES]);
    let reference = |group: &str| json!({ "group": group, "kind": "AKSNodeClass", "name": "default" });
    let pool = |generation: i64, spec: Value| {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z" });
        json!({ "metadata": { "name": "general", "uid": "u", "generation": generation },
            "spec": { "template": { "spec": spec } }, "status": { "nodes": 2, "conditions": [ready] } })
    };
    let class = |disk: i64| json!({ "metadata": { "name": "default", "uid": "c", "generation": 3 }, "spec": { "osDiskSizeGB": disk } });
    let good = json!({ "nodeClassRef": reference("karpenter.azure.com"), "requirements": [] });
    fake.put(POOLS, pool(1, good.clone()));
    fake.put(CLASSES, class(128));
    let mut watching = Watching::start(&fake, &[WatchedKind::NodePools, WatchedKind::NodeClasses]);
    watching.synced().await;
    assert_eq!((watching.snapshot.pools().len(), watching.snapshot.classes().len()), (1, 1));

    // Neither the domain's rules nor the wire types.
    for (generation, spec, field) in [
        (2, json!({ "nodeClassRef": reference("karpenter.k8s.aws"), "requirements": [] }), "nodeClassRef.group"),
        (3, json!({ "nodeClassRef": reference("karpenter.azure.com"), "requirements": "none" }), "requirements"),
    ] {
        fake.put(POOLS, pool(generation, spec));
        watching.until(|e| matches!(e, WatchEvent::Changed(Delta::InvalidPool(_)))).await;
        let wrong = watching.snapshot.invalid_pools().values().next().unwrap();
        assert_eq!((wrong.generation, wrong.uid.as_str(), wrong.status.nodes), (generation, "u", Some(2)));
        assert!(wrong.reason.contains(field), "{}", wrong.reason);
        assert_eq!(watching.snapshot.pools().len(), 1, "the last version stays in use");
    }
    fake.put(CLASSES, class(-1));
    watching.until(|e| matches!(e, WatchEvent::Changed(Delta::InvalidClass(_)))).await;
    let wrong = watching.snapshot.invalid_classes().values().next().unwrap();
    assert!(wrong.reason.contains("spec.osDiskSizeGB") && watching.snapshot.classes().len() == 1, "{}", wrong.reason);

    fake.put(POOLS, pool(4, good));
    watching.until(|e| matches!(e, WatchEvent::Changed(Delta::Pool(_)))).await;
    assert!(watching.snapshot.invalid_pools().is_empty());
    fake.delete(CLASSES, "default");
    watching.until(|e| matches!(e, WatchEvent::Changed(Delta::ClassGone(_)))).await;
    assert!(watching.snapshot.invalid_classes().is_empty());
}

#[tokio::test]
async fn an_overlay_that_cannot_be_read_is_not_used_and_known_by_its_status() {
    let fake = Fake::serving(&[OVERLAYS]);
    let overlay = |generation: i64, price: &str| {
        json!({ "metadata": { "name": "o", "uid": "u", "generation": generation },
            "spec": { "requirements": [], "price": price } })
    };
    fake.put(OVERLAYS, overlay(1, "0.1"));
    let mut watching = Watching::start(&fake, &[WatchedKind::NodeOverlays]);
    watching.synced().await;
    assert_eq!(watching.snapshot.overlays().values().next().unwrap().generation, 1);
    // More digits than a price has: the definition allows them.
    fake.put(OVERLAYS, overlay(2, "0.0000000001"));
    watching.until(|e| matches!(e, WatchEvent::Changed(Delta::InvalidOverlay(_)))).await;
    let wrong = watching.snapshot.invalid_overlays().values().next().unwrap();
    assert_eq!((wrong.generation, wrong.uid.as_str()), (2, "u"));
    assert!(wrong.reason.contains("spec.price"), "{}", wrong.reason);
    assert!(watching.snapshot.overlays().is_empty());
    fake.put(OVERLAYS, overlay(3, "0.2"));
    watching.until(|e| matches!(e, WatchEvent::Changed(Delta::Overlay(_)))).await;
    assert!(watching.snapshot.invalid_overlays().is_empty());
    fake.put(OVERLAYS, overlay(4, "0.0000000001"));
    watching.until(|e| matches!(e, WatchEvent::Changed(Delta::InvalidOverlay(_)))).await;
    fake.delete(OVERLAYS, "o");
    watching.until(|e| matches!(e, WatchEvent::Changed(Delta::OverlayGone(_)))).await;
    assert!(watching.snapshot.invalid_overlays().is_empty());
}

#[tokio::test]
async fn the_pause_switch_also_pauses_what_it_states_invalidly() {
    let fake = Fake::serving(&[PAUSE]);
    let mut watching = Watching::start(&fake, &[WatchedKind::Pause]);
    watching.synced().await;
    assert_eq!(watching.snapshot.pause, Default::default());
    let switch =
        |data: Value| json!({ "metadata": { "name": "napkeeper-pause", "namespace": "napkeeper" }, "data": data });
    fake.put(PAUSE, switch(json!({ "launch": "true", "disrupt": "false", "delete": "yes" })));
    let received = watching.until(|e| matches!(e, WatchEvent::Changed(_))).await;
    let holds = [PauseSwitch::Launch, PauseSwitch::Disrupt, PauseSwitch::Delete]
        .map(|s| watching.snapshot.pause.blocks(s, jiff::Timestamp::UNIX_EPOCH));
    assert_eq!(holds, [true, false, true]);
    assert!(
        matches!(&received[0], WatchEvent::Unreadable { reason, .. } if reason.contains("data.delete")),
        "{received:?}"
    );
}

#[tokio::test]
async fn a_pause_switch_that_disappears_pauses_everything_and_an_empty_one_nothing() {
    let fake = Fake::serving(&[PAUSE]);
    let mut watching = Watching::start(&fake, &[WatchedKind::Pause]);
    watching.synced().await;
    assert_eq!(watching.snapshot.pause, Default::default(), "it has never existed");
    let empty = || json!({ "metadata": { "name": "napkeeper-pause", "namespace": "napkeeper" } });
    fake.put(PAUSE, empty());
    fake.delete(PAUSE, "napkeeper-pause");
    watching.until(|e| matches!(e, WatchEvent::Changed(_))).await;
    let all = [PauseSwitch::Launch, PauseSwitch::Disrupt, PauseSwitch::Delete];
    assert_eq!(watching.snapshot.pause, Pause::of(all));
    // A later listing knows it too.
    let mut again = Watching::start_with(&fake, watching.options.clone());
    again.synced().await;
    assert_eq!(again.snapshot.pause, Pause::of(all));
    fake.put(PAUSE, empty());
    watching.until(|e| matches!(e, WatchEvent::Changed(_))).await;
    assert_eq!(watching.snapshot.pause, Default::default());
}

#[tokio::test]
async fn watching_ends_when_the_receiver_is_dropped() {
    let fake = Fake::serving(&[PODS]);
    let (sender, events) = channel(1);
    let options = WatchOptions { kinds: [WatchedKind::Pods].into(), ..WatchOptions::new(Arc::new(Real), "napkeeper") };
    let task = tokio::spawn(watch(fake.client(), options, sender));
    drop(events);
    timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
}
