//! Manifests of the repository.

use anyhow::{Context, Result};
use napkeeper_api::yaml;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A file or folder of the repository.
#[must_use]
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A manifest of the quick start by its name, such as `nodepool-gpu`.
///
/// # Errors
/// When it cannot be read.
pub fn quickstart_file(name: &str) -> Result<String> {
    let path = repository("manifests/quickstart").join(name).with_extension("yaml");
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// The object in a manifest of the quick start.
///
/// # Errors
/// When it cannot be read, or holds none.
pub fn quickstart_object(name: &str) -> Result<Value> {
    let read = yaml::read(name, &quickstart_file(name)?);
    let document = read.documents.first().with_context(|| format!("{name} holds no object"))?;
    Ok(serde_json::to_value(&document.value)?)
}

/// Manifests of the quickstart, joined, but the scenario, which is for the embedded world.
///
/// # Errors
/// When a file of the repository cannot be read.
pub fn quickstart() -> Result<String> {
    let folder = repository("manifests/quickstart");
    let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
    files.sort_by_key(std::fs::DirEntry::path);
    let manifests = files.iter().filter(|file| file.file_name() != "scenario.yaml");
    let texts: Vec<String> = manifests.map(|f| std::fs::read_to_string(f.path())).collect::<std::io::Result<_>>()?;
    Ok(texts.join("\n---\n"))
}

/// All definitions that ship, as one stream.
///
/// # Errors
/// When a file of the repository cannot be read.
pub fn definitions() -> Result<String> {
    let mut all = String::new();
    for folder in ["manifests/crds/karpenter", "manifests/crds/napkeeper"] {
        for entry in std::fs::read_dir(repository(folder)).with_context(|| format!("reading {folder}"))? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name != "kustomization.yaml") {
                all.push_str("---\n");
                all.push_str(&std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
            }
        }
    }
    Ok(all)
}

/// The examples under a heading of a page.
#[must_use]
pub fn examples<'p>(page: &'p str, heading: &str) -> Vec<String> {
    let section = page.lines().skip_while(|line| line.strip_prefix("## ") != Some(heading)).skip(1);
    let mut lines = section.take_while(|line: &&'p str| !line.starts_with("## "));
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("```yaml") {
            found.push(lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect());
        }
    }
    found
}

/// The objects in the examples under a heading of a page; none of what is no YAML.
#[must_use]
pub fn documents(page: &str, heading: &str) -> Vec<Value> {
    let read = |text: String| yaml::read("example.yaml", &text).documents;
    examples(page, heading).into_iter().flat_map(read).map(|document| document.value).collect()
}
