//! Accounts: is what is said of pods true of the plan, and short whatever their number?

use super::{GIB, OnDemand, cluster, node, offering, pod, pods, pool, requirements_in, shape, spread, start, zone};
use crate::model::cluster::pod::{Pod, PodAffinity, PodShape, PodTerm, Preferences, Taint, TaintEffect};
use crate::model::cluster::pool::NodePool;
use crate::model::cluster::volume::{DISK_DRIVER, ReclaimPolicy, Volume, VolumeClaim, driver};
use crate::model::labels;
use crate::model::names::{ClaimName, Namespace, ObjectKey, ObjectName, Uid};
use crate::model::requirements::Requirements;
use crate::scheduling::{
    Accounts, Because, Bond, Change, Fate, Input, MOST_NEW_NODES, Market, Place, Purchase, StepWhat, Stuck, Tie,
    Unavailable, WhyNot, Wish, account, schedule,
};
use crate::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

fn told(snapshot: &Snapshot, pods: &[Arc<Pod>]) -> Accounts {
    told_with(snapshot, pods, &BTreeMap::new())
}

fn told_with(snapshot: &Snapshot, pods: &[Arc<Pod>], promised: &BTreeMap<ObjectKey, ClaimName>) -> Accounts {
    let market = Market::new(snapshot, &Unavailable::default(), start());
    let without = BTreeSet::new();
    let input = Input { snapshot, market: &market, without: &without, new_nodes: MOST_NEW_NODES, promised };
    account(input, pods, |_| true)
}

/// Why the pods of the only account that says so have their place.
fn because(told: &Accounts) -> &Because {
    let mut placed = told.accounts.iter().filter_map(|account| match &account.fate {
        Fate::Placed(because) => Some(&**because),
        Fate::Nowhere(_) => None,
    });
    placed.next().unwrap()
}

fn purchase(told: &Accounts) -> &Purchase {
    let Place::New(purchase) = &because(told).place else { panic!("not bought: {told:?}") };
    purchase
}

fn stuck(told: &Accounts) -> &Stuck {
    let Fate::Nowhere(stuck) = &told.accounts[0].fate else { panic!("placed: {told:?}") };
    stuck
}

fn changes(told: &Accounts) -> &[Change] {
    &stuck(told).remedy.as_ref().unwrap().changes
}

#[test]
fn pods_on_nodes_that_exist_and_in_flight_are_told_by_place() {
    let general = pool("general");
    let mut snapshot = cluster([general.clone()]);
    snapshot.put_node(node("old", 1, 2));
    let in_flight = crate::fixtures::claim("general-a", &general, vec![offering("Standard_D4s_v5", 1, OnDemand)]);
    snapshot.put_claim(in_flight.clone());
    let waiting = pods("p", shape("a", 1000, 1), 4);
    let promised = BTreeMap::from([(waiting[0].key.clone(), in_flight.name.clone())]);
    let told = told_with(&snapshot, &waiting, &promised);
    let places: Vec<&Place> = told
        .accounts
        .iter()
        .map(|account| match &account.fate {
            Fate::Placed(because) => &because.place,
            Fate::Nowhere(_) => panic!("{account:?}"),
        })
        .collect();
    let old = Place::Nodes { nodes: vec![(node("old", 1, 2).name, 2)], count: 1 };
    let claims = Place::Claims { claims: vec![(in_flight.name, 2)], count: 1, promised: 1 };
    assert_eq!(places, [&old, &claims]);
}

