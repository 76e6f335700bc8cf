//! Wires the parts of `napkeeper webhook` together: servers, certificates, and the watch of the cluster; and runs
//! `napkeeper certificates`, which issues the certificates in a process of its own.
//!
//! Neither process has an Azure credential: no crate that it uses knows the Azure adapter.

mod certificate_reader;
mod certificate_rotation;
mod cluster_watch;

use anyhow::Context;
use certificate_reader::CertificateReader;
use cluster_watch::ClusterWatch;
use napkeeper_core::catalog::InstanceTypeOptions;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::names::Region;
use napkeeper_kube::{TLS_SECRET, connect};
use napkeeper_serve::{
    Certificates, Component, Health, Lifecycle, Limits, Listener, MonitoringAddresses, MonitoringPorts, TlsMetrics,
    bind, metrics, run, serve_tls,
};
use napkeeper_verdict::policy::Policies;
use napkeeper_webhook::{DeletionProtection, SourcedValidator, ViewMetrics, ViewOutputs, Webhook, WhenUnable, router};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

pub use certificate_rotation::{CertificateOptions, rotate_certificates};

/// Threads for verdicts and other blocking work. More of them would wait for the same cores, and each uses memory.
const BLOCKING_THREADS: usize = 4;
/// How often Secrets with certificates are read, and by the holder of the Lease the hooks.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// After failures in a row an interval is multiplied by their number, but not by more than this.
const MAX_INTERVAL_FACTOR: u32 = 4;

/// The wait after this many failed checks in a row.
fn wait_after(failures: u32, interval: Duration) -> Duration {
    interval * failures.min(MAX_INTERVAL_FACTOR)
}

/// The arguments of the command line.
#[derive(Debug)]
pub struct Options {
    /// Path of the kubeconfig; without one the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// The clock that objects' ages are measured by.
    pub clock: Arc<dyn Clock>,
    /// Address of the admission server.
    pub bind: SocketAddr,
    /// Files of certificate and key; without them the certificate is read from a Secret.
    pub files: Option<(PathBuf, PathBuf)>,
    /// File of the CAs of allowed clients; without it every client is served.
    pub clients: Option<PathBuf>,
    /// Addresses of the servers for probes and metrics.
    pub monitoring: MonitoringAddresses,
    /// The namespace it runs in.
    pub namespace: String,
    /// The Azure region; by default that of the nodes' labels.
    pub region: Option<Region>,
    /// Settings of the nodes: who launches them, among others.
    pub nodes: InstanceTypeOptions,
    /// What happens when a NodePool or AKSNodeClass with nodes is deleted.
    pub guard: DeletionProtection,
    /// True if other processes may listen at `bind` as well.
    pub shared: bool,
    /// Longest time to wait for a hint.
    pub hint_budget: Duration,
    /// Policies of the platform team.
    pub policies: Arc<Policies>,
    /// What is answered to objects that cannot be checked.
    pub when_unable: WhenUnable,
}

/// Serves until a signal stops the process.
///
/// # Errors
/// When certificates cannot be read, an address cannot be bound, or a server fails.
pub fn serve(options: &Options) -> anyhow::Result<()> {
    let clients = options.clients.as_deref();
    let files = options.files.as_ref().map(|(certificate, key)| Certificates::load(certificate, key, clients));
    let files = files.transpose()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().max_blocking_threads(BLOCKING_THREADS).build()?;
    let served = runtime.block_on(async {
        let (certificates, reader) = match files {
            Some(certificates) => (certificates, None),
            None => certificates_of_secret(options).await?,
        };
        let admission = if options.shared { Listener::reuse_port(options.bind)? } else { bind(options.bind)?.into() };
        let monitoring = MonitoringPorts::bind(options.monitoring)?;
        let MonitoringAddresses { health, metrics } = monitoring.addresses()?;
        tracing::info!(
            admission = %admission.local_addr()?,
            %health,
            %metrics,
            namespace = options.namespace,
            "webhook listening"
        );
        let lifecycle = Lifecycle::default();
        let mut parts = parts(options, &lifecycle, certificates, Listeners { admission, monitoring })?;
        if let Some(reader) = reader {
            parts.push(Component::new("certificate reader", reader.run(lifecycle.clone())));
        }
        lifecycle.ready();
        run(&lifecycle, parts).await?;
        anyhow::Ok(())
    });
    // A verdict whose request has timed out may still run for a while.
    runtime.shutdown_background();
    served
}

