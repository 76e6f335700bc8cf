//! For code scanning: SARIF 2.1.0.

use super::super::super::output::one_line;
use super::super::judge::Shown;
use super::place::{Spots, uri};
use super::{Told, sentence};
use napkeeper_verdict::Severity;
use napkeeper_verdict::rules::{self, Rule};
use serde_json::json;
use serde_sarif::sarif::{
    ArtifactLocation, Invocation, Location, LogicalLocation, Message, MultiformatMessageString, PhysicalLocation,
    PropertyBag, Region, ReportingConfiguration, ReportingDescriptor, Result as SarifResult, ResultLevel, Run, Sarif,
    Tool, ToolComponent,
};
use std::collections::BTreeMap;
use std::io::Write;

/// The schema of what is written.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// Name of our fingerprints; another way to make them is another name.
const FINGERPRINT: &str = "napkeeper/v1";

pub(super) fn write(told: &Told<'_>, out: &mut impl Write) -> anyhow::Result<()> {
    let spots = Spots::of(told.input);
    let rules: Vec<&Rule> = rules::all().collect();
    let driver = ToolComponent::builder()
        .name("napkeeper")
        .semantic_version(env!("CARGO_PKG_VERSION"))
        .rules(rules.iter().map(|rule| descriptor(rule)).collect::<Vec<_>>())
        .build();
    let results: Vec<SarifResult> = told.shown.iter().map(|shown| result(shown, &spots, &rules)).collect();
    let whole = Invocation::builder().execution_successful(told.summary.unreadable == 0).build();
    let run = Run::builder()
        .tool(Tool::builder().driver(driver).build())
        .column_kind(json!("unicodeCodePoints"))
        .invocations(vec![whole])
        .results(results)
        .build();
    let log = Sarif::builder().schema(SCHEMA).version(json!("2.1.0")).runs(vec![run]).build();
    writeln!(out, "{}", serde_json::to_string_pretty(&log)?)?;
    Ok(())
}

fn descriptor(rule: &Rule) -> ReportingDescriptor {
    let text = |text: &str| MultiformatMessageString::builder().text(text).build();
    let level = ReportingConfiguration::builder().level(json!(rule.severity)).build();
    let help = MultiformatMessageString::builder().text(rule.page).markdown(rule.page).build();
    let properties = BTreeMap::from([
        ("precision".to_owned(), json!("high")),
        ("problem.severity".to_owned(), json!(rule.severity)),
        ("tags".to_owned(), json!(["napkeeper", "kubernetes"])),
    ]);
    ReportingDescriptor::builder()
        .id(rule.id)
        .name(rule.id)
        .short_description(text(rule.title))
        .full_description(text(rule.title))
        .help(help)
        .default_configuration(level)
        .properties(PropertyBag::builder().additional_properties(properties).build())
        .build()
}

fn result(shown: &Shown, spots: &Spots<'_>, rules: &[&Rule]) -> SarifResult {
    let finding = &shown.finding;
    let spot = spots.spot(shown);
    let level = match finding.severity {
        Severity::Error => ResultLevel::Error,
        Severity::Warning => ResultLevel::Warning,
    };
    let within = spot.within.as_ref().map(|within| format!("{within}: ")).unwrap_or_default();
    let file = spot.file.as_deref().unwrap_or("stdin");
    let region = Region::builder().start_line(number(spot.line)).start_column(number(spot.column)).build();
    let physical = PhysicalLocation::builder()
        .artifact_location(ArtifactLocation::builder().uri(uri(file)).build())
        .region(region)
        .build();
    let name = one_line(&format!("{}#{}", shown.object, finding.path));
    let logical = LogicalLocation::builder().fully_qualified_name(name).kind("resource").build();
    let location = Location::builder().physical_location(physical).logical_locations(vec![logical]).build();
    let prints = BTreeMap::from([(FINGERPRINT.to_owned(), shown.fingerprint.clone())]);
    let result = SarifResult::builder()
        .rule_id(finding.rule)
        .level(level)
        .message(Message::builder().text(within + &sentence(shown)).build())
        .locations(vec![location])
        .partial_fingerprints(prints)
        .build();
    // A rule that the table lacks has no index; a test rules it out.
    let rule_index = rules.iter().position(|rule| rule.id == finding.rule).map(number);
    SarifResult { rule_index, ..result }
}

fn number(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
