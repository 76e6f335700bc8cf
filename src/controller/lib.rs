//! Wires the parts of `napkeeper controller` together: control loop, Azure facts, CapacityBuffers, probes and metrics.

pub mod azure_args;
mod capacity_buffers;
pub mod config_file;
mod control_loop;
mod effects;
mod facts;
pub mod inventory;
pub mod price_sheet;
mod reporting;
pub mod wall_clock;

use anyhow::{Context, Result, ensure};
use azure_args::AzureArgs;
use capacity_buffers::BufferSync;
use config_file::ClusterConfig;
use control_loop::{ControlLoop, LoopContext, LoopInputs};
use effects::{LiveEffectRunner, NodeBootstrap};
use facts::kubernetes_version::VersionSync;
use facts::{FactCollector, FactScope, FactSources};
use kube::Client;
use napkeeper_api::bootstrap::Join;
use napkeeper_azure::{
    AksCluster, Azure, AzureCloud, AzureSettings, HttpTransport, PRICES_ENDPOINT, RetailPrices, is_loopback_endpoint,
};
use napkeeper_core::catalog::Catalog;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::cluster::node_base::NodeBase;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::model::settings::{ControllerMode, Settings};
use napkeeper_kube::watch::{WatchEvent, WatchOptions, WatchedKind, watch as watch_cluster};
use napkeeper_kube::{
    BootstrapTokens, ClockSkew, CrdOwner, Events, WriteCheck, WriteHolds, Writer, connect_with_clock, elect,
    lease_identity, pause_switch_exists,
};
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_serve::{
    Check, Component, ComponentError, Health, Lifecycle, MonitoringAddresses, MonitoringPorts, metrics,
};
use reporting::{KarpenterMetrics, Reporter};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// How often the owner of Karpenter's CRDs is checked, until it is napkeeper.
const CRD_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is checked that it still is.
const OWN_CRD_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// VMs that do not join the cluster would be launched, paid for and replaced, over and over.
const NO_BOOTSTRAP: &str = "provisioner mode on Azure requires nodes.bootstrap in the file: without the API server's \
                            address, certificate authority and DNS service, VMs could not join the cluster. Without \
                            it, use --mode companion, or provisioner mode with an --azure-endpoint on this machine \
                            (`napkeeper azure-sim`)";

/// The arguments of the command line.
#[derive(Debug)]
pub struct Options {
    /// Companion of managed NAP, or provisioner in its place.
    pub mode: ControllerMode,
    /// Path of `napkeeper.yaml`.
    pub config: PathBuf,
    /// Name of the cluster in the file; not needed if it has only one.
    pub cluster: Option<String>,
    /// Path of the kubeconfig. Without one, the pod's service account or the user's kubeconfig is used.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the pause switch.
    pub namespace: String,
    /// Addresses of the servers for probes and metrics.
    pub monitoring: MonitoringAddresses,
    /// Name in the Lease; by default that of [`lease_identity`].
    pub identity: Option<String>,
    /// Name of the AKS agent pool whose Machines are launched, instead of plain VMs.
    pub machines: Option<String>,
    /// Endpoint and credential of Azure.
    pub azure: AzureArgs,
}

