//! Tests of how drifted nodes are replaced.

use super::*;
use crate::model::cluster::launch_hold::PoolHold;
use crate::model::cluster::node_base::NodeBase;
use crate::model::cluster::node_template::NodeTemplate;
use crate::model::cluster::pool::NodeClass;
use crate::model::names::{ArmId, Uid};

/// So many nodes, each with a pod that needs most of it, of a NodePool whose label `team` has just changed.
pub(super) fn relabelled(count: usize) -> World {
    let mut world = World::new(SMALL, count);
    for n in 0..count {
        world.run_pod(&format!("p{n}"), &format!("c{n:02}"), 1_500);
    }
    world.set_label("a");
    world
}

impl World {
    pub(super) fn set_label(&mut self, value: &str) {
        self.pool.labels.insert("team".into(), value.into());
        self.snapshot.put_pool(self.pool.name.clone(), self.pool.clone());
    }

    /// All that was created becomes ready.
    pub(super) fn initialize_all(&mut self) {
        for draft in std::mem::take(&mut self.drafts) {
            self.initialize(&draft);
        }
    }

    /// NodeClaims that are being deleted are gone with their nodes; each one's pods are on another that was created for it.
    pub(super) fn drain(&mut self) {
        let claims: Vec<_> = self.snapshot.claims().values().cloned().collect();
        let (old, new): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| claim.deleting_at.is_some());
        let mut new = new.into_iter().filter(|claim| !claim.spec.replaces.is_empty());
        for claim in old {
            let node = self.node(claim.name.as_str());
            let pods: Vec<_> = self.snapshot.pods_on(&node.name).cloned().collect();
            for pod in pods {
                let to = new.next().map(|claim| self.node(claim.name.as_str()));
                self.snapshot.remove_pod(&pod.key);
                to.into_iter().for_each(|to| self.snapshot.put_pod(running(pod.key.name.as_str(), &pod.shape, &to)));
            }
            self.snapshot.remove_node(&node.name);
            self.snapshot.remove_claim(&claim.name);
        }
    }
}

#[test]
fn drifted_nodes_are_replaced_within_the_budget_the_new_ones_first() {
    let mut world = relabelled(3);
    world.set_budget(BudgetNodes::Count(2));
    assert_eq!(world.wait(60), ["note drift of c00", "note drift of c01", "note drift of c02"]);
    let told = world.claim("c00").status.drifted.unwrap();
    assert_eq!(&*told.reason, "NodePoolDrifted");
    assert_eq!(&*told.message, "NodePool spec.template.metadata.labels[team]: set to \"a\"");
    assert_eq!(world.wait(60), ["mark c00", "mark c01"]);
    assert_eq!(world.wait(60), ["taint aks-c00", "taint aks-c01"]);
    assert_eq!(world.wait(60), [format!("create {SMALL}"), format!("create {SMALL}")]);
    two_go_after_their_replacements(&mut world, "drifted");
}

/// The replacements of two of three nodes are launched, with a budget of two: the two go once these are ready, and then the third is
/// marked.
pub(super) fn two_go_after_their_replacements(world: &mut World, category: &str) {
    assert!(world.wait(120).is_empty(), "it waits for the replacements");
    world.initialize_all();
    assert_eq!(world.wait(60), [format!("{category} c00"), format!("{category} c01")]);
    assert!(world.wait(120).is_empty(), "the budget is used up until they are gone");
    world.drain();
    assert_eq!(world.wait(120), ["mark c02"]);
}

#[test]
fn a_node_whose_pods_fit_on_others_needs_no_replacement() {
    let mut world = World::new(LARGE, 2);
    world.run_pod("a", "c00", 500);
    world.run_pod("b", "c01", 500);
    world.pool.disruption.policy = ConsolidationPolicy::WhenEmpty;
    world.pool.disruption.consolidate_after = None;
    world.set_label("a");
    world.set_budget(BudgetNodes::Count(1));
    assert_eq!(world.all(40), ["note drift of c00", "note drift of c01", "drifted c00"]);
}

