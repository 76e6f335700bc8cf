//! Files and documents of a repository that are no manifests: Helm charts, templates, and files of other tools.

use super::{Source, is_manifest};
use crate::yaml::{self, ProblemKind};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// What begins and ends the expressions of templates: of Helm, Go and Jinja.
const EXPRESSIONS: [(&str, &str); 2] = [("{{", "}}"), ("{%", "%}")];
/// The folder of the templates of a chart.
const TEMPLATES: &str = "templates";
/// The file by which a folder is a Helm chart.
pub const CHART: &str = "Chart.yaml";

/// Why a file is left out, and how it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OtherFile {
    /// It belongs to a Helm chart, which is rendered before it is applied.
    HelmChart,
    /// It is no YAML before a tool has replaced its expressions in double braces.
    Template,
    /// The user has excluded it, or the folder that it stands for.
    Excluded,
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
            (Self::Excluded, 1) => "excluded path",
            (Self::Excluded, _) => "excluded paths",
        }
    }
}

/// True for what belongs to the Helm chart in a folder, by its path from there, whatever is in it: not what is in `templates`, of
/// which static manifests are applied as they are.
#[must_use]
pub fn is_of_chart(inside: &Path) -> bool {
    let is_file = inside.components().count() == 1;
    let name = inside.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_values = name.starts_with("values") && is_manifest(inside);
    is_file && (is_values || [CHART, "Chart.lock", "requirements.yaml"].contains(&name))
}

/// True for what is in the folder of the templates of a chart, by its path from the chart.
#[must_use]
pub fn is_in_templates(inside: &Path) -> bool {
    inside.components().next().is_some_and(|first| first.as_os_str() == TEMPLATES)
}

/// Where a file is, as it matters for what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is given by name.
    Named,
    /// In a folder.
    InFolder,
    /// Among the templates of a Helm chart.
    InTemplates,
}

impl Place {
    /// As what a file is left out; `None` where it is read.
    #[must_use]
    pub fn left_out_as(self, source: &Source) -> Option<OtherFile> {
        match self {
            Self::InTemplates if has_expression(&source.text) => Some(OtherFile::HelmChart),
            Self::InFolder if is_template(source) => Some(OtherFile::Template),
            _ => None,
        }
    }
}

/// True for a text with an expression of a template.
fn has_expression(text: &str) -> bool {
    let has = |(open, close): &(&str, &str)| text.split_once(open).is_some_and(|(_, rest)| rest.contains(close));
    EXPRESSIONS.iter().any(has)
}

/// True for a text that cannot be parsed as YAML where it has expressions in braces, and only there, and of which nothing that can be
/// parsed may be an object.
fn is_template(source: &Source) -> bool {
    if !has_expression(&source.text) {
        return false;
    }
    let reading = yaml::read(&source.file, &source.text);
    let mut wrong = reading.problems.iter().filter(|problem| problem.kind == ProblemKind::Syntax).peekable();
    let lines: Vec<&str> = source.text.lines().collect();
    let is_expression = |line: usize| {
        let line = lines.get(line).map(|line| bare(line)).unwrap_or_default();
        EXPRESSIONS.iter().any(|(open, _)| line.contains(open))
    };
    wrong.peek().is_some()
        && wrong.all(|problem| is_expression(problem.position.line.saturating_sub(1)))
        && !reading.documents.iter().any(|document| may_be_object(&document.value))
}

/// A line without its comment and its quoted texts.
fn bare(line: &str) -> String {
    let (mut bare, mut quote, mut before) = (String::new(), None, ' ');
    for c in line.chars() {
        match quote {
            Some(open) => quote = (c != open).then_some(open),
            None if c == '#' && before.is_whitespace() => break,
            None if c == '"' || c == '\'' => quote = Some(c),
            None => bare.push(c),
        }
        before = c;
    }
    bare
}

/// True for a document that may be meant as a Kubernetes object; others are of other tools, such as values or playbooks. Of an
/// object one of these fields is left if another has been forgotten.
#[must_use]
pub fn may_be_object(value: &Value) -> bool {
    let of_group = |version: &Value| {
        version
            .as_str()
            .is_some_and(|version| version.starts_with("karpenter.") || version.starts_with("napkeeper.io/"))
    };
    match value {
        Value::Object(map) => {
            let has_field = ["kind", "metadata", "spec"].iter().any(|field| map.contains_key(*field));
            has_field || map.get("apiVersion").is_some_and(of_group)
        }
        Value::Array(items) => items.iter().any(|item| item.get("apiVersion").is_some() || item.get("kind").is_some()),
        _ => false,
    }
}

/// What was left out, for people; `None` if nothing was.
#[must_use]
pub fn describe(others: &BTreeMap<OtherFile, usize>) -> Option<String> {
    let parts: Vec<String> = others.iter().map(|(what, count)| format!("{count} {}", what.noun(*count))).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
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
            (json!({ "apiVersion": "karpenter.sh/v1", "Kind": "NodePool" }), true),
            (json!([{ "kind": "Pod" }]), true),
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
    fn a_chart_has_values_and_what_else_is_in_it_may_be_a_manifest() {
        for (path, of_chart, in_templates) in [
            ("Chart.yaml", true, false),
            ("values.yaml", true, false),
            ("values-prod.yaml", true, false),
            ("values", false, false),
            ("values/a.yaml", false, false),
            ("templates/a/values.yaml", false, true),
            ("crds/a.yaml", false, false),
            ("pool.yaml", false, false),
        ] {
            let path = Path::new(path);
            assert_eq!((is_of_chart(path), is_in_templates(path)), (of_chart, in_templates), "{}", path.display());
        }
    }

    #[test]
    fn a_template_is_what_cannot_be_parsed() {
        for (text, expected) in [
            ("a: {{ .Values.a }}\n", true),
            ("{{- if .Values.a }}\na: 1\n{{- end }}\n", true),
            ("a: \"{{ in a string }}\"\n", false),
            ("a: [\n", false),
            ("# {{ a }}\nb: 1\n---\na: [\n", false),
            ("a: \"{{ b }}\"\nc: [\n", false),
            ("a: {{ b }}\nc: 1\n---\nd: [\n", false),
            ("{% if a %}\nb: 1\n{% endif %}\n", true),
            ("kind: AKSNodeClass\n---\na: {{ b }}\n", false),
            ("a: |\n  {{ b }}\nc: d: e\n", false),
        ] {
            assert_eq!(is_template(&load_text("a.yaml", text.to_owned())), expected, "{text}");
        }
    }
}
