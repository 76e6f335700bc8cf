//! What is there to say about a file?

use crate::facts::Facts;
use crate::finding::{Finding, Issue};
use crate::kinds::{Standing, identify};
use crate::rules::structure as rules;
use crate::schemas::{SchemaError, Schemas};
use crate::semantic::{self, Digest, Render, Subject};
use crate::structural;
use napkeeper_api::config;
use napkeeper_api::manifests::{Object, Source, items, object};
use napkeeper_api::path::Path;
use napkeeper_api::yaml::{Document, ProblemKind};
use napkeeper_core::names::{NodePoolName, ObjectName};
use serde_json::Value;
use std::collections::BTreeMap;

/// What was found in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// What is wrong, by place.
    pub findings: Vec<Finding>,
    /// How many objects were checked.
    pub checked: usize,
    /// Objects of other kinds, by `apiVersion kind`.
    pub skipped: BTreeMap<String, usize>,
}

impl Report {
    /// Adds what was found in another file.
    pub fn add(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.checked += other.checked;
        for (kind, n) in other.skipped {
            *self.skipped.entry(kind).or_default() += n;
        }
    }
}

/// The rules, ready to be applied.
#[derive(Debug)]
pub struct Verdict {
    schemas: Schemas,
    facts: Facts,
}

impl Verdict {
    /// The rules for the kinds of this build, and what its catalogue says of all regions.
    ///
    /// # Errors
    /// [`SchemaError`] when what is embedded is broken, which a test rules out.
    pub fn embedded() -> Result<Self, SchemaError> {
        Ok(Self { schemas: Schemas::embedded()?, facts: Facts::embedded(None)? })
    }

    /// The same rules, with other facts.
    #[must_use]
    pub fn with_facts(self, facts: Facts) -> Self {
        Self { facts, ..self }
    }

    /// Judges all files of an input: each by itself, then their objects together. One report a file.
    #[must_use]
    pub fn judge(&self, sources: &[Source]) -> Vec<Report> {
        let files = sources.iter().map(|source| source.file.clone()).collect();
        let mut render = Render { digests: Vec::new(), files };
        let judged = |(i, source): (usize, &Source)| self.source(i, source, &mut render);
        let mut reports: Vec<Report> = sources.iter().enumerate().map(judged).collect();
        for (object, issue) in semantic::render(&render, &self.facts) {
            let Some(Digest { at: (source, document), root, .. }) = render.digests.get(object) else { continue };
            let Some(document) = sources.get(*source).and_then(|s| s.reading.documents.get(*document)) else {
                continue;
            };
            if let Some(report) = reports.get_mut(*source) {
                report.findings.push(issue.locate(document, root));
            }
        }
        reports.iter_mut().for_each(|report| report.findings.sort_by_key(|f| (f.line, f.column, f.rule)));
        reports
    }

    fn source(&self, index: usize, source: &Source, render: &mut Render) -> Report {
        let mut report = Report::default();
        for problem in &source.reading.problems {
            let rule = match problem.kind {
                ProblemKind::Syntax => &rules::SYNTAX,
                ProblemKind::DuplicateKey => &rules::DUPLICATE_KEY,
            };
            report.findings.push(Finding {
                rule: rule.id,
                severity: rule.severity,
                file: source.file.to_string(),
                line: problem.at.line,
                column: problem.at.column,
                path: String::new(),
                message: problem.message.clone(),
                fix: None,
            });
        }
        for (i, document) in source.reading.documents.iter().enumerate() {
            report.add(self.objects(document, |root, value, object| {
                render.digests.push(Digest::of((index, i), root, value, object));
            }));
        }
        report
    }

    /// Judges a document, or each item of one that is a `v1` List, by itself.
    #[must_use]
    pub fn document(&self, document: &Document) -> Report {
        self.objects(document, |_, _, _| {})
    }