#[test]
fn a_new_node_is_the_cheapest_that_holds_its_pods_and_cheaper_ones_are_counted_by_what_they_lack() {
    let mut limited = pool("limited");
    limited.requirements.add_all(&requirements_in(&[(labels::CAPACITY_TYPE, &["on-demand"])]));
    let snapshot = cluster([limited]);
    let waiting = pods("p", shape("a", 2500, 1), 1);
    let told = told(&snapshot, &waiting);
    let bought = purchase(&told);
    let market = Market::new(&snapshot, &Unavailable::default(), start());
    let offers = &market.offers[0];
    let place = offers.candidates.iter().position(|c| c.instance.facts.name == bought.best.key.size).unwrap();
    let cheaper = &offers.candidates[..place];
    assert!(!cheaper.is_empty() && cheaper.iter().all(|c| !waiting[0].shape.requests.fits(&c.room)));
    assert_eq!((bought.size.small, bought.size.unsuited, bought.size.forbidden), (cheaper.len(), 0, 0));
    let (nearest, lacks) = bought.size.nearest_small.as_ref().unwrap();
    assert_eq!((nearest.name.clone(), &**lacks), (cheaper.last().unwrap().instance.facts.name.clone(), "cpu"));
    let holding = offers.candidates.iter().filter(|c| waiting[0].shape.requests.fits(&c.room)).count();
    assert_eq!(bought.size.suiting, holding);
    assert!(bought.size.next.as_ref().unwrap().price >= bought.best.price);
    assert_eq!((bought.nodes, bought.own, bought.others, &bought.without), (1, 1, 0, &None));
}

#[test]
fn sizes_that_lack_a_label_are_told_apart_from_small_ones() {
    let mut asked = shape("a", 500, 1);
    asked.selector = requirements_in(&[(labels::INSTANCE_TYPE, &["Standard_E4s_v5"])]);
    let snapshot = cluster([pool("general")]);
    let told = told(&snapshot, &pods("p", asked, 1));
    let market = Market::new(&snapshot, &Unavailable::default(), start());
    let price = purchase(&told).best.price;
    let cheaper = market.offers[0].candidates.iter().filter(|candidate| candidate.price < price).count();
    let size = &purchase(&told).size;
    assert_eq!((size.suiting, size.unsuited, size.small), (2, cheaper, 0), "on spot and on demand");
    assert!(cheaper > 0);
}

#[test]
fn a_pod_that_joins_a_node_is_told_what_it_adds_and_what_it_would_cost_alone() {
    let snapshot = cluster([pool("general")]);
    let mut waiting = pods("large", shape("large", 3000, 4), 1);
    waiting.extend(pods("small", shape("small", 300, 1), 1));
    let all = told(&snapshot, &waiting);
    let small = all.accounts.iter().find(|account| account.pods[0].name.as_str() == "small-000").unwrap();
    let Fate::Placed(because) = &small.fate else { panic!("{small:?}") };
    let Place::New(bought) = &because.place else { panic!("{small:?}") };
    assert_eq!((bought.own, bought.others), (1, 1));
    let (without, alone) = (bought.without.as_ref().unwrap(), bought.alone.as_ref().unwrap());
    let only_large = told(&snapshot, &waiting[..1]);
    assert_eq!(without.price, purchase(&only_large).best.price);
    let only_small = told(&snapshot, &waiting[1..]);
    assert_eq!(alone.price, purchase(&only_small).best.price);
}

#[test]
fn a_preference_that_no_node_can_meet_is_given_up_and_the_others_are_kept() {
    let mut asked = shape("a", 500, 1);
    let near = PodTerm {
        topology_key: Arc::from(labels::ZONE),
        namespaces: [Namespace::new("default").unwrap()].into(),
        namespace_selector: None,
        selector: requirements_in(&[("app", &["nobody"])]),
    };
    asked.preferences = Some(Box::new(Preferences {
        node: vec![(1, requirements_in(&[(labels::ARCH, &["amd64"])]))],
        near: vec![(10, near)],
        ..Preferences::default()
    }));
    let told = told(&cluster([pool("general")]), &pods("p", asked, 1));
    let because = because(&told);
    assert_eq!((because.given_up.clone(), because.granted), (vec![Wish::Near(Arc::from(labels::ZONE))], 1));
}

#[test]
fn a_taint_that_pods_would_rather_avoid_is_put_up_with_last() {
    let taint = Taint { key: Arc::from("old"), value: Arc::from(""), effect: TaintEffect::PreferNoSchedule };
    let tainted = NodePool { taints: vec![taint], ..pool("tainted") };
    let told = told(&cluster([tainted]), &pods("p", shape("a", 500, 1), 1));
    assert_eq!((because(&told).given_up.clone(), because(&told).granted), (vec![Wish::Taints], 0));
}

