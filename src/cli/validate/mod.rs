//! `napkeeper validate`: args → input → targets → verdicts → removed_classes → locate → suppress → report → format.
//!
//! Each stage takes the value of the one before and returns its own; none imports a later one.

mod args;
mod crds;
mod format;
mod input;
mod locate;
mod objects;
mod removed_classes;
mod report;
mod suppress;
mod targets;
mod verdicts;

use super::{Outcome, output};
pub(super) use args::Args;
use input::Store;
use report::Report;
use targets::Targets;

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let store = Store::open(&args.source, &args.paths)?;
    let targets = Targets::read(store.config(&args.paths), args)?;
    let input = store.read(&targets.read_args(args))?;
    // They may explain an error of the rest.
    for sentence in input.not_built.iter().chain(&input.not_followed) {
        output::warning(sentence);
    }
    let mut verdicts = verdicts::validate(args, &targets, input)?;
    let since = args.source.changed_since.as_ref();
    let changed = since.map(|since| store.changed(since, &args.paths)).transpose()?;
    if let Some(changed) = &changed {
        removed_classes::add(args, &targets, changed, &mut verdicts)?;
    }
    locate::locate(&mut verdicts);
    let suppressed = suppress::suppress(args, changed.as_ref(), &targets, verdicts)?;
    let report = Report::new(suppressed, args.fail_on);
    output::print(args.output, &report).or_else(|error| {
        // A closed pipe does not change the result.
        if super::is_broken_pipe(&error) { Ok(()) } else { Err(error) }
    })?;
    for problem in &report.input.unreadable {
        output::error(&problem.to_string());
    }
    Ok(report.outcome())
}
