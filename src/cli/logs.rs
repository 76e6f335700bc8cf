//! How do commands that run for long write their log?

use napkeeper_serve::logs::{self, LogError};

/// Log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Azure's crates log whole bodies at debug, and the body of a VM holds what its kubelet is told: never, whoever asks.
const QUIET: &[&str] = &["azure_core", "azure_identity", "azure_mgmt", "typespec"];

/// Troubles of the client of Kubernetes: we say them once, in our own words. Who asks for them by name gets them.
const TOLD_BY_US: &str = "kube_client=off,kube_runtime=off";

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
        let asked = self.log_level.clone().or_else(|| std::env::var("RUST_LOG").ok()).filter(|text| !text.is_empty());
        let filter = format!("{TOLD_BY_US},{}", asked.as_deref().unwrap_or("info"));
        logs::init(format, Some(&filter), QUIET)
    }
}
