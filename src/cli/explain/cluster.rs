//! The objects of a cluster, live or as listed by kubectl.
//!
//! Both are read as the controller reads a cluster.

use crate::output;
use anyhow::{Context, bail};
use napkeeper_api::azure_facts::PublishedFacts;
use napkeeper_controller::wall_clock::WallClock;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::list::recording::{Objects, replay};
use napkeeper_kube::watch::{WatchEvent, WatchOptions, WatchedKind, fold, watch};
use napkeeper_kube::{PAUSE_CONFIG_MAP, connect, read_facts};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The kinds that scheduling depends on.
const KINDS: [WatchedKind; 14] = [
    WatchedKind::Pods,
    WatchedKind::Nodes,
    WatchedKind::NodePools,
    WatchedKind::NodeClasses,
    WatchedKind::NodeClaims,
    WatchedKind::NodeOverlays,
    WatchedKind::DaemonSets,
    WatchedKind::Volumes,
    WatchedKind::VolumeClaims,
    WatchedKind::StorageClasses,
    WatchedKind::CsiNodes,
    WatchedKind::Namespaces,
    WatchedKind::Services,
    WatchedKind::Schedulers,
];

/// The kinds on which it depends what becomes of a node: those, what keeps pods on it, and the pause switch.
pub(super) fn kinds_of_nodes() -> BTreeSet<WatchedKind> {
    kinds_of_scheduling().into_iter().chain([WatchedKind::DisruptionBudgets, WatchedKind::Pause]).collect()
}

/// The kinds that scheduling depends on.
pub(super) fn kinds_of_scheduling() -> BTreeSet<WatchedKind> {
    KINDS.into()
}

/// Kinds without which nothing can be explained.
const REQUIRED: [WatchedKind; 4] =
    [WatchedKind::Pods, WatchedKind::Nodes, WatchedKind::NodePools, WatchedKind::NodeClasses];

/// How long listing everything may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Most objects that are named which cannot be parsed.
const MAX_UNREADABLE: usize = 5;

/// The command that lists all kinds.
const LIST: &str = "kubectl get pods,nodes,nodepools,aksnodeclasses,nodeclaims,daemonsets,pv,pvc,storageclasses,\
csinodes,namespaces,services,pdb --all-namespaces -o json";

/// The objects of a cluster.
pub(crate) struct ListedCluster {
    pub(crate) snapshot: Snapshot,
    /// The facts published by the controller in it.
    pub(super) published: Option<PublishedFacts>,
    /// What could not be read.
    pub(crate) remarks: Vec<String>,
}

/// Lists a cluster: as kubectl has listed it, or live. `namespace` is that of napkeeper's own ConfigMaps. What could not be read
/// is told. Returns where it is from, too.
pub(super) fn read(
    from: Option<&Path>,
    kubeconfig: Option<&Path>,
    namespace: &str,
    kinds: BTreeSet<WatchedKind>,
) -> anyhow::Result<(ListedCluster, String)> {
    let runtime = runtime()?;
    let (listed, from) = match from {
        Some(path) => (runtime.block_on(saved(path, namespace, kinds))?, path.display().to_string()),
        None => (runtime.block_on(live(kubeconfig, namespace, kinds))?, "the cluster".to_owned()),
    };
    for remark in &listed.remarks {
        output::warning(remark);
    }
    Ok((listed, from))
}

/// What runs the requests of a command.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")
}

/// A client of a cluster, of this kubeconfig if there is one.
pub(crate) async fn reach(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Client> {
    connect(kubeconfig).await.context("cannot reach a cluster. Pass --from or --kubeconfig")
}

/// Lists a cluster live.
async fn live(
    kubeconfig: Option<&Path>,
    namespace: &str,
    kinds: BTreeSet<WatchedKind>,
) -> anyhow::Result<ListedCluster> {
    let client = reach(kubeconfig).await?;
    let mut listed = list(&client, namespace, kinds).await?;
    match read_facts(&client, namespace).await {
        Ok(published) => listed.published = published,
        Err(error) => listed.remarks.push(format!("{error}: using the built-in sizes and prices")),
    }
    Ok(listed)
}

/// Reads the output of kubectl: a file, or a folder of files.
async fn saved(path: &Path, namespace: &str, kinds: BTreeSet<WatchedKind>) -> anyhow::Result<ListedCluster> {
    let mut objects = saved_objects(path, LIST)?;
    for kind in REQUIRED.into_iter().filter(|kind| *kind != WatchedKind::Nodes) {
        if !objects.contains_key(plural(kind)) {
            let shown = path.display();
            bail!(
                "--from {shown}: no {} found; list everything with: {LIST} > cluster.json; manifests are given without --from",
                plural(kind)
            );
        }
    }
    // Of ConfigMaps only the pause switch is read; saved ones are not selected by name.
    let is_pause =
        |map: &Value| map["metadata"]["name"] == PAUSE_CONFIG_MAP && map["metadata"]["namespace"] == *namespace;
    objects.entry(plural(WatchedKind::Pause).to_owned()).or_default().retain(is_pause);
    let budgets = plural(WatchedKind::DisruptionBudgets);
    let lacks_budgets = kinds.contains(&WatchedKind::DisruptionBudgets) && !objects.contains_key(budgets);
    for kind in &kinds {
        objects.entry(plural(*kind).to_owned()).or_default();
    }
    let client = replay(objects, BTreeSet::new(), |name| format!("{name} are not in the saved objects"));
    let mut listed = list(&client, namespace, kinds).await?;
    let remark = || format!("no {budgets} in the saved objects; assuming that the cluster has none");
    listed.remarks.extend(lacks_budgets.then(remark));
    Ok(listed)
}

/// The objects of a file, of the standard input (`-`), or of all JSON and YAML files of a folder. `command` lists what is needed.
pub(crate) fn saved_objects(path: &Path, command: &str) -> anyhow::Result<Objects> {
    let mut objects = Objects::new();
    if path.as_os_str() == "-" {
        let text = std::io::read_to_string(std::io::stdin()).context("--from: reading the standard input")?;
        add_text("-", &text, command, &mut objects)?;
        return Ok(objects);
    }
    for file in saved_files(path)? {
        let shown = file.display().to_string();
        let text = std::fs::read_to_string(&file).with_context(|| format!("--from: reading {shown}"))?;
        add_text(&shown, &text, command, &mut objects)?;
    }
    Ok(objects)
}

/// Adds the objects of a text in JSON, or else in YAML.
fn add_text(shown: &str, text: &str, command: &str, objects: &mut Objects) -> anyhow::Result<()> {
    if let Ok(value) = serde_json::from_str(text) {
        add(value, objects);
        return Ok(());
    }
    let reading = napkeeper_api::yaml::read(shown, text);
    if let Some(problem) = reading.problems.first() {
        let (at, message) = (problem.position, &problem.message);
        bail!("--from: {shown}:{at} is neither JSON nor YAML: {message}; recreate it with: {command} > cluster.json");
    }
    reading.documents.into_iter().for_each(|document| add(document.value, objects));
    Ok(())
}

/// The plural name of a kind, as in a path.
pub(crate) fn plural(kind: WatchedKind) -> &'static str {
    kind.resource().split('.').next().unwrap_or_default()
}