#[test]
fn empty_nodes_go_first_and_then_those_that_drifted_first() {
    let mut world = World::new(SMALL, 3);
    world.run_pod("a", "c00", 1_500);
    world.run_pod("b", "c01", 1_500);
    world.pool.disruption.consolidate_after = None;
    world.set_label("a");
    world.set_budget(BudgetNodes::Count(0));
    assert_eq!(world.all(30).len(), 3);
    let mut later = world.claim("c00");
    later.status.drifted.as_mut().unwrap().since = at(20);
    world.snapshot.put_claim(later);
    world.set_budget(BudgetNodes::Count(1));
    assert_eq!(world.wait(120), ["drifted c02"]);
    world.drain();
    assert_eq!(world.wait(120), ["mark c01"]);
}

#[test]
fn what_must_not_be_disrupted_keeps_a_drifted_node_until_there_is_a_grace_period() {
    for grace in [None, Some(SignedDuration::from_hours(1))] {
        let mut world = relabelled(1);
        let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
        world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
        let mut claim = world.claim("c00");
        claim.spec.termination_grace_period = grace;
        world.snapshot.put_claim(claim);
        let done = world.all(120);
        assert_eq!(done.contains(&format!("create {SMALL}")), grace.is_some(), "{done:?}");
    }
}

#[test]
fn a_pod_that_fits_on_no_new_node_keeps_only_its_own() {
    let mut world = relabelled(2);
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    let shape = PodShape { selector: requirements_in(&[("is", &["gone"])]), ..PodShape::clone(&pod.shape) };
    world.snapshot.put_pod(Pod { shape: Arc::new(shape), ..pod });
    world.set_budget(BudgetNodes::Count(1));
    assert_eq!(world.all(120)[2..], ["mark c01".to_owned(), "taint aks-c01".to_owned(), format!("create {SMALL}")]);
    let told = world.memory.irreplaceable();
    assert_eq!(told.keys().map(ClaimName::as_str).collect::<Vec<_>>(), ["c00"], "{told:?}");
}

#[test]
fn a_change_that_is_taken_back_replaces_nothing() {
    let mut world = relabelled(1);
    world.set_budget(BudgetNodes::Count(0));
    assert_eq!(world.all(60), ["note drift of c00"]);
    world.pool.labels.clear();
    world.set_budget(BudgetNodes::Count(1));
    assert_eq!(world.all(120), ["note no drift of c00"]);
}

#[test]
fn a_replacement_by_drift_goes_on_after_a_restart_at_any_step() {
    for restart_after in 0..5 {
        let mut world = relabelled(1);
        let mut steps: Vec<String> = (0..restart_after).flat_map(|_| world.wait(60)).collect();
        world.restart();
        steps.extend(world.all(200));
        let creations = steps.iter().filter(|step| step.starts_with("create")).count();
        assert_eq!(creations, 1, "after {restart_after} steps: {steps:?}");
        world.initialize_all();
        assert_eq!(world.wait(60), ["drifted c00"], "after {restart_after} steps: {steps:?}");
    }
}

/// Nodes with pods whose lead time of 10,000 s begins in 100 s.
fn expiring_in_100_seconds(count: usize) -> World {
    let mut world = relabelled(count);
    world.pool.labels.clear();
    world.pool.expire_after = Some(SignedDuration::from_secs(100_000));
    world.snapshot.put_pool(world.pool.name.clone(), world.pool.clone());
    for n in 0..count {
        let mut claim = world.claim(&format!("c{n:02}"));
        claim.spec.expire_after = world.pool.expire_after;
        claim.created_at = at(100 - 90_000);
        world.snapshot.put_claim(claim);
    }
    world
}

#[test]
fn nodes_that_expire_soon_are_replaced_within_the_budget_the_new_ones_first() {
    let mut world = expiring_in_100_seconds(3);
    world.set_budget(BudgetNodes::Count(2));
    assert_eq!(world.wait(100), Vec::<String>::new());
    assert_eq!(world.wait(60), ["mark c00", "mark c01"]);
    assert_eq!(world.claim("c00").status.disrupted, Some(DisruptionReason::Expiring));
    assert_eq!(world.wait(60), ["taint aks-c00", "taint aks-c01"]);
    assert_eq!(world.wait(60), [format!("create {SMALL}"), format!("create {SMALL}")]);
    world.initialize_all();
    assert_eq!(world.wait(60), ["expiring c00", "expiring c01"]);
    world.drain();
    assert_eq!(world.wait(120), ["mark c02"]);
}

