//! What ApplicationSets of Argo CD sync, as far as the repository alone tells it.

use super::synced::{NamedPath, sources_of};
use super::tree::Tree;
use anyhow::{Context, bail};
use globset::{GlobBuilder, GlobSet};
use napkeeper_api::manifests::Source;
use serde_json::Value;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Most applications of a set.
const MOST_APPLICATIONS: usize = 1_000;
/// Most generators that are run for a set: a matrix runs its second one for each result of the first.
const MOST_RUNS: usize = 2 * MOST_APPLICATIONS;
/// Most MiB of the parameters of a set, and of the texts in which they are replaced.
const MOST_MIB: usize = 32;
/// Bytes of a parameter beside its name and value.
const PARAMETER: usize = 64;
/// How deep matrices are nested: Argo CD takes one in another.
const NESTING: usize = 2;
/// What ends the beginning of a pattern that all that it matches begins with.
const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Parameters of one application: texts by their names with dots.
type Params = BTreeMap<String, String>;

/// The files of a repository, each listed and read once.
#[derive(Default)]
pub(super) struct RepositoryFiles {
    /// By their paths from the root, in order.
    files: OnceCell<Vec<String>>,
    /// Those that Argo CD looks at: not hidden ones.
    folders: OnceCell<Vec<String>>,
    /// By real path.
    read: RefCell<BTreeMap<PathBuf, Source>>,
}

/// What an ApplicationSet syncs from the repository.
#[derive(Default)]
pub(super) struct Found {
    pub(super) paths: BTreeSet<NamedPath>,
    /// Why other paths are not known.
    pub(super) unknown: BTreeSet<String>,
}

/// The generators of an ApplicationSet, and the repository that it is read for.
pub(super) struct Generators<'t, T> {
    tree: &'t T,
    /// The root of the repository.
    root: &'t Path,
    /// True for the URL of another repository.
    is_foreign: &'t dyn Fn(&str) -> bool,
    files: &'t RepositoryFiles,
    /// How many were run, and bytes of what they made.
    runs: Cell<usize>,
    bytes: Cell<usize>,
}

impl<'t, T: Tree> Generators<'t, T> {
    pub(super) fn new(
        tree: &'t T,
        root: &'t Path,
        is_foreign: &'t dyn Fn(&str) -> bool,
        files: &'t RepositoryFiles,
    ) -> Self {
        Self { tree, root, is_foreign, files, runs: Cell::new(0), bytes: Cell::new(0) }
    }

    /// What an ApplicationSet syncs from this repository.
    pub(super) fn found(&self, set: &Value) -> Found {
        let spec = &set["spec"];
        let mut sources = sources_of(&spec["template"]);
        sources.retain(|source| !self.is_another(source.url.as_deref()));
        let (open, constant): (Vec<_>, Vec<_>) =
            sources.into_iter().partition(|one| is_open(&one.path) || one.url.as_deref().is_some_and(is_open));
        let (mut found, mut applications) = (Found::default(), 0);
        for generator in spec["generators"].as_array().into_iter().flatten() {
            if let Some(kind) = kind_with_sources(generator) {
                found.unknown.insert(format!("the template of generator {kind}"));
                continue;
            }
            found.paths.extend(constant.iter().cloned());
            if open.is_empty() {
                continue;
            }
            let all = self.generate(generator, NESTING).and_then(|all| {
                applications += all.len();
                at_most(applications).map(|()| all)
            });
            for source in &open {
                let result = all.as_ref().map_err(|error| format!("{error:#}"));
                let result =
                    result.and_then(|all| self.add(source, all, &mut found).map_err(|error| error.to_string()));
                match result {
                    Ok(()) => {}
                    // Only the repository depends on parameters.
                    Err(_) if !is_open(&source.path) => {
                        found.paths.insert(NamedPath { path: source.path.clone(), url: None });
                    }
                    Err(reason) => drop(found.unknown.insert(reason)),
                }
            }
        }
        // Others change something else than paths.
        let patch = spec["templatePatch"].as_str().unwrap_or_default();
        if patch.contains("source") || patch.contains("toYaml") {
            found.unknown.insert("spec.templatePatch".to_owned());
        }
        found
    }

