//! napkeeper looks after AKS Node Auto-Provisioning.

mod azure_sim;
mod cli;
mod clock;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
