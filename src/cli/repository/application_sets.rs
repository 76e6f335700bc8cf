//! What ApplicationSets of Argo CD sync, as far as the repository alone tells it.

use super::synced::{NamedPath, sources_of};
use super::tree::Tree;
use anyhow::{Context, bail};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Fields of a generator beside the one that says what it is, which change what it generates.
const MODIFIERS: [&str; 2] = ["selector", "template"];

/// Parameters of one application: texts by their names with dots.
type Params = BTreeMap<String, String>;

/// The repository that ApplicationSets are read for.
pub(super) struct Generators<'t, T> {
    pub(super) tree: &'t T,
    /// Its root.
    pub(super) root: &'t Path,
    /// True for the URL of another repository.
    pub(super) is_foreign: &'t dyn Fn(&str) -> bool,
}

impl<T: Tree> Generators<'_, T> {
    /// The paths that an ApplicationSet syncs, and why others are not known.
    pub(super) fn paths(&self, set: &Value) -> (Vec<NamedPath>, Vec<String>) {
        let (mut paths, mut unknown) = (Vec::new(), Vec::new());
        for generator in set["spec"]["generators"].as_array().into_iter().flatten() {
            match self.generate(generator).and_then(|all| named(set, &all)) {
                Ok(named) => paths.extend(named),
                Err(error) => unknown.push(format!("{error:#}")),
            }
        }
        if !set["spec"]["templatePatch"].is_null() {
            unknown.push("spec.templatePatch".to_owned());
        }
        (paths, unknown)
    }

    /// The parameters of each application that a generator makes.
    fn generate(&self, generator: &Value) -> anyhow::Result<Vec<Params>> {
        let fields: Vec<&String> = generator.as_object().into_iter().flatten().map(|(field, _)| field).collect();
        if let Some(modifier) = fields.iter().find(|field| MODIFIERS.contains(&field.as_str())) {
            bail!("a generator with a {modifier}");
        }
        match fields.first().map(|field| field.as_str()) {
            Some("list") if generator["list"]["elementsYaml"].is_null() => {
                let elements = generator["list"]["elements"].as_array().into_iter().flatten();
                Ok(elements.map(params_of).collect())
            }
            Some("git") => self.of_git(&generator["git"]),
            Some("matrix") => self.matrix(generator["matrix"]["generators"].as_array().map_or(&[], Vec::as_slice)),
            other => bail!("generator {}", other.unwrap_or("without a kind")),
        }
    }

    /// Each combination; a generator may use the parameters of those before it.
    fn matrix(&self, generators: &[Value]) -> anyhow::Result<Vec<Params>> {
        let mut all = vec![Params::new()];
        for generator in generators {
            let mut next = Vec::new();
            for params in all {
                for more in self.generate(&rendered_value(generator, &params))? {
                    next.push(params.clone().into_iter().chain(more).collect());
                }
            }
            all = next;
        }
        Ok(all)
    }

    fn of_git(&self, git: &Value) -> anyhow::Result<Vec<Params>> {
        if git["repoURL"].as_str().is_some_and(self.is_foreign) {
            return Ok(Vec::new());
        }
        let files = self.tree.files(self.root);
        let inside = files.iter().filter_map(|file| file.strip_prefix(self.root).ok());
        let mut found = Vec::new();
        if git["directories"].is_array() {
            let patterns = Patterns::of(self.root, &git["directories"])?;
            let mut folders: Vec<&Path> = inside.clone().flat_map(|file| file.ancestors().skip(1)).collect();
            folders.sort_unstable();
            folders.dedup();
            let folders = folders.into_iter().filter(|folder| patterns.hold(folder, true));
            found.extend(folders.map(path_params));
        }
        if git["files"].is_array() {
            let patterns = Patterns::of(self.root, &git["files"])?;
            for file in inside.filter(|file| patterns.hold(file, false)) {
                found.extend(self.of_file(file));
            }
        }
        let prefix = git["pathParamPrefix"].as_str();
        let values = git["values"].as_object();
        for params in &mut found {
            for (name, value) in values.into_iter().flatten() {
                params.insert(format!("values.{name}"), rendered(value.as_str().unwrap_or_default(), params));
            }
            if let Some(prefix) = prefix {
                let is_path = |name: &str| name == "path" || name.starts_with("path.") || name.starts_with("path[");
                let renamed = |name: String| if is_path(&name) { format!("{prefix}.{name}") } else { name };
                *params = std::mem::take(params).into_iter().map(|(name, value)| (renamed(name), value)).collect();
            }
        }
        Ok(found)
    }

    /// What a file holds: the parameters of one application, or a list of them.
    fn of_file(&self, inside: &Path) -> Vec<Params> {
        let Some(source) = self.tree.read(&self.root.join(inside)) else { return Vec::new() };
        let each = source.parsed().documents.iter().flat_map(|document| match &document.value {
            Value::Array(items) => items.iter().collect::<Vec<_>>(),
            one => vec![one],
        });
        let folder = inside.parent().unwrap_or_else(|| Path::new(""));
        each.map(|value| params_of(value).into_iter().chain(path_params(folder)).collect()).collect()
    }
}

