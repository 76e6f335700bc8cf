//! Quota: nothing is launched that Azure would refuse for quota, and the reason is given.

use crate::catalog::CapacityType;
use crate::catalog::CapacityType::{OnDemand, Reserved, Spot};
use crate::catalog::live::{Quota, QuotaUsage, STALE_AFTER};
use crate::fixtures::{at, claim, class, cluster, intent, offering, pods, pool, requirements_in, shape, start};
use crate::model::cluster::claim::{Claim, PlannedOffering};
use crate::model::labels;
use crate::scheduling::tests::solve;
use crate::snapshot::Snapshot;
use jiff::SignedDuration;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const FAMILY: &str = "standardDSv5Family";

/// Azure's numbers: used and allowed, by name; whatever is not named is not limited.
fn quota(numbers: &[(&str, u64, u64)]) -> Option<Arc<Quota>> {
    let usage = |&(name, used, limit): &(&str, u64, u64)| QuotaUsage { name: Arc::from(name), used, limit };
    Some(Arc::new(Quota::new(start(), numbers.iter().map(usage))))
}

/// A pool that allows only `Standard_D*s_v5`, on demand.
fn only_d() -> crate::model::cluster::pool::NodePool {
    let mut pool = pool("d");
    pool.requirements.add_all(&requirements_in(&[
        (labels::CAPACITY_TYPE, &["on-demand"]),
        (labels::SKU_FAMILY, &["D"]),
        (labels::ARCH, &["amd64"]),
    ]));
    pool
}

fn d4(captype: CapacityType) -> PlannedOffering {
    offering("Standard_D4s_v5", 1, captype)
}

fn reasons(snapshot: &Snapshot, cpus: i64) -> String {
    let outcome = solve(snapshot, &pods("p", shape("a", cpus * 1000, 1), 1));
    let reasons = outcome.unschedulable.iter().flat_map(|u| &u.reasons).map(|(_, reason)| reason.to_string());
    reasons.collect::<Vec<_>>().join("; ")
}

#[test]
fn a_full_family_is_not_tried_and_is_reported_with_launches_in_flight() {
    let mut snapshot = cluster([only_d()]);
    snapshot.quota = quota(&[("StandardDSv5family", 8, 10), ("cores", 20, 100)]);
    let message = reasons(&snapshot, 3);
    assert_eq!(message, "vCPU quota for family StandardDSv5family: 8 of 10 vCPUs used, 0 launching, 4 needed");
    assert_eq!(reasons(&snapshot, 1), "", "two cores are left");
    // In flight: its VM is not in Azure's numbers yet, and it has no capacity for more.
    let mut in_flight = claim("d-a", &only_d(), vec![offering("Standard_D2s_v5", 1, OnDemand)]);
    in_flight.status.node_name = None;
    snapshot.put_claim(in_flight);
    let message = reasons(&snapshot, 3);
    assert!(message.ends_with("8 of 10 vCPUs used, 2 launching, 4 needed"), "{message}");
}

#[test]
fn region_and_spot_have_quotas_of_their_own() {
    let mut snapshot = cluster([only_d()]);
    snapshot.quota = quota(&[(FAMILY, 0, 100), ("cores", 99, 100), ("lowPriorityCores", 0, 0)]);
    assert_eq!(reasons(&snapshot, 1), "regional vCPU quota: 99 of 100 vCPUs used, 0 launching, 2 needed");
    let mut both = cluster([pool("general")]);
    both.quota = quota(&[("lowPriorityCores", 0, 0)]);
    let outcome = solve(&both, &pods("p", shape("a", 1000, 1), 1));
    let offerings = &outcome.new_nodes[0].offerings;
    assert!(offerings.iter().all(|o| o.key.capacity_type == OnDemand), "no spot core is to be had: {offerings:?}");
    both.quota = quota(&[("cores", 100, 100)]);
    let outcome = solve(&both, &pods("p", shape("a", 1000, 1), 1));
    assert!(outcome.new_nodes[0].offerings.iter().all(|o| o.key.capacity_type == Spot), "spot does not count there");
}

#[test]
fn two_pools_share_one_quota() {
    let mut other = only_d();
    other.name = crate::model::names::NodePoolName::new("e").unwrap();
    let mut snapshot = cluster([only_d(), other]);
    snapshot.quota = quota(&[(FAMILY, 0, 8)]);
    let one_each = crate::model::cluster::pod::PodShape {
        spread: vec![crate::fixtures::spread(labels::HOSTNAME, "a", 1)],
        ..shape("a", 1000, 1)
    };
    let outcome = solve(&snapshot, &pods("p", one_each, 9));
    assert_eq!((outcome.new_nodes.len(), outcome.unschedulable_pods()), (4, 5));
}

