//! Sets up logs: to stderr, as text or JSON.

use std::io::IsTerminal;
use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::prelude::*;

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// The filter where none is given.
const DEFAULT_FILTER: &str = "info";

/// Targets that warn whenever a client violates HTTP/2: only their errors are logged, else any client could fill the
/// log.
const CLIENT_CONTROLLED: &str = "h2::";

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error("log filter {filter:?} (flag --log-level, or RUST_LOG): {reason}; use for example info or napkeeper=debug")]
    Filter {
        /// The filter.
        filter: String,
        /// Why it cannot be read.
        reason: String,
    },
    /// Logging has been set up before.
    #[error("logging is already set up")]
    Twice,
}

/// Sends logs to stderr, in colour only on a terminal. `filter` takes precedence over `RUST_LOG`; the default is
/// `info`. Targets that begin with one of `quiet` are never more verbose than `info`, whatever the filter says.
///
/// # Errors
/// [`LogError`]: the filter cannot be read, or logging is set up already.
pub fn init(format: Format, filter: Option<&str>, quiet: &'static [&'static str]) -> Result<(), LogError> {
    let filter = filter.map(str::to_owned).or_else(|| std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty()));
    let filter = filter.unwrap_or_else(|| DEFAULT_FILTER.to_owned());
    let parsed = EnvFilter::try_new(&filter).map_err(|e| LogError::Filter { filter, reason: e.to_string() })?;
    let layer =
        tracing_subscriber::fmt::layer().with_ansi(std::io::stderr().is_terminal()).with_writer(std::io::stderr);
    let lines = match format {
        Format::Text => layer.boxed(),
        Format::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines)
        .with(parsed)
        .with(filter_fn(move |line| is_logged(quiet, line)))
        .try_init()
        .map_err(|_| LogError::Twice)
}

/// A filter's directives can be beaten by more specific ones; this cannot.
fn is_logged(quiet: &[&str], line: &Metadata<'_>) -> bool {
    if line.target().starts_with(CLIENT_CONTROLLED) {
        return *line.level() <= Level::ERROR;
    }
    *line.level() <= Level::INFO || !quiet.iter().any(|target| line.target().starts_with(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logging_is_set_up_once_and_quiet_targets_stay_quiet() {
        assert!(matches!(init(Format::Json, Some("a=b=c"), &[]), Err(LogError::Filter { .. })));
        init(Format::Json, Some("chatty::inside=trace,other=trace,h2=trace"), &["chatty"]).unwrap();
        assert!(matches!(init(Format::Text, None, &[]), Err(LogError::Twice)));
        assert!(!tracing::enabled!(target: "chatty::inside", Level::DEBUG), "no directive beats quiet");
        assert!(!tracing::enabled!(target: "h2::proto", Level::WARN), "clients decide how often it warns");
        assert!(tracing::enabled!(target: "h2::proto", Level::ERROR));
        assert!(tracing::enabled!(target: "chatty::inside", Level::INFO));
        assert!(tracing::enabled!(target: "other", Level::TRACE));
    }
}