    /// Judges the objects of a document, and hands on each whose form is right.
    fn objects(&self, document: &Document, mut keep: impl FnMut(Path, &Value, Object)) -> Report {
        let mut report = Report::default();
        if config::is_config(&document.file) {
            let (_, found) = structural::check(&document.value, &self.schemas.config, &self.schemas.patterns);
            report.checked = 1;
            report.findings = found.into_iter().map(|i| i.locate(document, &Path::root())).collect();
            return report;
        }
        for (root, value) in items(document) {
            let mut found = Vec::new();
            match identify(&self.schemas, value, &mut found) {
                Standing::Foreign(kind) => {
                    *report.skipped.entry(kind).or_default() += 1;
                    if let Ok(object) = object(value) {
                        semantic::object(&Subject { value, stored: value, object: &object }, &self.facts, &mut found);
                        keep(root.clone(), value, object);
                    }
                }
                Standing::Lost => report.checked += 1,
                Standing::Known(version) => {
                    report.checked += 1;
                    let version_is_served = found.iter().all(|i| *i.rule != rules::VERSION);
                    let (stored, form) = structural::check(value, &version.schema, &self.schemas.patterns);
                    let sound = form.is_empty() && version_is_served;
                    found.extend(form);
                    name(value, &mut found);
                    placeholders(&value["spec"], &Path::of("spec"), &mut found);
                    if let Some(object) = sound.then(|| meaning(value, &mut found)).flatten() {
                        semantic::object(&Subject { value, stored: &stored, object: &object }, &self.facts, &mut found);
                        keep(root.clone(), value, object);
                    }
                }
            }
            report.findings.extend(found.into_iter().map(|i| i.locate(document, &root)));
        }
        report
    }
}

/// The API server checks names by its own rules, not by the definition's.
fn name(value: &Value, found: &mut Vec<Issue>) {
    let metadata = &value["metadata"];
    let path = Path::of("metadata.name");
    match metadata["name"].as_str().filter(|n| !n.is_empty()) {
        Some(name) => {
            let refused =
                if value["kind"] == "NodePool" { NodePoolName::new(name).err() } else { ObjectName::new(name).err() };
            found.extend(refused.map(|e| Issue::new(&rules::NAME, &path, e.to_string())));
        }
        None if metadata["generateName"].as_str().is_some_and(|n| !n.is_empty()) => {}
        None if metadata["name"].is_null() || metadata["name"] == "" => {
            let message = "required field name is missing";
            found.push(Issue::new(&rules::NAME, &path, message));
        }
        // A name of another type has been said to be wrong.
        None => {}
    }
}

/// Manifests are pasted from guides: `<sub-id>` satisfies the pattern of a resource id and names nothing.
fn placeholders(value: &Value, path: &Path, found: &mut Vec<Issue>) {
    match value {
        Value::String(text) => {
            if let Some(placeholder) = placeholder(text) {
                let message = format!("{placeholder} is a placeholder");
                let fix = "put the real value in its place".to_owned();
                found.push(Issue::new(&rules::PLACEHOLDER, path, message).fix(fix));
            }
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(i, item)| placeholders(item, &path.index(i), found));
        }
        Value::Object(map) => map.iter().for_each(|(key, v)| placeholders(v, &path.key(key), found)),
        _ => {}
    }
}

/// The first `<word>` in a text.
fn placeholder(text: &str) -> Option<&str> {
    let start = text.find('<')?;
    let end = start + text[start..].find('>')?;
    let inner = &text[start + 1..end];
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    (!inner.is_empty() && inner.chars().all(is_word)).then(|| &text[start..=end])
}

