//! The formats of a report, one file each. None of them decides the exit code.

mod csv;
mod markdown;
mod policyreport;
mod sarif;
mod table;

use super::OutputFormat;
use super::report::{Report, ResourceFinding, usd};
use crate::output::{Format, one_line, plural, plural_of, write_json};
use napkeeper_core::orphans::AuditStatus;
use std::io::Write;

impl Format<Report> for OutputFormat {
    fn write(self, report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Self::Text => table::write(report, out)?,
            Self::Json => write_json(report, out)?,
            Self::Markdown => markdown::write(report, out)?,
            Self::Csv => csv::write(report, out)?,
            Self::Sarif => sarif::write(report, out)?,
            Self::PolicyReport => policyreport::write(report, out)?,
        }
        Ok(())
    }
}

/// The status in words.
fn status_in_words(status: AuditStatus) -> &'static str {
    match status {
        AuditStatus::Unproven => "probable orphan, not yet confirmed",
        AuditStatus::Foreign => "not owned by this cluster",
        AuditStatus::InFlight => "being launched",
        AuditStatus::Owned => "in use",
        AuditStatus::Orphan | AuditStatus::Suspect | AuditStatus::Unknown | AuditStatus::Protected => status.as_str(),
    }
}

/// A cost for people; a VM without a known price is not free.
fn cost(row: &ResourceFinding) -> String {
    if row.priced { format!("${}", usd(row.price)) } else { "unknown".to_owned() }
}

/// Why a resource is retained, with remedies, in one line each.
fn reasons(row: &ResourceFinding) -> Vec<String> {
    row.refusals
        .iter()
        .map(|explained| format!("{} ({}): {}", explained.reason, explained.refusal.category(), explained.remedy))
        .collect()
}

/// Tags in one line.
fn tags(row: &ResourceFinding) -> String {
    row.tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

/// A finding in one line.
fn sentence(row: &ResourceFinding) -> String {
    let addresses = match row.addresses {
        0 => String::new(),
        n => format!(", holds {}", plural_of(n as usize, "address", "addresses")),
    };
    let evidence = row.evidence.join("; ");
    let refusals = reasons(row).join("; ");
    let word = if row.status == AuditStatus::Foreign { "Kept" } else { "Not deleted" };
    let refusals = if refusals.is_empty() { refusals } else { format!(". {word}: {refusals}") };
    let text = format!(
        "{} {}: {}, {} per month{addresses}. {evidence}. Action: {}{refusals}",
        row.kind,
        row.name,
        status_in_words(row.status),
        cost(row),
        row.action
    );
    one_line(&text)
}

/// The cost of all orphans, and what of it napkeeper can save.
fn sum(report: &Report) -> String {
    let (all, may) = (report.orphans, report.savings);
    let n = all.resources as usize;
    if n == 0 {
        return "0 orphans".to_owned();
    }
    format!(
        "{} {} ${} per month and {} {}; napkeeper can delete {} of them (${})",
        plural(n, "orphan"),
        if n == 1 { "costs" } else { "cost" },
        usd(all.price),
        if n == 1 { "holds" } else { "hold" },
        plural_of(all.addresses as usize, "address", "addresses"),
        may.resources,
        usd(may.price)
    )
}

/// Failed listings and remarks as text: CSV has no column for them.
pub(super) fn write_remarks(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    for failed in &report.failed {
        let text = one_line(&format!("not listed: {}: {}", failed.listing, failed.reason));
        writeln!(out, "{text}\n  help: {}", failed.remedy)?;
    }
    for remark in &report.remarks {
        writeln!(out, "{}: {}\n  help: {}", remark.about, one_line(&remark.message), one_line(&remark.remedy))?;
    }
    Ok(())
}
