//! After any series of steps, the Snapshot is the one that a fresh listing gives.

use super::*;
use crate::fake::Real;
use crate::ours;
use crate::watch::fold;
use napkeeper_core::model::requirements::Requirements;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::volume_needs::volume_needs;
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: [Kind; 10] = [
    Kind::NodeOverlays,
    Kind::Pods,
    Kind::Nodes,
    Kind::Volumes,
    Kind::VolumeClaims,
    Kind::StorageClasses,
    Kind::CsiNodes,
    Kind::Namespaces,
    Kind::Services,
    Kind::Schedulers,
];

fn wire<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// One of a few variants of an object of a kind. Some pods cannot be understood.
fn row(kind: Kind, name: &str, variant: u8) -> Option<Row> {
    let meta = json!({ "name": name, "namespace": "default", "uid": name });
    let bare = json!({ "name": name, "uid": name });
    match kind {
        Kind::Pods => {
            let claim = json!({ "name": "v", "persistentVolumeClaim": { "claimName": format!("x{}", variant % 3) } });
            let volumes = if variant < 6 { vec![claim] } else { Vec::new() };
            let node = variant.is_multiple_of(2).then(|| format!("x{}", variant % 3));
            let waits = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }]);
            let operator = if variant == 5 { "Perhaps" } else { "Exists" };
            let pod = json!({ "metadata": meta, "status": { "conditions": waits }, "spec": {
                "containers": [], "volumes": volumes, "nodeName": node, "tolerations": [{ "operator": operator }] } });
            ours::pod(&wire(pod), &Real).ok().map(|(pod, _)| Row::Pod(pod))
        }
        Kind::Nodes => {
            let id = format!("azure:///subscriptions/s/{}", variant % 3);
            let node = json!({ "metadata": bare, "spec": { "providerID": id } });
            ours::node(&wire(node), &Real).ok().map(Row::Node)
        }
        Kind::Volumes => {
            let term = json!({ "matchExpressions": [
                { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [format!("z{}", variant % 2)] }] });
            let affinity = json!({ "required": { "nodeSelectorTerms": [term] } });
            let volume = json!({ "metadata": bare, "spec": { "nodeAffinity": affinity } });
            convert::volume(&wire(volume)).ok().map(|v| Row::Volume(v.into()))
        }
        Kind::VolumeClaims => {
            let volume = (variant < 4).then(|| format!("x{}", variant % 3));
            let spec = json!({ "volumeName": volume, "storageClassName": format!("x{}", variant % 3) });
            let metadata = json!({ "name": name, "namespace": "default", "uid": name,
                "annotations": { "pv.kubernetes.io/bind-completed": "yes" } });
            let claim = json!({ "metadata": metadata, "spec": spec });
            convert::volume_claim(&wire(claim)).ok().map(|c| Row::VolumeClaim(c.into()))
        }
        Kind::NodeOverlays => {
            let spec = json!({ "requirements": [], "price": variant.to_string() });
            convert::node_overlay(&wire(json!({ "metadata": bare, "spec": spec }))).ok().map(|o| Row::Overlay(o.into()))
        }
        Kind::CsiNodes => {
            let driver = json!({ "name": "d", "nodeID": name, "allocatable": { "count": variant } });
            let node = json!({ "metadata": bare, "spec": { "drivers": [driver] } });
            convert::attach_limits(&wire(node)).ok().map(|l| Row::AttachLimits(l.into()))
        }
        Kind::Services | Kind::Schedulers | Kind::Namespaces => row_of_kin(kind, name, variant),
        _ => {
            let mode = if variant.is_multiple_of(2) { "WaitForFirstConsumer" } else { "Immediate" };
            let zone = json!({ "key": "topology.kubernetes.io/zone", "values": [format!("z{variant}")] });
            let class = json!({ "metadata": bare, "provisioner": "p", "volumeBindingMode": mode,
                "allowedTopologies": [{ "matchLabelExpressions": [zone] }] });
            convert::storage_class(&wire(class)).ok().map(|c| Row::StorageClass(c.into()))
        }
    }
}

