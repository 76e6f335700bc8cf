//! For people: each finding with its line, then the summary.

use super::super::super::output;
use super::Told;
use std::io::Write;

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    for shown in told.shown {
        let text = told.input.sources.get(shown.source).map_or("", |source| source.text.as_str());
        output::finding_of(out, &shown.finding, &shown.clusters, text)?;
        writeln!(out)?;
    }
    writeln!(out, "{}", output::one_line(&told.summary.text()))?;
    Ok(())
}
