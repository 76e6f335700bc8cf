//! `napkeeper azure-sim`: serves the simulated Azure over HTTP.
//!
//! What Azure does is a pure function of a request and the time ([`napkeeper_sim::arm`]). Here are its server, its clock,
//! the control endpoint of tests, and the task that creates Nodes for its VMs in a cluster.

mod clock;
mod control;
mod held_requests;
mod node_sync;
mod request_faults;
mod server;

use anyhow::Context;
pub use clock::SimClock;
use jiff::Timestamp;
use napkeeper_sim::cloud::{Cloud, CloudSettings};
use node_sync::NodeSync;
use server::SimServer;
pub use server::Token;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Events in Azure are processed at least this often.
const TICK: Duration = Duration::from_millis(100);
/// How long running requests may take to end after a signal to stop.
const GRACE: Duration = Duration::from_secs(2);

/// What to serve, and where.
#[derive(Debug)]
pub struct Settings {
    /// Address and port; port 0 is any that is free.
    pub bind: SocketAddr,
    /// The resource group, its region, and the sizes sold there.
    pub cloud: CloudSettings,
    /// Resources on a page of a listing.
    pub page_size: usize,
    /// The clock.
    pub clock: SimClock,
    /// The token that callers must send, if any.
    pub token: Option<Token>,
    /// Path of the kubeconfig of the cluster in which VMs become Nodes.
    pub join: Option<PathBuf>,
}

/// Serves until SIGINT or SIGTERM. `ready` is called with the URL once requests are answered.
///
/// # Errors
/// When the kubeconfig cannot be used, the address cannot be bound, or the server fails.
pub async fn run(settings: Settings, ready: impl FnOnce(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut node_sync = match &settings.join {
        Some(kubeconfig) => Some(NodeSync::connect(kubeconfig).await?),
        None => None,
    };
    let bind = settings.bind;
    let listener = TcpListener::bind(bind).await.with_context(|| format!("listening on {bind}"))?;
    let address = listener.local_addr().context("asking for the port")?;
    let mut cloud = Cloud::new(settings.cloud);
    cloud.page_size = settings.page_size;
    if let Some((node_sync, system_node)) = node_sync.as_mut().zip(node_sync::system_node(&cloud)) {
        node_sync.start(system_node);
    }
    let served = Arc::new(SimServer::new(cloud, settings.clock, address, settings.token));

    let (stop, stopped) = tokio::sync::watch::channel(false);
    let router = server::router(Arc::clone(&served)).into_make_service_with_connect_info::<SocketAddr>();
    let mut until = stopped.clone();
    let shutdown = async move { drop(until.wait_for(|stop| *stop).await) };
    let server = tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(shutdown).into_future());
    let ticker = tokio::spawn(tick(Arc::clone(&served), node_sync));
    tracing::info!(%address, "ready");
    ready(&served.url())?;

    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping");
    ticker.abort();
    stop.send_replace(true);
    match tokio::time::timeout(GRACE, server).await {
        Ok(ended) => ended.context("serving")?.context("serving"),
        Err(_) => {
            tracing::warn!("requests that had not ended were dropped");
            Ok(())
        }
    }
}

/// Processes events in Azure, and applies them to the cluster.
async fn tick(served: Arc<SimServer>, mut node_sync: Option<NodeSync>) {
    loop {
        let (nodes, wait) = {
            let (mut inner, now) = served.lock();
            let events = inner.cloud.take_events();
            let changes = events.iter().filter_map(|event| node_sync::node_change(&inner.cloud, event));
            (changes.collect::<Vec<_>>(), until_next(&inner.cloud, now))
        };
        if let Some(node_sync) = &mut node_sync {
            nodes.into_iter().for_each(|change| node_sync.start(change));
        }
        tokio::time::sleep(wait).await;
    }
}

fn until_next(cloud: &Cloud, now: Timestamp) -> Duration {
    let next = cloud.next_event().and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    next.map_or(TICK, |next| next.clamp(Duration::from_millis(1), TICK))
}
