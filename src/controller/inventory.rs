//! Inventory: in which order are Azure and Kubernetes listed, so that the lists together prove something?

use jiff::Timestamp;
use napkeeper_azure::Azure;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::azure::cloud::CloudResource;
use napkeeper_core::model::azure::inventory::{Inventory, ListFailure, Listing};
use napkeeper_core::model::azure::related::RelatedResource;
use napkeeper_core::model::names::ArmId;
use napkeeper_kube::list;
use std::sync::Arc;

/// Takes an inventory. The cloud first, Kubernetes after it: whatever was created in between is alive, not an orphan.
pub async fn take(azure: &Azure, client: &kube::Client, clock: &dyn Clock) -> Inventory {
    let started_at = clock.now();
    let (group_managed_by, cloud, bystanders) =
        tokio::join!(azure.group_managed_by(), azure.list(), azure.list_related());
    let listed = Cloud { group_managed_by, cloud, bystanders };
    with_cluster(started_at, listed, client, clock).await
}

/// The inventory of a cluster whose Azure cannot be reached.
pub async fn without_azure(why: &str, client: &kube::Client, clock: &dyn Clock) -> Inventory {
    let failed = || ListFailure { listing: Arc::from("the node resource group"), reason: Arc::from(why) };
    let listed = Cloud { group_managed_by: Err(failed()), cloud: Err(failed()), bystanders: Err(failed()) };
    with_cluster(clock.now(), listed, client, clock).await
}

/// What Azure has listed.
struct Cloud {
    group_managed_by: Result<Option<ArmId>, ListFailure>,
    cloud: Listing<CloudResource>,
    bystanders: Listing<RelatedResource>,
}

async fn with_cluster(started_at: Timestamp, listed: Cloud, client: &kube::Client, clock: &dyn Clock) -> Inventory {
    let Cloud { group_managed_by, cloud, bystanders } = listed;
    let cluster = list::list_for_inventory(client, clock).await;
    Inventory {
        started_at,
        finished_at: clock.now(),
        group_managed_by,
        resources: cloud,
        related: bystanders,
        claims: cluster.claims,
        nodes: cluster.nodes,
        volumes: cluster.volumes,
        attachments: cluster.attachments,
        disk_uses: cluster.disk_uses,
    }
}
