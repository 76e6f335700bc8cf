//! `napkeeper explain pod`: explains where pods are scheduled, or why they cannot be.

use super::pod_query::{MatchedPods, PodQuery};
use super::state::{CatalogSources, SchedulingState};
use super::{cluster, files};
use crate::Outcome;
use crate::output::explanation::{json, subject, text};
use crate::output::style::{BOLD, DIM};
use crate::output::{self, OutputFormat, TextAndJson, one_line};
use crate::repository::ReadingArgs;
use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use napkeeper_api::types::duration::{format as lasting, parse_with_days};
use napkeeper_controller::config_file::find_facts;
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions};
use napkeeper_core::model::cluster::pod::Pod;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{Namespace, NodeName, ObjectKey};
use napkeeper_core::scheduling::{AvailableOfferings, Explanations, Input, MAX_NEW_NODES, explain};
use napkeeper_core::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  napkeeper explain pod web-7d4b9c6f5-x2x9k -n shop            a pod of the cluster of your kubeconfig
  napkeeper explain pod deployment/web -n shop                 all pods of a Deployment
  napkeeper explain pod web clusters/prod -n shop              in a folder of manifests, without any cluster
  napkeeper explain pod training manifests/quickstart          with its scenario, as soon as the pods are pending
  napkeeper explain pod web clusters/prod --at 36h -o json     at that time of the scenario
  kinds=pods,nodes,nodepools,aksnodeclasses,nodeclaims,daemonsets,pv,pvc,storageclasses,csinodes
  kubectl get $kinds,namespaces,services,pdb -A -o json > cluster.json
  napkeeper explain pod web-0 -n shop --from cluster.json

It changes nothing. Pending pods are scheduled together, as the controller does it.
Exit codes: 0 all pods can be scheduled, 1 some cannot, 2 error (bad input or I/O).";

/// Explain where a pod would be scheduled and why, or why no NodePool can run it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of a pod or workload, or kind and name: pod/web-0, deployment/web, statefulset/db, job/train.
    #[arg(value_name = "NAME")]
    name: String,
    /// Folder or file of manifests, or - for standard input [default: the cluster].
    #[arg(value_name = "PATH", conflicts_with_all = ["from", "kubeconfig"])]
    path: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingArgs,
    /// Namespace.
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    /// Output of `kubectl get` as JSON or YAML instead of the cluster: a file, a folder of files, or - for standard input.
    #[arg(long, value_name = "PATH", conflicts_with = "kubeconfig")]
    from: Option<PathBuf>,
    /// Kubeconfig [default: the pod's service account, else the user's kubeconfig].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Scenario file, overrides the one in the folder.
    #[arg(long, value_name = "FILE", requires = "path")]
    scenario: Option<PathBuf>,
    /// Time since the start of the scenario, such as 90m, 36h or 9d [default: as soon as the pods are pending].
    #[arg(long, value_name = "DURATION", value_parser = after, requires = "path")]
    at: Option<SignedDuration>,
    /// Azure region, overrides that of the scenario or the nodes.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// File with the ConfigMap napkeeper-facts: the subscription's sizes, restrictions, quotas and prices.
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// CSV of prices that override list prices [default: the price sheet of the napkeeper.yaml in or above PATH].
    #[arg(long, value_name = "FILE")]
    price_sheet: Option<PathBuf>,
    /// Cluster in that napkeeper.yaml whose price sheet is used; required if it has several price sheets.
    #[arg(long, value_name = "NAME", requires = "path", conflicts_with = "price_sheet")]
    cluster: Option<String>,
    /// Namespace of the ConfigMap napkeeper-facts in the cluster.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    facts_namespace: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
}

fn after(text: &str) -> Result<SignedDuration, String> {
    let time = parse_with_days(text).map_err(|e| e.to_string())?;
    (!time.is_negative()).then_some(time).ok_or_else(|| "must not be negative".to_owned())
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let namespace = Namespace::new(&args.namespace).context("--namespace")?;
    let query = PodQuery::parse(&args.name, namespace)?;
    let Some(state) = state(args, &query)? else { return Ok(Outcome::Incomplete) };
    let matched = query.find(&state.snapshot);
    if matched.is_empty() {
        if query.of_any_kind().is_some_and(|any| !any.find(&state.snapshot).is_empty()) {
            return Err(query.not_a_pod(&state.from));
        }
        return Err(query.not_found(&state.snapshot, &state.from, &[]));
    }
    let report = PodReport::new(&query, &state, &matched);
    output::print(args.output, &report)?;
    Ok(if report.pending.all_placed() { Outcome::Fine } else { Outcome::Findings })
}

