//! The files of the repository, as text.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file: its path below the root of the repository, and its text.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    /// One that a test makes up.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.to_owned() }
    }

    /// Text before the first `#[cfg(test)]` that opens a module in place.
    pub(crate) fn before_tests(&self) -> &str {
        let mut at = 0;
        let mut attribute = None;
        for line in self.text.split_inclusive('\n') {
            let trimmed = line.trim();
            match attribute {
                Some(start) if trimmed.starts_with("mod ") && trimmed.ends_with('{') => return &self.text[..start],
                _ => attribute = is_test_attribute(trimmed).then_some(at),
            }
            at += line.len();
        }
        &self.text
    }

    /// Files, without `.rs`, whose modules this one declares for tests alone.
    fn test_modules(&self) -> Vec<PathBuf> {
        let folder = match self.path.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib" | "main") | None => self.path.with_file_name(""),
            Some(_) => self.path.with_extension(""),
        };
        let lines: Vec<_> = self.text.lines().map(str::trim).collect();
        lines
            .windows(2)
            .filter(|pair| is_test_attribute(pair[0]))
            .filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'))
            .map(|module| folder.join(module))
            .collect()
    }
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[cfg(") && line.contains("test")
}

/// Files of which only tests are made.
pub(crate) fn product(sources: &[Source]) -> Vec<&Source> {
    let tests: Vec<PathBuf> = sources.iter().flat_map(Source::test_modules).collect();
    let is_test = |source: &&Source| {
        let module = source.path.with_extension("");
        module.ancestors().any(|above| tests.iter().any(|test| test == above))
    };
    sources.iter().filter(|source| !is_test(source)).collect()
}

/// Files below some folders with one of some extensions, in the order of their paths. What Cargo builds is left out.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn files(folders: &[&str], extensions: &[&str]) -> io::Result<Vec<Source>> {
    let root = root();
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                if entry.file_name() != "target" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|has| extensions.iter().any(|wanted| has == *wanted)) {
                let text = fs::read_to_string(entry.path())?;
                found.push(Source { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
