//! `napkeeper rules`: lists the rules of validation, or explains one.

use super::Outcome;
use super::output::{self, OutputFormat, TextAndJson};
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
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match args.id.as_deref().map(find).transpose()? {
        Some(rule) => output::print(args.output, rule)?,
        None => output::print(args.output, &AllRules)?,
    }
    Ok(Outcome::Fine)
}

struct AllRules;

impl TextAndJson for AllRules {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for rule in rules::all() {
            writeln!(out, "{}  {:7}  {}", rule.id, rule.severity, rule.title)?;
        }
        Ok(())
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        Ok(rules::all().map(json).collect())
    }
}

impl TextAndJson for Rule {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(writeln!(out, "{}", self.page.trim_end())?)
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        let mut value = json(self);
        value["page"] = json!(self.page);
        Ok(value)
    }
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
