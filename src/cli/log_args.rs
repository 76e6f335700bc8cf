//! Log flags of long-running commands.

use napkeeper_serve::logs::{self, LogError};

/// Log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Azure's crates log whole bodies at debug, and the body of a VM holds secrets of its kubelet: never logged.
const QUIET: &[&str] = &["azure_core", "azure_identity", "azure_mgmt", "typespec"];

/// Errors of the Kubernetes client, which we report once in our own words; a filter that names the crates shows them.
const REPORTED_BY_US: &str = "kube_client=off,kube_runtime=off";

/// Flags of the log.
#[derive(Debug, clap::Args)]
pub(super) struct LogArgs {
    /// Log format.
    #[arg(long, value_enum, default_value_t = Format::Json, value_name = "FORMAT")]
    log_format: Format,
    /// Log filter, for example debug or info,napkeeper_webhook=debug [default: RUST_LOG, or info].
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,
}

impl LogArgs {
    /// Sends logs to stderr.
    pub(super) fn init(&self) -> Result<(), LogError> {
        let format = match self.log_format {
            Format::Text => logs::Format::Text,
            Format::Json => logs::Format::Json,
        };
        let given = self.log_level.clone().or_else(|| std::env::var("RUST_LOG").ok()).filter(|text| !text.is_empty());
        let filter = format!("{REPORTED_BY_US},{}", given.as_deref().unwrap_or("info"));
        logs::init(format, Some(&filter), QUIET)
    }
}
