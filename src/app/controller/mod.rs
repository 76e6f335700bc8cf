//! `napkeeper controller`: which parts does the live controller have, and how are they joined?

mod keeper;
mod ports;
mod settings;
mod settling;
mod telling;

use crate::clock::WallClock;
use anyhow::Context;
use keeper::{Fixed, Inlets, Keeper};
use napkeeper_azure::{Azure, AzureSettings, Credential, HttpWire, Token};
use napkeeper_core::catalog::Catalog;
use napkeeper_core::clock::Clock;
use napkeeper_core::settings::Mode;
use napkeeper_kube::{Events, Gate, Lease, Reader, WatchOptions, Writer, connect};
use napkeeper_serve::{Health, Lifecycle, Part, bind, registry, run as run_parts, serve_plain};
use ports::LivePorts;
use prometheus_client::registry::Registry;
use settings::Known;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use telling::Teller;
use tokio::sync::mpsc;

/// Changes that may wait to be taken in; then the watches wait.
const CHANGES: usize = 10_000;
/// Longest that one call to Azure may take.
const AZURE_DEADLINE: Duration = Duration::from_secs(30);

/// What the command line asks for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) config: PathBuf,
    pub(crate) cluster: Option<String>,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) namespace: String,
    pub(crate) health_bind: SocketAddr,
    pub(crate) identity: Option<String>,
    pub(crate) azure_endpoint: String,
    pub(crate) azure_token_file: Option<PathBuf>,
    pub(crate) time_offset_file: Option<PathBuf>,
}

/// Runs the controller until it is told to stop.
pub(crate) async fn run(options: Options) -> anyhow::Result<()> {
    let known = settings::read(&options.config, options.cluster.as_deref(), options.mode)?;
    let region = &known.settings.cluster.region;
    let catalog = Catalog::embedded()?;
    let nearest = catalog.nearest_region(region.as_str()).map(|r| format!("; did you mean {r}?")).unwrap_or_default();
    let catalog = catalog.region(region).with_context(|| format!("the catalogue has no region {region}{nearest}"))?;
    let clock: Arc<dyn Clock> = Arc::new(WallClock::new(options.time_offset_file.clone())?);
    let client = connect(options.kubeconfig.as_deref())?;
    let azure = azure(&options, &known)?;

    let lifecycle = Lifecycle::default();
    let health = Health::new(&lifecycle);
    let mut registry = registry();
    let (events, recording) = Events::new(client.clone(), &options.namespace);
    let (lease, holding) = Lease::new(client.clone(), &options.namespace, &identity(&options));
    let (send, changes) = mpsc::channel(CHANGES);
    let watch = WatchOptions { clock: Arc::clone(&clock), namespace: options.namespace.clone() };
    let watching = napkeeper_kube::watch(client.clone(), watch, send);
    let ports = LivePorts {
        mode: options.mode,
        reader: Reader::new(client.clone(), Arc::clone(&clock)),
        writer: Writer::new(client.clone(), Arc::clone(&clock)),
        gate: Gate::new(client, &options.namespace, lease.clone()),
        azure,
        clock: Arc::clone(&clock),
    };
    let fixed = Fixed {
        settings: Arc::new(known.settings),
        catalog,
        options: known.options,
        seed: seed(),
        clock,
        ports: Arc::new(ports),
    };
    let teller = Teller::new(events, &mut registry);
    let keeper = Keeper::new(fixed, teller, health.check("watches"));
    let inlets = Inlets { changes, leading: lease.leading() };
    tracing::info!(mode = ?options.mode, config = %options.config.display(), "napkeeper controller starts");
    todo(lifecycle, health, registry);
    Ok(())
}