    /// Adds what a source of the template is in each application.
    fn add(&self, source: &NamedPath, all: &[Params], found: &mut Found) -> anyhow::Result<()> {
        for params in all {
            let url = source.url.as_ref().map(|url| self.rendered(url, params)).transpose()?;
            if self.is_another(url.as_deref()) {
                continue;
            }
            let path = self.rendered(&source.path, params)?;
            if is_open(&path) {
                found.unknown.insert(format!("the path {}", source.path));
            } else {
                found.paths.insert(NamedPath { path, url: url.filter(|url| !is_open(url)) });
            }
        }
        Ok(())
    }

    /// True for the URL of another repository: one that is not known is not another.
    fn is_another(&self, url: Option<&str>) -> bool {
        url.is_some_and(|url| !is_open(url) && (self.is_foreign)(url))
    }

    /// The parameters of each application that a generator makes, which may hold matrices so deep.
    fn generate(&self, generator: &Value, nesting: usize) -> anyhow::Result<Vec<Params>> {
        self.runs.set(self.runs.get() + 1);
        if self.runs.get() > MOST_RUNS {
            bail!("more than {MOST_RUNS} combinations");
        }
        if !generator["selector"].is_null() {
            bail!("a selector");
        }
        match kinds(generator).as_slice() {
            ["list"] if generator["list"]["elementsYaml"].is_null() => {
                let elements = generator["list"]["elements"].as_array().map_or(&[][..], Vec::as_slice);
                at_most(elements.len())?;
                elements.iter().map(|element| self.kept(params_of(element))).collect()
            }
            ["git"] => self.of_git(&generator["git"]),
            ["matrix"] if nesting > 0 => {
                let inner = generator["matrix"]["generators"].as_array().map_or(&[][..], Vec::as_slice);
                self.matrix(inner, nesting - 1)
            }
            [] => bail!("a generator without a kind"),
            kinds => bail!("generator {}", kinds.join(" with ")),
        }
    }

    /// Each combination; the second generator may use the parameters of the first, which win.
    fn matrix(&self, generators: &[Value], nesting: usize) -> anyhow::Result<Vec<Params>> {
        let [first, second] = generators else { bail!("a matrix of {} generators", generators.len()) };
        let mut all = Vec::new();
        for params in self.generate(first, nesting)? {
            for more in self.generate(&self.rendered_value(second, &params)?, nesting)? {
                at_most(all.len() + 1)?;
                all.push(self.kept(more.into_iter().chain(params.clone()).collect())?);
            }
        }
        Ok(all)
    }

    fn of_git(&self, git: &Value) -> anyhow::Result<Vec<Params>> {
        if let Some(url) = git["repoURL"].as_str().filter(|url| self.is_another(Some(url))) {
            bail!("generator git of {url}");
        }
        let prefix = git["pathParamPrefix"].as_str().filter(|prefix| !prefix.is_empty());
        let is_filled = |field: &str| git[field].as_array().is_some_and(|items| !items.is_empty());
        let mut all = if is_filled("directories") {
            let folders = matching(self.folders(), &git["directories"], false)?;
            at_most(folders.len())?;
            folders
                .into_iter()
                .map(|folder| self.kept(path_params(folder, prefix)))
                .collect::<anyhow::Result<Vec<_>>>()?
        } else {
            self.of_files(&matching(self.files(), &git["files"], true)?, prefix)?
        };
        for params in &mut all {
            // Values do not use each other.
            let values = git["values"].as_object().into_iter().flatten().map(|(name, value)| {
                Ok((format!("values.{name}"), self.rendered(value.as_str().unwrap_or_default(), params)?))
            });
            let values = self.kept(values.collect::<anyhow::Result<Params>>()?)?;
            params.extend(values);
        }
        Ok(all)
    }

