//! Logs: where do they go, and how do they look?

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// What is logged when nobody says.
const DEFAULT_FILTER: &str = "info";

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error("log filter {filter:?} (flag --log-level, or RUST_LOG): {why}; write for example info or napkeeper=debug")]
    Filter {
        /// The filter.
        filter: String,
        /// Why it cannot be read.
        why: String,
    },
    /// Somebody has set logging up before.
    #[error("logging is set up already; it is set up once, at the start of a command")]
    Twice,
}

/// Sends logs to stderr, in colour only on a terminal. `filter` goes before `RUST_LOG`; without either it is `info`.
///
/// # Errors
/// [`LogError`]: the filter cannot be read, or logging is set up already.
pub fn init(format: Format, filter: Option<&str>) -> Result<(), LogError> {
    let filter = filter.map(str::to_owned).or_else(|| std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty()));
    let filter = filter.unwrap_or_else(|| DEFAULT_FILTER.to_owned());
    let parsed = EnvFilter::try_new(&filter).map_err(|e| LogError::Filter { filter, why: e.to_string() })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        Format::Text => builder.finish().try_init(),
        Format::Json => builder.json().flatten_event(true).finish().try_init(),
    }
    .map_err(|_| LogError::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_set_up_and_a_bad_filter_are_errors() {
        assert!(matches!(init(Format::Json, Some("a=b=c")), Err(LogError::Filter { .. })));
        init(Format::Json, Some("info")).unwrap();
        assert!(matches!(init(Format::Text, None), Err(LogError::Twice)));
    }
}
