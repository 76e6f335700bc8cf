//! For programs: one object, or one line a finding.

use super::super::judge::Shown;
use super::super::summary::Summary;
use super::Told;
use napkeeper_verdict::Finding;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;

#[derive(Serialize)]
struct Line<'s> {
    #[serde(flatten)]
    finding: &'s Finding,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    clusters: &'s [Arc<str>],
}

#[derive(Serialize)]
struct Whole<'s> {
    findings: Vec<Line<'s>>,
    summary: &'s Summary,
}

fn line(shown: &Shown) -> Line<'_> {
    Line { finding: &shown.finding, clusters: &shown.clusters }
}

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let whole = Whole { findings: told.shown.iter().map(line).collect(), summary: told.summary };
    writeln!(out, "{}", serde_json::to_string_pretty(&whole)?)?;
    Ok(())
}

pub(super) fn write_lines(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    for shown in told.shown {
        writeln!(out, "{}", serde_json::to_string(&line(shown))?)?;
    }
    Ok(())
}
