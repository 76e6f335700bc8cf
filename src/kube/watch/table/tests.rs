//! After any series of steps, the Snapshot is the one that a fresh listing gives.

use super::*;
use crate::fake::Real;
use crate::objects::controller_time;
use crate::watch::fold;
use napkeeper_core::model::names::ObjectName;
use napkeeper_core::model::orphans::sweep::Exclusion;
use napkeeper_core::model::requirements::Requirements;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::volume_needs::volume_needs;
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: [WatchedKind; 12] = [
    WatchedKind::NodeOverlays,
    WatchedKind::Pods,
    WatchedKind::Nodes,
    WatchedKind::DisruptionBudgets,
    WatchedKind::Volumes,
    WatchedKind::VolumeClaims,
    WatchedKind::StorageClasses,
    WatchedKind::CsiNodes,
    WatchedKind::Attachments,
    WatchedKind::Namespaces,
    WatchedKind::Services,
    WatchedKind::Schedulers,
];

fn wire<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// One of a few variants of an object of a kind. Some pods are invalid.
fn row(kind: WatchedKind, name: &str, variant: u8) -> Option<Delta> {
    let meta = json!({ "name": name, "namespace": "default", "uid": name });
    let bare = json!({ "name": name, "uid": name });
    match kind {
        WatchedKind::Pods => {
            let claim = json!({ "name": "v", "persistentVolumeClaim": { "claimName": format!("x{}", variant % 3) } });
            let volumes = if variant < 6 { vec![claim] } else { Vec::new() };
            let node = variant.is_multiple_of(2).then(|| format!("x{}", variant % 3));
            let waits = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }]);
            let operator = if variant == 5 { "Perhaps" } else { "Exists" };
            let pod = json!({ "metadata": meta, "status": { "conditions": waits }, "spec": {
                "containers": [], "volumes": volumes, "nodeName": node, "tolerations": [{ "operator": operator }] } });
            controller_time::pod(&wire(pod), &Real).ok().map(|(pod, _)| Delta::Pod(pod))
        }
        WatchedKind::Nodes => {
            let id = format!("azure:///subscriptions/s/{}", variant % 3);
            let node = json!({ "metadata": bare, "spec": { "providerID": id } });
            controller_time::node(&wire(node), &Real).ok().map(Delta::Node)
        }
        WatchedKind::Volumes => {
            let term = json!({ "matchExpressions": [
                { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [format!("z{}", variant % 2)] }] });
            let affinity = json!({ "required": { "nodeSelectorTerms": [term] } });
            let volume = json!({ "metadata": bare, "spec": { "nodeAffinity": affinity } });
            convert::volume(&wire(volume)).ok().map(|v| Delta::Volume(v.into()))
        }
        WatchedKind::VolumeClaims => {
            let volume = (variant < 4).then(|| format!("x{}", variant % 3));
            let spec = json!({ "volumeName": volume, "storageClassName": format!("x{}", variant % 3) });
            let metadata = json!({ "name": name, "namespace": "default", "uid": name,
                "annotations": { "pv.kubernetes.io/bind-completed": "yes" } });
            let claim = json!({ "metadata": metadata, "spec": spec });
            convert::volume_claim(&wire(claim)).ok().map(|c| Delta::VolumeClaim(c.into()))
        }
        WatchedKind::NodeOverlays => {
            let spec = json!({ "requirements": [], "price": variant.to_string() });
            convert::node_overlay(&wire(json!({ "metadata": bare, "spec": spec })))
                .ok()
                .map(|o| Delta::Overlay(o.into()))
        }
        WatchedKind::CsiNodes => {
            let driver = json!({ "name": "d", "nodeID": name, "allocatable": { "count": variant } });
            let node = json!({ "metadata": bare, "spec": { "drivers": [driver] } });
            convert::attach_limits(&wire(node)).ok().map(|l| Delta::AttachLimits(l.into()))
        }
        WatchedKind::DisruptionBudgets
        | WatchedKind::Services
        | WatchedKind::Schedulers
        | WatchedKind::Namespaces
        | WatchedKind::Attachments => row_of_kin(kind, name, variant),
        _ => {
            let mode = if variant.is_multiple_of(2) { "WaitForFirstConsumer" } else { "Immediate" };
            let zone = json!({ "key": "topology.kubernetes.io/zone", "values": [format!("z{variant}")] });
            let class = json!({ "metadata": bare, "provisioner": "p", "volumeBindingMode": mode,
                "allowedTopologies": [{ "matchLabelExpressions": [zone] }] });
            convert::storage_class(&wire(class)).ok().map(|c| Delta::StorageClass(c.into()))
        }
    }
}

