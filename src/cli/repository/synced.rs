//! What Flux and Argo CD sync: the folders that their objects name, and the variables that Flux replaces there.

use super::application_sets::{Found, Generators, RepositoryFiles};
use super::paths::relative;
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
    /// What is replaced there; `None` where nothing is.
    variables: Option<Variables>,
}

/// `spec.postBuild` of a Kustomization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Variables {
    /// `substitute`.
    known: BTreeMap<String, String>,
    /// Names with values that differ between clusters.
    differing: BTreeSet<String>,
    /// There is a `substituteFrom`, so that others may have values in the cluster.
    has_others: bool,
}

impl Synced {
    /// True when it leads to what is not above it: an object that syncs the folder that it is in adds nothing to it.
    pub(crate) fn leads_on(&self) -> bool {
        !self.by.starts_with(&self.path)
    }
}

/// The sources of Flux by namespace and name, with their URLs.
type Urls = BTreeMap<(String, String), String>;

/// What is known while objects are followed.
#[derive(Default)]
pub(super) struct Known {
    urls: Urls,
    /// By root.
    repositories: BTreeMap<PathBuf, Repository>,
    /// What is not followed.
    pub(super) not_followed: Vec<NotFollowed>,
    /// What is synced otherwise than it is read, as sentences.
    pub(super) differing: Vec<String>,
}

struct Repository {
    /// The names of the repositories that it is a clone of.
    remotes: BTreeSet<String>,
    files: RepositoryFiles,
}

/// An ApplicationSet whose folders are not all known.
pub(super) struct NotFollowed {
    /// Its file, by the real path.
    pub(super) by: PathBuf,
    /// The root of the repository.
    pub(super) root: PathBuf,
    /// Why, as a sentence.
    pub(super) sentence: String,
}

/// What the objects among these files sync from the repository. What is of another repository, by its URL, or is not there, is left
/// out.
pub(super) fn synced(tree: &impl Tree, files: &[(&Path, &Source)], known: &mut Known) -> Vec<Synced> {
    let files: Vec<_> = files.iter().filter(|(_, source)| may_sync(&source.text)).collect();
    let objects = files
        .iter()
        .flat_map(|(file, source)| source.parsed().documents.iter().flat_map(items).map(|(_, value)| (*file, value)));
    let objects: Vec<(&Path, &Value)> = objects.collect();
    let Known { urls, repositories, not_followed, differing } = known;
    urls.extend(objects.iter().filter_map(|(_, value)| url(value)));
    let mut found = Vec::new();
    for (file, value) in objects {
        let Some(root) = tree.root(file) else { continue };
        let repository = repositories
            .entry(root.clone())
            .or_insert_with(|| Repository { remotes: remotes(&root), files: RepositoryFiles::default() });
        let Repository { remotes, files } = &*repository;
        let is_foreign = |url: &str| !remotes.is_empty() && !remotes.contains(last_part(url));
        let named = match (group(value), &value["kind"]) {
            ("argoproj.io", kind) if kind == "ApplicationSet" => {
                let Found { paths, unknown } = Generators::new(tree, &root, &is_foreign, files).found(value);
                if !unknown.is_empty() {
                    let sentence = sentence(file, value, unknown);
                    not_followed.push(NotFollowed { by: file.to_owned(), root: root.clone(), sentence });
                }
                paths.into_iter().collect()
            }
            _ => paths(value, urls),
        };
        let (before, has_patches) = (found.len(), has_patches(value));
        for named in named {
            if named.url.as_ref().is_some_and(|url| is_foreign(url)) {
                continue;
            }
            // A path that leads out of the repository is none in it.
            let real = tree.real(&root.join(named.path.trim_start_matches('/')));
            let Some(path) = real.filter(|real| real.starts_with(&root)) else {
                // Of another URL, or of a source that is not in the repository, it is not known whose path it is; a set may generate
                // more than there is.
                let is_own = named.url.is_some_and(|url| remotes.contains(last_part(&url)));
                let is_wrong = is_own && value["kind"] != "ApplicationSet";
                differing.extend(is_wrong.then(|| missing(file, value, &named.path)));
                continue;
            };
            found.push(Synced { by: file.to_owned(), path, variables: variables(value) });
        }
        differing.extend((has_patches && found.len() > before).then(|| unpatched(file, value)));
    }
    found
}

