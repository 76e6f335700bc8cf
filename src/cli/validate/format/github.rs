//! For GitHub Actions: annotations, as commands of a workflow.

use super::place::Spots;
use super::{Told, sentence};
use napkeeper_verdict::rules;
use std::io::Write;

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let spots = Spots::of(told.input);
    for shown in told.shown {
        let finding = &shown.finding;
        let spot = spots.spot(shown);
        let title = rules::find(finding.rule).map_or(String::new(), |rule| format!(" {}", rule.title));
        let title = property(&format!("{}{title}", finding.rule));
        // Without a file the place is said in words.
        let file = spot.file.map(|file| format!("file={},line={},col={},", property(&file), spot.line, spot.column));
        let within = spot.within.map(|within| format!("{within}: ")).unwrap_or_default();
        let message = data(&(within + &sentence(shown)));
        writeln!(out, "::{} {}title={title}::{message}", finding.severity, file.unwrap_or_default())?;
    }
    // Not at the beginning of a line, so that nothing in it is taken for a command.
    writeln!(out, "napkeeper: {}", super::super::super::output::one_line(&told.summary.text()))?;
    Ok(())
}

/// Text after `::`, as the runner wants it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property, as the runner wants it.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_ends_the_command_or_its_property() {
        assert_eq!(data("100%: a,b\r\n::error::x"), "100%25: a,b%0D%0A::error::x");
        assert_eq!(property("a,b:c%\n"), "a%2Cb%3Ac%25%0A");
    }
}