/// The same, of kinds by which pods know each other.
fn row_of_kin(kind: Kind, name: &str, variant: u8) -> Option<Row> {
    let meta = json!({ "name": name, "namespace": "default", "uid": name });
    let bare = json!({ "name": name, "uid": name });
    match kind {
        Kind::Services => {
            let service = json!({ "metadata": meta, "spec": { "selector": { "variant": variant.to_string() } } });
            convert::service(&wire(service)).ok().map(|(key, s)| Row::Service(Arc::new((key, s.into()))))
        }
        Kind::Schedulers => {
            let skew = variant + 1;
            let raw = format!(
                "profiles: [{{ pluginConfig: [{{ name: PodTopologySpread, args: {{ defaultingType: List, \
                 defaultConstraints: [{{ maxSkew: {skew}, topologyKey: k, whenUnsatisfiable: DoNotSchedule }}] }} }}] }}]"
            );
            let object = json!({ "metadata": bare, "spec": { "rawConfig": raw } });
            let read = convert::scheduler_profiles(&wire(object));
            read.ok().map(|(name, s)| Row::Scheduler(Arc::new((name, s.into()))))
        }
        Kind::Namespaces => {
            let metadata = json!({ "name": name, "labels": { "variant": variant.to_string() } });
            convert::namespace(&wire(metadata)).ok().map(|(n, l)| Row::Namespace(Arc::new((n, l.into()))))
        }
        _ => None,
    }
}

/// What the API server holds.
#[derive(Default)]
struct Server {
    version: u32,
    objects: BTreeMap<(Kind, Id), Seen>,
}

impl Server {
    /// One change; the step that a watch makes of it.
    fn change(&mut self, kind: Kind, which: u8, variant: u8) -> Option<Step> {
        self.version += 1;
        let id = Id { namespace: "default".into(), name: format!("x{which}").into() };
        if variant >= 8 {
            return self.objects.remove(&(kind, id.clone())).map(|_| Step::Gone(id));
        }
        let row = row(kind, &id.name, variant);
        let wrong = row.is_none().then(|| "wrong".to_owned());
        let seen = Seen { version: self.version.to_string().into(), row, wrong: wrong.map(Into::into) };
        self.objects.insert((kind, id.clone()), seen.clone());
        Some(Step::Object(id, seen))
    }

    fn listing(&self, kind: Kind) -> Vec<Step> {
        let objects = self.objects.iter().filter(|((k, _), _)| *k == kind);
        let objects = objects.map(|((_, id), seen)| Step::Object(id.clone(), seen.clone()));
        std::iter::once(Step::Listing).chain(objects).chain([Step::Listed]).collect()
    }
}

fn take(feed: &mut Feed, snapshot: &mut Snapshot, kind: Kind, step: Step) -> bool {
    let events = feed.take(kind, step);
    events.iter().for_each(|event| fold(event, snapshot));
    events.contains(&WatchEvent::Synced)
}

fn relist(server: &Server, feed: &mut Feed, snapshot: &mut Snapshot, kind: Kind) {
    for step in server.listing(kind) {
        take(feed, snapshot, kind, step);
    }
}