#[test]
fn what_expires_soon_goes_before_what_has_drifted() {
    let mut world = expiring_in_100_seconds(2);
    let mut other = world.claim("c00");
    other.spec.expire_after = None;
    world.snapshot.put_claim(other);
    world.now = 100;
    world.set_budget(BudgetNodes::Count(1));
    assert_eq!(world.all(20)[..2], ["note drift of c00", "mark c01"]);
    assert_eq!(world.claim("c01").status.disrupted, Some(DisruptionReason::Expiring));
}

#[test]
fn what_a_budget_keeps_expires_at_its_time() {
    let mut world = expiring_in_100_seconds(2);
    world.set_budget(BudgetNodes::Count(0));
    world.now = 10_090;
    assert_eq!(world.wait(15), ["expired c00", "expired c01"]);
}

#[test]
fn a_pod_that_must_not_be_disrupted_keeps_a_node_until_it_expires() {
    let mut world = expiring_in_100_seconds(1);
    let pod = Pod::clone(world.snapshot.pods().values().next().unwrap());
    world.snapshot.put_pod(Pod { do_not_disrupt: Some(DoNotDisrupt::Always), ..pod });
    let mut claim = world.claim("c00");
    claim.spec.termination_grace_period = Some(SignedDuration::from_hours(1));
    world.pool.termination_grace_period = claim.spec.termination_grace_period;
    world.snapshot.put_claim(claim);
    world.set_budget(BudgetNodes::Count(1));
    assert!(world.all(9_990).iter().all(|step| !step.starts_with("mark")));
    assert_eq!(world.wait(200), ["expired c00"]);
}

/// So many nodes with pods and the kubelet `v1.33.0`, in a cluster of that version.
pub(super) fn of_version(count: usize) -> World {
    let mut world = relabelled(count);
    world.pool.labels.clear();
    for n in 0..count {
        let name = format!("c{n:02}");
        world.set_kubelet(&name, "v1.33.0");
        let mut claim = world.claim(&name);
        claim.created_at = at(i64::try_from(n).unwrap() - 90_000);
        world.snapshot.put_claim(claim);
    }
    world.set_budget(BudgetNodes::Percent(100));
    world.upgrade("v1.33.0");
    world
}

impl World {
    pub(super) fn set_kubelet(&mut self, claim: &str, version: &str) {
        let kubelet_version = Some(Arc::from(version));
        let node = Node { kubelet_version, ..self.node(claim) };
        self.snapshot.put_node(node);
    }

    pub(super) fn upgrade(&mut self, version: &str) {
        let base = NodeBase { kubernetes_version: Some(Arc::from(version)), ..NodeBase::default() };
        self.snapshot.node_base = Arc::new(base);
    }

    /// What was created becomes ready, and its kubelet has this version.
    pub(super) fn initialize_with(&mut self, version: &str) {
        for draft in std::mem::take(&mut self.drafts) {
            self.initialize(&draft);
            self.set_kubelet(draft.name.as_str(), version);
        }
    }
}

#[test]
fn one_node_tries_a_new_version_before_the_others_follow() {
    let mut world = of_version(3);
    assert!(world.all(60).is_empty());
    world.upgrade("v1.34.1");
    assert_eq!(world.wait(60), ["note drift of c00"]);
    let told = world.claim("c00").status.drifted.unwrap();
    assert_eq!((&*told.reason, &*told.message), ("K8sVersionDrift", "kubelet version: \"v1.33.0\" is now \"v1.34.1\""));
    assert_eq!(world.all(60), ["mark c00".to_owned(), "taint aks-c00".to_owned(), format!("create {SMALL}")]);
    world.initialize_with("v1.34.1");
    assert_eq!(world.wait(60), ["drifted c00"]);
    world.drain();
    assert_eq!(world.wait(60), ["note drift of c01", "note drift of c02"]);
    assert_eq!(world.wait(60), ["mark c01", "mark c02"]);
}

