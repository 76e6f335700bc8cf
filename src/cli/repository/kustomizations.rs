//! Kustomizations, and the files that each is built from.

use super::paths::relative;
use super::tree::Tree;
use napkeeper_api::manifests::{self, Source};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Names that kustomize accepts for its file.
pub(crate) const KUSTOMIZATION_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Fields with lists of files and folders, or of what stands inline.
const LISTS: [&str; 9] = [
    "resources",
    "bases",
    "components",
    "crds",
    "configurations",
    "generators",
    "transformers",
    "validators",
    "patchesStrategicMerge",
];
/// Fields with lists of objects that may name a file.
const WITH_PATH: [&str; 3] = ["patches", "patchesJson6902", "replacements"];
/// Fields with lists of objects that hold lists of files.
const GENERATORS: [&str; 2] = ["configMapGenerator", "secretGenerator"];
/// Fields with the configurations of transformers and generators, in files or inline.
const CONFIGS: [&str; 3] = ["generators", "transformers", "validators"];
/// Fields by which charts are fetched and rendered, which kustomize does only with a flag.
const OF_HELM: [&str; 3] = ["helmCharts", "helmChartInflationGenerator", "helmGlobals"];

/// A kustomization.
#[derive(Debug)]
pub(crate) struct Kustomization {
    /// Its folder, by its real path.
    pub(crate) folder: PathBuf,
    /// All files that it is built from, with its own and those of the kustomizations that it names, by their real paths.
    pub(crate) files: BTreeSet<PathBuf>,
    /// The folders of the kustomizations that it names, and so on.
    pub(super) bases: BTreeSet<PathBuf>,
    /// Why it cannot be built from these files alone.
    pub(crate) obstacle: Option<Obstacle>,
}

/// Why a kustomization is not built.
#[derive(Debug, Clone)]
pub(crate) enum Obstacle {
    /// It names what is not in the repository.
    Remote { file: PathBuf, what: String },
    /// Its transformers or generators are in a folder, and may name anything.
    Transformers { file: PathBuf, what: String },
    /// It renders Helm charts.
    Helm { file: PathBuf },
    /// It is a component.
    Component,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { file, what } => write!(
                f,
                "{} names {what}, which is not in the repository: use --kustomize=remote to fetch it",
                relative(file).display()
            ),
            Self::Transformers { file, what } => write!(
                f,
                "{} has transformers in the folder {what}, which may fetch: use --kustomize=remote to let them",
                relative(file).display()
            ),
            Self::Component => {
                f.write_str("it is a component: it is built as a part of the kustomizations that name it")
            }
            Self::Helm { file } => write!(
                f,
                "{} renders Helm charts: pass - and pipe the output of kustomize build --enable-helm",
                relative(file).display()
            ),
        }
    }
}

/// The file of the kustomization in a folder.
pub(crate) fn kustomization_in(tree: &impl Tree, folder: &Path) -> Option<PathBuf> {
    let mut names = KUSTOMIZATION_NAMES.into_iter().filter_map(|name| tree.real(&folder.join(name)));
    names.find(|file| !tree.is_folder(file))
}

/// The kustomizations in some folders that are no part of another of them that is built. `named` folders are meant, even if they are.
/// `online` allows what has to be fetched.
pub(crate) fn find(
    tree: &impl Tree,
    folders: &BTreeSet<PathBuf>,
    named: &BTreeSet<PathBuf>,
    online: bool,
) -> Vec<Kustomization> {
    let all = folders.union(named).filter_map(|folder| Kustomization::read(tree, folder));
    let all: Vec<Kustomization> = all.collect();
    let built = all.iter().filter(|one| one.is_built(online));
    let bases: BTreeSet<PathBuf> = built.flat_map(|one| one.bases.iter().cloned()).collect();
    let is_component = |one: &Kustomization| matches!(one.obstacle, Some(Obstacle::Component));
    // One that is a base of itself cannot be built, which is for the build to say.
    let is_whole =
        |one: &Kustomization| !is_component(one) && (!bases.contains(&one.folder) || one.bases.contains(&one.folder));
    all.into_iter().filter(|one| named.contains(&one.folder) || is_whole(one)).collect()
}

