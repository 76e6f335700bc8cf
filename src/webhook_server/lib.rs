//! `napkeeper webhook`: how are servers, router and the cluster's Snapshot put together?
//!
//! Nothing here uses the Azure adapter: this process has no Azure credential, and looks for none.

mod certificates;
mod source;

use anyhow::Context;
use certificates::Keeper;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::names::Region;
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::{TLS_SECRET, connect, lease_identity};
use napkeeper_serve::prometheus_client::registry::Registry;
use napkeeper_serve::rotation::CertificateLifetimes;
use napkeeper_serve::{
    Certificates, Component, Health, Lifecycle, Limits, Listener, TlsMetrics, bind, metrics, run, serve_plain,
    serve_tls,
};
use napkeeper_verdict::policy::Policies;
use napkeeper_webhook::{DeletionProtection, Webhook, router};
use source::{Ages, Source};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Threads for verdicts, and for what else blocks. More of them would wait for the same cores, and each keeps memory.
const JUDGES: usize = 4;

/// What was asked for.
#[derive(Debug)]
pub struct Options {
    /// How to reach the cluster; absent is the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The clock that objects' ages are measured by.
    pub clock: Arc<dyn Clock>,
    /// Where to serve admission.
    pub bind: SocketAddr,
    /// The files of certificate and key; without them it keeps its own.
    pub files: Option<(PathBuf, PathBuf)>,
    /// Whose clients are served; absent is everybody's.
    pub clients: Option<PathBuf>,
    /// What its own certificate is for, beside the Service's name.
    pub names: Vec<String>,
    /// How long its own certificates live.
    pub lives: CertificateLifetimes,
    /// Where to serve health and metrics.
    pub health_bind: SocketAddr,
    /// The namespace it runs in.
    pub namespace: String,
    /// The Azure region; absent is what the nodes' labels say.
    pub region: Option<Region>,
    /// What becomes of the delete of a pool or class that has nodes.
    pub guard: DeletionProtection,
    /// True when other processes may listen at `bind` too.
    pub shared: bool,
    /// Longest time to wait for a hint.
    pub hint_budget: Duration,
    /// The platform team's own rules.
    pub policies: Arc<Policies>,
}

/// Serves until a signal comes.
pub fn serve(options: &Options) -> anyhow::Result<()> {
    let clients = options.clients.as_deref();
    let files = options.files.as_ref().map(|(certificate, key)| Certificates::load(certificate, key, clients));
    let files = files.transpose()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().max_blocking_threads(JUDGES).build()?;
    let served = runtime.block_on(async {
        let mut registry = metrics::registry();
        let (certificates, keeper) = match files {
            Some(certificates) => (certificates, None),
            None => own(options, &mut registry).await?,
        };
        let admission = if options.shared { Listener::reuse_port(options.bind)? } else { bind(options.bind)?.into() };
        let health = bind(options.health_bind)?;
        tracing::info!(
            admission = %admission.local_addr()?,
            health = %health.local_addr()?,
            namespace = options.namespace,
            "webhook listening"
        );
        let lifecycle = Lifecycle::default();
        let mut parts = parts(options, &lifecycle, (certificates, registry), (admission, health))?;
        if let Some(keeper) = keeper {
            parts.push(Component::new("certificate rotation", keeper.keep(lifecycle.clone())));
        }
        lifecycle.ready();
        run(&lifecycle, parts).await?;
        anyhow::Ok(())
    });
    // A verdict that nobody waits for any more may go on for long.
    runtime.shutdown_background();
    served
}

/// Certificates of its own, and who keeps them.
async fn own(options: &Options, registry: &mut Registry) -> anyhow::Result<(Certificates, Option<Keeper>)> {
    let client = connect(options.kubeconfig.as_deref()).await.context(
        "without --tls-cert and --tls-key the webhook keeps its certificates in a Secret, which requires access to the cluster",
    )?;
    let (hand, handed) = watch::channel(None);
    let service = format!("napkeeper-webhook.{}.svc", options.namespace);
    let keeper = Keeper {
        client,
        namespace: options.namespace.clone(),
        identity: lease_identity(),
        names: std::iter::once(service).chain(options.names.iter().cloned()).collect(),
        lives: options.lives,
        hand,
        metrics: certificates::Metrics::register(registry),
    };
    Ok((Certificates::from_channel(TLS_SECRET, handed, options.clients.as_deref())?, Some(keeper)))
}

/// Whoever shares the port answers until this process can.
fn in_turn(port: Listener, health: &Health) -> Listener {
    let (health, check) = (health.clone(), health.check("shared port"));
    port.listen_after(async move {
        health.wait_for_other_checks(&check).await;
        tracing::info!("ready: accepting connections on the shared port");
        check.pass();
    })
}

fn parts(
    options: &Options,
    lifecycle: &Lifecycle,
    (certificates, mut registry): (Certificates, Registry),
    (admission, health_listener): (Listener, TcpListener),
) -> anyhow::Result<Vec<Component>> {
    let health = Health::new(lifecycle);
    let certificates =
        certificates.with_check(health.check("certificate")).with_metrics(TlsMetrics::register(&mut registry));
    let (snapshots, received) = watch::channel(None::<Arc<Snapshot>>);
    let webhook = Webhook::new(
        &options.namespace,
        received,
        Arc::clone(&options.clock),
        napkeeper_webhook::Limits { hint_timeout: options.hint_budget, ..Default::default() },
        &mut registry,
    )?;
    let (basis, by) = watch::channel(webhook.validator());
    let (placement, placing) = watch::channel(Arc::default());
    let (hindrances, hindered) = watch::channel(Arc::default());
    let webhook = webhook
        .with_validator(by)
        .with_deletion_protection(options.guard)
        .with_placement_policies(placing)
        .with_blockers(hindered);
    let webhook = webhook.with_policies(Arc::clone(&options.policies));
    let (kubeconfig, namespace) = (options.kubeconfig.clone(), options.namespace.clone());
    let clock = Arc::clone(&options.clock);
    let (region, warm) = (options.region.clone(), health.check("caches"));
    let ages = Ages::register(&mut registry);
    let source = Source {
        kubeconfig,
        namespace,
        clock,
        region,
        kubernetes: None,
        snapshots,
        placement,
        hindrances,
        basis,
        ages,
        warm,
    };
    let (admission_router, health_router) = (router(Arc::new(webhook)), health.router(registry));
    let (one, two, three) = (lifecycle.clone(), lifecycle.clone(), lifecycle.clone());
    let admission = if options.shared { in_turn(admission, &health) } else { admission };
    let limits = Limits::default();
    Ok(vec![
        Component::new("the admission server", async move {
            serve_tls(&one, admission, admission_router, limits, certificates).await
        }),
        Component::new("the health server", async move {
            serve_plain(&two, health_listener, health_router, Limits::for_health_server()).await
        }),
        Component::new("cluster watch", source.follow(three)),
    ])
}
