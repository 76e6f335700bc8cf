//! `napkeeper controller`: which parts does the live controller have, and how are they joined?

pub mod azure_args;
mod buffers;
mod facts;
pub mod inventory;
mod keeper;
mod ports;
pub mod price_sheet;
pub mod settings;
mod settling;
mod sweeping;
mod telling;
pub mod wall_clock;

use anyhow::{Context, Result, ensure};
use azure_args::AzureArgs;
use buffers::BufferKeeper;
use facts::{Asked, FactKeeper, Sources};
use keeper::{Fixed, Inlets, Keeper};
use kube::Client;
use napkeeper_api::bootstrap::Join;
use napkeeper_azure::{
    AksCluster, Azure, AzureCloud, AzureSettings, HttpTransport, PRICES_ENDPOINT, RetailPrices, is_loopback_endpoint,
};
use napkeeper_core::catalog::Catalog;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::model::settings::{ControllerMode, Pause, Settings};
use napkeeper_kube::watch::{WatchEvent, WatchOptions, watch as watch_cluster};
use napkeeper_kube::{
    BootstrapTokens, Events, WriteCheck, Writer, connect, elect, foreign_definitions, lease_identity,
};
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_serve::{Check, Component, ComponentError, Health, Lifecycle, Limits, bind, metrics, serve_plain};
use ports::{Joining, LivePorts};
use settings::Known;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use telling::Teller;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// How often it is looked who owns the definitions of Karpenter's kinds, until it is us.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// VMs that nothing boots into a node are bought, paid for and replaced, over and over.
const NO_BOOTSTRAP: &str = "provisioner mode on Azure requires nodes.bootstrap in the file: without the API server's \
                            address, certificate authority and DNS service, VMs could not join the cluster. Without \
                            it, use --mode companion, or provisioner mode with an --azure-endpoint on this machine \
                            (`napkeeper azure-sim`)";

/// What the command line asks for.
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
    /// Namespace of the Lease and of the pause switch.
    pub namespace: String,
    /// Address of the server for health and metrics.
    pub health_bind: SocketAddr,
    /// Name in the Lease; by default that of [`lease_identity`].
    pub identity: Option<String>,
    /// Name of the AKS agent pool whose Machines are launched, instead of plain VMs.
    pub machines: Option<String>,
    /// Endpoint and credential of Azure.
    pub azure: AzureArgs,
}

/// Runs the controller until it is told to stop.
pub async fn run(options: Options) -> Result<()> {
    let known = known(&options)?;
    let asked = asked(&options, &known)?;
    let join = join(&options, &known)?;
    let clock: Arc<dyn Clock> = Arc::new(options.azure.clock());
    let client = connect(options.kubeconfig.as_deref()).await?;
    let azure = Arc::new(azure(&options, &known)?);
    let lifecycle = Lifecycle::default();
    let health = Health::new(&lifecycle);
    let listener = bind(options.health_bind)?;
    tracing::info!(mode = ?options.mode, cluster = %known.settings.cluster.id, health = %listener.local_addr()?, "starting napkeeper controller");

    let identity = options.identity.clone().unwrap_or_else(lease_identity);
    let (work_ended, ended) = oneshot::channel();
    let (lease, standing) = elect(client.clone(), &options.namespace, &identity, end_of(ended));
    let (pause, paused) = watch::channel(Pause::default());
    let mut registry = metrics::registry();
    let sources = Sources {
        asked,
        azure: Arc::clone(&azure),
        clock: Arc::clone(&clock),
        client: client.clone(),
        namespace: options.namespace.clone(),
        lease: lease.clone(),
    };
    let (fact_keeper, live) = FactKeeper::new(sources, facts::Metrics::register(&mut registry));
    let catalog = Arc::clone(&live.borrow().catalog);
    let (events, writing) = Events::start(client.clone(), &identity);
    let watching = WatchOptions::new(Arc::clone(&clock), options.namespace.clone());
    let watch = watch_anew(options.mode, client.clone(), watching, health.check("definitions"));
    let (buffer_keeper, (buffers, cushions)) = BufferKeeper::new(client.clone(), Arc::clone(&clock), lease.clone());
    let inlets = Inlets { watch, leading: lease.leads(), facts: live, buffers };
    // A simulated VM joins nothing, and a Machine's is counted by AKS itself.
    let settings = Arc::new(Settings { billing_extension: join.is_some(), ..known.settings });
    let ports = LivePorts {
        mode: options.mode,
        writer: Writer::new(client.clone(), Arc::clone(&clock)),
        gate: WriteCheck::new(lease, paused, client.clone(), &options.namespace),
        joining: join.map(|join| Joining { join, tokens: BootstrapTokens::new(client.clone()) }),
        client,
        azure,
        clock: Arc::clone(&clock),
    };
    let seed = u64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into()?);
    let ports = Arc::new(ports);
    let fixed = Fixed { settings, catalog, options: known.options, seed, clock, ports, pause, cushions };
    let keeper = Keeper::new(fixed, Teller::new(events, &mut registry), health.check("watches"));
    lifecycle.ready();
    let keeping = keep(keeper, inlets, lifecycle.clone(), work_ended);
    let parts = vec![
        Component::new("controller", async move {
            keeping.await;
            standing.await?;
            // Events are news: those that are still unwritten are dropped with the process.
            writing.abort();
            Ok::<_, ComponentError>(())
        }),
        Component::new("the facts task", keep_facts(fact_keeper, lifecycle.clone())),
        Component::new("the CapacityBuffers task", buffer_keeper.run(options.mode, lifecycle.clone())),
        Component::new("the health server", serve_health(lifecycle.clone(), health, registry, listener)),
    ];
    Ok(napkeeper_serve::run(&lifecycle, parts).await?)
}

