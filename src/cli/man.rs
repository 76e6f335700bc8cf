//! `napkeeper man`: prints the manual pages.

use super::Outcome;
use anyhow::Context;
use clap::CommandFactory;
use clap_mangen::Man;
use std::io::Write;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  napkeeper man | man -l -
  napkeeper man --dir ~/.local/share/man/man1";

/// Print the manual page, or write one page per command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Directory to write one page per command to. Created if missing.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let command = super::Cli::command();
    if let Some(folder) = &args.dir {
        let writing = || format!("cannot write manual pages to {}", folder.display());
        std::fs::create_dir_all(folder).with_context(writing)?;
        clap_mangen::generate_to(command, folder).with_context(writing)?;
    } else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        std::io::stdout().lock().write_all(&page)?;
    }
    Ok(Outcome::Fine)
}
