//! Records and statuses of a large cluster stay below the limit of etcd.
//!
//! Writes the objects of a cluster of 20,000 PersistentVolumes and 3,000 findings to a real API server, and prints
//! sizes and times.

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use napkeeper_api::convert;
use napkeeper_api::types::orphan_record::OrphanRecord;
use napkeeper_api::types::orphan_sweep::OrphanSweep;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::model::cluster::volume::ReclaimPolicy;
use napkeeper_core::model::names::{ArmId, ObjectName};
use napkeeper_core::model::orphans::finding::{Classification, DeletionRefusal, Finding};
use napkeeper_core::model::orphans::record::{DeletionRecord, Sighting, VolumeRecord};
use napkeeper_core::model::orphans::report::{ApprovalState, ApprovalStatus, SweepStatusSummary};
use napkeeper_core::plan::{ClusterWrite, RecordChange, ResourceTotal, SweepReport};
use napkeeper_kube::Writer;
use napkeeper_tests::clock::SystemClock;
use napkeeper_tests::control_plane::{ControlPlane, Mode};
use napkeeper_tests::manifests::repository;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// PersistentVolumes.
const VOLUMES: u32 = 20_000;
/// Suspects and orphans.
const FINDINGS: u32 = 3_000;
/// etcd refuses requests beyond 1.5 MiB; half of that is far enough away.
const MOST_BYTES: usize = 750_000;

/// An id as long as real ones are.
fn disk(n: u32) -> ArmId {
    let group = "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/MC_platform-production_prod-westeurope-01_westeurope";
    let name = format!("pvc-00000000-0000-4000-8000-{n:012}");
    ArmId::new(format!("{group}/providers/Microsoft.Compute/disks/{name}")).unwrap()
}

fn evidence(n: usize) -> Vec<Arc<str>> {
    vec![Arc::from("was PersistentVolume pvc-00000000-0000-4000-8000-000000000001, last seen 2026-11-21T08:00:00Z"); n]
}

fn sighting(n: u32) -> (ArmId, Sighting) {
    let tags =
        (0..15).map(|t| (Arc::from(format!("platform.example.com_tag-{t}")), Arc::from("a value of a usual length")));
    let sighting = Sighting {
        kind: ResourceKind::DataDisk,
        incarnation: Arc::from("00000000-0000-4000-8000-000000000001"),
        tags: tags.collect(),
        first_seen: Timestamp::now(),
        last_seen: Timestamp::now(),
        times: 2,
    };
    (disk(n), sighting)
}

fn volume(n: u32) -> (ArmId, VolumeRecord) {
    let name = ObjectName::new(format!("pvc-00000000-0000-4000-8000-{n:012}")).unwrap();
    let gone_since = Some(Timestamp::now());
    (
        disk(n),
        VolumeRecord {
            name,
            reclaim: ReclaimPolicy::Delete,
            last_seen: Timestamp::now(),
            gone_since,
            unique_id: Some(Arc::from("00000000-0000-4000-8000-000000000001")),
        },
    )
}

async fn timed(operation: &str, writer: &Writer, write: ClusterWrite) -> Result<Duration> {
    let start = Instant::now();
    writer.perform(&write).await.with_context(|| operation.to_owned())?;
    let took = start.elapsed();
    eprintln!("{operation}: {} ms", took.as_millis());
    Ok(took)
}

