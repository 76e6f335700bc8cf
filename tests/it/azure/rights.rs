//! A preflight sees at the cluster what the listing of its Machines runs into.

use super::facts::lab;
use jiff::SignedDuration;
use napkeeper_sim::cloud::{ListedKind, ListingFault};

const POOLS: &str = "Microsoft.ContainerService/managedClusters/agentPools/read";
const MACHINES: &str = "Microsoft.ContainerService/managedClusters/agentPools/machines/read";

#[tokio::test]
async fn a_preflight_sees_whether_machines_may_be_listed() {
    let lab = lab();
    let may = async || {
        let cluster = lab.azure.preflight().await.cluster.unwrap();
        [POOLS, MACHINES].map(|action| cluster.allows(action))
    };
    assert_eq!(may().await, [Some(true); 2]);
    lab.wire.with(|cloud, now| {
        let end = *now + SignedDuration::from_hours(1);
        cloud.faults.listings.insert(ListedKind::Machines, (end, ListingFault::Forbidden));
    });
    assert_eq!(may().await, [Some(false); 2]);
    assert!(lab.azure.preflight().await.permissions.is_ok(), "rights in the group are not those at the cluster");
}