fn rows(snapshot: &Snapshot) -> String {
    let pods: Vec<_> = snapshot.pods().values().collect();
    let nodes: Vec<_> = snapshot.nodes().values().collect();
    let volumes: Vec<_> = snapshot.volumes().values().collect();
    let claims: Vec<_> = snapshot.volume_claims().values().collect();
    let classes: Vec<_> = snapshot.storage_classes().values().collect();
    let limits: Vec<_> = snapshot.attach_limits().values().collect();
    let spaces: Vec<_> = snapshot.namespaces().iter().collect();
    let services: Vec<_> = snapshot.services().iter().collect();
    let schedulers: Vec<_> = snapshot.schedulers().iter().collect();
    format!(
        "{services:#?} {schedulers:#?} {pods:#?} {nodes:#?} {volumes:#?} {claims:#?} {classes:#?} {limits:#?} {spaces:#?}"
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_fed_by_changes_is_one_that_is_listed(
        changes in prop::collection::vec((0..KINDS.len(), 0_u8..3, 0_u8..11, 0_u8..5), 0..100)
    ) {
        let (mut server, mut feed, mut fed) = (Server::default(), Feed::new(KINDS), Snapshot::default());
        let mut unseen = BTreeSet::from(KINDS);
        for (kind, which, variant, how) in changes {
            let kind = KINDS[kind];
            let step = server.change(kind, which, variant);
            if how == 0 {
                // The watch breaks: this change goes by, and so do all until the next listing.
                unseen.insert(kind);
                take(&mut feed, &mut fed, kind, Step::Failed(Some("broken".to_owned())));
            } else if how == 1 {
                unseen.remove(&kind);
                relist(&server, &mut feed, &mut fed, kind);
            } else if let Some(step) = step.filter(|_| !unseen.contains(&kind)) {
                take(&mut feed, &mut fed, kind, step);
            }
            prop_assert!(fed.same_indexes(&fed.reindexed()));
        }
        for kind in unseen {
            relist(&server, &mut feed, &mut fed, kind);
        }
        let (mut anew, mut listed, mut synced) = (Feed::new(KINDS), Snapshot::default(), 0);
        for kind in KINDS.into_iter().rev() {
            for step in server.listing(kind) {
                synced += u32::from(take(&mut anew, &mut listed, kind, step));
            }
        }
        prop_assert_eq!(rows(&fed), rows(&listed));
        prop_assert!(fed.same_indexes(&listed));
        prop_assert_eq!(synced, 1);
    }
}

#[test]
fn what_is_watched_of_volumes_says_where_a_pod_can_run() {
    let (mut feed, mut snapshot) = (Feed::new(KINDS), Snapshot::default());
    let mut put = |kind: Kind, name: &str, variant: u8| {
        let id = Id { namespace: "".into(), name: name.into() };
        let version = format!("{variant}").into();
        let seen = Seen { version, row: row(kind, name, variant), wrong: None };
        take(&mut feed, &mut snapshot, kind, Step::Object(id, seen));
        let pod = snapshot.pods().values().next().cloned().unwrap();
        volume_needs(&snapshot, &pod).map(|needs| needs.alternatives).map_err(|trouble| trouble.to_string())
    };
    let zone = |places: &[Requirements], zone: &str| places[0].allows(napkeeper_core::model::labels::ZONE, Some(zone));
    assert!(put(Kind::Pods, "p", 1).is_err(), "its claim x1 is missing");
    assert!(put(Kind::VolumeClaims, "x1", 4).is_err(), "the class is missing");
    assert!(put(Kind::StorageClasses, "x1", 3).is_err(), "the class makes the volume by itself, anywhere");
    let allowed = put(Kind::StorageClasses, "x1", 2).unwrap();
    assert!(allowed.len() == 1 && zone(&allowed, "z2") && !zone(&allowed, "z1"), "{allowed:?}");
    assert!(put(Kind::VolumeClaims, "x1", 1).is_err(), "bound to a volume that is not there");
    let bound = put(Kind::Volumes, "x1", 1).unwrap();
    assert!(bound.len() == 1 && zone(&bound, "z1") && !zone(&bound, "z2"), "{bound:?}");
}

#[test]
fn deletions_are_paused_while_a_record_cannot_be_read() {
    let mut feed = Feed::new([Kind::OrphanRecords, Kind::Pause]);
    let mut snapshot = Snapshot::default();
    let id = Id { namespace: "".into(), name: "r".into() };
    let seen = |version: &str, good: bool| Seen {
        version: version.into(),
        row: good.then(|| Row::Record(Arc::default())),
        wrong: (!good).then(|| "wrong".into()),
    };
    for step in [Step::Listing, Step::Object(id.clone(), seen("1", false)), Step::Listed] {
        take(&mut feed, &mut snapshot, Kind::OrphanRecords, step);
    }
    assert!(snapshot.pause.blocks(PauseSwitch::Delete) && !snapshot.pause.blocks(PauseSwitch::Launch));
    take(&mut feed, &mut snapshot, Kind::OrphanRecords, Step::Object(id, seen("2", true)));
    assert!(!snapshot.pause.blocks(PauseSwitch::Delete));
}

#[test]
fn a_kind_that_need_not_be_there_is_listed_without_being_there() {
    let mut feed = Feed::new([Kind::NodeOverlays]);
    assert_eq!(feed.take(Kind::NodeOverlays, Step::Absent), [WatchEvent::Synced]);
    let seen = || Seen { version: "1".into(), row: row(Kind::NodeOverlays, "o", 1), wrong: None };
    let id = Id { namespace: "".into(), name: "o".into() };
    // The definition is installed, and taken away again.
    let mut events = feed.take(Kind::NodeOverlays, Step::Listing);
    events.extend(feed.take(Kind::NodeOverlays, Step::Object(id, seen())));
    events.extend(feed.take(Kind::NodeOverlays, Step::Listed));
    let mut snapshot = Snapshot::default();
    events.iter().for_each(|event| fold(event, &mut snapshot));
    assert_eq!(snapshot.overlays().len(), 1);
    feed.take(Kind::NodeOverlays, Step::Absent).iter().for_each(|event| fold(event, &mut snapshot));
    assert_eq!(snapshot.overlays().len(), 0);
    assert!(Kind::ALL.into_iter().filter(|kind| kind.is_optional()).eq([Kind::NodeOverlays, Kind::Schedulers]));
}
