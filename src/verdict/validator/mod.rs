//! Validates documents: schema, policies and semantic rules.

mod comments;
mod files;
mod variables;
mod yaml_scalars;

use crate::cel::Rules;
use crate::finding::{Finding, Issue};
use crate::migrate;
use crate::policy::{Inputs, Policies, PolicyFinding};
use crate::rules::structure as rules;
use crate::schema::builtin::BuiltinKind;
use crate::schema::crds::{CrdKind, CrdSchemas, CrdVersion, SchemaError};
use crate::schema::lookup::{SchemaLookup, look_up};
use crate::schema::structural::{self, FieldPath, SchemaNode, SchemaOrigin};
use crate::semantic::facts::Facts;
use crate::semantic::{self, ValidObject};
use napkeeper_api::config;
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::{Object, items, object};
use napkeeper_api::yaml::Document;
use napkeeper_core::catalog::InstanceTypeOptions;
use napkeeper_core::model::names::{NodePoolName, ObjectName};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use variables::first_variable;
use yaml_scalars::SourceText;

/// The findings in a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// The findings, by position.
    pub findings: Vec<Finding>,
    /// How many objects were checked.
    pub checked: usize,
    /// Objects of other kinds, by `apiVersion kind`.
    pub skipped: BTreeMap<String, usize>,
    /// Values that could not be checked, since variables in them are replaced later.
    pub open: usize,
    /// Objects of which this is the second file. If there are any, each folder is taken to be for a cluster of its own, and objects of
    /// different folders are not compared.
    pub repeated: usize,
}

impl Report {
    /// Adds the findings in another file.
    pub fn add(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.checked += other.checked;
        self.open += other.open;
        self.repeated += other.repeated;
        for (kind, n) in other.skipped {
            *self.skipped.entry(kind).or_default() += n;
        }
    }
}

/// The rules, ready to be applied.
#[derive(Debug)]
pub struct Validator {
    definitions: CrdSchemas,
    /// The definitions of this build, where others are judged by: what do those lack?
    embedded: Option<CrdSchemas>,
    config: SchemaNode,
    facts: Facts,
    policies: Option<(Arc<Policies>, Inputs)>,
    /// Variables such as `${name}` are replaced before objects are applied.
    leaves_open: bool,
}

impl Validator {
    /// The rules for the kinds of this build, and its catalogue of all regions.
    ///
    /// # Errors
    /// [`SchemaError`] if the embedded data is broken, which a test rules out.
    pub fn embedded() -> Result<Self, SchemaError> {
        let config = structural::compile(&config::schema(), SchemaOrigin::OwnType)
            .map_err(|source| SchemaError::OwnSchema { schema: "napkeeper.yaml", source })?;
        let (definitions, facts) = (CrdSchemas::embedded()?, Facts::embedded(None)?);
        Ok(Self { definitions, embedded: None, config, facts, policies: None, leaves_open: false })
    }

    /// The same rules, by other definitions.
    #[must_use]
    pub fn with_definitions(self, definitions: CrdSchemas) -> Self {
        let embedded = if definitions.is_embedded() { None } else { self.embedded.or(Some(self.definitions)) };
        Self { definitions, embedded, ..self }
    }

