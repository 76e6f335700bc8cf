//! Markdown for a comment on a pull request or a ticket: sums, and a bounded table.

use super::super::report::{Report, age};
use super::{cost, reasons, sum};
use crate::output::markdown::{MOST, code, plain, write_findings};
use std::io::{self, Write};

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let title = match () {
        () if !report.is_complete => "incomplete listing".to_owned(),
        () if !report.of_cluster => "cluster not confirmed".to_owned(),
        () => sum(report),
    };
    writeln!(out, "### napkeeper audit: {}\n", plain(&title))?;
    writeln!(out, "Group {}, taken {}.", code(&report.group), report.taken_at)?;
    for failed in report.failed.iter().take(MOST) {
        writeln!(
            out,
            "\nNot listed: {}: {}. {}.",
            plain(&failed.listing),
            plain(&failed.reason),
            plain(&failed.remedy)
        )?;
    }
    for remark in report.remarks.iter().take(MOST) {
        writeln!(out, "\n**{}**: {}. {}.", remark.about, plain(&remark.message), plain(&remark.remedy))?;
    }
    if !report.findings.is_empty() {
        findings(report, out)?;
    }
    for (sweep, approved) in report.approvals() {
        let sweep = if sweep.is_empty() { "an OrphanSweep".to_owned() } else { format!("OrphanSweep {}", code(sweep)) };
        writeln!(
            out,
            "\n<details><summary>approvals</summary>\n\nTo approve deletions, add the lines you agree with to \
             {sweep} in Git:\n"
        )?;
        writeln!(out, "```yaml\nspec:\n  approvals:")?;
        for finding in approved.iter().take(MOST) {
            write!(out, "{}", finding.approval.as_deref().unwrap_or_default().replace('`', ""))?;
        }
        writeln!(out, "```\n\n</details>")?;
    }
    Ok(())
}

fn findings(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let rows = report.findings.iter().map(|finding| {
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            finding.status.as_str(),
            finding.kind,
            code(&finding.name),
            age(finding.since(), report.taken_at),
            cost(finding),
            finding.addresses,
            plain(&finding.evidence.join("; ")),
            reasons(finding).iter().map(|reason| plain(reason)).collect::<Vec<_>>().join("<br>")
        )
    });
    let header = "| status | kind | name | age | per month | addresses | evidence | why not deleted |";
    write_findings(out, header, &rows.collect::<Vec<_>>())
}
