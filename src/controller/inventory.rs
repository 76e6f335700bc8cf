//! Lists Azure and Kubernetes in the order that proves a resource to be an orphan.

use jiff::Timestamp;
use napkeeper_azure::Azure;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::azure::inventory::{Inventory, ListFailure, Listing};
use napkeeper_core::model::azure::related::RelatedResource;
use napkeeper_core::model::errors::CloudError;
use napkeeper_core::model::names::ArmId;
use napkeeper_kube::list;

/// Takes an inventory. Azure first, Kubernetes after it: what was created in between is in use, not an orphan.
pub async fn take(azure: &Azure, client: &kube::Client, clock: &dyn Clock) -> Inventory {
    let started_at = clock.now();
    let (group_managed_by, cloud, related) = tokio::join!(azure.group_managed_by(), azure.list(), azure.list_related());
    let listed = CloudListings { group_managed_by, cloud, related };
    with_cluster(started_at, listed, client, clock).await
}

/// The inventory of a cluster whose Azure cannot be reached.
pub async fn without_azure(error: &CloudError, client: &kube::Client, clock: &dyn Clock) -> Inventory {
    let failed = || ListFailure::of_azure("the node resource group", error.clone());
    let listed = CloudListings { group_managed_by: Err(failed()), cloud: Err(failed()), related: Err(failed()) };
    with_cluster(clock.now(), listed, client, clock).await
}

/// The listings of Azure.
struct CloudListings {
    group_managed_by: Result<Option<ArmId>, ListFailure>,
    cloud: Listing<CloudResource>,
    related: Listing<RelatedResource>,
}

async fn with_cluster(
    started_at: Timestamp,
    listed: CloudListings,
    client: &kube::Client,
    clock: &dyn Clock,
) -> Inventory {
    let CloudListings { group_managed_by, cloud, related } = listed;
    let cluster = list::list_for_inventory(client, clock).await;
    Inventory {
        started_at,
        finished_at: clock.now(),
        group_managed_by,
        resources: cloud,
        related,
        claims: cluster.claims,
        nodes: cluster.nodes,
        volumes: cluster.volumes,
        attachments: cluster.attachments,
        disk_uses: cluster.disk_uses,
    }
}
