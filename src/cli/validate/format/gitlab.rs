//! For GitLab: a code quality report.

use super::place::Spots;
use super::{Told, sentence};
use napkeeper_verdict::Severity;
use serde_json::{Value, json};
use std::io::Write;

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let spots = Spots::of(told.input);
    let entry = |shown: &super::Shown| {
        let spot = spots.spot(shown);
        let within = spot.within.map(|within| format!("{within}: ")).unwrap_or_default();
        json!({
            "description": format!("{}: {within}{}", shown.finding.rule, sentence(shown)),
            "check_name": shown.finding.rule,
            "fingerprint": shown.fingerprint,
            "severity": match shown.finding.severity {
                Severity::Error => "major",
                Severity::Warning => "minor",
            },
            "location": { "path": spot.file.unwrap_or_else(|| "stdin".to_owned()), "lines": { "begin": spot.line } },
        })
    };
    let entries: Vec<Value> = told.shown.iter().map(entry).collect();
    writeln!(out, "{}", serde_json::to_string_pretty(&entries)?)?;
    Ok(())
}