/// A path that is synced and does not exist.
fn missing(file: &Path, value: &Value, path: &str) -> String {
    format!(
        "{}: {} syncs {path}, which is not here: correct the path, unless it is on another branch",
        relative(file).display(),
        title(value)
    )
}

/// Patches that are applied in the cluster alone.
fn unpatched(file: &Path, value: &Value) -> String {
    format!(
        "{}: the patches of {} are not applied: what it syncs is read as it is in Git",
        relative(file).display(),
        title(value)
    )
}

fn title(value: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&value["kind"]), text(&value["metadata"]["name"]))
}

/// True for a Kustomization of Flux or an Application that changes what it syncs.
fn has_patches(value: &Value) -> bool {
    let spec = &value["spec"];
    let has = |value: &Value| value.as_array().is_some_and(|patches| !patches.is_empty());
    match (group(value), value["kind"].as_str().unwrap_or_default()) {
        ("kustomize.toolkit.fluxcd.io", "Kustomization") => {
            ["patches", "patchesStrategicMerge", "patchesJson6902"].iter().any(|field| has(&spec[*field]))
        }
        ("argoproj.io", "Application") => sources(spec).any(|source| has(&source["kustomize"]["patches"])),
        _ => false,
    }
}

fn sentence(file: &Path, set: &Value, unknown: BTreeSet<String>) -> String {
    format!(
        "{}: folders of ApplicationSet {} are not known from the repository alone ({}): pass those that it syncs",
        relative(file).display(),
        set["metadata"]["name"].as_str().unwrap_or_default(),
        unknown.into_iter().collect::<Vec<_>>().join(", ")
    )
}

/// Most files are not parsed for this.
fn may_sync(text: &str) -> bool {
    ["kustomize.toolkit.fluxcd.io/", "source.toolkit.fluxcd.io/", "argoproj.io/"]
        .iter()
        .any(|group| text.contains(group))
}

/// A path of a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NamedPath {
    pub(super) path: String,
    /// The repository, where it is known.
    pub(super) url: Option<String>,
}

/// The paths of a Kustomization of Flux, or of an Application.
fn paths(value: &Value, urls: &Urls) -> Vec<NamedPath> {
    let spec = &value["spec"];
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    match (group(value), value["kind"].as_str().unwrap_or_default()) {
        ("kustomize.toolkit.fluxcd.io", "Kustomization") if spec["sourceRef"]["kind"] == "GitRepository" => {
            let source = &spec["sourceRef"];
            let namespace = text(&source["namespace"]).or_else(|| text(&value["metadata"]["namespace"]));
            let key = (namespace.unwrap_or_default(), text(&source["name"]).unwrap_or_default());
            let path = text(&spec["path"]).unwrap_or_else(|| ".".to_owned());
            vec![NamedPath { path, url: urls.get(&key).cloned() }]
        }
        ("argoproj.io", "Application") => sources_of(value),
        _ => Vec::new(),
    }
}

/// The paths of an Application.
pub(super) fn sources_of(application: &Value) -> Vec<NamedPath> {
    let spec = &application["spec"];
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let named = |source: &Value| Some(NamedPath { path: text(&source["path"])?, url: text(&source["repoURL"]) });
    sources(spec).filter_map(named).collect()
}

/// `sources` and `source` of an Application.
fn sources(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["sources"].as_array().into_iter().flatten().chain([&spec["source"]])
}

fn group(value: &Value) -> &str {
    value["apiVersion"].as_str().and_then(|version| version.split('/').next()).unwrap_or_default()
}

