//! `napkeeper completion`: prints completion scripts for shells.

use super::Outcome;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

const EXAMPLES: &str = "\
Examples:
  source <(napkeeper completion bash)
  napkeeper completion zsh > \"${fpath[1]}/_napkeeper\"
  napkeeper completion fish > ~/.config/fish/completions/napkeeper.fish";

/// Print a shell completion script.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "napkeeper", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Outcome::Fine)
}