/// The files that kustomizations among these name as patches, by their real paths.
pub(crate) fn patches(tree: &impl Tree, sources: &[Source]) -> BTreeSet<PathBuf> {
    let files = sources.iter().map(|source| (Path::new(&*source.file), source));
    let kustomizations =
        files.filter(|(file, _)| file.file_name().is_some_and(|name| KUSTOMIZATION_NAMES.iter().any(|n| name == *n)));
    let named = kustomizations.flat_map(|(file, source)| {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        let documents = &source.parsed().documents;
        documents.iter().flat_map(|d| patches_of(&d.value)).map(|path| folder.join(path)).collect::<Vec<_>>()
    });
    named.filter_map(|path| tree.real(&path)).filter(|real| !tree.is_folder(real)).collect()
}

fn patches_of(kustomization: &Value) -> impl Iterator<Item = &str> {
    let of_maps = ["patches", "patchesJson6902"].into_iter().flat_map(|field| list(kustomization, field));
    let inline_or_file = list(kustomization, "patchesStrategicMerge").iter().filter_map(Value::as_str);
    of_maps.filter_map(|patch| field(patch, "path").as_str()).chain(inline_or_file)
}

/// The files with replacements that a kustomization names.
pub(super) fn replacements_of(kustomization: &Value) -> impl Iterator<Item = &str> {
    list(kustomization, "replacements").iter().filter_map(|one| field(one, "path").as_str())
}

/// The folders of components that a kustomization names.
pub(super) fn components_of(kustomization: &Value) -> impl Iterator<Item = &str> {
    list(kustomization, "components").iter().filter_map(Value::as_str)
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    field(value, name).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A field by its name, in which kustomize does not distinguish upper and lower case.
fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    let mut entries = value.as_object().into_iter().flatten();
    entries.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or(&Value::Null, |(_, value)| value)
}

impl Kustomization {
    /// True when it can be built, perhaps with what is fetched.
    pub(crate) fn is_built(&self, online: bool) -> bool {
        match &self.obstacle {
            None => true,
            Some(obstacle) => online && matches!(obstacle, Obstacle::Remote { .. } | Obstacle::Transformers { .. }),
        }
    }

    /// The kustomization in a folder, if there is one.
    pub(super) fn read(tree: &impl Tree, folder: &Path) -> Option<Self> {
        let own = kustomization_in(tree, folder)?;
        let mut one =
            Self { folder: folder.to_owned(), files: BTreeSet::new(), bases: BTreeSet::new(), obstacle: None };
        let mut pending = vec![own.clone()];
        while let Some(file) = pending.pop() {
            if !one.files.insert(file.clone()) {
                continue;
            }
            let Some(source) = tree.read(&file) else { continue };
            let Some(document) = source.parsed().documents.first() else { continue };
            if file == own && field(&document.value, "kind") == "Component" {
                one.obstacle = Some(Obstacle::Component);
            }
            one.follow(tree, &file, &document.value, &mut pending);
        }
        Some(one)
    }

    /// Takes up what a kustomization names; the files of the kustomizations among that are added to `pending`.
    fn follow(&mut self, tree: &impl Tree, file: &Path, value: &Value, pending: &mut Vec<PathBuf>) {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        if OF_HELM.iter().any(|name| !field(value, name).is_null()) {
            self.obstacle.get_or_insert_with(|| Obstacle::Helm { file: file.to_owned() });
        }
        for named in names(value) {
            self.follow_name(tree, file, named, pending);
        }
        // Builtin transformers and generators may name files, too.
        for config in CONFIGS.into_iter().flat_map(|name| list(value, name)).filter_map(Value::as_str) {
            let source = match tree.real(&folder.join(config)) {
                Some(real) if tree.is_folder(&real) => {
                    let what = config.to_owned();
                    self.obstacle.get_or_insert_with(|| Obstacle::Transformers { file: file.to_owned(), what });
                    None
                }
                Some(real) => tree.read(&real),
                None => Some(manifests::load_text("", config.to_owned())),
            };
            for document in source.iter().flat_map(|source| &source.parsed().documents) {
                for named in names_within(&document.value) {
                    self.follow_name(tree, file, named, pending);
                }
            }
        }
    }

