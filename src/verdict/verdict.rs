//! What is there to say about a file?

use crate::cel::Rules;
use crate::definitions::{Definitions, Kind, SchemaError, Version};
use crate::facts::Facts;
use crate::finding::{Finding, Issue};
use crate::kinds::{Standing, identify};
use crate::migrate;
use crate::natives::Native;
use crate::policy::{Inputs, Policies, PolicyFinding};
use crate::rules::structure as rules;
use crate::semantic::{self, Subject};
use crate::structural::{self, Manner, Node, Place};
use napkeeper_api::config;
use napkeeper_api::manifests::{Object, items, object};
use napkeeper_api::path::Path;
use napkeeper_api::yaml::Document;
use napkeeper_core::model::names::{NodePoolName, ObjectName};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    definitions: Definitions,
    /// The definitions of this build, where others are judged by: what do those lack?
    ours: Option<Definitions>,
    config: Node,
    facts: Facts,
    policies: Option<(Arc<Policies>, Inputs)>,
}

impl Verdict {
    /// The rules for the kinds of this build, and what its catalogue says of all regions.
    ///
    /// # Errors
    /// [`SchemaError`] when what is embedded is broken, which a test rules out.
    pub fn embedded() -> Result<Self, SchemaError> {
        let config = structural::compile(&config::schema(), Manner::Plain)
            .map_err(|source| SchemaError::Own { what: "napkeeper.yaml", source })?;
        let (definitions, facts) = (Definitions::embedded()?, Facts::embedded(None)?);
        Ok(Self { definitions, ours: None, config, facts, policies: None })
    }

    /// The same rules, by other definitions.
    #[must_use]
    pub fn with_definitions(self, definitions: Definitions) -> Self {
        let ours = if definitions.is_embedded() { None } else { self.ours.or(Some(self.definitions)) };
        Self { definitions, ours, ..self }
    }

    /// What is judged by.
    #[must_use]
    pub const fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// The same rules, with other facts.
    #[must_use]
    pub fn with_facts(self, facts: Facts) -> Self {
        Self { facts, ..self }
    }

    /// The same rules, for this version of Kubernetes, such as `1.33.2`.
    #[must_use]
    pub fn with_kubernetes(mut self, version: Option<String>) -> Self {
        self.facts.kubernetes = version;
        self
    }

    /// What is known beside the manifests.
    pub(crate) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same rules, with policies beside them. What the policies may need to know is among the inputs.
    #[must_use]
    pub fn with_policies(self, policies: Arc<Policies>, inputs: Inputs) -> Self {
        Self { policies: Some((policies, inputs)), ..self }
    }

    /// What the policies say of an object as it would be stored.
    fn policies_on(&self, stored: &Value, found: &mut Vec<Issue>) {
        if let Some((policies, inputs)) = &self.policies {
            found.extend(policies.judge(stored, None, inputs).iter().filter_map(PolicyFinding::issue));
        }
    }

    /// What there is to say about the sense of an object whose form is right.
    fn sense(&self, subject: Subject<'_>, found: &mut Vec<Issue>) {
        semantic::object(&subject, &self.facts, found);
    }

    /// Judges a document, or each item of one that is a `v1` List, by itself.
    #[must_use]
    pub fn document(&self, document: &Document) -> Report {
        self.objects(document, |_, _, _| {})
    }

    /// Judges the objects of a document, and hands on each whose form is right.
    pub(crate) fn objects(&self, document: &Document, mut keep: impl FnMut(Path, &Value, Object)) -> Report {
        let mut report = Report::default();
        if config::is_config(&document.file) {
            let found = structural::issues(&structural::plain(&document.value, &self.config));
            report.checked = 1;
            report.findings = found.into_iter().map(|i| i.locate(document, &Path::root())).collect();
            return report;
        }
        for (root, value) in items(document) {
            let mut found = Vec::new();
            match identify(&self.definitions, value, &mut found) {
                Standing::Foreign(kind) => {
                    *report.skipped.entry(kind).or_default() += 1;
                    self.policies_on(value, &mut found);
                    definition(value, &mut found);
                    if let Ok(object) = object(value) {
                        self.sense(Subject { value, stored: value, object: &object, mended: false }, &mut found);
                        keep(root.clone(), value, object);
                    }
                }
                Standing::Native(native) => {
                    report.checked += 1;
                    if let Some(object) = self.native(native, value, &mut found) {
                        keep(root.clone(), value, object);
                    }
                }
                Standing::Lost => report.checked += 1,
                Standing::Known(kind, version) => {
                    report.checked += 1;
                    if let Some(object) = self.known(kind, version, value, &mut found) {
                        keep(root.clone(), value, object);
                    }
                }
            }
            report.findings.extend(found.into_iter().map(|i| i.locate(document, &root)));
        }
        report
    }

    /// Judges an object of a kind of Kubernetes itself; it is handed back when its form is right.
    fn native(&self, native: &Native, value: &Value, found: &mut Vec<Issue>) -> Option<Object> {
        let (stored, mut form) = native.judge(value, &self.facts);
        name(value, &mut form);
        let sound = form.is_empty();
        found.extend(form);
        if sound {
            self.policies_on(&stored, found);
        }
        placeholders(&value["spec"], &Place::ROOT.field("spec"), found);
        let object = sound.then(|| object(value).ok()).flatten()?;
        self.sense(Subject { value, stored: &stored, object: &object, mended: false }, found);
        Some(object)
    }

