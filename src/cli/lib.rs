//! The command line: arguments, output and exit codes of each command.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 findings, 2 error (bad input or I/O).

mod audit;
mod azure_sim;
mod certificates;
mod completion;
mod controller;
mod disruption;
mod explain;
mod help;
mod history;
mod init;
mod log_args;
mod man;
mod migrate;
mod output;
mod plugin;
mod policies;
mod policy_args;
mod published_facts;
mod repository;
mod rules;
mod schema;
mod simulate;
mod uninstall;
mod validate;
mod version;
mod webhook;

use clap::{Parser, Subcommand};
use std::io;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  napkeeper simulate                     simulate provisioning and consolidation of nodes
  napkeeper validate                     check all manifests in the current directory
  napkeeper validate nodepool.yaml       check one file
  kustomize build . | napkeeper validate -
  napkeeper rules NK1013                 what a rule means
  napkeeper explain pod web-0 -n shop    where a pod would be scheduled, or why it cannot be
  napkeeper disruption                   which nodes are replaced or removed next, and what they wait for
  napkeeper history general --since 7d   which nodes of a NodePool were replaced, and why
  napkeeper audit                        orphaned resources in the node resource group
  napkeeper init --from aks.json         napkeeper.yaml and an overlay that installs napkeeper
  napkeeper uninstall --dry-run          what removing napkeeper from a cluster would do

Exit codes: 0 success, 1 findings, 2 error (bad input or I/O).";

/// Validates, simulates and operates AKS Node Auto-Provisioning.
#[derive(Debug, Parser)]
#[command(name = "napkeeper", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    /// When to use colours (NO_COLOR also disables them).
    #[arg(long, global = true, value_enum, default_value_t = output::Colour::Auto, value_name = "WHEN")]
    color: output::Colour,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Audit(audit::Args),
    AzureSim(azure_sim::Args),
    Certificates(certificates::Args),
    Completion(completion::Args),
    Controller(controller::Args),
    Disruption(disruption::Args),
    Explain(explain::Args),
    History(history::Args),
    Init(init::Args),
    Man(man::Args),
    Migrate(migrate::Args),
    Policies(policies::Args),
    Rules(rules::Args),
    Schema(schema::Args),
    Simulate(simulate::Args),
    Uninstall(uninstall::Args),
    Validate(validate::Args),
    Version(version::Args),
    Webhook(webhook::Args),
}

/// How a command ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Without findings.
    Fine,
    /// With findings.
    Findings,
    /// Part of the work could not be done, and the reasons have been printed.
    Incomplete,
}

/// Runs the command of the command line.
pub fn run() -> ExitCode {
    let cli = plugin::parse();
    cli.color.apply();
    let result = match &cli.command {
        Command::Audit(args) => audit::run(args),
        Command::AzureSim(args) => azure_sim::run(args),
        Command::Certificates(args) => certificates::run(args),
        Command::Completion(args) => completion::run(args),
        Command::Controller(args) => controller::run(args),
        Command::Disruption(args) => disruption::run(args),
        Command::Explain(args) => explain::run(args),
        Command::History(args) => history::run(args),
        Command::Init(args) => init::run(args),
        Command::Man(args) => man::run(args),
        Command::Rules(args) => rules::run(args),
        Command::Schema(args) => schema::run(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Policies(args) => policies::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Uninstall(args) => uninstall::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Version(args) => version::run(args),
        Command::Webhook(args) => webhook::run(args),
    };
    match result {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Findings) => ExitCode::from(1),
        Ok(Outcome::Incomplete) => ExitCode::from(2),
        // The reader has stopped reading, for example `head`.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|e| e.downcast_ref::<io::Error>());
    io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
