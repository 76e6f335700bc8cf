//! How is the report printed?
//!
//! One file a format. None of them decides how the program ends.

mod csv;
mod markdown;
mod policyreport;
mod sarif;
mod table;

use super::Format;
use super::report::{Report, Row};
use std::io::Write;

/// Prints in a format.
pub(super) fn write(format: Format, report: &Report, out: &mut impl Write) -> anyhow::Result<()> {
    match format {
        Format::Table => table::write(report, out)?,
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(report)?)?,
        Format::Markdown => markdown::write(report, out)?,
        Format::Csv => csv::write(report, out)?,
        Format::Sarif => sarif::write(report, out)?,
        Format::PolicyReport => policyreport::write(report, out)?,
    }
    Ok(())
}

/// A cost as people read it; a VM whose price nobody knows is not free.
fn cost(row: &Row) -> String {
    if row.priced { format!("${}", super::report::usd(row.price)) } else { "unknown".to_owned() }
}

/// What is kept and why, with the remedies, in one line each.
fn reasons(row: &Row) -> Vec<String> {
    row.kept_by.iter().map(|kept| format!("{} ({}): {}", kept.why, kept.refusal, kept.remedy)).collect()
}

/// Tags in one line.
fn tags(row: &Row) -> String {
    row.tags.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

/// All that is known of a finding, in one sentence.
fn sentence(row: &Row) -> String {
    let addresses = match row.addresses {
        0 => String::new(),
        n => format!(", holds {}", super::super::output::plural_of(n as usize, "address", "addresses")),
    };
    let evidence = row.evidence.join("; ");
    let kept = reasons(row).join("; ");
    let word = if row.standing == super::report::Standing::Foreign { "Kept" } else { "Not deleted" };
    let kept = if kept.is_empty() { kept } else { format!(". {word}: {kept}") };
    let text = format!(
        "{} {}: {}, {} per month{addresses}. {evidence}. Action: {}{kept}",
        row.kind,
        row.name,
        row.standing.words(),
        cost(row),
        row.would
    );
    super::super::output::one_line(&text)
}

/// What orphans cost, and what of it napkeeper may give back.
fn sum(report: &Report) -> String {
    use super::super::output::{plural, plural_of};
    let (all, may) = (report.orphans, report.regained);
    let n = all.resources as usize;
    if n == 0 {
        return "0 orphans".to_owned();
    }
    format!(
        "{} {} ${} per month and {} {}; napkeeper can delete {} of them (${})",
        plural(n, "orphan"),
        if n == 1 { "costs" } else { "cost" },
        super::report::usd(all.price),
        if n == 1 { "holds" } else { "hold" },
        plural_of(all.addresses as usize, "address", "addresses"),
        may.resources,
        super::report::usd(may.price)
    )
}

/// What a format has no place for, for people: what could not be listed, and remarks.
pub(super) fn beside(report: &Report, out: &mut impl Write) -> std::io::Result<()> {
    use super::super::output::one_line;
    for failed in &report.failed {
        let text = one_line(&format!("not listed: {}: {}", failed.what, failed.why));
        writeln!(out, "{text}\n  help: {}", failed.remedy)?;
    }
    for remark in &report.remarks {
        writeln!(out, "{}: {}\n  help: {}", remark.about, one_line(&remark.what), one_line(&remark.remedy))?;
    }
    Ok(())
}