    /// Judges an object of a kind that is defined; it is handed back when its form is right.
    fn known(&self, kind: &Kind, version: &Version, value: &Value, found: &mut Vec<Issue>) -> Option<Object> {
        let version_is_served = found.iter().all(|i| *i.rule != rules::VERSION);
        let judged = version.create(value);
        let mut form = structural::issues(&judged);
        if let Some(ours) = &self.ours {
            form.iter_mut().for_each(|issue| self.lacks(ours, kind, version, issue));
        }
        name(value, &mut form);
        let sound = form.is_empty() && version_is_served;
        found.extend(form);
        if sound {
            self.policies_on(&judged.stored, found);
        }
        placeholders(&value["spec"], &Place::ROOT.field("spec"), found);
        if !sound {
            return self.mended(value, found);
        }
        let object = meaning(&judged.stored, found)?;
        self.sense(Subject { value, stored: &judged.stored, object: &object, mended: false }, found);
        Some(object)
    }

    /// An object of an older shape is looked at as `migrate` would write it, so that one run says what else is wrong.
    fn mended(&self, value: &Value, found: &mut Vec<Issue>) -> Option<Object> {
        let mended = migrate::mended(value)?;
        let Standing::Known(_, version) = identify(&self.definitions, &mended, &mut Vec::new()) else { return None };
        let judged = version.create(&mended);
        if !structural::issues(&judged).is_empty() {
            return None;
        }
        let object = object(&judged.stored).ok()?;
        self.sense(Subject { value: &mended, stored: &judged.stored, object: &object, mended: true }, found);
        Some(object)
    }

    /// A field that this build knows and the chosen definitions do not is no misspelt one.
    fn lacks(&self, ours: &Definitions, kind: &Kind, version: &Version, issue: &mut Issue) {
        if *issue.rule != rules::UNKNOWN_FIELD {
            return;
        }
        let Some((_, known)) = ours.version(&kind.group, &kind.name, &version.name) else { return };
        if !known.form.schema.knows(&issue.path) {
            return;
        }
        let (origin, ours) = (self.definitions.origin(), Definitions::embedded_version());
        issue.rule = &rules::DEFINITION;
        issue.message = format!("unknown field in the CRD schemas of {origin}; napkeeper's own have it ({ours})");
        issue.fix = Some("update the CRDs, or remove the field".to_owned());
    }
}

/// The rules of a CustomResourceDefinition must be such that they can be evaluated.
fn definition(value: &Value, found: &mut Vec<Issue>) {
    if value["kind"] != "CustomResourceDefinition" {
        return;
    }
    for (i, version) in value["spec"]["versions"].as_array().into_iter().flatten().enumerate() {
        if let Err(error) = Rules::compile(&version["schema"]["openAPIV3Schema"]) {
            found.push(
                error.into_issue(&Path::from_dotted("spec.versions").index(i).key("schema").key("openAPIV3Schema")),
            );
        }
    }
}

/// The API server checks names by its own rules, not by the definition's.
fn name(value: &Value, found: &mut Vec<Issue>) {
    let metadata = &value["metadata"];
    let path = Path::from_dotted("metadata.name");
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
fn placeholders(value: &Value, place: &Place<'_>, found: &mut Vec<Issue>) {
    match value {
        Value::String(text) => {
            if let Some(placeholder) = placeholder(text) {
                let message = format!("unreplaced placeholder {placeholder}");
                let fix = "replace it with the real value".to_owned();
                found.push(Issue::new(&rules::PLACEHOLDER, &place.path(), message).fix(fix));
            }
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(i, item)| placeholders(item, &place.index(i), found));
        }
        Value::Object(map) => map.iter().for_each(|(key, child)| placeholders(child, &place.field(key), found)),
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
    match object(value) {
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
    use napkeeper_api::manifests::{Source, load_text};

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
            "spec: {vnetSubnetID: /SUBSCRIPTIONS/5f2c1d3e-8a4b-4c6d-9e0f-1a2b3c4d5e6f/resourcegroups/rg/providers/microsoft.network/virtualnetworks/v/subnets/s}",
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
            ("spec: {tags: {a: 1}}", "spec.tags.a NK1022"),
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
        assert_eq!(
            class(&twice),
            [
                "spec.localDNS.vnetDNSOverrides NK1030",
                "spec.localDNS.kubeDNSOverrides NK1030",
                "spec.localDNS.kubeDNSOverrides[1] NK1016"
            ]
        );
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
        assert_eq!(pool("Exists, values: [a]"), ["spec.template.spec.requirements[0].values NK1020"]);
        for bad in ["In", "Gt, values: [a]", "In, values: [a], minValues: 2"] {
            assert_eq!(pool(bad), ["spec.template.spec.requirements NK1030"], "{bad}");
        }
        let sweep = "{apiVersion: napkeeper.io/v1alpha1, kind: OrphanSweep, metadata: {name: a}, \
                     spec: {minimumAge: {vm: 9m}, exclusions: [{}]}}";
        assert_eq!(findings(sweep), ["spec.minimumAge.vm NK1030", "spec.exclusions[0] NK1030"]);
    }

    #[test]
    fn other_groups_and_other_yaml_are_counted_and_nothing_else() {
        let source = load_text("t.yaml", "{apiVersion: v1, kind: Service, x: 1}\n---\nservices: {}\n".to_owned());
        let report = judged(source);
        assert_eq!((report.checked, report.findings.len()), (0, 0));
        assert_eq!(report.skipped.len(), 2);
    }
}
