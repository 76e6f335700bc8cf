//! How are findings printed?
//!
//! One file a format. None of them decides how the program ends.

mod github;
mod gitlab;
mod json;
mod junit;
mod markdown;
mod place;
mod sarif;
mod text;

use super::args::{FailOn, Format};
use super::input::Input;
use super::judge::Shown;
use super::summary::Summary;
use std::io::Write;

/// All that there is to print.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'t> {
    pub(super) input: &'t Input,
    pub(super) shown: &'t [Shown],
    pub(super) summary: &'t Summary,
    pub(super) fail_on: FailOn,
}

/// Prints in a format.
pub(super) fn write(format: Format, told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    match format {
        Format::Text => text::write(told, out),
        Format::Json => json::write(told, out),
        Format::Jsonl => json::write_lines(told, out),
        Format::Sarif => sarif::write(told, out),
        Format::Junit => junit::write(told, out),
        Format::Github => github::write(told, out),
        Format::Gitlab => gitlab::write(told, out),
        Format::Markdown => markdown::write(told, out),
    }
}

/// What is wrong, at which field, for which clusters, and what would be right: in one line of plain text.
fn sentence(shown: &Shown) -> String {
    let finding = &shown.finding;
    let mut text = finding.message.clone();
    if !finding.path.is_empty() {
        text += &format!(" ({})", finding.path);
    }
    if !shown.clusters.is_empty() {
        text += &format!(" [{}]", shown.clusters.join(", "));
    }
    if let Some(fix) = &finding.fix {
        text += &format!(". Fix: {fix}");
    }
    super::super::output::one_line(&text)
}
