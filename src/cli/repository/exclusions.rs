//! What users leave out of folders: by `--exclude` and `.napkeeperignore`, in the syntax of `.gitignore`.

use super::paths::absolute;
use super::{Selection, Tree};
use anyhow::{Context, anyhow};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::path::Path;

/// The file with patterns of a repository. They are relative to its folder.
const FILE_NAME: &str = ".napkeeperignore";

/// The patterns of a run.
pub(crate) struct Exclusions {
    /// The repository's, and those of the command line, which are relative to the current folder.
    all: Vec<Gitignore>,
}

impl Exclusions {
    /// The patterns of the command line, and those of the nearest file in the folder of the first path or above it.
    pub(crate) fn read(tree: &impl Tree, selection: &Selection) -> anyhow::Result<Self> {
        let here = absolute(Path::new("."));
        let mut given = patterns_in(&here);
        for pattern in &selection.reading.exclude {
            given.add_line(None, pattern).with_context(|| format!("--exclude {pattern}"))?;
        }
        let mut all = vec![given.build()?];
        let first = selection.paths.first().map_or(here, |path| absolute(path));
        if let Some(file) = first.ancestors().find_map(|folder| tree.real(&folder.join(FILE_NAME))) {
            all.push(of_file(tree, &file)?);
        }
        Ok(Self { all })
    }

    /// True when a path is left out, or a folder that it is in.
    pub(crate) fn hold(&self, path: &Path, is_folder: bool) -> bool {
        if self.all.iter().all(Gitignore::is_empty) {
            return false;
        }
        // Patterns are relative to real folders; the file itself may be a link.
        let path = absolute(path);
        let real = path.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
        let path = real.zip(path.file_name()).map(|(parent, name)| parent.join(name)).unwrap_or(path);
        let is_below = |patterns: &&Gitignore| path.starts_with(patterns.path());
        self.all.iter().filter(is_below).any(|p| p.matched_path_or_any_parents(&path, is_folder).is_ignore())
    }
}

/// Patterns that are relative to a folder. For Git an open bracket without a closing one is a character like any other; here it is an
/// error, as it is more likely to be a mistake, which would leave out nothing.
fn patterns_in(folder: &Path) -> GitignoreBuilder {
    let mut patterns = GitignoreBuilder::new(folder);
    patterns.allow_unclosed_class(false);
    patterns
}

fn of_file(tree: &impl Tree, file: &Path) -> anyhow::Result<Gitignore> {
    let source = tree.read(file).ok_or_else(|| anyhow!("{} cannot be read", file.display()))?;
    let mut patterns = patterns_in(file.parent().unwrap_or_else(|| Path::new("")));
    for (i, line) in source.text.lines().enumerate() {
        let at = || format!("{}:{}: {line}", source.file, i + 1);
        patterns.add_line(Some(file.to_owned()), line).with_context(at)?;
    }
    Ok(patterns.build()?)
}