async fn records(client: &Client, writer: &Writer) -> Result<()> {
    let all = RecordChange {
        sightings: (0..FINDINGS).map(sighting).collect(),
        volumes: (0..VOLUMES).map(volume).collect(),
        inventory_at: Some(Timestamp::now()),
        ..RecordChange::default()
    };
    timed("first record of 20,000 volumes and 3,000 suspects", writer, ClusterWrite::WriteRecords(Box::new(all)))
        .await?;
    let deletion = DeletionRecord {
        id: disk(7),
        incarnation: Arc::from("00000000-0000-4000-8000-000000000001"),
        kind: ResourceKind::DataDisk,
        at: Timestamp::now(),
        evidence: evidence(20),
        failures: 0,
        refused: None,
    };
    let one = RecordChange { deletions: vec![deletion], ..RecordChange::default() };
    timed("record of one deletion", writer, ClusterWrite::WriteRecords(Box::new(one))).await?;
    let pruned = RecordChange { removed_volumes: (0..VOLUMES / 2).map(disk).collect(), ..RecordChange::default() };
    let api: Api<OrphanRecord> = Api::all(client.clone());
    let objects = api.list(&ListParams::default()).await?.items;
    let mut sizes = Vec::new();
    for object in &objects {
        sizes.push(serde_json::to_vec(object)?.len());
    }
    let (largest, sum) = (sizes.iter().max().copied().unwrap_or_default(), sizes.iter().sum::<usize>());
    eprintln!("{} OrphanRecords, the largest of {largest} bytes, {sum} bytes together", objects.len());
    ensure!(largest < MOST_BYTES, "an OrphanRecord of {largest} bytes");
    let read = convert::records(objects.iter().map(|o| &o.spec)).map_err(|v| anyhow::anyhow!("{v}"))?;
    ensure!((read.volumes.len(), read.sightings.len(), read.deletions.len()) == (20_000, 3_000, 1));
    timed("dropping half of the volumes", writer, ClusterWrite::WriteRecords(Box::new(pruned))).await?;
    let objects = api.list(&ListParams::default()).await?.items;
    let read = convert::records(objects.iter().map(|o| &o.spec)).map_err(|v| anyhow::anyhow!("{v}"))?;
    ensure!((read.volumes.len(), read.sightings.len()) == (10_000, 3_000));
    Ok(())
}

fn report() -> SweepReport {
    let finding = |n| Finding {
        id: disk(n),
        kind: ResourceKind::DataDisk,
        incarnation: Arc::from("00000000-0000-4000-8000-000000000001"),
        classification: Classification::Orphan,
        evidence: evidence(20),
        refusals: vec![
            DeletionRefusal::Mode,
            DeletionRefusal::Approval,
            DeletionRefusal::Breaker,
            DeletionRefusal::Paused,
            DeletionRefusal::Excluded,
        ],
        price: HourlyPrice::parse_usd("0.01").unwrap(),
        addresses: 0,
        first_seen: Some(Timestamp::now()),
    };
    let approval = |n| ApprovalStatus {
        id: disk(n),
        incarnation: Arc::from("00000000-0000-4000-8000-000000000001"),
        expires_at: Timestamp::now(),
        state: ApprovalState::Expired,
        advice: Arc::from("expired: remove these lines, or approve again"),
    };
    let total = ResourceTotal { resources: FINDINGS, price: HourlyPrice::parse_usd("30").unwrap(), addresses: 0 };
    SweepReport {
        sweep: ObjectName::new("scale").unwrap(),
        uid: napkeeper_core::model::names::Uid::new("u").unwrap(),
        generation: None,
        observed_at: Some(Timestamp::now()),
        findings: (0..FINDINGS).map(finding).collect(),
        totals: [((ResourceKind::DataDisk, Classification::Orphan), total)].into(),
        halted: None,
        report_only: Vec::new(),
        discrepancies: Vec::new(),
        summary: SweepStatusSummary { approvals: (0..500).map(approval).collect(), ..SweepStatusSummary::default() },
    }
}

async fn status(client: &Client, writer: &Writer) -> Result<()> {
    let api: Api<OrphanSweep> = Api::all(client.clone());
    let sweep = serde_json::from_value(serde_json::json!({ "metadata": { "name": "scale" }, "spec": {} }))?;
    api.create(&PostParams::default(), &sweep).await?;
    timed("status of a sweep", writer, ClusterWrite::ReportSweep(Box::new(report()))).await?;
    let object = api.get("scale").await?;
    let size = serde_json::to_vec(&object)?.len();
    eprintln!(
        "an OrphanSweep with 3,000 findings, 50 of them shown, and 500 approvals, 100 of them shown: {size} bytes"
    );
    ensure!(size < MOST_BYTES, "an OrphanSweep of {size} bytes");
    let status = object.status.context("no status")?;
    ensure!((status.findings.map(|f| f.len()), status.approvals.map(|a| a.len())) == (Some(50), Some(100)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_and_statuses_of_a_great_cluster_stay_below_the_limits_of_etcd() -> Result<()> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let plane = ControlPlane::start(Mode::Api).await?;
    let path = repository("manifests/crds/napkeeper").display().to_string();
    plane.kubectl(&["apply", "--server-side", "--kustomize", &path]).await?;
    plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    // The first request for a kind may be answered 429 while its storage begins.
    plane.kubectl(&["get", "orphansweeps,orphanrecords"]).await?;
    let client = napkeeper_kube::connect(Some(&plane.admin_kubeconfig())).await?;
    let writer = Writer::new(client.clone(), Arc::new(SystemClock));
    records(&client, &writer).await?;
    status(&client, &writer).await
}