    /// The CRD schemas in use.
    #[must_use]
    pub const fn definitions(&self) -> &CrdSchemas {
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

    /// The same rules, for these settings of nodes.
    #[must_use]
    pub fn with_nodes(mut self, nodes: InstanceTypeOptions) -> Self {
        self.facts.nodes = nodes;
        self
    }

    /// The same rules, for manifests in Git: what depends on variables such as `${name}` is left open. Without this, they are
    /// texts, as they are to an API server.
    #[must_use]
    pub fn with_variables(self) -> Self {
        Self { leaves_open: true, ..self }
    }

    /// The facts in use.
    fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same rules, with policies and their inputs.
    #[must_use]
    pub fn with_policies(self, policies: Arc<Policies>, inputs: Inputs) -> Self {
        Self { policies: Some((policies, inputs)), ..self }
    }

    /// Evaluates the policies for an object as it would be stored.
    fn check_policies(&self, stored: &Value, found: &mut Vec<Issue>) {
        if let Some((policies, inputs)) = &self.policies {
            found.extend(policies.evaluate(stored, None, inputs).iter().filter_map(PolicyFinding::issue));
        }
    }

    /// Semantic rules on an object that its schema accepts.
    fn check_semantics(&self, object: ValidObject<'_>, found: &mut Vec<Issue>) {
        semantic::check_object(&object, &self.facts, found);
    }

    /// Validates a document, or each item of one that is a `v1` List, alone.
    #[must_use]
    pub fn validate_document(&self, document: &Document) -> Report {
        self.validate_objects(document, None, |_, _, _| {})
    }

    /// Validates the objects of a document, and passes each that its schema accepts to `keep`. `text` is the file's,
    /// where there is one.
    fn validate_objects(
        &self,
        document: &Document,
        text: Option<SourceText<'_>>,
        mut keep: impl FnMut(Path, &Value, Object),
    ) -> Report {
        let mut report = Report::default();
        let locate = |issue: Issue, root: &Path| match text {
            Some(text) => text.locate(issue, document, root),
            None => issue.locate(document, root),
        };
        if config::is_config(&document.file, std::slice::from_ref(document)) {
            let found = structural::issues(&structural::check_value(&document.value, &self.config));
            report.checked = 1;
            report.findings = found.into_iter().map(|issue| locate(issue, &Path::root())).collect();
            return report;
        }
        for (root, value) in items(document) {
            let mut found = Vec::new();
            let lookup = look_up(&self.definitions, value, &mut found);
            match lookup {
                SchemaLookup::NotValidated(ref kind) => *report.skipped.entry(kind.clone()).or_default() += 1,
                _ => report.checked += 1,
            }
            let accepted = match lookup {
                SchemaLookup::NotValidated(_) => self.validate_unknown(value, &mut found),
                SchemaLookup::Builtin(builtin) => self.validate_builtin(builtin, value, &mut found),
                SchemaLookup::UnknownKind => None,
                SchemaLookup::Crd(kind, version) => self.validate_custom(kind, version, value, &mut found),
            };
            let is_open = self.leaves_open && variables::is_open(value);
            let accepted =
                if is_open { known_part(lookup, value, accepted, &mut found, &mut report) } else { accepted };
            if let Some(object) = accepted {
                keep(root.clone(), value, object);
            }
            report.findings.extend(found.into_iter().map(|issue| locate(issue, &root)));
        }
        report
    }

    /// Checks an object without a schema here, as far as rules know its kind.
    fn validate_unknown(&self, value: &Value, found: &mut Vec<Issue>) -> Option<Object> {
        self.check_policies(value, found);
        check_crd_rules(value, found);
        let object = object(value).ok()?;
        self.check_semantics(ValidObject { value, stored: value, object: &object, migrated: false }, found);
        Some(object)
    }

    /// Validates an object of a kind of Kubernetes itself; it is returned if its schema accepts it.
    fn validate_builtin(&self, builtin: &BuiltinKind, value: &Value, found: &mut Vec<Issue>) -> Option<Object> {
        let (stored, mut form) = builtin.validate(value, self.facts.kubernetes.as_deref());
        check_name(value, &mut form);
        let sound = form.is_empty();
        found.extend(form);
        if sound {
            self.check_policies(&stored, found);
        }
        check_placeholders(&value["spec"], &FieldPath::ROOT.field("spec"), found);
        let object = sound.then(|| object(value).ok()).flatten()?;
        self.check_semantics(ValidObject { value, stored: &stored, object: &object, migrated: false }, found);
        Some(object)
    }

    /// Validates an object of a kind that a CRD defines; it is returned if its schema accepts it.
    fn validate_custom(
        &self,
        kind: &CrdKind,
        version: &CrdVersion,
        value: &Value,
        found: &mut Vec<Issue>,
    ) -> Option<Object> {
        let version_is_served = found.iter().all(|i| *i.rule != rules::VERSION);
        let result = version.create(value);
        let mut form = structural::issues(&result);
        if let Some(embedded) = &self.embedded {
            form.iter_mut().for_each(|issue| self.explain_old_crd(embedded, kind, version, issue));
        }
        check_name(value, &mut form);
        let sound = form.is_empty() && version_is_served;
        found.extend(form);
        if sound {
            self.check_policies(&result.stored, found);
        }
        check_placeholders(&value["spec"], &FieldPath::ROOT.field("spec"), found);
        if !sound {
            return self.validate_migrated(value, found);
        }
        let object = convert(&result.stored, found)?;
        self.check_semantics(ValidObject { value, stored: &result.stored, object: &object, migrated: false }, found);
        Some(object)
    }

    /// Validates an object of an older version as `migrate` would write it, so that one run reports everything.
    fn validate_migrated(&self, value: &Value, found: &mut Vec<Issue>) -> Option<Object> {
        let migrated = migrate::migrated(value)?;
        let SchemaLookup::Crd(_, version) = look_up(&self.definitions, &migrated, &mut Vec::new()) else { return None };
        let result = version.create(&migrated);
        if !structural::issues(&result).is_empty() {
            return None;
        }
        let object = object(&result.stored).ok()?;
        self.check_semantics(
            ValidObject { value: &migrated, stored: &result.stored, object: &object, migrated: true },
            found,
        );
        Some(object)
    }

    /// A field that only the embedded definitions have is not misspelt.
    fn explain_old_crd(&self, embedded: &CrdSchemas, kind: &CrdKind, version: &CrdVersion, issue: &mut Issue) {
        if *issue.rule != rules::UNKNOWN_FIELD {
            return;
        }
        let Some((_, known)) = embedded.version(&kind.group, &kind.name, &version.name) else { return };
        if !known.form.schema.knows(&issue.path) {
            return;
        }
        let (origin, version) = (self.definitions.origin(), CrdSchemas::embedded_version());
        issue.rule = &rules::DEFINITION;
        issue.message = format!("unknown field in the CRD schemas of {origin}; napkeeper's own have it ({version})");
        issue.fix = Some("update the CRDs, or remove the field".to_owned());
    }
}

/// Leaves open what depends on variables. Returns the object with what is known of it.
fn known_part(
    lookup: SchemaLookup<'_>,
    value: &Value,
    accepted: Option<Object>,
    found: &mut Vec<Issue>,
    report: &mut Report,
) -> Option<Object> {
    let before = found.len();
    let SchemaLookup::Crd(_, version) = lookup else {
        // Workloads may have texts with such signs for shells.
        let is_variable =
            |issue: &Issue| issue.path.value_in(value).is_some_and(|v| v.is_string() && variables::is_open(v));
        found.retain(|issue| !is_variable(issue));
        report.open += before - found.len();
        return accepted;
    };
    found.retain(|issue| !issue.path.value_in(value).is_some_and(variables::is_open));
    report.open += variables::count(value);
    let known = variables::known_part(value)?;
    let mut without_disruption = known.clone();
    without_disruption["spec"].as_object_mut().map(|spec| spec.remove("disruption"));
    let objects = [known, without_disruption].into_iter().map(|known| version.create(&known));
    let mut sound = objects.filter(|result| structural::issues(result).is_empty());
    sound.next().and_then(|result| object(&result.stored).ok())
}

/// Checks that the rules of a CustomResourceDefinition compile.
fn check_crd_rules(value: &Value, found: &mut Vec<Issue>) {
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
fn check_name(value: &Value, found: &mut Vec<Issue>) {
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
        // A name of another type is already reported.
        None => {}
    }
}

/// Manifests are pasted from guides: `<sub-id>` satisfies the pattern of a resource id and names nothing.
fn check_placeholders(value: &Value, path: &FieldPath<'_>, found: &mut Vec<Issue>) {
    match value {
        Value::String(text) => {
            if let Some(placeholder) = placeholder(text) {
                let message = format!("unreplaced placeholder {placeholder}");
                let fix = "replace it with the real value".to_owned();
                found.push(Issue::new(&rules::PLACEHOLDER, &path.to_path(), message).fix(fix));
            }
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(i, item)| check_placeholders(item, &path.index(i), found));
        }
        Value::Object(map) => map.iter().for_each(|(key, child)| check_placeholders(child, &path.field(key), found)),
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

/// Converts an object that matches its schema; otherwise reports why the domain rejects it.
fn convert(value: &Value, found: &mut Vec<Issue>) -> Option<Object> {
    value["metadata"]["name"].as_str()?;
    match object(value) {
        Ok(object) => Some(object),
        Err(violations) => {
            let known: BTreeSet<&Path> = found.iter().map(|issue| &issue.path).collect();
            let new: Vec<_> = violations.0.into_iter().filter(|v| !known.contains(&v.path)).collect();
            found.extend(new.into_iter().map(|v| semantic::invalid_value(&v.path, v.message)));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_api::manifests::{Source, load_text};

    fn result(source: Source) -> Report {
        Validator::embedded().unwrap().validate_files(&[source]).remove(0)
    }

    /// `path rule` of each schema finding: the families have their own tests.
    fn findings(text: &str) -> Vec<String> {
        let source = load_text("t.yaml", text.to_owned());
        let report = result(source);
        let shown = |f: &Finding| format!("{} {}", f.path, f.rule);
        report.findings.iter().filter(|f| f.rule.starts_with("NK1")).map(shown).collect()
    }

    fn class(spec: &str) -> Vec<String> {
        findings(&format!(
            "{{apiVersion: karpenter.azure.com/v1beta1, kind: AKSNodeClass, metadata: {{name: a}}, {spec}}}"
        ))
    }

    #[test]
    fn accepted_objects_have_no_findings() {
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
    fn well_formed_but_invalid_values_are_found() {
        let pool = |requirement: &str| {
            findings(&format!(
                "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: a}}, spec: {{template: {{spec: {{\
                 nodeClassRef: {{group: karpenter.azure.com, kind: AKSNodeClass, name: a}}, requirements: \
                 [{{key: example.com/a, operator: {requirement}}}]}}}}}}}}"
            ))
        };
        assert_eq!(pool("Exists"), [] as [&str; 0]);
        // Karpenter takes these, and ignores what they say.
        assert_eq!(pool("Exists, values: [a]"), ["spec.template.spec.requirements[0].values NK1023"]);
        assert_eq!(pool("DoesNotExist, values: [a]"), ["spec.template.spec.requirements[0].values NK1023"]);
        assert_eq!(pool("NotIn"), ["spec.template.spec.requirements[0] NK1023"]);
        // It refuses this, though the definition does not.
        assert_eq!(pool("NotIn, values: [a b]"), ["spec.template.spec.requirements[0].values[0] NK1020"]);
        for bad in ["In", "Gt, values: [a]", "In, values: [a], minValues: 2"] {
            assert_eq!(pool(bad), ["spec.template.spec.requirements NK1030"], "{bad}");
        }
        let sweep = "{apiVersion: napkeeper.io/v1alpha1, kind: OrphanSweep, metadata: {name: a}, \
                     spec: {minimumAge: {vm: 9m}, exclusions: [{}]}}";
        assert_eq!(findings(sweep), ["spec.minimumAge.vm NK1030", "spec.exclusions[0] NK1030"]);
    }

    #[test]
    fn what_only_karpenter_refuses_is_an_error() {
        let pool = |labels: &str, taints: &str| {
            findings(&format!(
                "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: a}}, spec: {{template: {{metadata: {{labels: \
                 {{{labels}}}}}, spec: {{nodeClassRef: {{group: karpenter.azure.com, kind: AKSNodeClass, name: a}}, \
                 requirements: [], {taints}}}}}}}}}"
            ))
        };
        let taint = |key: &str, effect: &str| format!("{{key: {key}, effect: {effect}}}");
        let (once, other) = (taint("a", "NoSchedule"), taint("a", "NoExecute"));
        assert_eq!(pool("example.com/a: b", &format!("taints: [{once}, {other}]")), [] as [&str; 0]);
        assert_eq!(
            pool("", &format!("taints: [{once}, {once}], startupTaints: [{other}, {once}]")),
            ["spec.template.spec.taints[1] NK1020", "spec.template.spec.startupTaints[1] NK1020"]
        );
        assert_eq!(pool("a b: c", "taints: []"), ["spec.template.metadata.labels[a b] NK1020"]);
    }

    /// `path: fix` of each finding.
    fn fixes(text: &str) -> Vec<String> {
        let report = result(load_text("t.yaml", text.to_owned()));
        report.findings.iter().map(|f| format!("{}: {}", f.path, f.fix.as_deref().unwrap_or("-"))).collect()
    }

    #[test]
    fn values_that_are_nearly_right_have_a_fix() {
        let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec:\n  limits: {memory: 400GB, cpu: 4 cores}\n  \
                    weigth: 1\n  terminationGracePeriod: 1h\n  disruption:\n    consolidationPolicy: WhenUnderutilised\n    \
                    consolidateAfter: never\n    budgets: [{nodes: 10 %, duration: 1 day, schedule: '@daily'}]\n  template:\n    spec:\n      \
                    expireAfter: 30d\n      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}\n      \
                    requirements: []\n";
        let mut found = fixes(pool);
        found.sort();
        let expected = [
            "spec.disruption.budgets[0].duration: use 24h: hours are the largest unit",
            "spec.disruption.budgets[0].nodes: use 10%",
            "spec.disruption.consolidateAfter: use Never",
            "spec.disruption.consolidationPolicy: did you mean WhenEmptyOrUnderutilized?",
            "spec.limits.cpu: use 4",
            "spec.limits.memory: use 400Gi, or 400G in powers of 1000",
            "spec.template.spec.expireAfter: use 720h: hours are the largest unit",
            "spec.terminationGracePeriod: did you mean spec.template.spec.terminationGracePeriod?",
            "spec.weigth: did you mean weight?",
        ];
        assert_eq!(found, expected);
        let class = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec:\n  osDiskSizeGB: 400GB\n  \
                     kubelet: {maxPods: 20}\n";
        let expected = [
            "spec.osDiskSizeGB: use 400: the unit is in the field's name",
            "spec.kubelet.maxPods: did you mean spec.maxPods?",
        ];
        assert_eq!(fixes(class), expected);
    }

    #[test]
    fn other_groups_and_other_yaml_are_counted_and_nothing_else() {
        let source = load_text("t.yaml", "{apiVersion: v1, kind: Service, x: 1}\n---\nservices: {}\n".to_owned());
        let report = result(source);
        assert_eq!((report.checked, report.findings.len()), (0, 0));
        assert_eq!(report.skipped.len(), 2);
    }
}
