//! `napkeeper webhook`: serve admission.

use super::Outcome;
use super::policy_args::for_admission;
use crate::webhook::{self, Options};
use jiff::SignedDuration;
use napkeeper_core::catalog::Catalog;
use napkeeper_serve::rotation::CertificateLifetimes;
use napkeeper_webhook::Guard;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  napkeeper webhook
  napkeeper webhook --tls-cert /tls/tls.crt --tls-key /tls/tls.key
  napkeeper webhook --tls-cert tls.crt --tls-key tls.key --bind 127.0.0.1:8443 --log-format text

POST /validate judges NodePools and AKSNodeClasses by the rules of `napkeeper validate`; POST /mutate notes on new pods
where they will probably run. Without files it keeps its certificates in the Secret napkeeper-webhook-tls, and writes their
authorities into the hooks. Changed certificates are taken up. No Azure credential is looked for.
The first SIGTERM drains, the second ends it at once. Exit codes: 0 stopped when told to, 2 it could not go on.";

/// Serve admission: verdicts on NodePools and AKSNodeClasses, placement hints on pods.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// How to reach the cluster, for placement hints and certificates; absent is the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where to serve admission over TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    bind: SocketAddr,
    /// Share the port of --bind with other processes that ask for it too, of the same user (Linux): start the new one,
    /// end the old one with SIGTERM once the new one is ready, and no request goes unanswered. It takes connections only
    /// once it is ready. Give each its own --health-bind.
    #[arg(long)]
    reuse_port: bool,
    /// Certificate chain, PEM; absent is one of its own.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A further name or address for its own certificate, beside the Service's.
    #[arg(long, value_name = "NAME", conflicts_with = "tls_cert")]
    tls_san: Vec<String>,
    /// Authorities, PEM: serve only clients with a certificate of theirs, such as the API server.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Seconds that an authority of its own lives, for tests.
    #[arg(long, hide = true, value_name = "SECONDS", conflicts_with = "tls_cert")]
    authority_life: Option<u32>,
    /// Seconds that a certificate of its own lives, for tests.
    #[arg(long, hide = true, value_name = "SECONDS", requires = "authority_life")]
    certificate_life: Option<u32>,
    /// Seconds that a new authority is left to settle, for tests.
    #[arg(long, hide = true, value_name = "SECONDS", requires = "authority_life")]
    settle: Option<u32>,
    /// Where to serve /healthz, /readyz and /metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8081")]
    health_bind: SocketAddr,
    /// The namespace it runs in, whose pods it leaves alone.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    namespace: String,
    /// The Azure region whose sizes hints go by; absent is what the nodes' labels say.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// What becomes of the delete of a NodePool or AKSNodeClass that has nodes.
    #[arg(long, value_enum, default_value_t = DeleteGuard::Deny, value_name = "ACTION")]
    delete_guard: DeleteGuard,
    /// How long a pod may wait for its placement hint; later, it is let in without one. At most 1s: the hook's timeout
    /// is 2 s.
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = hint_budget)]
    hint_budget: Duration,
    /// Judge writes by these ValidatingAdmissionPolicies and bindings too, of a file or folder; may be repeated.
    #[arg(long, value_name = "PATH")]
    policies: Vec<PathBuf>,
    #[command(flatten)]
    logs: super::logs::LogArgs,
}

/// What becomes of a delete that nobody has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DeleteGuard {
    /// Nothing is said.
    Off,
    /// It goes through, with a warning that counts nodes and pods.
    Warn,
    /// It is refused, until the annotation napkeeper.io/delete-acknowledged names the number of nodes.
    Deny,
}

impl From<DeleteGuard> for Guard {
    fn from(guard: DeleteGuard) -> Self {
        match guard {
            DeleteGuard::Off => Self::Off,
            DeleteGuard::Warn => Self::Warn,
            DeleteGuard::Deny => Self::Deny,
        }
    }
}

fn hint_budget(text: &str) -> Result<Duration, String> {
    let budget: SignedDuration = text.parse().map_err(|_| "write a duration such as 5ms".to_owned())?;
    let budget = Duration::try_from(budget).unwrap_or_default();
    if budget < Duration::from_millis(1) || budget > Duration::from_secs(1) {
        return Err("it must be 1ms to 1s".to_owned());
    }
    Ok(budget)
}

impl Args {
    /// As usual, or as shortened; shortened lives begin when they are made, so that they are as short as was asked for.
    fn lives(&self) -> CertificateLifetimes {
        let usual = CertificateLifetimes::default();
        let seconds = |given: Option<u32>, usual| given.map_or(usual, |n| SignedDuration::from_secs(n.into()));
        CertificateLifetimes {
            authority: seconds(self.authority_life, usual.authority),
            serving_certificate: seconds(self.certificate_life, usual.serving_certificate),
            bundle_propagation: seconds(self.settle, usual.bundle_propagation),
            backdate: seconds(self.authority_life.map(|_| 0), usual.backdate),
            ..usual
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.logs.init()?;
    let catalog = Catalog::embedded()?;
    let region = args.region.as_deref().map(|text| crate::region::known(text, &catalog)).transpose()?;
    let policies = match args.policies.as_slice() {
        [] => Arc::default(),
        paths => for_admission(paths)?,
    };
    webhook::serve(&Options {
        kubeconfig: args.kubeconfig.clone(),
        bind: args.bind,
        files: args.tls_cert.clone().zip(args.tls_key.clone()),
        clients: args.client_ca.clone(),
        names: args.tls_san.clone(),
        lives: args.lives(),
        health_bind: args.health_bind,
        namespace: args.namespace.clone(),
        region,
        guard: args.delete_guard.into(),
        shared: args.reuse_port,
        hint_budget: args.hint_budget,
        policies,
    })?;
    Ok(Outcome::Fine)
}