/// The same, of kinds by which pods know each other.
fn row_of_kin(kind: WatchedKind, name: &str, variant: u8) -> Option<Delta> {
    let meta = json!({ "name": name, "namespace": "default", "uid": name });
    let bare = json!({ "name": name, "uid": name });
    match kind {
        WatchedKind::DisruptionBudgets => {
            let spec = json!({ "maxUnavailable": 1, "selector": {} });
            let status = json!({ "disruptionsAllowed": variant % 3, "currentHealthy": 1, "desiredHealthy": 1,
                "expectedPods": 1 });
            let budget = json!({ "metadata": meta, "spec": spec, "status": status });
            convert::disruption_budget_state(&wire(budget)).ok().map(|b| Delta::DisruptionBudget(b.into()))
        }
        WatchedKind::Services => {
            let service = json!({ "metadata": meta, "spec": { "selector": { "variant": variant.to_string() } } });
            convert::service(&wire(service)).ok().map(|(key, s)| Delta::Service(key, s.into()))
        }
        WatchedKind::Schedulers => {
            let skew = variant + 1;
            let raw = format!(
                "profiles: [{{ pluginConfig: [{{ name: PodTopologySpread, args: {{ defaultingType: List, \
                 defaultConstraints: [{{ maxSkew: {skew}, topologyKey: k, whenUnsatisfiable: DoNotSchedule }}] }} }}] }}]"
            );
            let object = json!({ "metadata": bare, "spec": { "rawConfig": raw } });
            let read = convert::scheduler_profiles(&wire(object));
            read.ok().map(|(name, s)| Delta::Scheduler(name, s.into()))
        }
        WatchedKind::Attachments => {
            let spec = json!({ "attacher": "d", "nodeName": format!("x{}", variant % 3),
                "source": { "persistentVolumeName": "x0" } });
            let read = convert::attachment(&wire(json!({ "metadata": bare, "spec": spec })));
            read.ok().map(|(attachment, _)| Delta::Attachment(attachment.into()))
        }
        WatchedKind::Namespaces => {
            let metadata = json!({ "name": name, "labels": { "variant": variant.to_string() } });
            convert::namespace(&wire(metadata)).ok().map(|(n, l)| Delta::Namespace(n, l.into()))
        }
        _ => None,
    }
}

/// What the API server holds.
#[derive(Default)]
struct Server {
    version: u32,
    objects: BTreeMap<(WatchedKind, ObjectId), ObjectState>,
}

impl Server {
    /// Makes a change, and returns the step of the watch.
    fn change(&mut self, kind: WatchedKind, which: u8, variant: u8) -> Option<ReflectorEvent> {
        self.version += 1;
        let id = ObjectId { namespace: "default".into(), name: format!("x{which}").into() };
        if variant >= 8 {
            return self.objects.remove(&(kind, id.clone())).map(|_| ReflectorEvent::Gone(id));
        }
        let row = row(kind, &id.name, variant).map(WatchedObject::from);
        let wrong = row.is_none().then(|| "wrong".to_owned());
        let seen = ObjectState { version: self.version.to_string().into(), object: row, wrong: wrong.map(Into::into) };
        self.objects.insert((kind, id.clone()), seen.clone());
        Some(ReflectorEvent::Seen(id, seen))
    }

    fn listing(&self, kind: WatchedKind) -> Vec<ReflectorEvent> {
        let objects = self.objects.iter().filter(|((k, _), _)| *k == kind);
        let objects = objects.map(|((_, id), seen)| ReflectorEvent::Seen(id.clone(), seen.clone()));
        std::iter::once(ReflectorEvent::ListStarted).chain(objects).chain([ReflectorEvent::ListDone]).collect()
    }
}

fn take(table: &mut ObjectTable, snapshot: &mut Snapshot, kind: WatchedKind, step: ReflectorEvent) -> bool {
    let events = table.apply(kind, step);
    events.iter().for_each(|event| fold(event, snapshot));
    events.contains(&WatchEvent::Synced)
}

