//! What Flux and Argo CD sync: the folders that their objects name, and the variables that Flux replaces there.

use super::tree::Tree;
use napkeeper_api::manifests::{self, Source, items};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A folder that is synced.
#[derive(Debug, Clone)]
pub(crate) struct Synced {
    /// The file of the Flux Kustomization or Argo CD Application, by its real path.
    pub(crate) by: PathBuf,
    /// The folder or file, by its real path.
    pub(crate) path: PathBuf,
    /// `spec.postBuild.substitute`.
    variables: BTreeMap<String, String>,
}

/// What the objects among these files sync from the repository. What is not in it is of another one.
pub(super) fn synced<'s>(tree: &impl Tree, files: impl Iterator<Item = (&'s Path, &'s Source)>) -> Vec<Synced> {
    let mut found = Vec::new();
    for (file, source) in files.filter(|(_, source)| may_sync(&source.text)) {
        let Some(root) = tree.root(file) else { continue };
        for (_, value) in source.parsed().documents.iter().flat_map(items) {
            for path in paths(value) {
                // A path that leads out of the repository is none in it.
                let real = tree.real(&root.join(path.trim_start_matches('/'))).filter(|real| real.starts_with(&root));
                let Some(path) = real else { continue };
                found.push(Synced { by: file.to_owned(), path, variables: variables(value) });
            }
        }
    }
    found
}

/// Most files are not parsed for this.
fn may_sync(text: &str) -> bool {
    text.contains("kustomize.toolkit.fluxcd.io/") || text.contains("argoproj.io/")
}

/// The paths of a Kustomization of Flux, or of an Application.
fn paths(value: &Value) -> Vec<&str> {
    let group = value["apiVersion"].as_str().and_then(|version| version.split('/').next()).unwrap_or_default();
    let spec = &value["spec"];
    match (group, value["kind"].as_str().unwrap_or_default()) {
        ("kustomize.toolkit.fluxcd.io", "Kustomization") if spec["sourceRef"]["kind"] == "GitRepository" => {
            vec![spec["path"].as_str().unwrap_or(".")]
        }
        ("argoproj.io", "Application") => {
            let sources = spec["sources"].as_array().into_iter().flatten().chain([&spec["source"]]);
            sources.filter_map(|source| source["path"].as_str()).collect()
        }
        _ => Vec::new(),
    }
}

fn variables(value: &Value) -> BTreeMap<String, String> {
    let substitute = value["spec"]["postBuild"]["substitute"].as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    substitute.map(|(name, value)| (name.clone(), text(value))).collect()
}

/// A text in which variables are replaced as Flux does: by what the Kustomizations say that sync it, if they agree, else by the default
/// after `:-`, `-`, `:=` or `=`. Others stay.
pub(super) fn substituted(source: Source, real: Option<&Path>, synced: &[Synced]) -> Source {
    if !source.text.contains("${") {
        return source;
    }
    let known = known(real, synced);
    let (mut text, mut rest) = (String::new(), &*source.text);
    while let Some((before, after)) = rest.split_once("${") {
        text += before;
        let expression = after.split_once('}').filter(|(inner, _)| !inner.contains(['\n', '{']));
        match expression.and_then(|(inner, rest)| Some((value_of(inner, &known)?, rest))) {
            // Two dollar signs stand for one, and begin no variable.
            Some((value, after)) if !before.ends_with('$') => {
                text += &value;
                rest = after;
            }
            _ => {
                text += "${";
                rest = after;
            }
        }
    }
    text += rest;
    manifests::load_text(&source.file, text)
}

/// The variables of a file on which all that sync it agree.
fn known(real: Option<&Path>, synced: &[Synced]) -> BTreeMap<String, String> {
    let by: Vec<&Synced> = synced.iter().filter(|one| real.is_some_and(|real| real.starts_with(&one.path))).collect();
    let names: BTreeSet<&String> = by.iter().flat_map(|one| one.variables.keys()).collect();
    let agreed = |name: &&String| {
        let mut values: Vec<Option<&String>> = by.iter().map(|one| one.variables.get(*name)).collect();
        values.dedup();
        values.len() == 1
    };
    let agreed = names.into_iter().filter(agreed);
    agreed.filter_map(|name| Some((name.clone(), by.first()?.variables.get(name)?.clone()))).collect()
}

/// The value of `NAME`, `NAME:=default` and the like; `None` where it is not known.
fn value_of(expression: &str, known: &BTreeMap<String, String>) -> Option<String> {
    let end = expression.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(expression.len());
    let (name, default) = expression.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let default = [":-", ":=", "-", "="].iter().find_map(|sign| default.strip_prefix(sign));
    known.get(name).cloned().or_else(|| default.map(ToOwned::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(text: &str, variables: &[&[(&str, &str)]]) -> String {
        let one = |pairs: &&[(&str, &str)]| Synced {
            by: PathBuf::from("/r/clusters/a.yaml"),
            path: PathBuf::from("/r/apps"),
            variables: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        };
        let synced: Vec<Synced> = variables.iter().map(one).collect();
        let source = manifests::load_text("a.yaml", text.to_owned());
        substituted(source, Some(Path::new("/r/apps/a.yaml")), &synced).text.to_string()
    }

    #[test]
    fn variables_are_replaced_as_flux_does() {
        for (text, expected) in [
            ("a: ${x}", "a: 1"),
            ("a: ${x}-${y}b", "a: 1-2b"),
            ("a: ${unknown}", "a: ${unknown}"),
            ("a: ${unknown:=5}", "a: 5"),
            ("a: ${unknown:-}", "a: "),
            ("a: ${x:=5}", "a: 1"),
            ("a: $${x}", "a: $${x}"),
            ("a: ${1}${}${", "a: ${1}${}${"),
            ("a: ${x\n}", "a: ${x\n}"),
        ] {
            assert_eq!(replaced(text, &[&[("x", "1"), ("y", "2")]]), expected, "{text}");
        }
    }

    #[test]
    fn clusters_that_disagree_leave_a_variable_open() {
        let text = "a: ${x} ${y} ${z}";
        let both: [&[(&str, &str)]; 2] = [&[("x", "1"), ("y", "2")], &[("x", "1"), ("y", "3"), ("z", "4")]];
        assert_eq!(replaced(text, &both), "a: 1 ${y} ${z}");
    }
}
