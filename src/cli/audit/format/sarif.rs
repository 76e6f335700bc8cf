//! SARIF for code scanning. The location of a finding is the id of its resource, as a path.

use super::super::report::{Remark, Report, ResourceFinding, usd};
use super::sentence;
use crate::output::one_line;
use crate::output::sarif::{self, Finding, Location, Rule, encoded};
use napkeeper_core::model::azure::cloud::ResourceKind;
use napkeeper_core::orphans::AuditStatus;
use serde_json::{Value, json};
use std::io::Write;

/// Name of our fingerprints; another way to make them is another name.
const FINGERPRINT: &str = "napkeeper/audit/v1";
/// Where people see a resource.
const PORTAL: &str = "https://portal.azure.com/#resource";
/// The rule of remarks.
const REMARK: &str = "sweep-setting";

/// The rules: one for each kind of resource, and one for remarks.
const RULES: [(&str, &str); 5] = [
    (rule_of(ResourceKind::Nic), "A NIC in the node resource group is an orphan"),
    (rule_of(ResourceKind::OsDisk), "An OS disk in the node resource group is an orphan"),
    (rule_of(ResourceKind::Vm), "A VM in the node resource group is an orphan"),
    (rule_of(ResourceKind::DataDisk), "A data disk in the node resource group is an orphan"),
    (REMARK, "A sweep, its approvals or the breaker need manual action"),
];

const fn rule_of(kind: ResourceKind) -> &'static str {
    match kind {
        ResourceKind::Nic => "orphan-nic",
        ResourceKind::OsDisk => "orphan-osdisk",
        ResourceKind::Vm => "orphan-vm",
        ResourceKind::DataDisk => "orphan-datadisk",
    }
}

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let rules = RULES.map(|(id, title)| Rule { id, title, level: "warning", page: None });
    let notifications = report.failed.iter().map(|failed| {
        let text = one_line(&format!("not listed: {}: {}; {}", failed.listing, failed.reason, failed.remedy));
        json!({ "level": "error", "message": { "text": text } })
    });
    let invocation = json!({
        "executionSuccessful": report.is_conclusive(),
        "toolExecutionNotifications": notifications.collect::<Vec<_>>(),
    });
    let findings = report.findings.iter().map(|row| resource(row, report));
    let remarks = report.remarks.iter().map(|one| remark(one, report));
    sarif::write(json!({ "invocations": [invocation] }), &rules, findings.chain(remarks), out)
}

fn resource(row: &ResourceFinding, report: &Report) -> Value {
    let level = match row.status {
        AuditStatus::Orphan | AuditStatus::Unproven => "warning",
        AuditStatus::Suspect | AuditStatus::Unknown | AuditStatus::Foreign => "note",
        AuditStatus::Protected | AuditStatus::InFlight | AuditStatus::Owned => "none",
    };
    let finding = Finding {
        rule: rule_of(row.kind),
        rule_index: None,
        level,
        message: sentence(row),
        location: location(row.id.as_str(), &report.group),
        fingerprint: (FINGERPRINT, format!("{}#{}", row.id.folded(), row.incarnation)),
        properties: json!({
            "addresses": row.addresses,
            "portal": format!("{PORTAL}{}", encoded(row.id.as_str())),
            "status": row.status,
            "tags": [row.status.as_str()],
            "usdPerMonth": usd(row.price),
        }),
    };
    finding.json()
}

fn remark(remark: &Remark, report: &Report) -> Value {
    let text = one_line(&format!("{}: {}; {}", remark.about, remark.message, remark.remedy));
    let finding = Finding {
        rule: REMARK,
        rule_index: None,
        level: "warning",
        message: text.clone(),
        location: location(&report.group, &report.group),
        fingerprint: (FINGERPRINT, text),
        properties: Value::Null,
    };
    finding.json()
}

/// Code scanning interprets a location as a file of the repository and refuses one with a scheme: the id serves as a
/// path.
fn location(id: &str, group: &str) -> Location {
    let below = id.strip_prefix(group).unwrap_or(id).trim_start_matches('/');
    let name = if below.is_empty() { id.rsplit('/').next().unwrap_or(id) } else { below };
    Location {
        uri: encoded(id.trim_start_matches('/')),
        region: None,
        object: one_line(id),
        object_name: Some(one_line(name)),
    }
}
