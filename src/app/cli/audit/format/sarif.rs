//! For code scanning: SARIF 2.1.0. A finding lies nowhere in a file: its place is the resource.

use super::super::super::output::one_line;
use super::super::report::{Remark, Report, Row, Standing};
use super::sentence;
use napkeeper_core::model::azure::cloud::ResourceKind;
use serde_json::json;
use serde_sarif::sarif::{
    ArtifactLocation, Invocation, Location, LogicalLocation, Message, MultiformatMessageString, Notification,
    PhysicalLocation, PropertyBag, ReportingConfiguration, ReportingDescriptor, Result as SarifResult, ResultLevel,
    Run, Sarif, Tool, ToolComponent,
};
use std::collections::BTreeMap;
use std::io::Write;

/// The schema of what is written.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// Name of our fingerprints; another way to make them is another name.
const FINGERPRINT: &str = "napkeeper/audit/v1";
/// Where a resource is shown to people.
const PORTAL: &str = "https://portal.azure.com/#resource";
/// The rule of what is wrong beside resources.
const REMARK: &str = "sweep-setting";

pub(super) fn write(report: &Report, out: &mut impl Write) -> anyhow::Result<()> {
    let mut rules: Vec<ReportingDescriptor> = ResourceKind::ALL.into_iter().map(orphan_rule).collect();
    rules.push(rule(REMARK, "A sweep, its approvals or the breaker need manual action".to_owned()));
    let driver =
        ToolComponent::builder().name("napkeeper").semantic_version(env!("CARGO_PKG_VERSION")).rules(rules).build();
    let findings = report.findings.iter().map(|row| result(row, report));
    let results: Vec<SarifResult> = findings.chain(report.remarks.iter().map(|r| remark(r, report))).collect();
    let failed = report.failed.iter().map(|failed| {
        let text = one_line(&format!("not listed: {}: {}; {}", failed.what, failed.why, failed.remedy));
        Notification::builder().message(Message::builder().text(text).build()).level(json!("error")).build()
    });
    let whole = Invocation::builder()
        .execution_successful(report.says())
        .tool_execution_notifications(failed.collect::<Vec<_>>())
        .build();
    let run =
        Run::builder().tool(Tool::builder().driver(driver).build()).invocations(vec![whole]).results(results).build();
    let log = Sarif::builder().schema(SCHEMA).version(json!("2.1.0")).runs(vec![run]).build();
    writeln!(out, "{}", serde_json::to_string_pretty(&log)?)?;
    Ok(())
}

fn id_of(kind: ResourceKind) -> String {
    format!("orphan-{}", kind.to_string().to_lowercase())
}

fn orphan_rule(kind: ResourceKind) -> ReportingDescriptor {
    let what = match kind {
        ResourceKind::Nic => "A NIC",
        ResourceKind::OsDisk => "An OS disk",
        ResourceKind::Vm => "A VM",
        ResourceKind::DataDisk => "A data disk",
    };
    rule(&id_of(kind), format!("{what} in the node resource group is an orphan"))
}

fn rule(id: &str, title: String) -> ReportingDescriptor {
    let level = ReportingConfiguration::builder().level(json!("warning")).build();
    let text = MultiformatMessageString::builder().text(title).build();
    ReportingDescriptor::builder()
        .id(id)
        .name(id)
        .short_description(text.clone())
        .full_description(text)
        .default_configuration(level)
        .build()
}

fn result(row: &Row, report: &Report) -> SarifResult {
    let level = match row.standing {
        Standing::Orphan | Standing::Unproven => ResultLevel::Warning,
        Standing::Suspect | Standing::Unknown | Standing::Foreign => ResultLevel::Note,
        Standing::Protected | Standing::InFlight | Standing::Owned => ResultLevel::None,
    };
    let properties = BTreeMap::from([
        ("standing".to_owned(), json!(row.standing)),
        ("usdPerMonth".to_owned(), json!(super::super::report::usd(row.price))),
        ("addresses".to_owned(), json!(row.addresses)),
        ("tags".to_owned(), json!([row.standing.as_str()])),
        ("portal".to_owned(), json!(format!("{PORTAL}{}", escaped(row.id.as_str())))),
    ]);
    let print = format!("{}#{}", row.id.folded(), row.incarnation);
    SarifResult::builder()
        .rule_id(id_of(row.kind))
        .level(level)
        .message(Message::builder().text(sentence(row)).build())
        .locations(vec![location(row.id.as_str(), &report.group)])
        .partial_fingerprints(BTreeMap::from([(FINGERPRINT.to_owned(), print)]))
        .properties(PropertyBag::builder().additional_properties(properties).build())
        .build()
}

fn remark(remark: &Remark, report: &Report) -> SarifResult {
    let text = one_line(&format!("{}: {}; {}", remark.about, remark.what, remark.remedy));
    SarifResult::builder()
        .rule_id(REMARK)
        .level(ResultLevel::Warning)
        .message(Message::builder().text(text.clone()).build())
        .locations(vec![location(&report.group, &report.group)])
        .partial_fingerprints(BTreeMap::from([(FINGERPRINT.to_owned(), text)]))
        .build()
}

/// Code scanning takes a place for a file of the repository and refuses one with a scheme: the id serves, as a path.
fn location(id: &str, group: &str) -> Location {
    let uri = escaped(id.trim_start_matches('/'));
    let physical = PhysicalLocation::builder().artifact_location(ArtifactLocation::builder().uri(uri).build()).build();
    let below = id.strip_prefix(group).unwrap_or(id).trim_start_matches('/');
    let name = if below.is_empty() { id.rsplit('/').next().unwrap_or(id) } else { below };
    let logical =
        LogicalLocation::builder().fully_qualified_name(one_line(id)).name(one_line(name)).kind("resource").build();
    Location::builder().physical_location(physical).logical_locations(vec![logical]).build()
}

/// An id as part of a URI.
fn escaped(id: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    id.chars().map(|c| if is_safe(c) { c.to_string() } else { percent(c) }).collect()
}

fn percent(c: char) -> String {
    let mut bytes = [0; 4];
    c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}
