//! Manifest files below a path, and their content.

use super::Problem;
use super::other_files::{CHART, OtherFile, Place, is_in_templates, is_of_chart};
use crate::yaml::{self, Chunk, Document, Reading};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The path of the standard input.
pub const STDIN: &str = "-";
/// Folders that hold no manifests of the repository's own.
const SKIPPED_DIRS: [&str; 2] = ["target", "node_modules"];
/// Deepest nesting of folders.
const MAX_DEPTH: usize = 64;
/// Largest file, in bytes; the API server takes no object above 3 MiB.
pub const MAX_FILE_BYTES: u64 = 32 << 20;

/// A file that could be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Its name.
    pub file: Arc<str>,
    /// Its text.
    pub text: Arc<str>,
    parsed: OnceLock<Reading>,
}

impl Source {
    /// The parsed content. Parsed on first use, and kept.
    pub fn parsed(&self) -> &Reading {
        self.parsed.get_or_init(|| yaml::read(&self.file, &self.text))
    }

    /// The parts that can be parsed independently, with [`Source::parse_chunk`].
    #[must_use]
    pub fn chunks(&self) -> Vec<Chunk> {
        yaml::chunks(&self.text)
    }

    /// Parses a part of it. Nothing is kept.
    #[must_use]
    pub fn parse_chunk(&self, chunk: Chunk) -> Reading {
        yaml::read_chunk(&self.file, &self.text, chunk)
    }

    /// The same file without some of its documents.
    #[must_use]
    pub fn without(self, unwanted: impl Fn(&Document) -> bool) -> Self {
        let mut reading = self.parsed().clone();
        reading.documents.retain(|d| !unwanted(d));
        Self { parsed: OnceLock::from(reading), ..self }
    }
}

/// All files of some paths.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// The files, in order.
    pub files: Vec<Source>,
    /// What could not be read.
    pub unreadable: Vec<Problem>,
    /// Files that are no manifests, and how many.
    pub others: BTreeMap<OtherFile, usize>,
}

/// Reads files and folders: in folders every `.yaml`, `.yml` and `.json` file, by name, without hidden folders, `target`
/// and `node_modules`, pipes and devices, and without templates and values of Helm charts, and other templates, which are
/// counted. `-` is the standard input. A file with several paths is read once.
#[must_use]
pub fn load(paths: &[PathBuf]) -> Loaded {
    load_without(paths, &|_, _| false)
}

/// Reads files and folders as [`load`] does, without what is found in folders and excluded, which is counted. `is_excluded` takes a
/// path and whether it is a folder.
#[must_use]
pub fn load_without(paths: &[PathBuf], is_excluded: &dyn Fn(&Path, bool) -> bool) -> Loaded {
    let mut walk = Walk { loaded: Loaded::default(), visited: BTreeSet::new(), is_excluded };
    for path in paths {
        if path.as_os_str() == STDIN {
            walk.stdin();
        } else {
            walk.visit(path, 0, Place::Named);
        }
    }
    walk.loaded
}

/// Reads a text as if it were a file of that name.
#[must_use]
pub fn load_text(file: &str, text: String) -> Source {
    Source { file: Arc::from(file), text: Arc::from(text), parsed: OnceLock::new() }
}

struct Walk<'e> {
    loaded: Loaded,
    /// Files and folders by their real path: symbolic links may be cyclic.
    visited: BTreeSet<PathBuf>,
    is_excluded: &'e dyn Fn(&Path, bool) -> bool,
}

