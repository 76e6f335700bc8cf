//! `napkeeper certificates`: issues and renews the webhook's certificates.

use super::Outcome;
use jiff::SignedDuration;
use napkeeper_serve::rotation::CertificateLifetimes;
use napkeeper_webhook_server::{CertificateOptions, rotate_certificates};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  napkeeper certificates
  napkeeper certificates --namespace napkeeper-system --tls-san 10.0.0.4
  napkeeper certificates --kubeconfig admin.kubeconfig --log-format text

Keeps a CA and its key in the Secret napkeeper-webhook-ca, writes the CA to caBundle of both webhook configurations
napkeeper, and the serving certificate to the Secret napkeeper-webhook-tls, which `napkeeper webhook` reads. Both Secrets
must exist; they may be empty. Of several replicas the holder of the Lease napkeeper-webhook acts. It listens at no port.
Not needed if the webhook has --tls-cert and --tls-key.
The first SIGTERM drains, the second stops at once. Exit codes: 0 stopped by a signal, 2 error.";

/// Issue and renew the webhook's certificates, without listening at any port.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Kubeconfig. Defaults to the pod's service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the webhook's Service, the Secrets and the Lease.
    #[arg(long, value_name = "NAME", default_value = "napkeeper-system")]
    namespace: String,
    /// Additional DNS name or IP address of the certificate, besides that of the Service. Repeatable.
    #[arg(long, value_name = "NAME")]
    tls_san: Vec<String>,
    /// Lifetime of a CA in seconds, for tests.
    #[arg(long, hide = true, value_name = "SECONDS")]
    authority_life: Option<u32>,
    /// Lifetime of a serving certificate in seconds, for tests.
    #[arg(long, hide = true, value_name = "SECONDS", requires = "authority_life")]
    certificate_life: Option<u32>,
    /// Seconds to wait before a new CA is used, for tests.
    #[arg(long, hide = true, value_name = "SECONDS", requires = "authority_life")]
    settle: Option<u32>,
    #[command(flatten)]
    logs: super::log_args::LogArgs,
}

impl Args {
    /// The default lifetimes, or the shortened ones, which begin when a certificate is made.
    fn lifetimes(&self) -> CertificateLifetimes {
        let default = CertificateLifetimes::default();
        let seconds = |given: Option<u32>, default| given.map_or(default, |n| SignedDuration::from_secs(n.into()));
        CertificateLifetimes {
            authority: seconds(self.authority_life, default.authority),
            serving_certificate: seconds(self.certificate_life, default.serving_certificate),
            bundle_propagation: seconds(self.settle, default.bundle_propagation),
            backdate: seconds(self.authority_life.map(|_| 0), default.backdate),
            ..default
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.logs.init()?;
    rotate_certificates(&CertificateOptions {
        kubeconfig: args.kubeconfig.clone(),
        namespace: args.namespace.clone(),
        names: args.tls_san.clone(),
        lives: args.lifetimes(),
    })?;
    Ok(Outcome::Fine)
}