/// Runs the controller until a signal stops it.
pub async fn run(options: Options) -> Result<()> {
    let cluster = cluster_config(&options)?;
    let scope = fact_scope(&options, &cluster)?;
    let join = join(&options, &cluster)?;
    let clock: Arc<dyn Clock> = Arc::new(options.azure.clock());
    let (client, skew) = connect_with_clock(options.kubeconfig.as_deref()).await?;
    let azure = Arc::new(azure(&options, &cluster)?);
    let lifecycle = Lifecycle::default();
    let health = Health::new(&lifecycle);
    let monitoring = bind_monitoring(&options, &cluster)?;

    let identity = options.identity.clone().unwrap_or_else(lease_identity);
    let (work_ended, ended) = oneshot::channel();
    let (lease, election) = elect(client.clone(), &identity, end_of(ended));
    let (holds, held) = watch::channel(WriteHolds::default());
    let mut registry = metrics::registry();
    let sources = FactSources {
        scope,
        azure: Arc::clone(&azure),
        clock: Arc::clone(&clock),
        client: client.clone(),
        namespace: options.namespace.clone(),
        lease: lease.clone(),
    };
    let (fact_collector, facts) = FactCollector::new(sources, facts::Metrics::register(&mut registry));
    let catalog = Arc::clone(&facts.borrow().catalog);
    let (events, event_writer) = Events::start(client.clone(), &identity);
    let watch_options = watch_options(&options, &cluster, &client, &clock);
    let start_watch = start_watch(options.mode, client.clone(), watch_options, health.check("definitions"));
    let (buffer_sync, (buffers, placements)) = BufferSync::new(client.clone(), Arc::clone(&clock), lease.clone());
    let (version_sync, node_base) = VersionSync::new(client.clone(), configured_node_base(&options, &cluster)?);
    let inputs = LoopInputs { start_watch, leading: lease.leads(), facts, node_base, buffers };
    // A simulated VM joins no cluster, and the VM of a Machine is billed by AKS.
    let settings = Arc::new(Settings { billing_extension: join.is_some(), ..cluster.settings });
    let runner = LiveEffectRunner {
        mode: options.mode,
        writer: Writer::new(client.clone(), Arc::clone(&clock)).with_lease(lease.clone()),
        gate: WriteCheck::new(lease, held, client.clone(), &options.namespace).with_clock_skew(skew.clone()),
        bootstrap: join.map(|join| NodeBootstrap { join, tokens: BootstrapTokens::new(client.clone()) }),
        client,
        azure,
        clock: Arc::clone(&clock),
    };
    let (seed, runner) = (uuid::Uuid::new_v4().as_u64_pair().0, Arc::new(runner));
    let context = LoopContext { settings, catalog, options: cluster.options, seed, clock, runner, holds, placements };
    let (control_loop, registries) = reporting_loop(context, (events, skew), registry, health.check("watches"));
    lifecycle.ready();
    let running = run_loop(control_loop, inputs, lifecycle.clone(), work_ended);
    let mut parts = vec![
        Component::new("controller", async move {
            running.await;
            election.await?;
            // Events that are not written yet are dropped with the process.
            event_writer.abort();
            Ok::<_, ComponentError>(())
        }),
        Component::new("the version task", version_sync.run(lifecycle.clone())),
        Component::new("the facts task", collect_facts(fact_collector, lifecycle.clone())),
        Component::new("the CapacityBuffers task", buffer_sync.run(options.mode, lifecycle.clone())),
    ];
    parts.extend(monitoring.components(&lifecycle, &health, registries));
    Ok(napkeeper_serve::run(&lifecycle, parts).await?)
}

/// The control loop. It reports with metrics in this registry, and with Karpenter's in one of their own; beside managed NAP
/// these are NAP's to export. Returns all registries.
fn reporting_loop(
    context: LoopContext,
    (events, skew): (Events, ClockSkew),
    mut registry: Registry,
    watches: Check,
) -> (ControlLoop, Vec<Registry>) {
    let (karpenter, of_karpenter) = match context.settings.mode {
        ControllerMode::Provisioner => Some(KarpenterMetrics::new(Arc::clone(&context.clock))).unzip(),
        ControllerMode::Companion => (None, None),
    };
    let reporter = Reporter::new(events, &mut registry, skew, karpenter);
    (
        ControlLoop::new(context, reporter, watches),
        std::iter::once(registry).chain(of_karpenter.into_iter().flatten()).collect(),
    )
}

/// Listens for probes and scrapes, and logs the addresses.
fn bind_monitoring(options: &Options, cluster: &ClusterConfig) -> Result<MonitoringPorts> {
    let ports = MonitoringPorts::bind(options.monitoring)?;
    let (MonitoringAddresses { health, metrics }, cluster) = (ports.addresses()?, &cluster.settings.cluster.id);
    tracing::info!(mode = ?options.mode, %cluster, %health, %metrics, "starting napkeeper controller");
    Ok(ports)
}

