//! NodeRecords on a real API server: a full one is accepted, far below the limit of etcd, and keeps the newest entries.

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use napkeeper_api::convert;
use napkeeper_api::types::node_record::NodeRecord;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::node_record::{
    MAX_BYTES, MAX_ENTRIES, NodeRecordShard, NodeRemoval, RecordedNode, RemovedBy, entry_text,
};
use napkeeper_core::model::cluster::offering::{CapacityType, OfferingKey};
use napkeeper_core::model::names::{ClaimName, NodeName, NodePoolName, Uid, VmSize, Zone};
use napkeeper_core::plan::{ClusterWrite, NodeRecordChange};
use napkeeper_kube::Writer;
use napkeeper_tests::clock::SystemClock;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::repository;
use std::sync::Arc;

fn node(name: &str) -> RecordedNode {
    RecordedNode {
        claim: ClaimName::new(name).unwrap(),
        node: NodeName::new(format!("aks-{name}")).ok(),
        offering: Some(OfferingKey {
            size: VmSize::new("Standard_D4s_v5").unwrap(),
            zone: Zone::new("westeurope-1").unwrap(),
            capacity_type: CapacityType::Spot,
        }),
        price: Some(HourlyPrice::from_nanos(192_000_000)),
    }
}

fn removal(n: i64, text: &str) -> NodeRemoval {
    NodeRemoval {
        uid: Uid::new(format!("00000000-0000-4000-8000-{n:012}")).unwrap(),
        removed: node(&format!("general-{n:05}")),
        pool: NodePoolName::new("general").ok(),
        replacements: vec![node("general-new-a"), node("general-new-b")],
        by: RemovedBy::Napkeeper,
        reason: Arc::from("Drifted"),
        cause: entry_text(text),
        started: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(n),
        ended: None,
        pods: 30,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_node_record_is_accepted_and_keeps_the_newest_entries() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let plane = ControlPlane::start(Mode::Api).await?;
    let path = repository("manifests/crds/napkeeper").display().to_string();
    plane.kubectl(&["apply", "--server-side", "--kustomize", &path]).await?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    // The first request for a kind may be answered 429 while its storage begins.
    plane.kubectl(&["get", "noderecords"]).await?;
    let client = napkeeper_kube::connect(Some(&plane.admin_kubeconfig())).await?;
    let writer = Writer::new(client.clone(), Arc::new(SystemClock));
    let api: Api<NodeRecord> = Api::all(client);
    let shard = NodeRecordShard::of(NodePoolName::new("general").ok().as_ref());
    let long = "\"payments\" is now \"checkout\"; ".repeat(100);
    // Short entries reach the limit of their number, long ones that of bytes.
    for (first, text, full) in [(0, "x", MAX_ENTRIES), (10_000, &*long, 50)] {
        for begin in [first, first + 400] {
            let removals = (begin..begin + 400).map(|n| removal(n, text)).collect();
            let write = ClusterWrite::RecordRemovals(Box::new(NodeRecordChange { shard, removals }));
            writer.perform(&write).await.context("writing a NodeRecord")?;
        }
        let object = api.get(&shard.to_string()).await?;
        let bytes = serde_json::to_vec(&object.spec)?.len();
        ensure!(bytes <= MAX_BYTES + 1_000, "{bytes} bytes");
        let read = convert::node_removals(&object.spec).map_err(|v| anyhow::anyhow!("{v}"))?;
        ensure!((full..=MAX_ENTRIES).contains(&read.len()), "{} entries", read.len());
        let newest = read.last().context("no entries")?;
        ensure!(*newest == removal(first + 799, text), "{newest:?}");
        ensure!(object.spec.last_removal.as_deref() == Some(newest.started.to_string().as_str()));
    }
    Ok(())
}
