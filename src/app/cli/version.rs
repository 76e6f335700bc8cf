//! `napkeeper version`: which build is this?

use super::Outcome;
use std::io::Write;

/// Print the version.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> anyhow::Result<Outcome> {
    writeln!(anstream::stdout(), "napkeeper {}", env!("CARGO_PKG_VERSION"))?;
    Ok(Outcome::Fine)
}
