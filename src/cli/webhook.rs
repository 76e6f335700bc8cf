//! `napkeeper webhook`: serves admission reviews.

use super::Outcome;
use super::policy_args::for_admission;
use jiff::SignedDuration;
use napkeeper_controller::azure_args::ModeArg;
use napkeeper_controller::wall_clock::WallClock;
use napkeeper_core::catalog::{Catalog, InstanceTypeOptions};
use napkeeper_serve::MonitoringAddresses;
use napkeeper_webhook::{DeletionProtection, WhenUnable};
use napkeeper_webhook_server::{self as webhook_server, Options};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  napkeeper webhook
  napkeeper webhook --tls-cert /tls/tls.crt --tls-key /tls/tls.key
  napkeeper webhook --tls-cert tls.crt --tls-key tls.key --bind 127.0.0.1:8443 --log-format text

POST /validate checks NodePools and AKSNodeClasses with the rules of `napkeeper validate`; POST /mutate annotates new pods
with their expected node. Without certificate files, the certificate is read from the Secret napkeeper-webhook-tls, which
`napkeeper certificates` writes. Changed certificates are reloaded. No Azure credentials are needed.
The first SIGTERM drains, the second stops at once. Exit codes: 0 stopped by a signal, 2 error.";

/// Run the admission webhook: validation of NodePools and AKSNodeClasses, placement hints for pods.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Kubeconfig, for placement hints and the certificate. Defaults to the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address to serve admission on, over TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    bind: SocketAddr,
    /// Share the port of --bind with other processes of the same user that also set this (Linux): start the new one,
    /// stop the old one with SIGTERM once the new one is ready, and no request is lost. It accepts connections only
    /// when ready. Each needs its own --health-bind and --metrics-bind.
    #[arg(long)]
    reuse_port: bool,
    /// Certificate chain (PEM). Defaults to the one of the Secret napkeeper-webhook-tls.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// CA certificates (PEM) of clients: only accept clients, such as the API server, with a certificate of these.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Address to serve /healthz and /readyz on.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8081")]
    health_bind: SocketAddr,
    /// Address to serve /metrics on.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    metrics_bind: SocketAddr,
    /// Namespace of the webhook, whose pods it ignores.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    namespace: String,
    /// Azure region for placement hints. Defaults to the region label of the nodes.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Who launches nodes: managed NAP (companion), or napkeeper itself (provisioner), which refuses some fields.
    #[arg(long, value_enum, default_value_t = ModeArg::Companion, value_name = "MODE")]
    mode: ModeArg,
    /// What to do when a NodePool or AKSNodeClass with nodes is deleted.
    #[arg(long, value_enum, default_value_t = DeleteGuard::Deny, value_name = "ACTION")]
    delete_guard: DeleteGuard,
    /// What to do with a NodePool, AKSNodeClass, OrphanSweep or PlacementPolicy that cannot be checked: too many requests,
    /// no answer in time, an internal error. With refuse, also while the cluster is not known, and the webhook is not ready
    /// before it is. Pods are always admitted.
    #[arg(long, value_enum, default_value_t = Unable::Allow, value_name = "ACTION")]
    when_unable: Unable,
    /// Time limit for computing a placement hint; after it, the pod is admitted without one. At most 1s: the webhook timeout
    /// is 2 s.
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = hint_budget)]
    hint_budget: Duration,
    /// File or directory with ValidatingAdmissionPolicies and bindings to evaluate as well. Repeatable.
    #[arg(long, value_name = "PATH")]
    policies: Vec<PathBuf>,
    #[command(flatten)]
    logs: super::log_args::LogArgs,
}

/// What to do with a deletion that is not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DeleteGuard {
    /// Allow it.
    Off,
    /// Allow it, with a warning that counts nodes and pods.
    Warn,
    /// Deny it, unless the annotation napkeeper.io/delete-acknowledged is the number of nodes.
    Deny,
}

impl From<DeleteGuard> for DeletionProtection {
    fn from(guard: DeleteGuard) -> Self {
        match guard {
            DeleteGuard::Off => Self::Off,
            DeleteGuard::Warn => Self::Warn,
            DeleteGuard::Deny => Self::Deny,
        }
    }
}

/// What to do with an object that cannot be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Unable {
    /// Allow it, with a warning.
    Allow,
    /// Refuse it, with the reason.
    Refuse,
}

impl From<Unable> for WhenUnable {
    fn from(unable: Unable) -> Self {
        match unable {
            Unable::Allow => Self::Allow,
            Unable::Refuse => Self::Refuse,
        }
    }
}

fn hint_budget(text: &str) -> Result<Duration, String> {
    let budget: SignedDuration = text.parse().map_err(|_| "must be a duration such as 5ms".to_owned())?;
    let budget = Duration::try_from(budget).unwrap_or_default();
    if budget < Duration::from_millis(1) || budget > Duration::from_secs(1) {
        return Err("must be 1ms to 1s".to_owned());
    }
    Ok(budget)
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.logs.init()?;
    let catalog = Catalog::embedded()?;
    let region = args.region.as_deref().map(|text| catalog.find_region(text)).transpose()?;
    let policies = match args.policies.as_slice() {
        [] => Arc::default(),
        paths => for_admission(paths)?,
    };
    webhook_server::serve(&Options {
        kubeconfig: args.kubeconfig.clone(),
        clock: Arc::new(WallClock::new(None)),
        bind: args.bind,
        files: args.tls_cert.clone().zip(args.tls_key.clone()),
        clients: args.client_ca.clone(),
        monitoring: MonitoringAddresses { health: args.health_bind, metrics: args.metrics_bind },
        namespace: args.namespace.clone(),
        region,
        nodes: InstanceTypeOptions {
            self_managed: args.mode == ModeArg::Provisioner,
            ..InstanceTypeOptions::default()
        },
        guard: args.delete_guard.into(),
        shared: args.reuse_port,
        hint_budget: args.hint_budget,
        policies,
        when_unable: args.when_unable.into(),
    })?;
    Ok(Outcome::Fine)
}
