//! The formats of a report, one file each. None of them decides the exit code.

mod github;
mod gitlab;
mod json;
mod junit;
mod location;
mod markdown;
mod sarif;
mod text;

use super::args::OutputFormat;
use super::report::Report;
use super::verdicts::ReportedFinding;
use crate::output::{Format, one_line};
use std::io::Write;

impl Format<Report> for OutputFormat {
    fn write(self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Self::Text => text::write(report, out),
            Self::Json => json::write(report, out),
            Self::Jsonl => json::write_lines(report, out),
            Self::Sarif => sarif::write(report, out),
            Self::Junit => junit::write(report, out),
            Self::Github => github::write(report, out),
            Self::Gitlab => gitlab::write(report, out),
            Self::Markdown => markdown::write(report, out),
        }
    }
}

/// Message, object, field, clusters and fix in one line of plain text.
fn sentence(reported: &ReportedFinding) -> String {
    let finding = &reported.finding;
    let mut text = finding.message.clone();
    let subject = reported.subject();
    if !subject.is_empty() {
        text += &format!(" ({subject})");
    }
    if !reported.clusters.is_empty() {
        text += &format!(" [{}]", reported.clusters.join(", "));
    }
    if let Some(fix) = &finding.fix {
        text += &format!(". Fix: {fix}");
    }
    one_line(&text)
}