/// What the domain cannot make sense of, though its form is right; else the object.
fn meaning(value: &Value, found: &mut Vec<Issue>) -> Option<Object> {
    value["metadata"]["name"].as_str()?;
    // As the API server does with what is created.
    let mut value = value.clone();
    drop(value.as_object_mut().and_then(|map| map.shift_remove("status")));
    match object(&value) {
        Ok(object) => Some(object),
        Err(violations) => {
            let known = |path: &Path| found.iter().any(|i| i.path == *path);
            let new: Vec<_> = violations.0.into_iter().filter(|v| !known(&v.path)).collect();
            found.extend(new.into_iter().map(|v| semantic::meaningless(&v.path, v.message)));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_api::manifests::load_text;

    fn judged(source: Source) -> Report {
        Verdict::embedded().unwrap().judge(&[source]).remove(0)
    }

    /// `path rule` of everything that is found about the form: what each family finds is tested beside it.
    fn findings(text: &str) -> Vec<String> {
        let source = load_text("t.yaml", text.to_owned());
        let report = judged(source);
        let shown = |f: &Finding| format!("{} {}", f.path, f.rule);
        report.findings.iter().filter(|f| f.rule.starts_with("NK1")).map(shown).collect()
    }

    fn class(spec: &str) -> Vec<String> {
        findings(&format!(
            "{{apiVersion: karpenter.azure.com/v1beta1, kind: AKSNodeClass, metadata: {{name: a}}, {spec}}}"
        ))
    }

    #[test]
    fn what_the_api_server_accepts_has_no_findings() {
        for spec in [
            "spec: null",
            "spec: {maxPods: null, tags: {a: null}, gpu: {}}",
            "spec: {osDiskSizeGB: 1e2, maxPods: 50.0}",
            "status: {conditions: text}",
            "spec: {vnetSubnetID: /SUBSCRIPTIONS/s/resourcegroups/rg/providers/microsoft.network/virtualnetworks/v/subnets/s}",
        ] {
            assert_eq!(class(spec), [] as [&str; 0], "{spec}");
        }
    }

    #[test]
    fn each_constraint_of_the_schema_has_its_rule() {
        let dns = "forwardDestination: VnetDNS, forwardPolicy: Random, maxConcurrent: 1, protocol: PreferUDP, \
                   queryLogging: Log, serveStale: Verify, serveStaleDuration: 1h, cacheDuration: 1h, zone: .";
        for (spec, expected) in [
            ("spec: {maxPods: 9}", "spec.maxPods NK1015"),
            ("spec: {maxPods: '50'}", "spec.maxPods NK1011"),
            ("spec: {maxPods: 50.5}", "spec.maxPods NK1011"),
            ("spec: {imageFamily: ubuntu}", "spec.imageFamily NK1013"),
            ("spec: {tags: {a: 1}}", "spec.tags.a NK1011"),
            ("spec: {kubelet: {allowedUnsafeSysctls: [null]}}", "spec.kubelet.allowedUnsafeSysctls[0] NK1011"),
            ("spec: {kubelet: {podPidsLimit: 1e30}}", "spec.kubelet.podPidsLimit NK1011"),
            ("spec: {localDNS: {mode: Required, kubeDNSOverrides: []}}", "spec.localDNS.vnetDNSOverrides NK1012"),
            ("status: {new: 1}", "status.new NK1010"),
            ("spec: {MaxPods: null}", "spec.MaxPods NK1010"),
        ] {
            assert_eq!(class(spec), [expected], "{spec}");
        }
        let twice = format!(
            "spec: {{localDNS: {{mode: Required, vnetDNSOverrides: [], kubeDNSOverrides: [{{{dns}}}, {{{dns}}}]}}}}"
        );
        assert_eq!(class(&twice), ["spec.localDNS.kubeDNSOverrides[1] NK1016"]);
    }

    #[test]
    fn what_has_the_form_but_no_meaning_is_found() {
        let pool = |requirement: &str| {
            findings(&format!(
                "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: a}}, spec: {{template: {{spec: {{\
                 nodeClassRef: {{group: karpenter.azure.com, kind: AKSNodeClass, name: a}}, requirements: \
                 [{{key: example.com/a, operator: {requirement}}}]}}}}}}}}"
            ))
        };
        assert_eq!(pool("Exists"), [] as [&str; 0]);
        for bad in ["In", "Gt, values: [a]", "Exists, values: [a]", "In, values: [a], minValues: 2"] {
            assert_eq!(pool(bad), ["spec.template.spec.requirements[0].values NK1020"], "{bad}");
        }
        let sweep = "{apiVersion: napkeeper.io/v1alpha1, kind: OrphanSweep, metadata: {name: a}, \
                     spec: {minimumAge: {vm: 9m}, exclusions: [{}]}}";
        assert_eq!(findings(sweep), ["spec.minimumAge.vm NK1020", "spec.exclusions[0] NK1020"]);
    }

    #[test]
    fn other_groups_and_other_yaml_are_counted_and_nothing_else() {
        let source = load_text("t.yaml", "{apiVersion: v1, kind: Pod, x: 1}\n---\nservices: {}\n".to_owned());
        let report = judged(source);
        assert_eq!((report.checked, report.findings.len()), (0, 0));
        assert_eq!(report.skipped.len(), 2);
    }
}
