//! What the view of the cluster publishes, and when.

use crate::tests::{class, node};
use crate::{ClusterView, SourcedValidator, ViewMetrics, ViewOutputs, ViewSettings};
use jiff::Timestamp;
use napkeeper_api::azure_facts::PublishedFacts;
use napkeeper_api::manifests::{Object, object};
use napkeeper_api::yaml::Document;
use napkeeper_core::catalog::InstanceTypeOptions;
use napkeeper_core::catalog::live::{AzureFacts, Fact, SizeListing};
use napkeeper_core::model::names::Region;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_core::snapshot::delta::Delta;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// What a view publishes.
struct Published {
    snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    validator: watch::Receiver<Arc<SourcedValidator>>,
    unreadable: watch::Receiver<Option<String>>,
}

fn view(region: Option<&str>) -> (ClusterView, Published) {
    view_of(region, InstanceTypeOptions::default())
}

fn view_of(region: Option<&str>, nodes: InstanceTypeOptions) -> (ClusterView, Published) {
    let (snapshots, snapshot) = watch::channel(None);
    let (validator, latest_validator) = watch::channel(Arc::new(SourcedValidator::embedded().unwrap()));
    let (unreadable, latest_unreadable) = watch::channel(None);
    let region = region.map(|region| Region::new(region).unwrap());
    let outputs = ViewOutputs { snapshots, validator, unreadable };
    let settings = ViewSettings { region, kubernetes: None, nodes };
    let view = ClusterView::new(settings, outputs, ViewMetrics::default()).unwrap();
    (view, Published { snapshot, validator: latest_validator, unreadable: latest_unreadable })
}

fn published(region: &str) -> PublishedFacts {
    let sizes = Fact { as_of: Timestamp::now(), value: Arc::new(SizeListing::default()) };
    PublishedFacts {
        region: Region::new(region).unwrap(),
        facts: AzureFacts { sizes: Some(sizes), ..AzureFacts::default() },
        failing: BTreeMap::new(),
        unreadable: Vec::new(),
    }
}

/// Whichever facts are in use: none are published, those of the region, live ones, and none again.
#[test]
fn who_launches_the_nodes_is_known_whatever_facts_are_in_use() {
    for self_managed in [false, true] {
        let nodes = InstanceTypeOptions { self_managed, ..InstanceTypeOptions::default() };
        let (mut view, Published { snapshot, validator, .. }) = view_of(Some("westeurope"), nodes);
        let refused = class("v1beta1", &json!({ "kubelet": { "cpuManagerPolicy": "static" } }));
        let document = Document::without_text("request", refused.clone());
        let is_refused = || {
            let findings = validator.borrow().validator.validate_beside(&document, None).findings;
            findings.iter().any(|finding| finding.rule == "NK2029")
        };
        assert_eq!(is_refused(), self_managed, "at the start");
        let Object::NodeClass(class) = object(&refused).unwrap() else { panic!("not a class") };
        let name = class.name.clone();
        view.apply(&Delta::Class(Arc::new(*class)));
        view.mark_listed();
        view.publish().unwrap();
        assert_eq!(is_refused(), self_managed, "the region is known");
        let types = snapshot.borrow().as_ref().map(|snapshot| snapshot.instance_types[&name].len());
        assert_eq!(types == Some(0), self_managed, "hints know that no node is launched: {types:?}");
        view.set_facts(Some(&published("westeurope"))).unwrap();
        assert_eq!(is_refused(), self_managed, "live facts");
        view.set_facts(None).unwrap();
        assert_eq!(is_refused(), self_managed, "embedded facts again");
    }
}

#[test]
fn a_snapshot_is_published_once_per_change_and_only_when_the_region_is_known() {
    let (mut view, Published { snapshot, unreadable, .. }) = view(None);
    let unreadable = || unreadable.borrow().clone().unwrap_or_default();
    assert!(!view.publish().unwrap(), "nothing is listed yet");
    assert!(unreadable().contains("not been listed yet"), "{}", unreadable());
    view.mark_listed();
    assert!(view.publish().unwrap());
    assert!(snapshot.borrow().is_none(), "without a region there are no sizes");
    assert!(unreadable().contains("--region"), "{}", unreadable());

    let mut node = node("a");
    node.labels.insert(Arc::from("topology.kubernetes.io/region"), Arc::from("westeurope"));
    view.apply(&Delta::Node(Arc::new(node)));
    assert!(view.publish().unwrap());
    assert_eq!(snapshot.borrow().as_ref().map(|snapshot| snapshot.nodes().len()), Some(1));
    assert!(!view.publish().unwrap(), "nothing has changed since");
    assert_eq!(unreadable(), "");
    view.set_failing(Some("the watch of pods fails".to_owned()));
    assert_eq!(unreadable(), "the watch of pods fails");
    view.set_failing(None);
    assert_eq!(unreadable(), "");
}

#[test]
fn published_facts_are_used_if_they_are_of_the_region_and_dropped_when_they_disappear() {
    let (mut view, Published { validator, .. }) = view(Some("westeurope"));
    let sources = || validator.borrow().describe_sources(Timestamp::now());
    let embedded = sources();
    view.set_facts(Some(&published("eastus"))).unwrap();
    assert_eq!(sources(), embedded, "facts of another region");
    view.set_facts(Some(&published("westeurope"))).unwrap();
    assert_ne!(sources(), embedded);
    view.set_facts(None).unwrap();
    assert_eq!(sources(), embedded);
}
