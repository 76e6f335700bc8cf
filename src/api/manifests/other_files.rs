//! Files and documents of a repository that are no manifests: Helm charts, templates, and files of other tools.

use super::Source;
use crate::yaml::ProblemKind;
use serde_json::Value;
use std::path::Path;

/// The file by which a folder is a Helm chart.
pub const CHART: &str = "Chart.yaml";

/// Why a file is left out, and how it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherFile {
    /// It belongs to a Helm chart, which is rendered before it is applied.
    HelmChart,
    /// It is no YAML before a tool has replaced its expressions in double braces.
    Template,
}

impl OtherFile {
    /// Its name for people, for so many.
    #[must_use]
    pub const fn noun(self, count: usize) -> &'static str {
        match (self, count) {
            (Self::HelmChart, 1) => "file of a Helm chart",
            (Self::HelmChart, _) => "files of Helm charts",
            (Self::Template, 1) => "template",
            (Self::Template, _) => "templates",
        }
    }
}

/// True for what belongs to the Helm chart in a folder, by its path from there. Definitions in `crds` are plain manifests, and
/// charts in `charts` are charts of their own.
#[must_use]
pub fn is_of_chart(inside: &Path) -> bool {
    let first = inside.components().next().and_then(|first| first.as_os_str().to_str()).unwrap_or_default();
    let is_values = first.starts_with("values") && inside.components().count() == 1;
    ["templates", CHART, "Chart.lock", "requirements.yaml"].contains(&first) || is_values
}

/// True for a text with expressions in double braces that cannot be parsed as YAML.
#[must_use]
pub fn is_template(source: &Source) -> bool {
    let has_expression = source.text.split_once("{{").is_some_and(|(_, rest)| rest.contains("}}"));
    has_expression && source.parsed().problems.iter().any(|problem| problem.kind == ProblemKind::Syntax)
}

/// True for a document that may be meant as a Kubernetes object; others are of other tools, such as values or playbooks. Of an
/// object one of these fields is left if another has been forgotten.
#[must_use]
pub fn may_be_object(value: &Value) -> bool {
    match value {
        Value::Object(map) => ["kind", "metadata", "spec"].iter().any(|field| map.contains_key(*field)),
        Value::Array(items) => items.iter().any(|item| item.get("apiVersion").is_some() && item.get("kind").is_some()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::load_text;
    use super::*;
    use serde_json::json;

    #[test]
    fn what_lacks_one_field_may_be_an_object_and_what_has_none_is_not() {
        for (value, expected) in [
            (json!({ "apiVersion": "karpenter.sh/v1", "metadata": {} }), true),
            (json!({ "kind": "NodePool" }), true),
            (json!([{ "apiVersion": "v1", "kind": "Pod" }]), true),
            (json!({ "apiVersion": "v2", "name": "chart", "version": "0.1.0" }), false),
            (json!({ "resources": ["a.yaml"] }), false),
            (json!([{ "hosts": "all" }]), false),
            (json!(["a"]), false),
            (json!(null), false),
        ] {
            assert_eq!(may_be_object(&value), expected, "{value}");
        }
    }

    #[test]
    fn a_chart_has_templates_and_values_but_its_definitions_are_manifests() {
        for (path, expected) in [
            ("Chart.yaml", true),
            ("values.yaml", true),
            ("values-prod.yaml", true),
            ("templates/a/b.yaml", true),
            ("crds/a.yaml", false),
            ("values/a.yaml", false),
            ("pool.yaml", false),
        ] {
            assert_eq!(is_of_chart(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_template_is_what_cannot_be_parsed() {
        for (text, expected) in [
            ("a: {{ .Values.a }}\n", true),
            ("{{- if .Values.a }}\na: 1\n{{- end }}\n", true),
            ("a: \"{{ in a string }}\"\n", false),
            ("a: [\n", false),
        ] {
            assert_eq!(is_template(&load_text("a.yaml", text.to_owned())), expected, "{text}");
        }
    }
}