fn relist(server: &Server, table: &mut ObjectTable, snapshot: &mut Snapshot, kind: WatchedKind) {
    for step in server.listing(kind) {
        take(table, snapshot, kind, step);
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
        let (mut server, mut table, mut fed) = (Server::default(), ObjectTable::new(KINDS, Arc::default()), Snapshot::default());
        let mut unseen = BTreeSet::from(KINDS);
        for (kind, which, variant, how) in changes {
            let kind = KINDS[kind];
            let step = server.change(kind, which, variant);
            if how == 0 {
                // The watch breaks: this change is missed, and so are all until the next listing.
                unseen.insert(kind);
                take(&mut table, &mut fed, kind, ReflectorEvent::Failed(Some("broken".to_owned())));
            } else if how == 1 {
                unseen.remove(&kind);
                relist(&server, &mut table, &mut fed, kind);
            } else if let Some(step) = step.filter(|_| !unseen.contains(&kind)) {
                take(&mut table, &mut fed, kind, step);
            }
            prop_assert!(fed.same_indexes(&fed.reindexed()));
        }
        for kind in unseen {
            relist(&server, &mut table, &mut fed, kind);
        }
        let (mut relisted, mut listed, mut synced) = (ObjectTable::new(KINDS, Arc::default()), Snapshot::default(), 0);
        for kind in KINDS.into_iter().rev() {
            for step in server.listing(kind) {
                synced += u32::from(take(&mut relisted, &mut listed, kind, step));
            }
        }
        prop_assert_eq!(rows(&fed), rows(&listed));
        prop_assert!(fed.same_indexes(&listed));
        prop_assert_eq!(synced, 1);
    }
}

#[test]
fn volumes_restrict_the_zones_of_a_pod() {
    let (mut table, mut snapshot) = (ObjectTable::new(KINDS, Arc::default()), Snapshot::default());
    let mut put = |kind: WatchedKind, name: &str, variant: u8| {
        let id = ObjectId { namespace: "".into(), name: name.into() };
        let version = format!("{variant}").into();
        let seen = ObjectState { version, object: row(kind, name, variant).map(Into::into), wrong: None };
        take(&mut table, &mut snapshot, kind, ReflectorEvent::Seen(id, seen));
        let pod = snapshot.pods().values().next().cloned().unwrap();
        volume_needs(&snapshot, &pod).map(|needs| needs.alternatives).map_err(|trouble| trouble.to_string())
    };
    let zone = |alternatives: &[Requirements], zone: &str| {
        alternatives[0].allows(napkeeper_core::model::labels::ZONE, Some(zone))
    };
    assert!(put(WatchedKind::Pods, "p", 1).is_err(), "its claim x1 is missing");
    assert!(put(WatchedKind::VolumeClaims, "x1", 4).is_err(), "the class is missing");
    assert!(put(WatchedKind::StorageClasses, "x1", 3).is_err(), "the class makes the volume by itself, anywhere");
    let allowed = put(WatchedKind::StorageClasses, "x1", 2).unwrap();
    assert!(allowed.len() == 1 && zone(&allowed, "z2") && !zone(&allowed, "z1"), "{allowed:?}");
    assert!(put(WatchedKind::VolumeClaims, "x1", 1).is_err(), "bound to a volume that is not there");
    let bound = put(WatchedKind::Volumes, "x1", 1).unwrap();
    assert!(bound.len() == 1 && zone(&bound, "z1") && !zone(&bound, "z2"), "{bound:?}");
}

#[test]
fn deletions_are_paused_while_a_record_cannot_be_read() {
    let mut table = ObjectTable::new([WatchedKind::OrphanRecords, WatchedKind::Pause], Arc::default());
    let mut snapshot = Snapshot::default();
    let id = ObjectId { namespace: "".into(), name: "r".into() };
    let seen = |version: &str, good: bool| ObjectState {
        version: version.into(),
        object: good.then(|| WatchedObject::Record(Arc::default())),
        wrong: (!good).then(|| "wrong".into()),
    };
    for step in
        [ReflectorEvent::ListStarted, ReflectorEvent::Seen(id.clone(), seen("1", false)), ReflectorEvent::ListDone]
    {
        take(&mut table, &mut snapshot, WatchedKind::OrphanRecords, step);
    }
    assert!(
        snapshot.pause.blocks(PauseSwitch::Delete, jiff::Timestamp::UNIX_EPOCH)
            && !snapshot.pause.blocks(PauseSwitch::Launch, jiff::Timestamp::UNIX_EPOCH)
    );
    take(&mut table, &mut snapshot, WatchedKind::OrphanRecords, ReflectorEvent::Seen(id, seen("2", true)));
    assert!(!snapshot.pause.blocks(PauseSwitch::Delete, jiff::Timestamp::UNIX_EPOCH));
}

