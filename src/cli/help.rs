//! Examples in the help texts, which fit into a narrow terminal.

use clap::Command;

/// Columns of a terminal that is not wide.
const COLUMNS: usize = 80;

/// Puts what an example means below it, in the help of each command where it would be broken beside it.
pub(super) fn with_narrow_examples(command: Command) -> Command {
    let help = command.get_after_help().map(|help| narrow(&help.to_string()));
    let command = match help {
        Some(help) => command.after_help(help),
        None => command,
    };
    command.mut_subcommands(with_narrow_examples)
}

fn narrow(help: &str) -> String {
    let is_wide = |line: &str| example(line).is_some() && line.chars().count() > COLUMNS;
    if !help.lines().any(is_wide) {
        return help.to_owned();
    }
    let below = |line: &str| match example(line) {
        Some((command, meaning)) => format!("  {command}\n      {meaning}\n"),
        None => format!("{line}\n"),
    };
    help.lines().map(below).collect::<String>().trim_end().to_owned()
}

/// The command of an example and what it means, which two spaces separate.
fn example(line: &str) -> Option<(&str, &str)> {
    let (command, meaning) = line.strip_prefix("  ")?.trim_start().split_once("  ")?;
    Some((command, meaning.trim_start())).filter(|(_, meaning)| !meaning.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    #[test]
    fn no_meaning_of_an_example_is_broken() {
        let short = "Examples:\n  a b    this\n  c      that\n\nMore.";
        assert_eq!(narrow(short), short);
        let long = format!("Examples:\n  a b    {}\n  c      that\n\nMore.", "x".repeat(75));
        assert_eq!(narrow(&long), format!("Examples:\n  a b\n      {}\n  c\n      that\n\nMore.", "x".repeat(75)));
        let mut commands = vec![with_narrow_examples(Cli::command())];
        while let Some(command) = commands.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let wide = help.lines().find(|line| example(line).is_some() && line.chars().count() > COLUMNS);
            assert_eq!(wide, None, "{}", command.get_name());
            commands.extend(command.get_subcommands().cloned());
        }
    }
}