#[test]
fn zones_that_a_spread_decided_are_counted_over_all_nodes() {
    let mut asked = shape("a", 1000, 1);
    asked.spread = vec![spread(labels::ZONE, "a", 1), spread(labels::HOSTNAME, "a", 1)];
    let told = told(&cluster([pool("general")]), &pods("p", asked, 6));
    let values = (1..=3).map(|n| (zone(n).text(), 2)).collect();
    let by_zone = Bond { tie: Tie::Spread, key: Arc::from(labels::ZONE), values };
    let by_host = Bond { tie: Tie::Spread, key: Arc::from(labels::HOSTNAME), values: BTreeMap::new() };
    assert_eq!(because(&told).bonds, [by_host, by_zone]);
    assert_eq!(purchase(&told).nodes, 6);
}

#[test]
fn a_pool_that_comes_first_and_cannot_help_is_named_with_the_reason() {
    let taint = Taint { key: Arc::from("gpu"), value: Arc::from(""), effect: TaintEffect::NoSchedule };
    let first = NodePool { weight: 10, taints: vec![taint.clone()], ..pool("first") };
    let told = told(&cluster([first, pool("second")]), &pods("p", shape("a", 500, 1), 1));
    let first = pool("first").name;
    assert_eq!(purchase(&told).passed_over, [(first, WhyNot::Taint(taint.key))]);
}

/// Pods with a claim on a volume in a zone, in a cluster that has both.
fn with_volume(snapshot: &mut Snapshot, asked: PodShape, zone_number: u8) -> Vec<Arc<Pod>> {
    let name = ObjectName::new("data").unwrap();
    let key = ObjectKey { namespace: asked.namespace.clone(), name: name.clone() };
    let uid = Uid::new("data").unwrap();
    let affinity = vec![requirements_in(&[(labels::ZONE, &[zone(zone_number).as_str()])])];
    let volume = Volume {
        name: name.clone(),
        uid: uid.clone(),
        handle: None,
        reclaim: ReclaimPolicy::Delete,
        claim: Some(key.clone()),
        affinity,
        driver: Some(driver(DISK_DRIVER)),
        deleting: false,
    };
    snapshot.put_volume(name.clone(), volume);
    let claim = VolumeClaim {
        key: key.clone(),
        uid,
        volume: Some(name.clone()),
        bound: true,
        class: None,
        lost: false,
        deleting: false,
        for_one_pod: false,
        selected_node: None,
    };
    snapshot.put_volume_claim(key, claim);
    vec![Arc::new(Pod { volumes: vec![name], ..pod("p", &Arc::new(asked)) })]
}

#[test]
fn a_volume_binds_its_pod_to_a_zone_and_a_pool_that_is_not_there_must_come_to_it() {
    let mut snapshot = cluster([pool("general")]);
    let waiting = with_volume(&mut snapshot, shape("a", 500, 1), 2);
    let placed = told(&snapshot, &waiting);
    let values = [(zone(2).text(), 1)].into();
    assert_eq!(because(&placed).bonds, [Bond { tie: Tie::Volume, key: Arc::from(labels::ZONE), values }]);
    let mut elsewhere = pool("elsewhere");
    elsewhere.requirements.add_all(&requirements_in(&[(labels::ZONE, &[zone(1).as_str()])]));
    let mut snapshot = cluster([elsewhere]);
    // As the watch hands pods on: with the zone of their volume in what they ask for themselves.
    for narrowed in [false, true] {
        let mut asked = shape("a", 500, 1);
        if narrowed {
            asked.selector = requirements_in(&[(labels::ZONE, &[zone(2).as_str()])]);
        }
        let waiting = with_volume(&mut snapshot, asked, 2);
        let offer = Change::Offer(Arc::from(labels::ZONE), format!("In [{}]", zone(2)));
        assert_eq!(changes(&told(&snapshot, &waiting)), [offer], "narrowed: {narrowed}");
    }
}

