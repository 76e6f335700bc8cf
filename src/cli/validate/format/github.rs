//! Annotations of GitHub Actions, as workflow commands.

use super::super::report::Report;
use super::location::Locations;
use super::sentence;
use crate::output::one_line;
use napkeeper_verdict::rules;
use std::io::Write;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let locations = Locations::of(&report.input);
    for reported in &report.findings {
        let finding = &reported.finding;
        let location = locations.of_finding(reported);
        let title = rules::find(finding.rule).map_or(String::new(), |rule| format!(" {}", rule.title));
        let title = property(&format!("{}{title}", finding.rule));
        // Without a file the message begins with the location.
        let file = location
            .file
            .map(|file| format!("file={},line={},col={},", property(&file), location.line, location.column));
        let message = data(&(location.prefix + &sentence(reported)));
        writeln!(out, "::{} {}title={title}::{message}", finding.severity, file.unwrap_or_default())?;
    }
    // Not at the beginning of a line, where it could be interpreted as a command.
    writeln!(out, "napkeeper: {}", one_line(&report.summary.text()))?;
    Ok(())
}

/// Text after `::`, escaped for the runner.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property, escaped for the runner.
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
