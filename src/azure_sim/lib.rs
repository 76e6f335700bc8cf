//! `napkeeper azure-sim`: how is the simulated Azure put on the network?
//!
//! What Azure does is a pure function of a request and the time ([`napkeeper_sim::arm`]); here are its server, its
//! clock, the control endpoint of tests, and the Nodes that its VMs become in a cluster.

mod clock;
mod control;
mod faults;
mod held;
mod join;
mod server;

use anyhow::Context;
pub use clock::SimClock;
use jiff::Timestamp;
use join::Joiner;
use napkeeper_sim::cloud::{Cloud, CloudSettings};
use server::Served;
pub use server::Token;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// What happens in Azure by itself is noticed this late at most.
const TICK: Duration = Duration::from_millis(100);
/// How long requests may take to end after a signal to stop.
const GRACE: Duration = Duration::from_secs(2);

/// What to serve, and where.
#[derive(Debug)]
pub struct Settings {
    /// Address and port; port 0 is any that is free.
    pub bind: SocketAddr,
    /// The group, its region, and what is sold there.
    pub cloud: CloudSettings,
    /// Resources on a page of a listing.
    pub page_size: usize,
    /// The clock.
    pub clock: SimClock,
    /// What callers must have.
    pub token: Option<Token>,
    /// Identity and address of the cluster in which VMs become Nodes.
    pub join: Option<PathBuf>,
}

/// Serves until a signal to stop, SIGINT or SIGTERM. `ready` is told the URL once requests are answered.
pub async fn run(settings: Settings, ready: impl FnOnce(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let joiner = match &settings.join {
        Some(kubeconfig) => Some(Joiner::connect(kubeconfig).await?),
        None => None,
    };
    let bind = settings.bind;
    let listener = TcpListener::bind(bind).await.with_context(|| format!("listening on {bind}"))?;
    let address = listener.local_addr().context("asking for the port")?;
    let mut cloud = Cloud::new(settings.cloud);
    cloud.page_size = settings.page_size;
    let served = Arc::new(Served::new(cloud, settings.clock, address, settings.token));

    let (stop, stopped) = tokio::sync::watch::channel(false);
    let router = server::router(Arc::clone(&served)).into_make_service_with_connect_info::<SocketAddr>();
    let mut until = stopped.clone();
    let shutdown = async move { drop(until.wait_for(|stop| *stop).await) };
    let server = tokio::spawn(axum::serve(listener, router).with_graceful_shutdown(shutdown).into_future());
    let ticker = tokio::spawn(tick(Arc::clone(&served), joiner));
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

/// Lets happen what happens by itself, and tells the cluster.
async fn tick(served: Arc<Served>, mut joiner: Option<Joiner>) {
    loop {
        let (nodes, wait) = {
            let (mut inner, now) = served.lock();
            let events = inner.cloud.take_events();
            let changes = events.iter().filter_map(|event| join::change(&inner.cloud, event));
            (changes.collect::<Vec<_>>(), until_next(&inner.cloud, now))
        };
        if let Some(joiner) = &mut joiner {
            nodes.into_iter().for_each(|change| joiner.take(change));
        }
        tokio::time::sleep(wait).await;
    }
}

fn until_next(cloud: &Cloud, now: Timestamp) -> Duration {
    let next = cloud.next_event().and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    next.map_or(TICK, |next| next.clamp(Duration::from_millis(1), TICK))
}