impl Walk<'_> {
    fn record_unreadable(&mut self, path: &Path, message: impl ToString) {
        self.loaded.unreadable.push(Problem { file: display_name(path), position: None, message: message.to_string() });
    }

    fn leave_out(&mut self, what: OtherFile) {
        *self.loaded.others.entry(what).or_default() += 1;
    }

    fn stdin(&mut self) {
        let mut bytes = Vec::new();
        match io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes) {
            Ok(n) if n as u64 > MAX_FILE_BYTES => {
                self.record_unreadable(Path::new("<stdin>"), too_large());
            }
            Ok(_) => self.add_file(Path::new("<stdin>"), bytes, Place::Named),
            Err(error) => self.record_unreadable(Path::new("<stdin>"), error),
        }
    }

    /// What is given by name is read with any extension.
    fn visit(&mut self, path: &Path, depth: usize, place: Place) {
        let named = place == Place::Named;
        if !named && (self.is_excluded)(path, path.is_dir()) {
            if path.is_dir() || is_manifest(path) {
                self.leave_out(OtherFile::Excluded);
            }
            return;
        }
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) => {
                return self.record_unreadable(path, link_failure(path).unwrap_or_else(|| read_failure(&error)));
            }
        };
        if real.is_dir() {
            if (named || !is_skipped(path)) && self.visited.insert(real) {
                self.visit_dir(path, depth, place);
            }
        } else if (named || is_manifest(path) && real.is_file()) && self.visited.insert(real) {
            self.read_file(path, place);
        }
    }

    fn visit_dir(&mut self, path: &Path, depth: usize, place: Place) {
        if depth > MAX_DEPTH {
            return self.record_unreadable(path, format!("directories are nested deeper than {MAX_DEPTH} levels"));
        }
        let entries = fs::read_dir(path).and_then(|entries| {
            let names: io::Result<Vec<_>> = entries.map(|e| e.map(|e| e.file_name())).collect();
            names
        });
        match entries {
            Ok(mut names) => {
                names.sort();
                let is_chart = path.join(CHART).is_file();
                for name in names {
                    let child = if path == Path::new(".") { PathBuf::from(&name) } else { path.join(&name) };
                    if is_chart && is_of_chart(Path::new(&name)) && child.is_file() {
                        self.leave_out(OtherFile::HelmChart);
                        continue;
                    }
                    let is_within = place == Place::InTemplates || is_chart && is_in_templates(Path::new(&name));
                    let place = if is_within { Place::InTemplates } else { Place::InFolder };
                    // Links that lead nowhere are said where they stand for manifests.
                    if child.exists() || is_manifest(&child) && !is_skipped(&child) {
                        self.visit(&child, depth + 1, place);
                    }
                }
            }
            Err(error) => self.record_unreadable(path, read_failure(&error)),
        }
    }

    fn read_file(&mut self, path: &Path, place: Place) {
        let size = fs::metadata(path).map(|m| m.len());
        match size.and_then(|size| if size > MAX_FILE_BYTES { Ok(None) } else { fs::read(path).map(Some) }) {
            Ok(Some(bytes)) => self.add_file(path, bytes, place),
            Ok(None) => self.record_unreadable(path, too_large()),
            Err(error) => self.record_unreadable(path, read_failure(&error)),
        }
    }

    fn add_file(&mut self, path: &Path, bytes: Vec<u8>, place: Place) {
        match text_of(bytes) {
            Ok(text) => {
                let source = load_text(&display_name(path), text);
                match place.left_out_as(&source) {
                    Some(other) => self.leave_out(other),
                    None => self.loaded.files.push(source),
                }
            }
            Err(message) => self.record_unreadable(path, message),
        }
    }
}

fn too_large() -> String {
    format!("is larger than {} MiB: split it, or exclude it", MAX_FILE_BYTES >> 20)
}

/// The text of a file.
///
/// # Errors
/// Why it is none, and what to do.
pub fn text_of(bytes: Vec<u8>) -> Result<String, String> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err("is UTF-16, as PowerShell writes it: save it as UTF-8".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("is not valid UTF-8 (byte {at}): save it as UTF-8")
    })
}

/// Why a symbolic link cannot be read.
fn link_failure(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(format!("is a symbolic link to {}, which cannot be read: repair it or remove it", target.display()))
}

/// Why a path cannot be read, and what to do.
#[must_use]
pub fn read_failure(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "does not exist: check the path".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be read: permission denied: make it readable".to_owned(),
        _ => format!("cannot be read: {error}"),
    }
}

