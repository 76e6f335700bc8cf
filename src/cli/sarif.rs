//! SARIF 2.1.0, for code scanning: what `validate` and `audit` have in common.

use serde_json::{Value, json};
use std::io::Write;

/// The schema of what is written.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Writes a run of napkeeper by these rules. `run` has everything but the tool.
pub(super) fn write(rules: &[Value], mut run: Value, out: &mut impl Write) -> anyhow::Result<()> {
    run["tool"] = json!({
        "driver": { "name": "napkeeper", "rules": rules, "semanticVersion": env!("CARGO_PKG_VERSION") },
    });
    let log = json!({ "$schema": SCHEMA, "runs": [run], "version": "2.1.0" });
    writeln!(out, "{}", serde_json::to_string_pretty(&log)?)?;
    Ok(())
}
