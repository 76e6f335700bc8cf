//! `napkeeper webhook`: serve admission.

use super::Outcome;
use crate::webhook::{self, Options};
use napkeeper_core::catalog::Catalog;
use napkeeper_webhook::Guard;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  napkeeper webhook --tls-cert /tls/tls.crt --tls-key /tls/tls.key
  napkeeper webhook --tls-cert tls.crt --tls-key tls.key --bind 127.0.0.1:8443 --log-format text

POST /validate judges NodePools and AKSNodeClasses by the rules of `napkeeper validate`; POST /mutate notes on new pods
where they will probably run. Changed certificates are taken up. No Azure credential is looked for.
The first SIGTERM drains, the second ends it at once. Exit codes: 0 stopped when told to, 2 it could not go on.";

/// Serve admission: verdicts on NodePools and AKSNodeClasses, placement hints on pods.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// How to reach the cluster, for placement hints; absent is the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where to serve admission over TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    bind: SocketAddr,
    /// Certificate chain, PEM.
    #[arg(long, value_name = "FILE")]
    tls_cert: PathBuf,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,
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

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.logs.init()?;
    let catalog = Catalog::embedded()?;
    let region = args.region.as_deref().map(|text| crate::region::known(text, &catalog)).transpose()?;
    webhook::serve(&Options {
        kubeconfig: args.kubeconfig.clone(),
        bind: args.bind,
        certificate: args.tls_cert.clone(),
        key: args.tls_key.clone(),
        health_bind: args.health_bind,
        namespace: args.namespace.clone(),
        region,
        guard: args.delete_guard.into(),
    })?;
    Ok(Outcome::Fine)
}
