//! How much is logged, and how does it look?

use napkeeper_serve::logs::Format;

/// What goes to stderr.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = FormatArg::Text, value_name = "FORMAT")]
    log_format: FormatArg,
    /// What is logged, for example info or napkeeper=debug; absent is RUST_LOG, else info.
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FormatArg {
    /// For people.
    Text,
    /// For programs: one JSON object a line.
    Json,
}

impl Args {
    pub(super) fn format(&self) -> Format {
        match self.log_format {
            FormatArg::Text => Format::Text,
            FormatArg::Json => Format::Json,
        }
    }

    pub(super) fn level(&self) -> Option<&str> {
        self.log_level.as_deref()
    }
}
