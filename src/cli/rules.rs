//! `napkeeper rules`: which rules are there, and what does one mean?

use super::Outcome;
use super::output::Format;
use anyhow::anyhow;
use napkeeper_core::model::support::spelling::nearest;
use napkeeper_verdict::rules::{self, Rule};
use serde_json::{Value, json};
use std::io::Write;

const EXAMPLES: &str = "\
Examples:
  napkeeper rules                list all rules
  napkeeper rules NK1013         explain a rule, with a bad and a good example
  napkeeper rules -o json | jq -r '.[].id'";

/// List validation rules, or explain one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Rule id, for example NK1013. Defaults to a list of all rules.
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut out = anstream::stdout().lock();
    let one = args.id.as_deref().map(find).transpose()?;
    match (args.output, one) {
        (Format::Text, Some(rule)) => writeln!(out, "{}", rule.page.trim_end())?,
        (Format::Text, None) => {
            for rule in rules::all() {
                writeln!(out, "{}  {:7}  {}", rule.id, rule.severity, rule.title)?;
            }
        }
        (Format::Json, Some(rule)) => {
            let mut value = json(rule);
            value["page"] = json!(rule.page);
            writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
        }
        (Format::Json, None) => {
            let all: Vec<Value> = rules::all().map(json).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        }
    }
    Ok(Outcome::Fine)
}

fn find(id: &str) -> anyhow::Result<&'static Rule> {
    let id = id.to_ascii_uppercase();
    rules::find(&id).ok_or_else(|| {
        let near = nearest(&id, rules::all().map(|rule| rule.id)).map(|near| format!("did you mean {near}? "));
        anyhow!("unknown rule {id}: {}run `napkeeper rules` to list all rules", near.unwrap_or_default())
    })
}

fn json(rule: &Rule) -> Value {
    json!({ "id": rule.id, "severity": rule.severity, "title": rule.title })
}
