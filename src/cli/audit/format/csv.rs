//! CSV by RFC 4180, one row per finding, for a spreadsheet.

use super::super::report::{Report, ResourceFinding, usd};
use super::{reasons, tags};
use std::io::{self, Write};

const HEAD: [&str; 16] = [
    "kind",
    "name",
    "status",
    "id",
    "incarnation",
    "sweep",
    "createdAt",
    "unusedSince",
    "orphanSince",
    "usdPerMonth",
    "addresses",
    "tags",
    "evidence",
    "action",
    "refusals",
    "reasons",
];

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(out);
    writer.write_record(HEAD)?;
    for row in &report.findings {
        writer.write_record(fields(row).map(inert))?;
    }
    writer.flush()
}

fn fields(row: &ResourceFinding) -> [String; 16] {
    let time = |at: &Option<jiff::Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
    [
        row.kind.to_string(),
        row.name.clone(),
        row.status.as_str().to_owned(),
        row.id.to_string(),
        row.incarnation.to_string(),
        row.sweep.clone().unwrap_or_default(),
        time(&row.created_at),
        time(&row.unused_since),
        time(&row.orphan_since),
        if row.priced { usd(row.price) } else { String::new() },
        row.addresses.to_string(),
        tags(row),
        row.evidence.join("; "),
        row.action.clone(),
        row.refusals.iter().map(|explained| explained.refusal.category()).collect::<Vec<_>>().join(" "),
        reasons(row).join("; "),
    ]
}

/// A field that no spreadsheet interprets as a formula.
fn inert(field: String) -> String {
    if field.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{field}") } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_is_a_formula() {
        assert_eq!(inert("a=b".to_owned()), "a=b");
        assert_eq!(inert("=cmd|' /C calc'!A0".to_owned()), "'=cmd|' /C calc'!A0");
    }
}
