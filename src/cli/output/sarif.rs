//! SARIF 2.1.0, for code scanning.

use super::write_json;
use serde_json::{Value, json};
use std::io::Write;

/// The JSON schema of the output.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// A rule that results refer to.
pub(crate) struct Rule<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) level: &'a str,
    /// Its documentation in Markdown.
    pub(crate) page: Option<&'a str>,
}

/// A result, and where it is.
pub(crate) struct Finding<'a> {
    pub(crate) rule: &'a str,
    /// Position of the rule in the list.
    pub(crate) rule_index: Option<usize>,
    pub(crate) level: &'a str,
    pub(crate) message: String,
    pub(crate) location: Location,
    /// Name of the kind of fingerprint, and the fingerprint.
    pub(crate) fingerprint: (&'static str, String),
    pub(crate) properties: Value,
}

/// Where a result is.
pub(crate) struct Location {
    /// Relative URI of a file; encoded.
    pub(crate) uri: String,
    /// Line and column, if it is a file.
    pub(crate) region: Option<(usize, usize)>,
    /// The full name of the object.
    pub(crate) object: String,
    /// Its short name.
    pub(crate) object_name: Option<String>,
}

/// Writes a run. `run` has everything but the rules and results.
pub(crate) fn write(
    mut run: Value,
    rules: &[Rule<'_>],
    findings: impl Iterator<Item = Value>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    run["results"] = findings.collect();
    let rules: Vec<Value> = rules.iter().map(Rule::json).collect();
    run["tool"] = json!({
        "driver": {
            "informationUri": env!("CARGO_PKG_REPOSITORY"),
            "name": "napkeeper",
            "rules": rules,
            "semanticVersion": env!("CARGO_PKG_VERSION"),
            "version": env!("CARGO_PKG_VERSION"),
        },
    });
    write_json(&json!({ "$schema": SCHEMA, "runs": [run], "version": "2.1.0" }), out)
}

impl Rule<'_> {
    fn json(&self) -> Value {
        let Self { id, title, level, page } = self;
        present(json!({
            "defaultConfiguration": { "level": level },
            "fullDescription": { "text": title },
            "help": page.map(|page| json!({ "markdown": page, "text": page })),
            "id": id,
            "name": id,
            "properties": page.map(|_| json!({
                "precision": "high",
                "problem.severity": level,
                "tags": ["napkeeper", "kubernetes"],
            })),
            "shortDescription": { "text": title },
        }))
    }
}

impl Finding<'_> {
    pub(crate) fn json(self) -> Value {
        let Self { rule, rule_index, level, message, location, fingerprint: (kind, fingerprint), properties } = self;
        let Location { uri, region, object, object_name } = location;
        let logical = json!({ "fullyQualifiedName": object, "kind": "resource", "name": object_name });
        let physical = json!({
            "artifactLocation": { "uri": uri },
            "region": region.map(|(line, column)| json!({ "startColumn": column, "startLine": line })),
        });
        present(json!({
            "level": level,
            "locations": [{ "logicalLocations": [present(logical)], "physicalLocation": present(physical) }],
            "message": { "text": message },
            "partialFingerprints": { kind: fingerprint },
            "properties": properties,
            "ruleId": rule,
            "ruleIndex": rule_index,
        }))
    }
}

/// An object without the fields that are null.
fn present(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

/// Text as part of a URI: all but letters, digits, and `-._~/` is percent-encoded.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(char::from(byte))
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// A path as a URI: relative, unless it is absolute.
pub(crate) fn file_uri(path: &str) -> String {
    format!("{}{}", if path.starts_with('/') { "file://" } else { "" }, encoded(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_have_no_bare_special_characters() {
        assert_eq!(file_uri("a b/ü:c#d%.yaml"), "a%20b/%C3%BC%3Ac%23d%25.yaml");
        assert_eq!(file_uri("/tmp/a.yaml"), "file:///tmp/a.yaml");
    }
}
