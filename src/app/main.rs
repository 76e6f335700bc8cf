//! napkeeper looks after AKS Node Auto-Provisioning.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
