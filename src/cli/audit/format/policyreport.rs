//! A PolicyReport of the Kubernetes policy working group, `wgpolicyk8s.io/v1alpha2`, as JSON.

use super::super::report::{Remark, RemarkSubject, Report, ResourceFinding, usd};
use super::{sentence, tags};
use crate::output::{one_line, write_json};
use napkeeper_core::orphans::AuditStatus;
use serde_json::{Map, Value, json};
use std::io::Write;

/// Name of the object and of its policy.
const NAME: &str = "napkeeper-audit";
/// Most results: an object must fit into etcd. Orphans come first.
const MOST: usize = 1_000;
/// Most remarks.
const MOST_REMARKS: usize = 100;

pub(super) fn write(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let results: Vec<Value> = report.findings.iter().take(MOST).map(|row| result(row, report)).collect();
    let remarks: Vec<Value> = report.remarks.iter().take(MOST_REMARKS).map(|r| remark(r, report)).collect();
    let results: Vec<Value> = remarks.into_iter().chain(results).collect();
    let count = |word: &str| results.iter().filter(|r| r["result"] == word).count();
    let failed = report.failed.iter().map(|failed| {
        json!({
            "source": "napkeeper", "policy": NAME, "rule": "whole-listing", "category": "listing", "result": "error",
            "severity": "high", "message": format!("{}: {}; {}", failed.listing, failed.reason, failed.remedy),
            "timestamp": stamp(report),
        })
    });
    let summary = json!({ "pass": count("pass"), "fail": count("fail"), "warn": count("warn"),
        "error": count("error") + report.failed.len(), "skip": count("skip") });
    let object = json!({
        "apiVersion": "wgpolicyk8s.io/v1alpha2",
        "kind": "PolicyReport",
        "metadata": {
            "name": NAME,
            "labels": { "app.kubernetes.io/managed-by": "napkeeper" },
            "annotations": {
                "napkeeper.io/group": report.group,
                "napkeeper.io/left-out": report.findings.len().saturating_sub(MOST).to_string(),
                "napkeeper.io/left-out-remarks": report.remarks.len().saturating_sub(MOST_REMARKS).to_string(),
            },
        },
        "summary": summary,
        "results": failed.chain(results.iter().cloned()).collect::<Vec<_>>(),
    });
    write_json(&object, out)
}

fn stamp(report: &Report) -> Value {
    json!({ "seconds": report.taken_at.as_second(), "nanos": 0 })
}

/// A remark as a result. That it is not the configured cluster is an error: the report is then inconclusive.
fn remark(remark: &Remark, report: &Report) -> Value {
    let (result, severity) =
        if remark.about == RemarkSubject::Cluster { ("error", "high") } else { ("warn", "medium") };
    json!({
        "source": "napkeeper", "policy": NAME, "rule": format!("remark-{}", remark.about), "category": "remarks",
        "result": result, "severity": severity, "timestamp": stamp(report),
        "message": one_line(&format!("{}; {}", remark.message, remark.remedy)),
    })
}

fn result(row: &ResourceFinding, report: &Report) -> Value {
    let (result, severity) = match row.status {
        AuditStatus::Orphan => ("fail", "medium"),
        AuditStatus::Unproven => ("fail", "low"),
        AuditStatus::Suspect => ("warn", "info"),
        AuditStatus::Unknown => ("error", "info"),
        AuditStatus::Foreign | AuditStatus::Protected => ("skip", "info"),
        AuditStatus::InFlight | AuditStatus::Owned => ("pass", "info"),
    };
    let mut properties = Map::new();
    let mut put = |key: &str, value: String| {
        if !value.is_empty() {
            properties.insert(key.to_owned(), Value::String(value));
        }
    };
    put("id", row.id.to_string());
    put("incarnation", row.incarnation.to_string());
    put("status", row.status.as_str().to_owned());
    put("usdPerMonth", if row.priced { usd(row.price) } else { String::new() });
    put("addresses", row.addresses.to_string());
    put("orphanSince", row.orphan_since.map(|at| at.to_string()).unwrap_or_default());
    put("unusedSince", row.unused_since.map(|at| at.to_string()).unwrap_or_default());
    put("keptBy", row.refusals.iter().map(|explained| explained.refusal.category()).collect::<Vec<_>>().join(" "));
    put("tags", tags(row));
    json!({
        "source": "napkeeper",
        "policy": NAME,
        "rule": format!("orphan-{}", row.kind.to_string().to_lowercase()),
        "category": "orphans",
        "result": result,
        "severity": severity,
        "scored": row.status.is_orphan(),
        "message": sentence(row),
        "timestamp": stamp(report),
        "properties": properties,
    })
}
