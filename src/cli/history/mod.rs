//! `napkeeper history`: which nodes were removed, why, and by what they were replaced.

mod format;
mod input;
mod reconstruct;
mod report;

use crate::Outcome;
use crate::output;
use format::HistoryFormat;
use jiff::{SignedDuration, Timestamp, Unit};
use napkeeper_api::types::duration::parse_with_days;
use report::Report;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  napkeeper history                                  all NodePools of the cluster of your kubeconfig, the last 7 days
  napkeeper history general --since 24h              one NodePool
  napkeeper history aks-general-x2k9q -o markdown    one node, for a ticket
  kubectl get noderecords,nodepools,nodeclaims,nodes,events --all-namespaces -o json > cluster.json \\
      && napkeeper history --from cluster.json -o json

It changes nothing. Where napkeeper does not provision nodes there are no NodeRecords: leave them out of the command.
Exit codes: 0 shown, 2 error (bad input or I/O).";

/// Show which nodes were removed, by whom and why, and by what they were replaced.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Name of a NodePool, a Node or a NodeClaim, also of one that is gone [default: all].
    #[arg(value_name = "NODE|POOL")]
    name: Option<String>,
    /// Since when: a time ago, such as 24h or 7d, or a time in RFC 3339.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = since)]
    since: Since,
    /// Output of `kubectl get -o json` instead of the cluster: a file, or a folder of files.
    #[arg(long, value_name = "PATH", conflicts_with = "kubeconfig")]
    from: Option<PathBuf>,
    /// Kubeconfig [default: the pod's service account, else the user's kubeconfig].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = HistoryFormat::Text, value_name = "FORMAT")]
    output: HistoryFormat,
}

/// Since when removals are shown.
#[derive(Debug, Clone, Copy)]
enum Since {
    Ago(SignedDuration),
    At(Timestamp),
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = text.parse() {
        return Ok(Since::At(at));
    }
    let ago = parse_with_days(text).map_err(|error| format!("{error}; or a time such as 2026-08-03T06:00:00Z"))?;
    if ago.is_positive() { Ok(Since::Ago(ago)) } else { Err("must be greater than 0".to_owned()) }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let input = input::read(args.from.as_deref(), args.kubeconfig.as_deref())?;
    let since = match args.since {
        Since::At(at) => at,
        Since::Ago(ago) => {
            let at = Timestamp::now().saturating_sub(ago).and_then(|at| at.round(Unit::Second));
            at.unwrap_or(Timestamp::MIN)
        }
    };
    output::print(args.output, &Report::new(input, args.name.as_deref(), since)?)?;
    Ok(Outcome::Fine)
}
