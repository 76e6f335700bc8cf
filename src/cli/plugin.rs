//! The kubectl plugin: installed as `kubectl-napkeeper`, the program is called as `kubectl napkeeper`.

use super::Cli;
use super::help::with_narrow_examples;
use clap::{Command, CommandFactory, FromArgMatches};
use std::ffi::OsStr;
use std::path::Path;

/// The name of the file that kubectl looks for.
const FILE: &str = "kubectl-napkeeper";

/// Parses the command line; exits if it is wrong.
pub(super) fn parse() -> Cli {
    let called = std::env::args_os().next().unwrap_or_default();
    let command = if is_plugin(&called) { as_plugin(Cli::command()) } else { Cli::command() };
    let command = with_narrow_examples(command);
    let mut again = command.clone();
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.format(&mut again).exit())
}

fn is_plugin(called: &OsStr) -> bool {
    Path::new(called).file_stem().is_some_and(|name| name == FILE)
}

/// Shows usage and examples with the name of the plugin.
fn as_plugin(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    with_examples_everywhere(command, &names).bin_name("kubectl napkeeper")
}

/// A command and those below it.
fn with_examples_everywhere(command: Command, names: &[String]) -> Command {
    with_examples(command, names).mut_subcommands(|sub| with_examples_everywhere(sub, names))
}

fn with_examples(command: Command, names: &[String]) -> Command {
    let Some(help) = command.get_after_help().map(ToString::to_string) else { return command };
    let renamed =
        |help: String, name: &String| help.replace(&format!("napkeeper {name}"), &format!("kubectl napkeeper {name}"));
    command.after_help(names.iter().fold(help, renamed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_decides() {
        for (called, is) in [
            ("kubectl-napkeeper", true),
            ("/x/kubectl-napkeeper", true),
            ("kubectl-napkeeper.exe", true),
            ("/x/napkeeper", false),
        ] {
            assert_eq!(is_plugin(OsStr::new(called)), is, "{called}");
        }
    }
}