    /// What each file holds: the parameters of one application, or a list of them.
    fn of_files(&self, files: &BTreeSet<&str>, prefix: Option<&str>) -> anyhow::Result<Vec<Params>> {
        at_most(files.len())?;
        let mut read = self.files.read.borrow_mut();
        let paths = files.iter().map(|file| self.root.join(file));
        let unread: Vec<PathBuf> = paths.filter(|path| !read.contains_key(path)).collect();
        if !unread.is_empty() {
            read.extend(self.tree.read_all(&unread));
        }
        let mut all = Vec::new();
        for file in files {
            let source =
                read.get(&self.root.join(file)).map(Source::parsed).filter(|parsed| parsed.problems.is_empty());
            let parsed = source.with_context(|| format!("the file {file}"))?;
            let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
            let mut of_path = path_params(folder, prefix);
            of_path.insert(format!("{}.filename", path_name(prefix)), name.to_owned());
            let each = parsed.documents.iter().flat_map(|document| match &document.value {
                Value::Array(items) => items.as_slice(),
                one => std::slice::from_ref(one),
            });
            for value in each {
                at_most(all.len() + 1)?;
                all.push(self.kept(params_of(value).into_iter().chain(of_path.clone()).collect())?);
            }
        }
        Ok(all)
    }

    fn files(&self) -> &'t [String] {
        self.files.files.get_or_init(|| {
            let files = self.tree.files(self.root);
            let inside = files.iter().filter_map(|file| file.strip_prefix(self.root).ok()?.to_str());
            let mut inside: Vec<String> = inside.map(ToOwned::to_owned).collect();
            inside.sort_unstable();
            inside
        })
    }

    fn folders(&self) -> &'t [String] {
        self.files.folders.get_or_init(|| {
            let folders: BTreeSet<&Path> =
                self.files().iter().flat_map(|file| Path::new(file).ancestors().skip(1)).collect();
            let folders = folders.into_iter().filter_map(Path::to_str);
            let mut folders: Vec<String> = folders
                .filter(|folder| !folder.split('/').any(|part| part.is_empty() || part.starts_with('.')))
                .map(ToOwned::to_owned)
                .collect();
            folders.sort_unstable();
            folders
        })
    }

    /// Parameters, if they are not too much.
    fn kept(&self, params: Params) -> anyhow::Result<Params> {
        self.spend(params.iter().map(|(name, value)| PARAMETER + name.len() + value.len()).sum())?;
        Ok(params)
    }

    fn spend(&self, bytes: usize) -> anyhow::Result<()> {
        self.bytes.set(self.bytes.get() + bytes);
        if self.bytes.get() > MOST_MIB << 20 {
            bail!("more than {MOST_MIB} MiB of parameters");
        }
        Ok(())
    }

    /// A text in which expressions are replaced that are names of parameters, as fasttemplate (`{{path}}`) and Go
    /// (`{{ .path.path }}`, `{{index .path.segments 1}}`) write them. Others stay.
    fn rendered(&self, text: &str, params: &Params) -> anyhow::Result<String> {
        self.spend(text.len())?;
        let (mut result, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            result += before;
            let known = after.split_once("}}").and_then(|(inner, rest)| Some((params.get(&name_in(inner))?, rest)));
            let (part, after) = known.map_or(("{{", after), |(value, after)| (value.as_str(), after));
            self.spend(part.len())?;
            result += part;
            rest = after;
        }
        Ok(result + rest)
    }

    fn rendered_value(&self, value: &Value, params: &Params) -> anyhow::Result<Value> {
        Ok(match value {
            Value::String(text) => self.rendered(text, params)?.into(),
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.rendered_value(item, params)).collect::<anyhow::Result<_>>()?)
            }
            Value::Object(map) => {
                let entries = map.iter().map(|(key, child)| Ok((key.clone(), self.rendered_value(child, params)?)));
                Value::Object(entries.collect::<anyhow::Result<_>>()?)
            }
            other => other.clone(),
        })
    }
}

