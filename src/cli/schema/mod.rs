//! `napkeeper schema`: prints JSON Schemas for editors.

mod relaxed;

use super::Outcome;
use super::output::{alternatives, write_json};
use anyhow::bail;
use napkeeper_api::{config, crds};
use serde_json::{Map, Value, json};

const EXAMPLES: &str = "\
Examples:
  napkeeper schema > napkeeper.schema.json     all kinds in one schema, which ignores other kinds
  napkeeper schema NodePool > nodepool.schema.json
  napkeeper schema config > napkeeper-yaml.schema.json

Editors with yaml-language-server use the schema named in the first line of a manifest:
  # yaml-language-server: $schema=napkeeper.schema.json
A schema checks less than napkeeper validate, and never rejects what validate accepts.";

/// The version of JSON Schema that most editors support.
const DIALECT: &str = "http://json-schema.org/draft-07/schema#";
/// The schema of scenarios, which are not defined by types.
const SCENARIO: &str = include_str!("scenario.json");

/// Print JSON Schemas for editors.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// A kind such as `NodePool`, config (napkeeper.yaml), or scenario. Defaults to one schema for all kinds.
    #[arg(value_name = "KIND")]
    kind: Option<String>,
}

/// The schema of a kind.
struct Named {
    name: String,
    /// The value of `kind`; absent for `napkeeper.yaml`.
    kind: Option<String>,
    schema: Value,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let all = all()?;
    let mut schema = match &args.kind {
        None => together(&all),
        Some(name) => match all.iter().find(|named| named.name.eq_ignore_ascii_case(name)) {
            Some(named) => named.schema.clone(),
            None => {
                let names = all.iter().map(|named| named.name.as_str());
                bail!("unknown schema {name:?}: {}", alternatives(name, names));
            }
        },
    };
    let mut whole = Map::from_iter([("$schema".to_owned(), json!(DIALECT))]);
    if let Some(schema) = schema.as_object_mut() {
        whole.append(schema);
    }
    let mut out = anstream::stdout().lock();
    write_json(&whole, &mut out)?;
    Ok(Outcome::Fine)
}

fn all() -> anyhow::Result<Vec<Named>> {
    let mut all = Vec::new();
    for crd in crds::all()? {
        let spec = &crd.definition["spec"];
        let name = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
        all.push(Named { schema: relaxed::kind(spec), kind: Some(name.clone()), name });
    }
    let scenario: Value = serde_json::from_str(SCENARIO)?;
    all.push(Named { name: "Scenario".to_owned(), kind: Some("Scenario".to_owned()), schema: scenario });
    let mut config = relaxed::schema(&config::schema());
    config["title"] = json!("napkeeper.yaml");
    all.push(Named { name: "config".to_owned(), kind: None, schema: config });
    Ok(all)
}

/// One schema that selects by `kind` and the group of `apiVersion`.
fn together(all: &[Named]) -> Value {
    let one = |named: &Named| {
        let group = &named.schema["properties"]["apiVersion"]["enum"][0];
        let group = group.as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        let pattern = format!("^{}/", group.replace('.', r"\."));
        let is_it = json!({
            "required": ["apiVersion", "kind"],
            "properties": { "kind": { "const": named.kind }, "apiVersion": { "type": "string", "pattern": pattern } },
        });
        json!({ "if": is_it, "then": named.schema })
    };
    let kinds: Vec<Value> = all.iter().filter(|named| named.kind.is_some()).map(one).collect();
    json!({ "title": "Manifests that napkeeper knows", "type": "object", "allOf": kinds })
}
