//! napkeeper looks after AKS Node Auto-Provisioning.

mod cli;
mod webhook;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