/// The state by manifests, by saved objects, or live.
fn state(args: &Args, query: &PodQuery) -> anyhow::Result<Option<SchedulingState>> {
    let sheet = napkeeper_controller::price_sheet::find(
        args.price_sheet.as_deref(),
        args.path.as_deref(),
        args.cluster.as_deref(),
    )?;
    let catalog = Catalog::embedded()?;
    let region = args.region.as_deref().map(|text| catalog.find_region(text)).transpose()?;
    let mut published =
        args.facts.as_deref().map(crate::published_facts::read).transpose()?.map(|(published, _)| published);
    let sources = |published| CatalogSources {
        catalog: &catalog,
        region: region.as_ref(),
        published,
        sheet: &sheet,
        options: InstanceTypeOptions::default(),
    };
    if let Some(path) = &args.path {
        let facts = find_facts(Some(path), args.cluster.as_deref())?;
        let priced = catalog.clone().priced_by(sheet.clone());
        let (scenario, region) = (args.scenario.as_deref(), region.as_ref());
        let files = files::FileArgs {
            path,
            scenario,
            reading: &args.reading,
            facts: &facts,
            at: args.at,
            region,
            catalog: &priced,
        };
        let found = files::state(&files, query).map_err(|error| match query.of_any_kind() {
            // Kind pod and the name of a workload, whose pods have other names.
            Some(any) if matches!(files::state(&files, &any), Ok(Some(_))) => {
                query.not_a_pod(&path.display().to_string())
            }
            _ => error,
        })?;
        let Some((mut state, region)) = found else { return Ok(None) };
        if published.is_some() {
            CatalogSources { region: Some(&region), ..sources(published) }.add_to(&mut state.snapshot, state.now)?;
        }
        return Ok(Some(state));
    }
    let (saved, kubeconfig) = (args.from.as_deref(), args.kubeconfig.as_deref());
    let read = cluster::read(saved, kubeconfig, &args.facts_namespace, cluster::kinds_of_scheduling());
    let (mut listed, from) = match saved {
        Some(_) => read?,
        None => read.context("no folder of manifests is given, and a cluster cannot be read")?,
    };
    published = published.or_else(|| listed.published.take());
    let (mut snapshot, now) = (listed.snapshot, Timestamp::now());
    sources(published).add_to(&mut snapshot, now)?;
    Ok(Some(SchedulingState { snapshot, unavailable: Default::default(), now, from, at: None }))
}

/// The report on some pods.
struct PodReport<'a> {
    query: &'a PodQuery,
    state: &'a SchedulingState,
    /// Where pending pods are scheduled.
    pending: Explanations,
    /// Running pods by node.
    running: BTreeMap<NodeName, Vec<ObjectKey>>,
    /// Where the only running pod would be scheduled if its node were removed.
    elsewhere: Option<Explanations>,
    /// Pods that need no scheduling, and why.
    other: &'a [(ObjectKey, &'static str)],
}

impl<'a> PodReport<'a> {
    fn new(query: &'a PodQuery, state: &'a SchedulingState, matched: &'a MatchedPods) -> Self {
        let available = AvailableOfferings::new(&state.snapshot, &state.unavailable, state.now);
        let schedule = |pods: &[Arc<Pod>], without: &BTreeSet<NodeName>, about: &BTreeSet<&ObjectKey>| {
            let claim_of_pod = BTreeMap::new();
            let snapshot = &state.snapshot;
            let input = Input {
                snapshot,
                available: &available,
                excluded_nodes: without,
                max_new_nodes: MAX_NEW_NODES,
                claim_of_pod: &claim_of_pod,
            };
            explain(input, pods, |key| about.contains(key))
        };
        let about: BTreeSet<&ObjectKey> = matched.pending.iter().map(|pod| &pod.key).collect();
        let pending = if about.is_empty() {
            Explanations::default()
        } else {
            schedule(&pods_to_schedule(&state.snapshot, matched), &BTreeSet::new(), &about)
        };
        let mut running: BTreeMap<NodeName, Vec<ObjectKey>> = BTreeMap::new();
        for pod in &matched.running {
            pod.node.iter().for_each(|node| running.entry(node.clone()).or_default().push(pod.key.clone()));
        }
        let elsewhere = match &matched.running[..] {
            [only] if about.is_empty() => {
                let without = only.node.iter().cloned().collect();
                Some(schedule(&[Arc::clone(only)], &without, &[&only.key].into()))
            }
            _ => None,
        };
        Self { query, state, pending, running, elsewhere, other: &matched.other }
    }