#[test]
fn where_only_neighbours_are_in_the_way_to_soften_that_is_the_least_change() {
    let term = |app: &str| PodTerm {
        topology_key: Arc::from(labels::ZONE),
        namespaces: [Namespace::new("default").unwrap()].into(),
        namespace_selector: None,
        selector: requirements_in(&[("app", &[app])]),
    };
    let near = PodAffinity { near: vec![term("nobody")], apart: Vec::new() };
    let apart = PodAffinity { near: Vec::new(), apart: vec![term("a")] };
    let with = |affinity| PodShape { affinity: Some(Box::new(affinity)), ..shape("a", 500, 1) };
    let racks = PodShape { spread: vec![spread("example.com/rack", "a", 1)], ..shape("a", 500, 1) };
    let cases = [
        (with(near), 1, WhyNot::Affinity),
        (with(apart), 4, WhyNot::AntiAffinity),
        (racks, 1, WhyNot::TopologyKey(Arc::from("example.com/rack"))),
    ];
    let snapshot = cluster([pool("general")]);
    for (asked, count, why) in cases {
        let all = told(&snapshot, &pods("p", asked.clone(), count));
        assert_eq!(changes(&all), [Change::Soften(why.clone())]);
        let last = stuck(&all).waterfalls[0].steps.last().unwrap();
        assert_eq!((last.what.clone(), last.sizes), (StepWhat::Topology(why), 0));
        let softened = PodShape { affinity: None, spread: Vec::new(), ..asked };
        assert!(told(&snapshot, &pods("p", softened, count)).all_placed());
    }
}

#[test]
fn a_pod_that_claims_devices_is_told_so() {
    let asked = Arc::new(shape("a", 500, 1));
    let waiting = [Arc::new(Pod { claims_devices: true, ..pod("p", &asked) })];
    let told = told(&cluster([pool("general")]), &waiting);
    assert_eq!(stuck(&told).why, [(None, WhyNot::Devices)]);
}

#[test]
fn ten_thousand_pods_without_a_place_have_a_short_account() {
    let snapshot = cluster([pool("general"), pool("other")]);
    let alike = told(&snapshot, &pods("p", shape("a", 900_000, 1), 10_000));
    assert_eq!((alike.accounts.len(), alike.accounts[0].pods.len(), alike.more_groups), (1, 10_000, 0));
    let unlike: Vec<Arc<Pod>> =
        (0..2_000).flat_map(|n| pods(&format!("p{n}"), shape("a", 900_000 + n, 1), 5)).collect();
    let told = told(&snapshot, &unlike);
    let pods: usize = told.accounts.iter().map(|account| account.pods.len()).sum();
    assert_eq!((told.accounts.len(), told.more_groups, pods + told.more_pods), (32, 1_968, 10_000));
}

#[test]
fn an_account_is_of_the_plan_that_is_made_and_of_the_pods_that_are_asked_for() {
    let snapshot = cluster([pool("general")]);
    let mut asked = shape("a", 700, 2);
    asked.requests.memory = 2 * GIB;
    let mut waiting = pods("p", asked, 40);
    waiting.extend(pods("q", PodShape { selector: Requirements::new(), ..shape("b", 1300, 1) }, 25));
    let market = Market::new(&snapshot, &Unavailable::default(), start());
    let (without, promised) = (BTreeSet::new(), BTreeMap::new());
    let input = Input { snapshot: &snapshot, market: &market, without: &without, new_nodes: 100, promised: &promised };
    let told = account(input, &waiting, |key| key.name.as_str() == "p-007");
    assert_eq!(told.accounts.len(), 1);
    assert_eq!(told.accounts[0].pods, [waiting[7].key.clone()]);
    let outcome = schedule(input, &waiting);
    let new = outcome.new.iter().find(|new| new.pods.iter().any(|pod| pod.key == waiting[7].key)).unwrap();
    let bought = purchase(&told);
    assert_eq!((&bought.best, bought.offerings), (&new.offerings[0], new.offerings.len()));
    assert_eq!(bought.own + bought.others, new.pods.len());
}