fn at_most(applications: usize) -> anyhow::Result<()> {
    if applications > MOST_APPLICATIONS {
        bail!("more than {MOST_APPLICATIONS} applications");
    }
    Ok(())
}

/// True for a text with an expression, so that its value is not known.
fn is_open(text: &str) -> bool {
    text.contains("{{")
}

/// What a generator is: one thing, beside a selector.
fn kinds(generator: &Value) -> Vec<&str> {
    let fields = generator.as_object().into_iter().flatten();
    fields.filter(|(field, value)| *field != "selector" && !value.is_null()).map(|(field, _)| field.as_str()).collect()
}

/// The kind of a generator with a template of its own for what the applications sync.
fn kind_with_sources(generator: &Value) -> Option<&str> {
    kinds(generator).into_iter().find(|kind| {
        let spec = &generator[*kind]["template"]["spec"];
        !spec["source"].is_null() || !spec["sources"].is_null()
    })
}

/// The paths that match a pattern of a generator and none that it excludes. `*` matches `/` too in files, as Argo CD by default lists
/// them by `git ls-files`, but not in folders.
fn matching<'f>(all: &'f [String], items: &Value, is_of_files: bool) -> anyhow::Result<BTreeSet<&'f str>> {
    let (mut included, mut excluded) = (BTreeSet::new(), BTreeSet::new());
    for item in items.as_array().into_iter().flatten() {
        let pattern = item["path"].as_str().unwrap_or_default().trim_start_matches("./").trim_matches('/');
        let said = || format!("the pattern {pattern}");
        if is_open(pattern) {
            bail!(said());
        }
        // Neither knows `**`.
        let mut single = pattern.to_owned();
        while single.contains("**") {
            single = single.replace("**", "*");
        }
        let glob = GlobBuilder::new(&single).literal_separator(!is_of_files).build().with_context(said)?;
        let glob = GlobSet::builder().add(glob).build().with_context(said)?;
        let beginning = pattern.split(WILDCARDS).next().unwrap_or_default();
        let first = all.partition_point(|one| one.as_str() < beginning);
        let near = all.iter().skip(first).map(String::as_str).take_while(|one| one.starts_with(beginning));
        let is_below = |one: &str| one.strip_prefix(pattern).is_some_and(|rest| rest.starts_with('/'));
        let matched = near.filter(|one| glob.is_match(one) || is_of_files && is_below(one));
        if item["exclude"] == true { excluded.extend(matched) } else { included.extend(matched) }
    }
    Ok(&included - &excluded)
}

/// The name of the parameters of a path.
fn path_name(prefix: Option<&str>) -> String {
    prefix.map_or_else(|| "path".to_owned(), |prefix| format!("{prefix}.path"))
}

fn path_params(folder: &str, prefix: Option<&str>) -> Params {
    let name = path_name(prefix);
    let segments = folder.split('/').enumerate().map(|(i, one)| (format!("{name}[{i}]"), one.to_owned()));
    let mut params: Params = segments.collect();
    let basename = folder.rsplit('/').next().unwrap_or_default();
    params.insert(format!("{name}.basename"), basename.to_owned());
    params.insert(format!("{name}.path"), folder.to_owned());
    params.insert(name, folder.to_owned());
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

/// The name of the parameter that an expression may be.
fn name_in(expression: &str) -> String {
    let expression = expression.trim();
    let index = expression.strip_prefix("index .").and_then(|rest| rest.split_once(".segments "));
    match index {
        Some((path, index)) => format!("{path}[{}]", index.trim()),
        None => expression.trim_start_matches('.').to_owned(),
    }
}
