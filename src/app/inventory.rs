//! Inventory: in which order are Azure and Kubernetes listed, so that the lists together prove something?

use napkeeper_azure::Azure;
use napkeeper_core::clock::Clock;
use napkeeper_core::cluster::inventory::Inventory;
use napkeeper_kube::list;

/// Takes an inventory. The cloud first, Kubernetes after it: whatever was created in between is alive, not an orphan.
pub(crate) async fn take(azure: &Azure, client: &kube::Client, clock: &dyn Clock) -> Inventory {
    let started_at = clock.now();
    let (group_managed_by, cloud, bystanders) =
        tokio::join!(azure.group_managed_by(), azure.list(), azure.bystanders());
    let cluster = list::list_for_inventory(client, clock).await;
    Inventory {
        started_at,
        finished_at: clock.now(),
        group_managed_by,
        cloud,
        bystanders,
        claims: cluster.claims,
        nodes: cluster.nodes,
        volumes: cluster.volumes,
        attachments: cluster.attachments,
        disk_uses: cluster.disk_uses,
    }
}