/// A way to watch the cluster, from the beginning.
type Watch = Box<dyn Fn(mpsc::Sender<WatchEvent>) -> JoinHandle<()> + Send>;

/// How a term of leadership begins to watch the cluster.
fn watch_anew(mode: ControllerMode, client: Client, options: WatchOptions, definitions: Check) -> Watch {
    definitions.pass();
    Box::new(move |sender| {
        let (client, options, definitions) = (client.clone(), options.clone(), definitions.clone());
        tokio::spawn(async move {
            if mode == ControllerMode::Provisioner {
                own_definitions(&client, &definitions).await;
            }
            watch_cluster(client, options, sender).await;
        })
    })
}

/// Waits until the definitions of Karpenter's kinds are ours: beside another Karpenter nothing may be decided.
async fn own_definitions(client: &Client, check: &Check) {
    loop {
        match foreign_definitions(client).await {
            Ok(None) => return check.pass(),
            Ok(Some(names)) => {
                let why = format!(
                    "{names}: not installed by napkeeper, Karpenter may be running here; use --mode companion, or \
                     remove Karpenter and install napkeeper's CRDs"
                );
                tracing::error!(why, "no decisions are made");
                check.fail(why);
            }
            Err(error) => check.fail(format!("cannot read the Karpenter CRDs: {error}")),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn keep(keeper: Keeper, inlets: Inlets, lifecycle: Lifecycle, ended: oneshot::Sender<()>) {
    keeper.run(inlets, lifecycle).await;
    // Only now may the Lease go to another: nothing of ours is under way any more. Whoever stands for election may
    // have gone already, with the process.
    let _ = ended.send(());
}

async fn keep_facts(keeper: FactKeeper, lifecycle: Lifecycle) -> Result<(), ComponentError> {
    keeper.run(lifecycle).await;
    Ok(())
}

/// When all work has ended. A controller that was cut off may have something under way: then the Lease has to run out.
async fn end_of(work: oneshot::Receiver<()>) {
    if work.await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn serve_health(
    lifecycle: Lifecycle,
    health: Health,
    registry: Registry,
    listener: std::net::TcpListener,
) -> Result<(), ComponentError> {
    Ok(serve_plain(&lifecycle, listener, health.router(registry), Limits::for_health_server()).await?)
}

/// The price list: the public cloud's, or that of a simulated Azure on this machine. Other clouds have none.
fn prices(options: &Options, cloud: AzureCloud) -> Result<Option<RetailPrices>> {
    let endpoint = match options.azure.azure_endpoint.as_deref() {
        Some(here) if is_loopback_endpoint(here) => here,
        None | Some(AzureSettings::ENDPOINT) if cloud == AzureCloud::Public => PRICES_ENDPOINT,
        _ => return Ok(None),
    };
    Ok(Some(RetailPrices::new(endpoint, Arc::new(HttpTransport::new(AzureSettings::DEADLINE)?))?))
}

/// What facts are asked for, and what serves until they are known.
fn asked(options: &Options, known: &Known) -> Result<Asked> {
    let catalog = Arc::new(Catalog::embedded()?);
    let region = catalog.find_region(known.settings.cluster.region.as_str())?;
    let subnets = known.nodes.iter().map(|nodes| ArmId::new(&nodes.subnet).context("nodes.subnet"));
    Ok(Asked {
        prices: prices(options, options.azure.cloud(known.cloud))?,
        embedded: catalog.region(&region).context("region missing from the catalogue")?,
        sheet: known.sheet.clone(),
        subnets: subnets.collect::<Result<_>>()?,
        reserves: options.mode == ControllerMode::Provisioner && options.machines.is_none(),
        catalog,
    })
}

/// Which cluster this is, with what the command line adds.
fn known(options: &Options) -> Result<Known> {
    let mut known = settings::read(&options.config, options.cluster.as_deref(), options.mode)?;
    if let Some(pool) = &options.machines {
        let cluster = &known.settings.cluster.id;
        ensure!(AksCluster::of(cluster).is_some(), "--experimental-machines: {cluster} is not an AKS cluster");
        known.settings.aks_machine_pool = Some(ArmId::new(format!("{cluster}/agentPools/{pool}"))?);
    }
    Ok(known)
}

/// How VMs join the cluster. On Azure itself there must be a way.
fn join(options: &Options, known: &Known) -> Result<Option<Join>> {
    let group = known.settings.cluster.node_resource_group.name();
    let join = known
        .nodes
        .as_ref()
        .map(settings::join)
        .transpose()?
        .flatten()
        .map(|join| join.with_node_resource_group(group));
    let by_aks = options.machines.is_some();
    ensure!(
        options.mode == ControllerMode::Companion || options.azure.is_here() || by_aks || join.is_some(),
        NO_BOOTSTRAP
    );
    Ok(join)
}

fn azure(options: &Options, known: &Known) -> Result<Azure> {
    let cloud = options.azure.cloud(known.cloud);
    let vms = known.nodes.as_ref().map(settings::vm_settings).transpose()?;
    let settings = azure_args::settings(&known.settings.cluster, options.azure.endpoint(cloud));
    let settings = AzureSettings { vms, ..settings };
    Ok(Azure::new(settings, Arc::new(HttpTransport::new(AzureSettings::DEADLINE)?), options.azure.credential(cloud)?)?)
}