fn display_name(path: &Path) -> Arc<str> {
    Arc::from(path.to_string_lossy().as_ref())
}

/// True when a file of a folder is read, by its name.
#[must_use]
pub fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().and_then(|e| e.to_str());
    let is_kustomization = path.file_name().is_some_and(|name| name == "Kustomization");
    is_kustomization || extension.is_some_and(|e| ["yaml", "yml", "json"].contains(&e.to_ascii_lowercase().as_str()))
}

/// True when a file or folder within a folder is passed over, by its name.
#[must_use]
pub fn is_skipped(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    name.starts_with('.') || SKIPPED_DIRS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(loaded: &Loaded, root: &Path) -> Vec<String> {
        let strip = |s: &Source| s.file.replace(&format!("{}/", root.display()), "");
        loaded.files.iter().map(strip).collect()
    }

    #[test]
    fn folders_are_read_in_order_and_other_files_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for file in
            ["b.yml", "a.yaml", "c.json", "x.txt", "sub/d.yaml", ".git/e.yaml", "target/f.yaml", "node_modules/g.yaml"]
        {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "a: 1\n").unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(root, root.join("sub/loop")).unwrap();
        let loaded = load(&[root.to_owned(), root.join("a.yaml"), root.join("nowhere")]);
        assert_eq!(names(&loaded, root), ["a.yaml", "b.yml", "c.json", "sub/d.yaml"]);
        assert_eq!(loaded.unreadable.len(), 1);
        assert!(loaded.unreadable[0].file.ends_with("nowhere"));
    }

    #[test]
    fn charts_and_templates_are_counted_and_broken_links_are_said() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (file, text) in [
            ("pool.yaml", "kind: NodePool\n"),
            ("chart/Chart.yaml", "name: a\n"),
            ("chart/values.yaml", "a: 1\n"),
            ("chart/templates/pool.yaml", "name: {{ .Values.name }}\n"),
            ("chart/templates/more/values.yaml", "b: \"{{ .Values.b }}\"\n"),
            ("chart/templates/class.yaml", "kind: AKSNodeClass\n"),
            ("chart/values-prod/class.yaml", "kind: AKSNodeClass\n"),
            ("chart/crds/crd.yaml", "kind: CustomResourceDefinition\n"),
            ("ansible/play.yaml", "a: {{ b }}\n"),
        ] {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), text).unwrap();
        }
        let loaded = load(&[root.to_owned()]);
        let expected =
            ["chart/crds/crd.yaml", "chart/templates/class.yaml", "chart/values-prod/class.yaml", "pool.yaml"];
        assert_eq!(names(&loaded, root), expected);
        assert_eq!(loaded.others, BTreeMap::from([(OtherFile::HelmChart, 4), (OtherFile::Template, 1)]));
        assert_eq!(loaded.unreadable, []);
        // One that is given by name is meant.
        assert_eq!(load(&[root.join("ansible/play.yaml")]).files.len(), 1);
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(root.join("nowhere"), root.join("link.yaml")).unwrap();
            std::os::unix::fs::symlink(root.join("nowhere"), root.join("link.txt")).unwrap();
            std::os::unix::fs::symlink(root.join("nowhere"), root.join(".#lock.yaml")).unwrap();
            // Each leads back to a folder above it.
            std::os::unix::fs::symlink(root.join("chart"), root.join("chart/templates/again")).unwrap();
            std::os::unix::fs::symlink(root.join("chart"), root.join("chart/templates/once-more")).unwrap();
            let unreadable = load(&[root.to_owned()]).unreadable;
            assert_eq!(unreadable.len(), 1);
            assert!(unreadable[0].message.starts_with("is a symbolic link to "), "{}", unreadable[0].message);
        }
    }

    #[test]
    fn a_binary_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), [b'a', 0xff]).unwrap();
        let loaded = load(&[dir.path().to_owned()]);
        assert!(loaded.unreadable[0].message.contains("byte 1"));
    }
}