/// Globs of a generator, and those that it excludes.
struct Patterns {
    included: Gitignore,
    excluded: Gitignore,
}

impl Patterns {
    fn of(root: &Path, items: &Value) -> anyhow::Result<Self> {
        let (mut included, mut excluded) = (GitignoreBuilder::new(root), GitignoreBuilder::new(root));
        for item in items.as_array().into_iter().flatten() {
            let patterns = if item["exclude"] == true { &mut excluded } else { &mut included };
            let path = item["path"].as_str().unwrap_or_default().trim_start_matches("./").trim_matches('/');
            patterns.add_line(None, &format!("/{path}")).with_context(|| format!("the path {path}"))?;
        }
        Ok(Self { included: included.build()?, excluded: excluded.build()? })
    }

    fn hold(&self, inside: &Path, is_folder: bool) -> bool {
        let matches = |patterns: &Gitignore| patterns.matched(inside, is_folder).is_ignore();
        !inside.as_os_str().is_empty() && matches(&self.included) && !matches(&self.excluded)
    }
}

/// The paths in the template of an ApplicationSet, for each application.
fn named(set: &Value, all: &[Params]) -> anyhow::Result<Vec<NamedPath>> {
    let mut named = Vec::new();
    for params in all {
        let template = rendered_value(&set["spec"]["template"], params);
        for source in sources_of(&template) {
            if source.path.contains("{{") {
                bail!("the path {}", source.path);
            }
            // The name of a repository that is not known is not another.
            named.push(NamedPath { url: source.url.filter(|url| !url.contains("{{")), ..source });
        }
    }
    Ok(named)
}

fn path_params(folder: &Path) -> Params {
    let segments: Vec<String> = folder.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let path = segments.join("/");
    let mut params: Params =
        (segments.iter().enumerate()).map(|(i, one)| (format!("path[{i}]"), one.clone())).collect();
    params.insert("path.basename".to_owned(), segments.last().cloned().unwrap_or_default());
    params.insert("path.path".to_owned(), path.clone());
    params.insert("path".to_owned(), path);
    params
}

/// Texts, numbers and booleans by their names with dots.
fn params_of(value: &Value) -> Params {
    fn collect(value: &Value, name: &str, params: &mut Params) {
        match value {
            Value::Object(map) => {
                for (key, child) in map {
                    let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                    collect(child, &name, params);
                }
            }
            Value::String(text) => drop(params.insert(name.to_owned(), text.clone())),
            Value::Number(_) | Value::Bool(_) => drop(params.insert(name.to_owned(), value.to_string())),
            Value::Null | Value::Array(_) => {}
        }
    }
    let mut params = Params::new();
    collect(value, "", &mut params);
    params
}

/// A text in which expressions are replaced that are names of parameters, as fasttemplate (`{{path}}`) and Go (`{{ .path.path }}`,
/// `{{index .path.segments 1}}`) write them. Others stay.
fn rendered(text: &str, params: &Params) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        result += before;
        let known = after.split_once("}}").and_then(|(inner, rest)| {
            let inner = inner.trim();
            let name = match inner.strip_prefix("index .path.segments ") {
                Some(index) => format!("path[{}]", index.trim()),
                None => inner.trim_start_matches('.').to_owned(),
            };
            Some((params.get(&name)?, rest))
        });
        match known {
            Some((value, after)) => {
                result += value;
                rest = after;
            }
            None => {
                result += "{{";
                rest = after;
            }
        }
    }
    result + rest
}

fn rendered_value(value: &Value, params: &Params) -> Value {
    match value {
        Value::String(text) => rendered(text, params).into(),
        Value::Array(items) => items.iter().map(|item| rendered_value(item, params)).collect(),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, child)| (key.clone(), rendered_value(child, params)));
            Value::Object(entries.collect())
        }
        other => other.clone(),
    }
}
