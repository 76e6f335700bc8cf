//! For people: a line for each finding, what is behind it, then the sums.

use super::super::super::output::{one_line, plural, printable};
use super::super::remarks::CLUSTER;
use super::super::report::{Remark, Report, Row, Standing, age, usd};
use super::{cost, reasons, sum, tags};
use anstyle::{AnsiColor, Style};
use std::io::{self, Write};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const HELP: Style = AnsiColor::Cyan.on_default();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const HEAD: [&str; 6] = ["KIND", "NAME", "STANDING", "AGE", "PER MONTH", "ADDRESSES"];

pub(super) fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{BOLD}cluster{BOLD:#}  {}", printable(&report.cluster))?;
    writeln!(out, "{BOLD}group{BOLD:#}    {}", printable(&report.group))?;
    writeln!(out, "{BOLD}taken{BOLD:#}    {}; VM prices as of {}", report.taken_at, report.prices_of)?;
    for failed in &report.failed {
        let (what, why) = (one_line(&failed.what), one_line(&failed.why));
        writeln!(out, "\n{RED}not listed:{RED:#} {what}: {why}\n  {HELP}help:{HELP:#} {}", failed.remedy)?;
    }
    if !report.whole {
        writeln!(out, "\nA listing is incomplete, so nothing is reported as an orphan.")?;
    }
    // That it is not the cluster comes before all that is said of it.
    let (first, others): (Vec<&Remark>, _) = report.remarks.iter().partition(|remark| remark.about == CLUSTER);
    first.into_iter().try_for_each(|r| remark(r, RED, out))?;
    if !report.findings.is_empty() {
        findings(report, out)?;
    }
    others.into_iter().try_for_each(|r| remark(r, YELLOW, out))?;
    approvals(report, out)?;
    totals(report, out)
}

fn remark(remark: &Remark, style: Style, out: &mut impl Write) -> io::Result<()> {
    let (about, what) = (remark.about, one_line(&remark.what));
    writeln!(out, "\n{style}{about}:{style:#} {what}\n  {HELP}help:{HELP:#} {}", remark.remedy)
}

fn findings(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let cells: Vec<[String; 6]> = report.findings.iter().map(|row| cells(row, report)).collect();
    let width = |i: usize| cells.iter().map(|c| c[i].chars().count()).chain([HEAD[i].len()]).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    writeln!(out)?;
    line(out, &HEAD.map(str::to_owned), &widths, DIM)?;
    for (row, cells) in report.findings.iter().zip(&cells) {
        let style = match row.standing {
            Standing::Orphan | Standing::Unproven => RED,
            Standing::Suspect | Standing::Unknown => YELLOW,
            Standing::Foreign | Standing::Protected | Standing::InFlight | Standing::Owned => Style::new(),
        };
        line(out, cells, &widths, style)?;
        detail(row, out)?;
    }
    Ok(())
}

fn cells(row: &Row, report: &Report) -> [String; 6] {
    [
        row.kind.to_string(),
        one_line(&row.name),
        row.standing.as_str().to_owned(),
        age(row.since(), report.taken_at),
        cost(row),
        row.addresses.to_string(),
    ]
}

fn line(out: &mut impl Write, cells: &[String; 6], widths: &[usize; 6], style: Style) -> io::Result<()> {
    let mut text = String::new();
    for (i, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
        // Numbers stand to the right.
        text += &if i >= 4 { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
        text += "  ";
    }
    writeln!(out, "{style}{}{style:#}", text.trim_end())
}

fn detail(row: &Row, out: &mut impl Write) -> io::Result<()> {
    let mut put = |word: &str, text: &str| match text {
        "" => Ok(()),
        text => writeln!(out, "  {DIM}{word:<9}{DIM:#}{}", one_line(text)),
    };
    put("tags", &tags(row))?;
    put("evidence", &row.evidence.join("; "))?;
    if row.standing.is_in_use() {
        return Ok(());
    }
    put("action", &row.would)?;
    let is_kept = matches!(row.standing, Standing::Foreign | Standing::Protected);
    let word = if is_kept { "kept" } else { "blocked" };
    reasons(row).iter().try_for_each(|reason| put(word, reason))
}

fn approvals(report: &Report, out: &mut impl Write) -> io::Result<()> {
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

fn totals(report: &Report, out: &mut impl Write) -> io::Result<()> {
    writeln!(out)?;
    for standing in Standing::ALL {
        let Some(total) = report.totals.get(standing.as_str()) else { continue };
        let (n, price, addresses) = (total.resources, format!("${}", usd(total.price)), total.addresses);
        let words = standing.words();
        writeln!(
            out,
            "{:<9} {n:>6}  {price:>11} per month  {addresses:>5} addresses  {DIM}{words}{DIM:#}",
            standing.as_str()
        )?;
    }
    if report.left_out > 0 {
        writeln!(
            out,
            "{DIM}{} not shown: use --all to include those in use{DIM:#}",
            plural(report.left_out, "resource")
        )?;
    }
    if report.says() {
        writeln!(out, "{BOLD}{}{BOLD:#}", sum(report))?;
    }
    Ok(())
}