/// Certificates of the Secret that `napkeeper certificates` writes, and the task that reads it.
async fn certificates_of_secret(options: &Options) -> anyhow::Result<(Certificates, Option<CertificateReader>)> {
    let client = connect(options.kubeconfig.as_deref()).await.context(
        "without --tls-cert and --tls-key the webhook reads its certificate from a Secret, which requires access to the cluster",
    )?;
    let (serving, latest_serving) = watch::channel(None);
    let reader = CertificateReader { client, namespace: options.namespace.clone(), serving };
    Ok((Certificates::from_channel(TLS_SECRET, latest_serving, options.clients.as_deref())?, Some(reader)))
}

/// Starts to accept connections on a shared port once this process is ready; until then the others answer.
fn accept_when_ready(listener: Listener, health: &Health) -> Listener {
    let (health, check) = (health.clone(), health.check("shared port"));
    listener.listen_after(async move {
        health.wait_for_other_checks(&check).await;
        tracing::info!("ready: accepting connections on the shared port");
        check.pass();
    })
}

/// The listening sockets.
struct Listeners {
    admission: Listener,
    monitoring: MonitoringPorts,
}

fn parts(
    options: &Options,
    lifecycle: &Lifecycle,
    certificates: Certificates,
    listeners: Listeners,
) -> anyhow::Result<Vec<Component>> {
    let (health, mut registry) = (Health::new(lifecycle), metrics::registry());
    let certificates =
        certificates.with_check(health.check("certificate")).with_metrics(TlsMetrics::register(&mut registry));
    let (snapshots, latest_snapshot) = watch::channel(None);
    let limits = napkeeper_webhook::Limits { hint_timeout: options.hint_budget, ..Default::default() };
    let webhook = Webhook::new(&options.namespace, latest_snapshot, Arc::clone(&options.clock), limits, &mut registry)?;
    let first = SourcedValidator::embedded()?.for_nodes(options.nodes);
    let (validator, latest_validator) = watch::channel(Arc::new(first));
    let (placement, latest_placement) = watch::channel(Arc::default());
    let (blockers, latest_blockers) = watch::channel(Arc::default());
    let (unreadable, latest_unreadable) = watch::channel(None);
    let webhook = webhook
        .with_when_unable(options.when_unable, latest_unreadable)
        .with_validator(latest_validator)
        .with_deletion_protection(options.guard)
        .with_placement_policies(latest_placement)
        .with_blockers(latest_blockers)
        .with_policies(Arc::clone(&options.policies));
    let cluster = ClusterWatch {
        kubeconfig: options.kubeconfig.clone(),
        namespace: options.namespace.clone(),
        clock: Arc::clone(&options.clock),
        region: options.region.clone(),
        nodes: options.nodes,
        outputs: ViewOutputs { snapshots, validator, unreadable },
        placement,
        blockers,
        metrics: ViewMetrics::register(&mut registry),
        listed: health.check("caches"),
        required: options.when_unable == WhenUnable::Refuse,
    };
    let admission_router = router(Arc::new(webhook));
    let (one, two) = (lifecycle.clone(), lifecycle.clone());
    let Listeners { admission, monitoring } = listeners;
    let admission = if options.shared { accept_when_ready(admission, &health) } else { admission };
    let limits = Limits::default();
    let mut parts = vec![
        Component::new("the admission server", async move {
            serve_tls(&one, admission, admission_router, limits, certificates).await
        }),
        Component::new("cluster watch", cluster.run(two)),
    ];
    parts.extend(monitoring.components(lifecycle, &health, vec![registry]));
    Ok(parts)
}
