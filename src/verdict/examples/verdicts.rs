//! Prints the answers of the API server to manifests. Reads JSON lines `{"manifest": …}` from stdin and prints one
//! answer a line, by the definitions of a file that holds a JSON list of CustomResourceDefinitions, or by
//! the embedded ones.
//!
//! `cargo run --example verdicts -- crds.json < manifests.jsonl`; with a second argument it prints
//! the findings of each manifest, by the embedded definitions.

#![expect(clippy::print_stdout, reason = "it is a program")]

use napkeeper_api::yaml::Document;
use napkeeper_verdict::{CrdSchemas, Validator};
use serde_json::{Value, json};
use std::error::Error;
use std::io::stdin;

fn main() -> Result<(), Box<dyn Error>> {
    let definitions = match std::env::args().nth(1) {
        Some(file) => {
            let crds: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
            CrdSchemas::from_crds(&file, crds.iter())?
        }
        None => CrdSchemas::embedded()?,
    };
    let validator = Validator::embedded()?;
    for line in stdin().lines() {
        let case: Value = serde_json::from_str(&line?)?;
        if std::env::args().nth(2).is_some() {
            let report = validator.validate_document(&Document::without_text("stdin", case["manifest"].clone()));
            let lines = report.findings.iter().map(|f| format!("{} {} {}", f.rule, f.path, f.message));
            println!("{}", json!(lines.collect::<Vec<_>>()));
            continue;
        }
        let validator = definitions.create(&case["manifest"]);
        let cause = |c: &napkeeper_verdict::StatusCause| json!({ "field": c.field, "reason": c.reason.as_str() });
        let causes: Vec<Value> = validator.causes.iter().map(cause).collect();
        println!("{}", json!({ "code": validator.code, "causes": causes, "unknown": validator.unknown_fields }));
    }
    Ok(())
}