#[test]
fn stale_quota_is_ignored() {
    let mut snapshot = cluster([only_d()]);
    let old = start() - STALE_AFTER - SignedDuration::from_secs(1);
    let full = QuotaUsage { name: Arc::from(FAMILY), used: 10, limit: 10 };
    snapshot.quota = Some(Arc::new(Quota::new(old, [full.clone()])));
    assert_eq!(reasons(&snapshot, 1), "");
    snapshot.quota = Some(Arc::new(Quota::new(old + SignedDuration::from_secs(1), [full])));
    assert_ne!(reasons(&snapshot, 1), "");
}

#[test]
fn a_vm_counts_as_in_flight_until_quota_is_read_after_its_launch() {
    let quota_is_left = |change: &dyn Fn(&mut Claim)| {
        let mut snapshot = cluster([only_d()]);
        snapshot.quota = quota(&[(FAMILY, 0, 4)]);
        let mut one = claim("d-a", &only_d(), vec![d4(OnDemand)]);
        change(&mut one);
        snapshot.put_claim(one);
        // Larger than what the claim in flight would hold.
        reasons(&snapshot, 3).is_empty()
            || !reasons(&snapshot, 3).contains("launching")
            || reasons(&snapshot, 3).contains(" 0 in flight")
    };
    let intended = |c: &mut Claim| c.intent = Some(intent(c, d4(OnDemand)));
    assert!(quota_is_left(&|c| c.status.launched = Some(start())), "Azure counts it");
    assert!(quota_is_left(&|c| c.deleting_at = Some(start())), "it is deleted before it requested a VM");
    assert!(
        !quota_is_left(&|c| {
            intended(c);
            c.deleting_at = Some(at(1));
        }),
        "it is deleted, but its VM may be being created"
    );
}

proptest! {
    /// For any quotas and pods, new and launching nodes are within every quota.
    #[test]
    fn new_nodes_stay_within_every_quota(
        limits in proptest::collection::vec((0_u64..40, 0_u64..60), 6),
        demand in proptest::collection::vec((1_i64..9, 1_usize..12), 1..6),
        in_flight in 0_usize..4,
    ) {
        let mut snapshot = cluster([pool("general"), only_d()]);
        let names = [FAMILY, "standardFSv2Family", "standardESv5Family", "Standard NCASv3_T4 Family", "cores", "lowPriorityCores"];
        let numbers: Vec<_> = names.iter().zip(&limits).map(|(n, (used, more))| (*n, *used, used + more)).collect();
        snapshot.quota = quota(&numbers);
        for i in 0..in_flight {
            snapshot.put_claim(claim(&format!("d-{i}"), &only_d(), vec![d4(OnDemand)]));
        }
        let waiting: Vec<_> = demand.iter().enumerate()
            .flat_map(|(i, (cpus, n))| pods(&format!("p{i}"), shape(&format!("a{i}"), cpus * 1000, 1), *n)).collect();
        let outcome = solve(&snapshot, &waiting);

        let types = &snapshot.instance_types[&class().name];
        let mut cores_by_quota: BTreeMap<String, u64> = BTreeMap::new();
        cores_by_quota.insert(FAMILY.to_lowercase(), 4 * in_flight as u64);
        cores_by_quota.insert("cores".to_owned(), 4 * in_flight as u64);
        for node in &outcome.new_nodes {
            // The launch begins with the first; the rest is for when it is refused.
            let key = &node.offerings[0].key;
            let facts = &types.iter().find(|t| t.facts.name == key.size).unwrap().facts;
            let cores = u64::from(facts.vcpus);
            let names = match key.capacity_type {
                Reserved => vec![],
                Spot => vec!["lowprioritycores".to_owned()],
                OnDemand => vec!["cores".to_owned(), facts.family.to_lowercase()],
            };
            for name in names {
                *cores_by_quota.entry(name).or_default() += cores;
            }
        }
        if !outcome.new_nodes.is_empty() {
            for (name, used, limit) in numbers {
                let more = cores_by_quota.get(&name.to_lowercase()).copied().unwrap_or(0);
                let own = if [FAMILY, "cores"].contains(&name) { 4 * in_flight as u64 } else { 0 };
                prop_assert!(more == own || used + more <= limit, "{name}: {used} + {more} > {limit}");
            }
        }
    }
}
