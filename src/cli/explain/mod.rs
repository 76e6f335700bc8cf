//! `napkeeper explain`: explains decisions.

pub(crate) mod budgets;
pub(crate) mod cluster;
mod files;
mod node;
mod pod;
mod pod_query;
pub(crate) mod source;
mod state;

use super::Outcome;
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  napkeeper explain pod web-7d4b9c6f5-x2x9k -n shop      a pod of your cluster
  napkeeper explain pod deployment/web clusters/prod     pods of a Deployment in a folder of manifests
  napkeeper explain node aks-general-x2k9q               a node of your cluster

Exit codes: 0 all pods can be scheduled, 1 some cannot, 2 error (bad input or I/O).";

/// Explain where pods are scheduled and why, or why they cannot be; and what becomes of a node.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(super) struct Args {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum Subject {
    Pod(Box<pod::Args>),
    Node(Box<node::Args>),
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.subject {
        Subject::Pod(args) => pod::run(args),
        Subject::Node(args) => node::run(args),
    }
}