    /// A node with its NodePool, VM size, zone and capacity type.
    fn described(&self, name: &NodeName) -> String {
        let node = self.state.snapshot.nodes().get(name);
        let label = |key: &str| node.and_then(|node| node.label(key));
        let pool = label(labels::NODEPOOL).map(|pool| format!("NodePool {pool}"));
        let size = [labels::INSTANCE_TYPE, labels::ZONE, labels::CAPACITY_TYPE].into_iter().filter_map(label);
        let size = size.collect::<Vec<_>>().join(" ");
        let all: Vec<String> = pool.into_iter().chain([size]).filter(|part| !part.is_empty()).collect();
        one_line(&if all.is_empty() { name.to_string() } else { format!("{name} ({})", all.join(", ")) })
    }
}

impl TextAndJson for PodReport<'_> {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(at) = self.state.at {
            writeln!(out, "{DIM}{}, {} after its start{DIM:#}\n", one_line(&self.state.from), lasting(at))?;
        }
        text::write(out, &self.pending, MOST)?;
        let mut gap = !self.pending.explanations.is_empty();
        for (node, pods) in self.running.iter().take(MOST) {
            if std::mem::replace(&mut gap, false) {
                writeln!(out)?;
            }
            let verb = if pods.len() == 1 { "runs" } else { "run" };
            writeln!(out, "{BOLD}{}{BOLD:#} {verb} on node {}", subject(pods), self.described(node))?;
        }
        let more: usize = self.running.values().skip(MOST).map(Vec::len).sum();
        if more > 0 {
            writeln!(out, "{DIM}and {more} more run on other nodes{DIM:#}")?;
        }
        if let Some(elsewhere) = &self.elsewhere {
            writeln!(out, "\nIf that node were removed:")?;
            text::write(out, elsewhere, MOST)?;
        }
        for (key, reason) in self.other.iter().take(MOST) {
            writeln!(out, "{BOLD}{key}{BOLD:#} {reason}")?;
        }
        match self.other.len().saturating_sub(MOST) {
            0 => {}
            more => writeln!(out, "{DIM}and {more} more that need no scheduling{DIM:#}")?,
        }
        if self.state.snapshot.claims().values().any(|claim| claim.is_foreign()) {
            writeln!(out, "\n{DIM}managed NAP or another Karpenter launches the nodes, and may choose others{DIM:#}")?;
        }
        Ok(())
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        let running = self.running.iter().take(MOST).map(|(node, pods)| {
            let names: Vec<String> = pods.iter().take(MOST).map(ToString::to_string).collect();
            json!({ "node": node.as_str(), "podCount": pods.len(), "pods": names })
        });
        let other = self.other.iter().take(MOST);
        let other = other.map(|(key, reason)| json!({ "pod": key.to_string(), "reason": reason }));
        Ok(json!({
            "query": self.query.text,
            "namespace": self.query.namespace.as_str(),
            "from": self.state.from,
            "at": self.state.at.map(lasting),
            "allPlaced": self.pending.all_placed(),
            "pending": json::explanations(&self.pending),
            "running": running.collect::<Vec<_>>(),
            "runningNodes": self.running.len(),
            "ifNodeRemoved": self.elsewhere.as_ref().map(json::explanations),
            "notScheduled": other.collect::<Vec<_>>(),
        }))
    }
}

/// Most groups, nodes and names that are shown.
const MOST: usize = 10;

/// The pods that are scheduled together: all pending ones, and those of the query.
fn pods_to_schedule(snapshot: &Snapshot, matched: &MatchedPods) -> Vec<Arc<Pod>> {
    let known: BTreeSet<&ObjectKey> = snapshot.pending_pods().map(|pod| &pod.key).collect();
    let queried = matched.pending.iter().filter(|pod| !known.contains(&pod.key));
    snapshot.pending_pods().chain(queried).cloned().collect()
}