/// Namespace, name and URL of a GitRepository.
fn url(value: &Value) -> Option<((String, String), String)> {
    let is_repository = group(value) == "source.toolkit.fluxcd.io" && value["kind"] == "GitRepository";
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &value["metadata"];
    let url = value["spec"]["url"].as_str().filter(|_| is_repository)?;
    Some(((text(&metadata["namespace"]), text(&metadata["name"])), url.to_owned()))
}

/// The names of the repositories that this one is a clone of; the same repository has several URLs, by SSH and HTTP.
fn remotes(root: &Path) -> BTreeSet<String> {
    let config = std::fs::read_to_string(root.join(".git/config")).unwrap_or_default();
    let urls = config.lines().filter_map(|line| line.trim().strip_prefix("url")?.trim().strip_prefix('='));
    urls.map(|url| last_part(url).to_owned()).collect()
}

/// The name of a repository in its URL.
fn last_part(url: &str) -> &str {
    let url = url.trim().trim_end_matches('/');
    let url = url.strip_suffix(".git").unwrap_or(url);
    url.rsplit(['/', ':']).next().unwrap_or(url)
}

fn variables(value: &Value) -> Option<Variables> {
    let build = value["spec"]["postBuild"].as_object()?;
    let substitute = build.get("substitute").and_then(Value::as_object).into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    let known = substitute.map(|(name, value)| (name.clone(), text(value))).collect();
    let has_others = build.get("substituteFrom").and_then(Value::as_array).is_some_and(|from| !from.is_empty());
    Some(Variables { known, has_others, ..Variables::default() })
}

/// A text in which variables are replaced as Flux does, if it is in a folder that a Kustomization with `spec.postBuild` syncs: by its
/// values, else by the default after `:-`, `-`, `:=` or `=`, else by nothing. Those that may have another value stay, and so do
/// documents that Flux is told to leave.
pub(super) fn substituted(source: Source, real: Option<&Path>, synced: &[Synced]) -> Source {
    let variables = real.filter(|_| source.text.contains("${")).and_then(|real| of_file(real, synced));
    let Some(variables) = variables else { return source };
    let documents = source.text.split_inclusive('\n').fold(vec![String::new()], |mut documents, line| {
        if line.trim_end() == "---" {
            documents.push(String::new());
        }
        documents.last_mut().into_iter().for_each(|document| document.push_str(line));
        documents
    });
    let replaced = documents.iter().map(|document| match is_left(document) {
        true => document.clone(),
        false => replaced(document, &variables),
    });
    manifests::load_text(&source.file, replaced.collect())
}

/// True for a document whose annotation says that nothing is replaced in it.
fn is_left(document: &str) -> bool {
    let lines = document.lines().filter(|line| line.contains("kustomize.toolkit.fluxcd.io/substitute"));
    lines.into_iter().any(|line| line.contains("disabled"))
}