    /// Takes up one name of a file or folder.
    fn follow_name(&mut self, tree: &impl Tree, file: &Path, named: &str, pending: &mut Vec<PathBuf>) {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        match tree.real(&folder.join(named)) {
            Some(real) if tree.is_folder(&real) => {
                if let Some(base) = kustomization_in(tree, &real) {
                    self.bases.insert(real);
                    pending.push(base);
                }
            }
            Some(real) => drop(self.files.insert(real)),
            None if is_remote(named) => {
                let what = named.to_owned();
                self.obstacle.get_or_insert_with(|| Obstacle::Remote { file: file.to_owned(), what });
            }
            // What is missing is an error of the build.
            None => {}
        }
    }
}

/// What the configuration of a transformer or generator names: any file, and all that looks like a URL.
fn names_within(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, child)| {
                let is_named = ["path", "env"].iter().any(|name| key.eq_ignore_ascii_case(name));
                let is_list = ["files", "envs", "paths"].iter().any(|name| key.eq_ignore_ascii_case(name));
                let own = child.as_str().filter(|_| is_named).into_iter();
                let listed = child.as_array().filter(|_| is_list).into_iter().flatten().filter_map(Value::as_str);
                let listed = listed.map(|file| file.split_once('=').map_or(file, |(_, file)| file));
                own.chain(listed).chain(names_within(child)).collect::<Vec<_>>()
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(names_within).collect(),
        Value::String(text) if text.contains("://") && !text.contains('\n') => vec![text],
        _ => Vec::new(),
    }
}

/// The files and folders that a kustomization names.
fn names(value: &Value) -> Vec<&str> {
    let entries = LISTS.into_iter().flat_map(|name| list(value, name)).filter_map(Value::as_str);
    let with_path = WITH_PATH.into_iter().flat_map(|name| list(value, name));
    let paths = with_path.filter_map(|entry| field(entry, "path").as_str());
    let generators = GENERATORS.into_iter().flat_map(|name| list(value, name));
    let generated = generators.flat_map(|entry| {
        let files = list(entry, "files").iter().chain(list(entry, "envs")).chain([field(entry, "env")]);
        // The key under which a file's content is put may stand before it.
        files.filter_map(Value::as_str).map(|file| file.split_once('=').map_or(file, |(_, file)| file))
    });
    let all = entries.chain(paths).chain(generated).chain(field(field(value, "openapi"), "path").as_str());
    // Patches and generators may stand inline instead.
    all.filter(|name| !name.contains(['\n', '{', '[', ' ', '"'])).collect()
}

/// True for what kustomize would fetch, if it is not in the repository: a URL, or `host/owner/name`.
fn is_remote(name: &str) -> bool {
    let host = name.split('/').next().unwrap_or_default();
    let is_host = host.contains('.') && !host.starts_with('.') && host.len() < name.len();
    is_host || name.contains("://") || name.contains("//") || name.contains("?ref=") || name.starts_with("git@")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_hosts_are_remote() {
        for name in [
            "https://example.com/a.yaml",
            "github.com/owner/name",
            "github.com/owner/name//folder?ref=v1",
            "git@github.com:owner/name",
            "ssh://git@host/owner/name",
        ] {
            assert!(is_remote(name), "{name}");
        }
        for name in ["../base", "./base", "base", "base/pools", "pool.yaml", "v1.2"] {
            assert!(!is_remote(name), "{name}");
        }
    }

    #[test]
    fn every_field_with_files_is_followed() {
        let text = "Resources: [a]\nbases: [b]\ncomponents: [c]\ncrds: [d]\nconfigurations: [e]\ngenerators: [f]\n\
                    transformers: [g]\nvalidators: [h]\npatchesStrategicMerge: [i, \"kind: A\\nb: c\\n\"]\n\
                    patches: [{path: j}, {patch: \"[]\"}]\npatchesJson6902: [{path: k}]\nreplacements: [{path: l}]\n\
                    configMapGenerator: [{files: [m, key=n], envs: [o], env: p, literals: [x=y]}]\n\
                    secretGenerator: [{files: [q]}]\nopenapi: {path: r}\n";
        let source = napkeeper_api::manifests::load_text("kustomization.yaml", text.to_owned());
        let mut found = names(&source.parsed().documents[0].value);
        found.sort_unstable();
        let all: Vec<String> = ('a'..='r').map(String::from).collect();
        assert_eq!(found, all);
    }
}
