//! `napkeeper webhook`: how are servers, router and the cluster's Snapshot put together?
//!
//! Nothing here uses the Azure adapter: this process has no Azure credential, and looks for none.

mod source;

use crate::clock::WallClock;
use napkeeper_core::cluster::Snapshot;
use napkeeper_core::names::Region;
use napkeeper_serve::{
    Certificates, Health, Lifecycle, Limits, Part, TlsMetrics, bind, metrics, run, serve_plain, serve_tls,
};
use napkeeper_webhook::{Guard, SnapshotAge, Webhook, router};
use source::Source;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// How to reach the cluster; absent is the pod's service account.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where to serve admission.
    pub(crate) bind: SocketAddr,
    /// The certificate's file.
    pub(crate) certificate: PathBuf,
    /// The key's file.
    pub(crate) key: PathBuf,
    /// Where to serve health and metrics.
    pub(crate) health_bind: SocketAddr,
    /// The namespace it runs in.
    pub(crate) namespace: String,
    /// The Azure region; absent is what the nodes' labels say.
    pub(crate) region: Option<Region>,
    /// What becomes of the delete of a pool or class that has nodes.
    pub(crate) guard: Guard,
}

/// Serves until a signal comes.
pub(crate) fn serve(options: &Options) -> anyhow::Result<()> {
    let certificates = Certificates::load(&options.certificate, &options.key)?;
    let (admission, health) = (bind(options.bind)?, bind(options.health_bind)?);
    tracing::info!(
        admission = %admission.local_addr()?,
        health = %health.local_addr()?,
        namespace = options.namespace,
        "webhook listens"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lifecycle = Lifecycle::default();
        let parts = parts(options, &lifecycle, certificates, (admission, health))?;
        lifecycle.ready();
        run(&lifecycle, parts).await?;
        anyhow::Ok(())
    })
}

fn parts(
    options: &Options,
    lifecycle: &Lifecycle,
    certificates: Certificates,
    (admission, health_listener): (TcpListener, TcpListener),
) -> anyhow::Result<Vec<Part>> {
    let mut registry = metrics::registry();
    let tls = (certificates, TlsMetrics::register(&mut registry));
    let (snapshots, received) = watch::channel(None::<Arc<Snapshot>>);
    let webhook = Webhook::new(
        &options.namespace,
        received,
        Arc::new(WallClock::new(None)),
        napkeeper_webhook::Limits::default(),
        &mut registry,
    )?;
    let (basis, by) = watch::channel(webhook.basis());
    let (placement, placing) = watch::channel(Arc::default());
    let webhook = webhook.by(by).guarding(options.guard).placing(placing);
    let age = SnapshotAge::register(&mut registry);
    let (admission_router, health_router) = (router(Arc::new(webhook)), Health::new(lifecycle).router(registry));
    let (kubeconfig, namespace) = (options.kubeconfig.clone(), options.namespace.clone());
    let source = Source { kubeconfig, namespace, region: options.region.clone(), snapshots, placement, age, basis };
    let (one, two, three) = (lifecycle.clone(), lifecycle.clone(), lifecycle.clone());
    let limits = Limits::default();
    Ok(vec![
        Part::new(
            "the admission server",
            async move { serve_tls(&one, admission, admission_router, limits, tls).await },
        ),
        Part::new("the health server", async move { serve_plain(&two, health_listener, health_router, limits).await }),
        Part::new("the watch of the cluster", source.follow(three)),
    ])
}