#[test]
fn the_last_readable_version_of_an_orphan_sweep_is_kept_and_the_sweep_named() {
    let kind = WatchedKind::OrphanSweeps;
    let (mut table, mut snapshot) = (ObjectTable::new([kind], Arc::default()), Snapshot::default());
    let id = |name: &str| ObjectId { namespace: "".into(), name: name.into() };
    let seen = |name: &str, version: &str, schedule: &str| {
        let exclusions = json!([{ "name": version }]);
        let spec = json!({ "schedule": schedule, "exclusions": exclusions });
        let read = convert::sweep(&wire(json!({ "metadata": { "name": name, "uid": name }, "spec": spec })));
        let wrong = read.as_ref().err().map(|violations| violations.to_string().into());
        let object = read.ok().map(|sweep| Delta::Sweep(sweep.into()).into());
        ReflectorEvent::Seen(id(name), ObjectState { version: version.into(), object, wrong })
    };
    let excluded = |snapshot: &Snapshot, name: &str| {
        let sweep = snapshot.sweeps().get(&ObjectName::new(name).unwrap())?;
        Some(sweep.exclusions.clone())
    };
    let unreadable =
        |snapshot: &Snapshot| snapshot.unreadable_sweeps.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
    let by_name = |name: &str| Some(vec![Exclusion::Name(name.into())]);
    // A restart: nothing is known of the first one but its name, before the listing is complete.
    take(&mut table, &mut snapshot, kind, ReflectorEvent::ListStarted);
    take(&mut table, &mut snapshot, kind, seen("a", "1", "0 3 * * 7"));
    assert_eq!((unreadable(&snapshot), excluded(&snapshot, "a")), (vec!["a".to_owned()], None));
    let (_, reason) = snapshot.unreadable_sweeps.iter().next().unwrap();
    assert!(reason.contains("weekday"), "{reason}");
    take(&mut table, &mut snapshot, kind, seen("b", "2", "0 3 * * 0"));
    take(&mut table, &mut snapshot, kind, ReflectorEvent::ListDone);
    assert_eq!((unreadable(&snapshot), excluded(&snapshot, "b")), (vec!["a".to_owned()], by_name("2")));

    take(&mut table, &mut snapshot, kind, seen("b", "3", "@reboot"));
    assert_eq!(unreadable(&snapshot), ["a", "b"]);
    assert_eq!(excluded(&snapshot, "b"), by_name("2"), "the last readable version");
    take(&mut table, &mut snapshot, kind, seen("b", "4", "@daily"));
    assert_eq!((unreadable(&snapshot), excluded(&snapshot, "b")), (vec!["a".to_owned()], by_name("4")));
    take(&mut table, &mut snapshot, kind, ReflectorEvent::Gone(id("a")));
    assert_eq!((unreadable(&snapshot), snapshot.sweeps().len()), (vec![], 1));
    // It is deleted while the watch is broken.
    take(&mut table, &mut snapshot, kind, seen("b", "5", "@reboot"));
    take(&mut table, &mut snapshot, kind, ReflectorEvent::ListStarted);
    assert_eq!(unreadable(&snapshot), ["b"], "as long as the new listing is not complete");
    take(&mut table, &mut snapshot, kind, ReflectorEvent::ListDone);
    assert_eq!((unreadable(&snapshot), snapshot.sweeps().len()), (vec![], 0));
}

#[test]
fn an_optional_kind_counts_as_listed_when_absent() {
    let mut table = ObjectTable::new([WatchedKind::NodeOverlays], Arc::default());
    assert_eq!(table.apply(WatchedKind::NodeOverlays, ReflectorEvent::Absent), [WatchEvent::Synced]);
    let seen = || ObjectState {
        version: "1".into(),
        object: row(WatchedKind::NodeOverlays, "o", 1).map(Into::into),
        wrong: None,
    };
    let id = ObjectId { namespace: "".into(), name: "o".into() };
    // The definition is installed, and taken away again.
    let mut events = table.apply(WatchedKind::NodeOverlays, ReflectorEvent::ListStarted);
    events.extend(table.apply(WatchedKind::NodeOverlays, ReflectorEvent::Seen(id, seen())));
    events.extend(table.apply(WatchedKind::NodeOverlays, ReflectorEvent::ListDone));
    let mut snapshot = Snapshot::default();
    events.iter().for_each(|event| fold(event, &mut snapshot));
    assert_eq!(snapshot.overlays().len(), 1);
    table.apply(WatchedKind::NodeOverlays, ReflectorEvent::Absent).iter().for_each(|event| fold(event, &mut snapshot));
    assert_eq!(snapshot.overlays().len(), 0);
    assert!(
        WatchedKind::ALL
            .into_iter()
            .filter(|kind| kind.is_optional())
            .eq([WatchedKind::NodeOverlays, WatchedKind::Schedulers])
    );
}
