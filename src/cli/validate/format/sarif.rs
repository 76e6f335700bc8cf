//! For code scanning: SARIF 2.1.0.

use super::super::super::output::one_line;
use super::super::super::sarif;
use super::super::judge::Shown;
use super::place::{Spots, uri};
use super::{Told, sentence};
use napkeeper_verdict::rules::{self, Rule};
use serde_json::{Value, json};
use std::io::Write;

/// Name of our fingerprints; another way to make them is another name.
const FINGERPRINT: &str = "napkeeper/v1";

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let spots = Spots::of(told.input);
    let rules: Vec<&Rule> = rules::all().collect();
    let described: Vec<Value> = rules.iter().map(|rule| descriptor(rule)).collect();
    let results: Vec<Value> = told.shown.iter().map(|shown| result(shown, &spots, &rules)).collect();
    let run = json!({
        "columnKind": "unicodeCodePoints",
        "invocations": [{ "executionSuccessful": told.summary.unreadable == 0 }],
        "results": results,
    });
    sarif::write(&described, run, out)
}

fn descriptor(rule: &Rule) -> Value {
    json!({
        "defaultConfiguration": { "level": rule.severity },
        "fullDescription": { "text": rule.title },
        "help": { "markdown": rule.page, "text": rule.page },
        "id": rule.id,
        "name": rule.id,
        "properties": {
            "precision": "high",
            "problem.severity": rule.severity,
            "tags": ["napkeeper", "kubernetes"],
        },
        "shortDescription": { "text": rule.title },
    })
}

fn result(shown: &Shown, spots: &Spots<'_>, rules: &[&Rule]) -> Value {
    let finding = &shown.finding;
    let spot = spots.spot(shown);
    let within = spot.within.as_ref().map(|within| format!("{within}: ")).unwrap_or_default();
    let name = one_line(&format!("{}#{}", shown.object, finding.path));
    let mut result = json!({
        "level": finding.severity,
        "locations": [{
            "logicalLocations": [{ "fullyQualifiedName": name, "kind": "resource" }],
            "physicalLocation": {
                "artifactLocation": { "uri": uri(spot.file.as_deref().unwrap_or("stdin")) },
                "region": { "startColumn": spot.column, "startLine": spot.line },
            },
        }],
        "message": { "text": within + &sentence(shown) },
        "partialFingerprints": { FINGERPRINT: shown.fingerprint },
        "ruleId": finding.rule,
    });
    // A rule that the table lacks has no index; a test rules it out.
    if let Some(index) = rules.iter().position(|rule| rule.id == finding.rule) {
        result["ruleIndex"] = json!(index);
    }
    result
}
