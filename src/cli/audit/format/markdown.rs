//! For a comment on a pull request or a ticket: the sums, and a list that is short, bounded and folded.

use super::super::super::markdown::{code, plain};
use super::super::report::{Report, age};
use super::{cost, reasons, sum};
use std::io::{self, Write};

/// Most findings that are listed. Orphans come first.
const MOST: usize = 50;

pub(super) fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let title = match () {
        () if !report.whole => "incomplete listing".to_owned(),
        () if !report.of_cluster => "cluster not confirmed".to_owned(),
        () => sum(report),
    };
    writeln!(out, "### napkeeper audit: {}\n", plain(&title))?;
    writeln!(out, "Group {}, taken {}.", code(&report.group), report.taken_at)?;
    for failed in report.failed.iter().take(MOST) {
        writeln!(out, "\nNot listed: {}: {}. {}.", plain(&failed.what), plain(&failed.why), plain(&failed.remedy))?;
    }
    for remark in report.remarks.iter().take(MOST) {
        writeln!(out, "\n**{}**: {}. {}.", remark.about, plain(&remark.what), plain(&remark.remedy))?;
    }
    if !report.findings.is_empty() {
        findings(report, out)?;
    }
    for (sweep, rows) in report.approvals() {
        let sweep = if sweep.is_empty() { "an OrphanSweep".to_owned() } else { format!("OrphanSweep {}", code(sweep)) };
        writeln!(
            out,
            "\n<details><summary>approvals</summary>\n\nTo approve deletions, add the lines you agree with to \
             {sweep} in Git:\n"
        )?;
        writeln!(out, "```yaml\nspec:\n  approvals:")?;
        for row in rows.iter().take(MOST) {
            write!(out, "{}", row.approval.as_deref().unwrap_or_default().replace('`', ""))?;
        }
        writeln!(out, "```\n\n</details>")?;
    }
    Ok(())
}

fn findings(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let count = super::super::super::output::plural(report.findings.len(), "finding");
    writeln!(out, "\n<details><summary>{count}</summary>\n")?;
    writeln!(out, "| standing | kind | name | age | per month | addresses | evidence | why not deleted |")?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for row in report.findings.iter().take(MOST) {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.standing.as_str(),
            row.kind,
            code(&row.name),
            age(row.since(), report.taken_at),
            cost(row),
            row.addresses,
            plain(&row.evidence.join("; ")),
            reasons(row).iter().map(|reason| plain(reason)).collect::<Vec<_>>().join("<br>")
        )?;
    }
    if report.findings.len() > MOST {
        writeln!(out, "\n… and {} more.", report.findings.len() - MOST)?;
    }
    writeln!(out, "\n</details>")
}