/// Starts to watch the cluster, with a fresh listing.
type StartWatch = Box<dyn Fn(mpsc::Sender<WatchEvent>) -> JoinHandle<()> + Send>;

/// What the terms of this process share. A replica that stands by watches nothing: that the pause switch exists it learns
/// now, so that it misses the switch if that is gone when it leads.
fn watch_options(options: &Options, cluster: &ClusterConfig, client: &Client, clock: &Arc<dyn Clock>) -> WatchOptions {
    let mut watch_options = WatchOptions::new(Arc::clone(clock), options.namespace.clone());
    if options.mode == ControllerMode::Provisioner {
        watch_options.node_health = Arc::clone(&cluster.settings.node_health);
    } else {
        // It drains no nodes, and has no permission to list PodDisruptionBudgets.
        for kind in [WatchedKind::DisruptionBudgets, WatchedKind::Attachments] {
            watch_options.kinds.remove(&kind);
        }
    }
    let (client, namespace) = (client.clone(), options.namespace.clone());
    let seen = Arc::clone(&watch_options.pause_switch_seen);
    // An API server that does not answer must not delay the start.
    tokio::spawn(async move {
        seen.fetch_or(pause_switch_exists(&client, &namespace).await, Ordering::Relaxed);
    });
    watch_options
}

/// How a term of leadership starts to watch the cluster.
fn start_watch(mode: ControllerMode, client: Client, options: WatchOptions, definitions: Check) -> StartWatch {
    definitions.pass();
    Box::new(move |sender| {
        let (client, options, definitions) = (client.clone(), options.clone(), definitions.clone());
        tokio::spawn(async move {
            if mode == ControllerMode::Companion {
                return watch_cluster(client, options, sender).await;
            }
            let crd_owner = CrdOwner::new(client.clone());
            wait_for_own_crds(&crd_owner, &definitions).await;
            // The end of the watches ends the term; the next one waits again.
            tokio::select! {
                () = watch_cluster(client, options, sender) => {}
                () = until_foreign_crds(&crd_owner, &definitions) => {}
            }
        })
    })
}

/// Waits until Karpenter's CRDs are napkeeper's: beside another Karpenter nothing may be decided.
async fn wait_for_own_crds(owner: &CrdOwner, check: &Check) {
    loop {
        match owner.foreign_definitions().await {
            Ok(None) => return check.pass(),
            Ok(Some(names)) => report_foreign_crds(&names, check),
            Err(error) => check.fail(format!("cannot read the Karpenter CRDs: {error}")),
        }
        tokio::time::sleep(CRD_CHECK_INTERVAL).await;
    }
}

/// Waits until Karpenter's CRDs are another Karpenter's. While they cannot be read nothing is launched anyway.
async fn until_foreign_crds(owner: &CrdOwner, check: &Check) {
    loop {
        tokio::time::sleep(OWN_CRD_CHECK_INTERVAL).await;
        match owner.foreign_definitions().await {
            Ok(None) => {}
            Ok(Some(names)) => return report_foreign_crds(&names, check),
            Err(error) => tracing::warn!(%error, "cannot read the Karpenter CRDs"),
        }
    }
}

fn report_foreign_crds(names: &str, check: &Check) {
    let message = format!(
        "{names}: not installed by napkeeper, Karpenter may be running here; use --mode companion, or remove Karpenter \
         and install napkeeper's CRDs"
    );
    tracing::error!(why = message, "no decisions are made");
    check.fail(message);
}

async fn run_loop(control_loop: ControlLoop, inputs: LoopInputs, lifecycle: Lifecycle, ended: oneshot::Sender<()>) {
    control_loop.run(inputs, lifecycle).await;
    // Only now may another replica get the Lease: no effect of ours is running any more. The task of the election may
    // have ended already, with the process.
    let _ = ended.send(());
}

