//! For code scanning: SARIF 2.1.0. A finding lies nowhere in a file: its place is the resource.

use super::super::super::output::one_line;
use super::super::super::sarif;
use super::super::report::{Remark, Report, Row, Standing, usd};
use super::sentence;
use napkeeper_core::model::azure::cloud::ResourceKind;
use serde_json::{Value, json};
use std::io::Write;

/// Name of our fingerprints; another way to make them is another name.
const FINGERPRINT: &str = "napkeeper/audit/v1";
/// Where a resource is shown to people.
const PORTAL: &str = "https://portal.azure.com/#resource";
/// The rule of what is wrong beside resources.
const REMARK: &str = "sweep-setting";

pub(super) fn write(report: &Report, out: &mut impl Write) -> anyhow::Result<()> {
    let mut rules: Vec<Value> = ResourceKind::ALL.into_iter().map(orphan_rule).collect();
    rules.push(rule(REMARK, "A sweep, its approvals or the breaker need manual action"));
    let findings = report.findings.iter().map(|row| result(row, report));
    let results: Vec<Value> = findings.chain(report.remarks.iter().map(|r| remark(r, report))).collect();
    let failed = report.failed.iter().map(|failed| {
        let text = one_line(&format!("not listed: {}: {}; {}", failed.what, failed.why, failed.remedy));
        json!({ "level": "error", "message": { "text": text } })
    });
    let whole = json!({
        "executionSuccessful": report.says(),
        "toolExecutionNotifications": failed.collect::<Vec<_>>(),
    });
    sarif::write(&rules, json!({ "invocations": [whole], "results": results }), out)
}

fn id_of(kind: ResourceKind) -> String {
    format!("orphan-{}", kind.to_string().to_lowercase())
}

fn orphan_rule(kind: ResourceKind) -> Value {
    let what = match kind {
        ResourceKind::Nic => "A NIC",
        ResourceKind::OsDisk => "An OS disk",
        ResourceKind::Vm => "A VM",
        ResourceKind::DataDisk => "A data disk",
    };
    rule(&id_of(kind), &format!("{what} in the node resource group is an orphan"))
}

fn rule(id: &str, title: &str) -> Value {
    json!({
        "defaultConfiguration": { "level": "warning" },
        "fullDescription": { "text": title },
        "id": id,
        "name": id,
        "shortDescription": { "text": title },
    })
}

fn result(row: &Row, report: &Report) -> Value {
    let level = match row.standing {
        Standing::Orphan | Standing::Unproven => "warning",
        Standing::Suspect | Standing::Unknown | Standing::Foreign => "note",
        Standing::Protected | Standing::InFlight | Standing::Owned => "none",
    };
    json!({
        "level": level,
        "locations": [location(row.id.as_str(), &report.group)],
        "message": { "text": sentence(row) },
        "partialFingerprints": { FINGERPRINT: format!("{}#{}", row.id.folded(), row.incarnation) },
        "properties": {
            "addresses": row.addresses,
            "portal": format!("{PORTAL}{}", escaped(row.id.as_str())),
            "standing": row.standing,
            "tags": [row.standing.as_str()],
            "usdPerMonth": usd(row.price),
        },
        "ruleId": id_of(row.kind),
    })
}

fn remark(remark: &Remark, report: &Report) -> Value {
    let text = one_line(&format!("{}: {}; {}", remark.about, remark.what, remark.remedy));
    json!({
        "level": "warning",
        "locations": [location(&report.group, &report.group)],
        "message": { "text": text },
        "partialFingerprints": { FINGERPRINT: text },
        "ruleId": REMARK,
    })
}

/// Code scanning takes a place for a file of the repository and refuses one with a scheme: the id serves, as a path.
fn location(id: &str, group: &str) -> Value {
    let below = id.strip_prefix(group).unwrap_or(id).trim_start_matches('/');
    let name = if below.is_empty() { id.rsplit('/').next().unwrap_or(id) } else { below };
    json!({
        "logicalLocations": [{ "fullyQualifiedName": one_line(id), "kind": "resource", "name": one_line(name) }],
        "physicalLocation": { "artifactLocation": { "uri": escaped(id.trim_start_matches('/')) } },
    })
}

/// An id as part of a URI.
fn escaped(id: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    id.chars().map(|c| if is_safe(c) { c.to_string() } else { percent(c) }).collect()
}

fn percent(c: char) -> String {
    let mut bytes = [0; 4];
    c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}
