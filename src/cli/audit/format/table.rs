//! A table for people: each finding with its details, then the sums.

use super::super::report::{Remark, RemarkSubject, Report, ResourceFinding, age, usd};
use super::{cost, reasons, status_in_words, sum, tags};
use crate::output::style::{BOLD, DIM, ERROR, WARNING};
use crate::output::{one_line, plural, printable, write_problem};
use anstyle::Style;
use napkeeper_core::orphans::AuditStatus;
use std::io::{self, Write};

const HEAD: [&str; 6] = ["KIND", "NAME", "STATUS", "AGE", "PER MONTH", "ADDRESSES"];

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}cluster{BOLD:#}  {}", printable(&report.cluster))?;
    writeln!(out, "{BOLD}group{BOLD:#}    {}", printable(&report.group))?;
    writeln!(out, "{BOLD}taken{BOLD:#}    {}; VM prices as of {}", report.taken_at, report.prices_of)?;
    for failed in &report.failed {
        write_problem(out, ERROR, "not listed", &format!("{}: {}", failed.listing, failed.reason), &failed.remedy)?;
    }
    if !report.is_complete {
        writeln!(out, "\nA listing is incomplete, so nothing is reported as an orphan.")?;
        let common = common_lines(report);
        if !common.is_empty() {
            writeln!(out, "For each resource of status unknown:")?;
            common.iter().try_for_each(|(word, text)| put(out, word, text))?;
        }
    }
    // That it is not the configured cluster comes first.
    let of_cluster = |remark: &&Remark| remark.about == RemarkSubject::Cluster;
    let (first, others): (Vec<&Remark>, Vec<&Remark>) = report.remarks.iter().partition(of_cluster);
    first.into_iter().try_for_each(|r| remark(r, ERROR, out))?;
    if !report.findings.is_empty() {
        findings(report, out)?;
    }
    others.into_iter().try_for_each(|r| remark(r, WARNING, out))?;
    approvals(report, out)?;
    totals(report, out)
}

fn remark(remark: &Remark, style: Style, out: &mut dyn Write) -> io::Result<()> {
    write_problem(out, style, &remark.about.to_string(), &remark.message, &remark.remedy)
}

fn findings(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let cells: Vec<[String; 6]> = report.findings.iter().map(|row| cells(row, report)).collect();
    let width = |i: usize| cells.iter().map(|c| c[i].chars().count()).chain([HEAD[i].len()]).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    writeln!(out)?;
    line(out, &HEAD.map(str::to_owned), &widths, DIM)?;
    let common = common_lines(report);
    for (row, cells) in report.findings.iter().zip(&cells) {
        let style = match row.status {
            AuditStatus::Orphan | AuditStatus::Unproven => ERROR,
            AuditStatus::Suspect | AuditStatus::Unknown => WARNING,
            AuditStatus::Foreign | AuditStatus::Protected | AuditStatus::InFlight | AuditStatus::Owned => Style::new(),
        };
        line(out, cells, &widths, style)?;
        detail(row, &common, out)?;
    }
    Ok(())
}

/// Action and reasons of all resources of unknown status, where there are several: an incomplete listing gives each the same,
/// which is written once.
fn common_lines(report: &Report) -> Vec<(&'static str, String)> {
    let mut unknown = report.findings.iter().filter(|row| row.status == AuditStatus::Unknown);
    let (Some(first), Some(second)) = (unknown.next(), unknown.next()) else { return Vec::new() };
    let mut common = lines(first);
    for row in std::iter::once(second).chain(unknown) {
        let own = lines(row);
        common.retain(|line| own.contains(line));
    }
    common
}

/// Action and reasons of a resource, each after its word.
fn lines(row: &ResourceFinding) -> Vec<(&'static str, String)> {
    if row.status.is_in_use() {
        return Vec::new();
    }
    let is_kept = matches!(row.status, AuditStatus::Foreign | AuditStatus::Protected);
    let word = if is_kept { "kept" } else { "blocked" };
    let reasons = reasons(row).into_iter().map(|reason| (word, reason));
    std::iter::once(("action", row.action.clone())).chain(reasons).collect()
}

fn cells(row: &ResourceFinding, report: &Report) -> [String; 6] {
    [
        row.kind.to_string(),
        one_line(&row.name),
        row.status.as_str().to_owned(),
        age(row.since(), report.taken_at),
        cost(row),
        row.addresses.to_string(),
    ]
}

fn line(out: &mut dyn Write, cells: &[String; 6], widths: &[usize; 6], style: Style) -> io::Result<()> {
    let mut text = String::new();
    for (i, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
        // Numbers are aligned to the right.
        text += &if i >= 4 { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
        text += "  ";
    }
    writeln!(out, "{style}{}{style:#}", text.trim_end())
}

fn detail(row: &ResourceFinding, common: &[(&'static str, String)], out: &mut dyn Write) -> io::Result<()> {
    put(out, "tags", &tags(row))?;
    put(out, "evidence", &row.evidence.join("; "))?;
    let is_common = |line: &(&'static str, String)| row.status == AuditStatus::Unknown && common.contains(line);
    lines(row).iter().filter(|line| !is_common(line)).try_for_each(|(word, text)| put(out, word, text))
}

/// A line below a resource, after its word; none without a text.
fn put(out: &mut dyn Write, word: &str, text: &str) -> io::Result<()> {
    match text {
        "" => Ok(()),
        text => writeln!(out, "  {DIM}{word:<9}{DIM:#}{}", one_line(text)),
    }
}

fn approvals(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for (sweep, rows) in report.approvals() {
        let sweep = if sweep.is_empty() { "an OrphanSweep".to_owned() } else { format!("OrphanSweep {sweep}") };
        writeln!(
            out,
            "\n{BOLD}approvals{BOLD:#}: to approve deletions, add the lines you agree with to {sweep} in \
             Git:\n\nspec:\n  approvals:"
        )?;
        for row in rows {
            write!(out, "{}", printable(row.approval.as_deref().unwrap_or_default()))?;
        }
    }
    Ok(())
}

fn totals(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    for status in AuditStatus::ALL {
        let Some(total) = report.totals.get(status.as_str()) else { continue };
        let (n, price, addresses) = (total.resources, format!("${}", usd(total.price)), total.addresses);
        let words = status_in_words(status);
        writeln!(
            out,
            "{:<9} {n:>6}  {price:>11} per month  {addresses:>5} addresses  {DIM}{words}{DIM:#}",
            status.as_str()
        )?;
    }
    if report.omitted_in_use > 0 {
        let count = plural(report.omitted_in_use, "resource");
        writeln!(out, "{DIM}{count} in use not shown: use --all to include them{DIM:#}")?;
    }
    match report.omitted - report.omitted_in_use {
        0 => {}
        others => {
            writeln!(out, "{DIM}{} not shown because of --kind or --status{DIM:#}", plural(others, "resource"))?;
        }
    }
    if report.is_conclusive() {
        writeln!(out, "{BOLD}{}{BOLD:#}", sum(report))?;
    }
    Ok(())
}