async fn collect_facts(collector: FactCollector, lifecycle: Lifecycle) -> Result<(), ComponentError> {
    collector.run(lifecycle).await;
    Ok(())
}

/// Waits for the end of all work. A controller that was cut off may still have effects running: then the Lease must
/// expire.
async fn end_of(work: oneshot::Receiver<()>) {
    if work.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The price list: the public cloud's, or that of a simulated Azure on this machine. Other clouds have none.
fn prices(options: &Options, cloud: AzureCloud) -> Result<Option<RetailPrices>> {
    let endpoint = match options.azure.azure_endpoint.as_deref() {
        Some(local) if is_loopback_endpoint(local) => local,
        None | Some(AzureSettings::ENDPOINT) if cloud == AzureCloud::Public => PRICES_ENDPOINT,
        _ => return Ok(None),
    };
    Ok(Some(RetailPrices::new(endpoint, Arc::new(HttpTransport::new(AzureSettings::DEADLINE)?))?))
}

/// Which facts are collected, and what is used until they are known.
fn fact_scope(options: &Options, cluster: &ClusterConfig) -> Result<FactScope> {
    let catalog = Arc::new(Catalog::embedded()?);
    let region = catalog.find_region(cluster.settings.cluster.region.as_str())?;
    let subnets = cluster.nodes.iter().map(|nodes| ArmId::new(&nodes.subnet).context("nodes.subnet"));
    Ok(FactScope {
        prices: prices(options, options.azure.cloud(cluster.cloud))?,
        embedded: catalog.region(&region).context("region missing from the catalogue")?,
        sheet: cluster.sheet.clone(),
        subnets: subnets.collect::<Result<_>>()?,
        uses_reservations: options.mode == ControllerMode::Provisioner && options.machines.is_none(),
        catalog,
    })
}

/// The cluster of the file, with what the command line adds.
fn cluster_config(options: &Options) -> Result<ClusterConfig> {
    let mut config = config_file::read_cluster(&options.config, options.cluster.as_deref(), options.mode)?;
    if let Some(pool) = &options.machines {
        let cluster = &config.settings.cluster.id;
        ensure!(AksCluster::of(cluster).is_some(), "--experimental-machines: {cluster} is not an AKS cluster");
        config.settings.aks_machine_pool = Some(ArmId::new(format!("{cluster}/agentPools/{pool}"))?);
    }
    Ok(config)
}

/// How VMs join the cluster. On Azure itself this must be configured.
fn join(options: &Options, cluster: &ClusterConfig) -> Result<Option<Join>> {
    let group = cluster.settings.cluster.node_resource_group.name();
    let join = cluster
        .nodes
        .as_ref()
        .map(config_file::join)
        .transpose()?
        .flatten()
        .map(|join| join.with_node_resource_group(group));
    let by_aks = options.machines.is_some();
    ensure!(
        options.mode == ControllerMode::Companion || options.azure.is_local() || by_aks || join.is_some(),
        NO_BOOTSTRAP
    );
    Ok(join)
}

/// What nodes are made from by the configuration. Where AKS makes them, it chooses their image and subnet.
fn configured_node_base(options: &Options, cluster: &ClusterConfig) -> Result<NodeBase> {
    let nodes = cluster.nodes.as_ref().filter(|_| options.machines.is_none());
    config_file::node_base(nodes)
}

fn azure(options: &Options, cluster: &ClusterConfig) -> Result<Azure> {
    let cloud = options.azure.cloud(cluster.cloud);
    let vms = cluster.nodes.as_ref().map(config_file::vm_settings).transpose()?;
    let settings = azure_args::azure_settings(&cluster.settings.cluster, options.azure.endpoint(cloud));
    let settings = AzureSettings { vms, ..settings };
    Ok(Azure::new(settings, Arc::new(HttpTransport::new(AzureSettings::DEADLINE)?), options.azure.credential(cloud)?)?)
}