/// Otherwise the same nodes would be replaced again and again.
#[test]
fn where_new_nodes_keep_the_old_version_only_one_is_replaced() {
    let mut world = of_version(3);
    world.upgrade("v1.34.1");
    assert_eq!(world.all(60).last().unwrap(), &format!("create {SMALL}"));
    world.initialize_with("v1.33.0");
    let done = world.all(10);
    assert!(done.contains(&"drifted c00".to_owned()), "{done:?}");
    world.drain();
    world.restart();
    assert_eq!(world.all(3_600), Vec::<String>::new());
}

#[test]
fn another_image_or_subnet_is_drift_where_it_is_known() {
    let with = |image: Option<&str>, subnet: Option<&str>| NodeBase {
        image: image.map(Arc::from),
        subnet: subnet.map(|name| ArmId::new(format!("/subscriptions/s/resourceGroups/g/subnets/{name}")).unwrap()),
        kubernetes_version: None,
    };
    let world = of_version(1);
    let class = NodeClass::with_defaults(world.pool.class.clone(), Uid::new("class").unwrap());
    let template = |base: &NodeBase| NodeTemplate::of(&world.pool, Some(&class), base);
    let changes = |from: NodeBase, to: NodeBase| {
        template(&from).changes(&template(&to)).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        changes(with(Some("/image/1"), None), with(Some("/image/2"), None)),
        ["napkeeper.yaml nodes.image: \"/image/1\" is now \"/image/2\""]
    );
    assert_eq!(changes(with(None, None), with(Some("/image/2"), None)), [""; 0], "it was not known");
    assert_eq!(
        changes(with(None, Some("A")), with(None, Some("b"))),
        ["AKSNodeClass spec.vnetSubnetID: \"/subscriptions/s/resourcegroups/g/subnets/a\" is now \
          \"/subscriptions/s/resourcegroups/g/subnets/b\""]
    );
    let named = NodeClass { subnet: Some("/subscriptions/s/resourceGroups/g/subnets/a".into()), ..class.clone() };
    let same = NodeTemplate::of(&world.pool, Some(&named), &with(None, None));
    assert_eq!(template(&with(None, Some("A"))).changes(&same), [], "the class names what was the default");
}

#[test]
fn nodes_of_which_nothing_is_recorded_do_not_drift_by_annotations_they_never_had() {
    let mut world = relabelled(1);
    world.pool.labels.clear();
    world.pool.annotations.insert("example.com/owner".into(), "a".into());
    world.set_budget(BudgetNodes::Count(1));
    assert!(world.all(60).is_empty());
    let mut claim = world.claim("c00");
    claim.spec.annotations.insert("example.com/owner".into(), "b".into());
    world.snapshot.put_claim(claim);
    assert_eq!(world.wait(60), ["note drift of c00"]);
}

/// Of a NodePool whose nodes did not come up, one is tried; the others, and consolidation, go on.
#[test]
fn a_held_pool_replaces_one_node_when_it_may_try_one() {
    let held = PoolHold::Held { reason: "they do not join".into() };
    for (hold, creations) in [(held, 0), (PoolHold::OneNode, 1)] {
        let mut world = relabelled(3);
        world.set_budget(BudgetNodes::Percent(100));
        world.snapshot.pool_holds.insert(world.pool.name.clone(), hold);
        let done = world.all(120);
        assert_eq!(done.iter().filter(|step| step.starts_with("create")).count(), creations, "{done:?}");
    }
}

#[test]
fn a_drifted_node_that_cannot_be_replaced_does_not_stop_consolidation() {
    let mut world = World::new(LARGE, 3);
    world.run_pod("big", "c00", 15_500);
    world.run_pod("a", "c01", 500);
    world.run_pod("b", "c02", 500);
    world.set_label("a");
    for name in ["c01", "c02"] {
        let mut claim = world.claim(name);
        claim.spec.labels.insert("team".into(), "a".into());
        world.snapshot.put_claim(claim);
    }
    world.snapshot.pool_holds.insert(world.pool.name.clone(), PoolHold::Held { reason: "they do not join".into() });
    let done = world.all(300);
    assert!(done.iter().any(|step| step.starts_with("underutilized")), "{done:?}");
}
