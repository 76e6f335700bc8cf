//! napkeeper looks after AKS Node Auto-Provisioning.

mod azure_sim;
mod cli;
mod clock;
mod controller;
mod region;
mod webhook;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
