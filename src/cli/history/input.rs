//! What is known of removed nodes, live or as listed by kubectl. Both are read by the same functions.

use crate::explain::cluster::{list, plural, reach, runtime, saved_objects};
use crate::output;
use anyhow::bail;
use kube::Client;
use napkeeper_core::model::cluster::node_record::NodeRemoval;
use napkeeper_core::model::errors::FailureCause;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::list::recording::replay;
use napkeeper_kube::list::{GitSource, NodeClaimEvent, read_git_sources, read_node_claim_events, read_removals};
use napkeeper_kube::watch::WatchedKind;
use std::collections::BTreeSet;
use std::path::Path;

/// The kinds that are listed beside NodeRecords and events.
const KINDS: [WatchedKind; 3] = [WatchedKind::NodePools, WatchedKind::NodeClaims, WatchedKind::Nodes];
/// The command that lists them all.
const LIST: &str = "kubectl get noderecords,nodepools,nodeclaims,nodes,events --all-namespaces -o json";
/// The resources of it that a cluster may lack.
const RECORDS: &str = "noderecords";
const EVENTS: &str = "events";
/// Those of Flux and Argo CD.
const GIT: [&str; 2] = ["kustomizations", "applications"];
/// Of namespaced objects only events are read, from all namespaces.
const NO_NAMESPACE: &str = "";

/// What is known of removed nodes.
pub(super) struct Input {
    /// NodePools, NodeClaims and Nodes as they are now.
    pub(super) snapshot: Snapshot,
    /// The entries of NodeRecords; `None` where there is no NodeRecord.
    pub(super) removals: Option<Vec<NodeRemoval>>,
    /// The events of NodeClaims.
    pub(super) events: Vec<NodeClaimEvent>,
    /// What applies the NodePools, as far as that is known.
    pub(super) git: Vec<GitSource>,
    /// Where it is from.
    pub(super) from: String,
}

/// Reads it. What could not be read is told.
pub(super) fn read(from: Option<&Path>, kubeconfig: Option<&Path>) -> anyhow::Result<Input> {
    runtime()?.block_on(async {
        match from {
            Some(path) => listed(&saved(path)?, path.display().to_string()).await,
            None => listed(&reach(kubeconfig).await?, "the cluster".to_owned()).await,
        }
    })
}

async fn listed(client: &Client, from: String) -> anyhow::Result<Input> {
    let listed = list(client, NO_NAMESPACE, KINDS.into()).await?;
    listed.remarks.iter().for_each(|remark| output::warning(remark));
    let removals = match read_removals(client).await {
        Ok(removals) => removals,
        // Also where their kind is not installed.
        Err(failure) if failure.cause == FailureCause::Forbidden => {
            output::warning(&format!("{failure}; allow list on noderecords.napkeeper.io to see what they tell"));
            None
        }
        Err(failure) => bail!("{failure}; correct the object"),
    };
    let events = read_node_claim_events(client).await.unwrap_or_else(|failure| {
        output::warning(&format!("{failure}; only NodeClaims that are being deleted are shown"));
        Vec::new()
    });
    let git = read_git_sources(client).await.unwrap_or_else(|failure| {
        output::warning(&format!("{failure}; Git revisions are not shown"));
        Vec::new()
    });
    Ok(Input { snapshot: listed.snapshot, removals, events, git, from })
}

/// A client that serves the output of kubectl.
fn saved(path: &Path) -> anyhow::Result<Client> {
    let shown = path.display();
    let mut objects = saved_objects(path, LIST)?;
    let pools = plural(WatchedKind::NodePools);
    if !objects.contains_key(pools) {
        bail!("--from {shown}: no {pools} found; list everything with: {LIST} > cluster.json");
    }
    if !objects.contains_key(RECORDS) && !objects.contains_key(EVENTS) {
        output::warning(&format!("--from {shown}: neither {RECORDS} nor {EVENTS} found; list everything with: {LIST}"));
    }
    for name in KINDS.map(plural).into_iter().chain([RECORDS, EVENTS]).chain(GIT) {
        objects.entry(name.to_owned()).or_default();
    }
    Ok(replay(objects, BTreeSet::new(), |name| format!("{name} are not in the saved objects")))
}