fn saved_files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let shown = path.display();
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("--from: reading {shown}"))? {
        let file = entry.with_context(|| format!("--from: reading {shown}"))?.path();
        let is_saved =
            file.extension().is_some_and(|extension| ["json", "yaml", "yml"].iter().any(|e| extension == *e));
        files.extend(is_saved.then_some(file));
    }
    files.sort();
    Ok(files)
}

/// Adds an object, or those of a list, whose items may leave their kind to the list.
fn add(value: Value, objects: &mut Objects) {
    let kind_of = |value: &Value| value["kind"].as_str().unwrap_or_default().to_owned();
    let own = kind_of(&value);
    let Value::Object(mut map) = value else { return };
    let Some(Value::Array(items)) = map.remove("items") else { return add_object(&own, Value::Object(map), objects) };
    let of_list = own.strip_suffix("List").unwrap_or_default();
    for item in items {
        let kind = kind_of(&item);
        add_object(if kind.is_empty() { of_list } else { &kind }, item, objects);
    }
}

fn add_object(kind: &str, object: Value, objects: &mut Objects) {
    let plural = match kind {
        "StorageClass" => "storageclasses".to_owned(),
        "AKSNodeClass" => "aksnodeclasses".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    objects.entry(plural).or_default().push(object);
}

/// Lists all kinds. Those that are not required and cannot be listed are left out with a remark.
pub(crate) async fn list(
    client: &kube::Client,
    namespace: &str,
    mut kinds: BTreeSet<WatchedKind>,
) -> anyhow::Result<ListedCluster> {
    let mut remarks = Vec::new();
    loop {
        match tokio::time::timeout(TIMEOUT, attempt(client, (namespace, &kinds), &mut remarks)).await {
            Ok(Ok(snapshot)) => return Ok(ListedCluster { snapshot, published: None, remarks }),
            Ok(Err(Some((kind, error)))) if !REQUIRED.contains(&kind) => {
                remarks.push(format!("{error}; assuming there are no {kind}"));
                kinds.remove(&kind);
            }
            Ok(Err(Some((_, error)))) => bail!("{error}"),
            Ok(Err(None)) => bail!("could not list the cluster: the watch ended"),
            Err(_) => bail!("could not list the cluster within {}s", TIMEOUT.as_secs()),
        }
    }
}

/// The kind that failed and why; `None` when the watch ended.
type ListError = Option<(WatchedKind, String)>;

async fn attempt(
    client: &kube::Client,
    (namespace, kinds): (&str, &BTreeSet<WatchedKind>),
    remarks: &mut Vec<String>,
) -> Result<Snapshot, ListError> {
    let (sender, mut changes) = mpsc::channel(1_000);
    let options = WatchOptions { kinds: kinds.clone(), ..WatchOptions::new(Arc::new(WallClock::new(None)), namespace) };
    let watching = tokio::spawn(watch(client.clone(), options, sender));
    let (mut snapshot, mut unreadable) = (Snapshot::default(), Vec::new());
    let result = loop {
        match changes.recv().await {
            Some(WatchEvent::Synced) => break Ok(()),
            Some(WatchEvent::Failing { kind, error }) => break Err(Some((kind, error))),
            Some(WatchEvent::Unreadable { kind, name, reason }) => unreadable.push(format!("{kind} {name}: {reason}")),
            Some(event) => fold(&event, &mut snapshot),
            None => break Err(None),
        }
    };
    watching.abort();
    result?;
    let more = unreadable.len().saturating_sub(MAX_UNREADABLE);
    remarks.extend(unreadable.into_iter().take(MAX_UNREADABLE));
    remarks.extend((more > 0).then(|| format!("{more} more objects could not be parsed")));
    Ok(snapshot)
}