fn replaced(document: &str, variables: &Variables) -> String {
    let (mut text, mut rest) = (String::new(), document);
    while let Some((before, after)) = rest.split_once("${") {
        text += before;
        let expression = after.split_once('}').filter(|(inner, _)| !inner.contains(['\n', '{']));
        match expression.and_then(|(inner, rest)| Some((value_of(inner, variables)?, rest))) {
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
    text + rest
}

/// The variables of a file: those of the Kustomizations that sync the nearest folder above it, as far as they agree.
fn of_file(real: &Path, synced: &[Synced]) -> Option<Variables> {
    let above = synced.iter().filter(|one| real.starts_with(&one.path));
    let nearest = above.clone().map(|one| one.path.components().count()).max()?;
    let by: Vec<&Variables> = above
        .filter(|one| one.path.components().count() == nearest)
        .map(|one| one.variables.as_ref())
        .collect::<Option<_>>()?;
    let first = by.first()?;
    let is_agreed = |name: &String, value: &String| by.iter().all(|one| one.known.get(name) == Some(value));
    let (known, differing): (BTreeMap<_, _>, BTreeMap<_, _>) =
        first.known.clone().into_iter().partition(|(name, value)| is_agreed(name, value));
    // A default is not the value where a cluster has one.
    let has_others = by.iter().any(|one| one.has_others || one.known.keys().ne(first.known.keys()));
    Some(Variables { known, differing: differing.into_keys().collect(), has_others })
}

/// The value of `NAME`, `NAME:=default` and the like; `None` where it is not known.
fn value_of(expression: &str, variables: &Variables) -> Option<String> {
    let end = expression.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(expression.len());
    let (name, default) = expression.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Some(value) = variables.known.get(name) {
        return Some(value.clone());
    }
    if variables.has_others || variables.differing.contains(name) {
        return None;
    }
    let default = [":-", ":=", "-", "="].iter().find_map(|sign| default.strip_prefix(sign));
    // Flux replaces one that nobody sets by nothing.
    default.or_else(|| (name.len() == expression.len()).then_some("")).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced_text(text: &str, variables: &[&[(&str, &str)]]) -> String {
        let one = |pairs: &&[(&str, &str)]| Synced {
            by: PathBuf::from("/r/clusters/a.yaml"),
            path: PathBuf::from("/r/apps"),
            variables: Some(Variables {
                known: pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
                ..Variables::default()
            }),
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
            ("a: ${unknown}", "a: "),
            ("a: ${unknown:0:2}", "a: ${unknown:0:2}"),
            ("a: ${unknown:=5}", "a: 5"),
            ("a: ${unknown:-}", "a: "),
            ("a: ${x:=5}", "a: 1"),
            ("a: $${x}", "a: $${x}"),
            ("a: ${1}${}${", "a: ${1}${}${"),
            ("a: ${x\n}", "a: ${x\n}"),
        ] {
            assert_eq!(replaced_text(text, &[&[("x", "1"), ("y", "2")]]), expected, "{text}");
        }
    }

    #[test]
    fn clusters_that_disagree_leave_a_variable_open() {
        let text = "a: ${x} ${y} ${z}";
        let both: [&[(&str, &str)]; 2] = [&[("x", "1"), ("y", "2")], &[("x", "1"), ("y", "3"), ("z", "4")]];
        assert_eq!(replaced_text(text, &both), "a: 1 ${y} ${z}");
        let both: [&[(&str, &str)]; 2] = [&[("x", "1"), ("y", "2")], &[("x", "1"), ("y", "3")]];
        assert_eq!(replaced_text(text, &both), "a: 1 ${y} ", "no cluster has the third");
    }

    #[test]
    fn nothing_is_replaced_where_flux_replaces_nothing() {
        let text =
            "a: ${x:=5}\n---\nmetadata: {annotations: {kustomize.toolkit.fluxcd.io/substitute: disabled}}\na: ${x}\n";
        assert_eq!(replaced_text(text, &[&[("x", "1")]]), text.replacen("${x:=5}", "1", 1));
        assert_eq!(replaced_text(text, &[]), text, "nothing syncs it");
        let above = Synced { by: "/r/a.yaml".into(), path: "/r".into(), variables: Some(Variables::default()) };
        let near = Synced { by: "/r/b.yaml".into(), path: "/r/apps".into(), variables: None };
        assert_eq!(of_file(Path::new("/r/apps/a.yaml"), &[above, near]), None, "the nearest counts");
    }

    #[test]
    fn defaults_are_open_where_a_cluster_may_have_values() {
        let mut variables = Variables::default();
        assert_eq!(value_of("x:=5", &variables).as_deref(), Some("5"));
        variables.has_others = true;
        assert_eq!(value_of("x:=5", &variables), None);
    }

    #[test]
    fn one_repository_has_several_urls() {
        for url in [
            "git@github.com:a/fleet.git",
            "https://github.com/a/fleet",
            " ssh://git@h:22/a/fleet/ ",
            "git@ssh.dev.azure.com:v3/o/p/fleet",
        ] {
            assert_eq!(last_part(url), "fleet");
        }
    }
}
