//! Files and folders that the docs name exist.

use crate::tree::{files, root};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders with which a path from the root of the repository begins.
const TOP: [&str; 7] = ["docs/", "kustomize/", "manifests/", "policies/", "src/", "tests/", "webhook/"];

/// What a line has in backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
}

/// Paths from the root that a text names.
fn named(text: &str) -> Vec<PathBuf> {
    let from_root = |path: &&str| is_path(path) && TOP.iter().any(|top| path.starts_with(top));
    text.lines().flat_map(quoted).filter(from_root).map(PathBuf::from).collect()
}

/// Paths of the rows `| behaviour | folder | files in it |`, which may also name paths from the root.
fn of_rows(text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", _, folder, rest, ""] = cells[..] else { continue };
        let Some(folder) = quoted(folder).next().filter(|folder| folder.ends_with('/')) else { continue };
        let relative = |path: &&str| is_path(path) && (path.ends_with('/') || path.ends_with(".rs"));
        for path in quoted(rest).filter(relative) {
            let is_from_root = TOP.iter().any(|top| path.starts_with(top));
            found.push(if is_from_root { path.into() } else { Path::new(folder).join(path) });
        }
    }
    found
}

fn missing(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter(|path| !root().join(path).exists()).collect()
}

#[test]
fn named_files_exist() {
    let mut pages = files(&["docs", "kustomize"], &["md"]).unwrap();
    for path in ["README.md", "CONTRIBUTING.md", "SECURITY.md"] {
        pages.push(crate::tree::Source::new(path, &fs::read_to_string(root().join(path)).unwrap()));
    }
    for page in pages {
        let mut paths = named(&page.text);
        if page.path.ends_with("architecture.md") {
            let rows = of_rows(&page.text);
            assert!(rows.len() > 60, "{} paths in rows", rows.len());
            paths.extend(rows);
        }
        let missing = missing(paths);
        assert!(missing.is_empty(), "{} names what does not exist: {missing:?}", page.path.display());
    }
}

/// Names of tests that a text has in backticks.
fn named_tests(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        text.matches('_').count() > 2 && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    text.lines().flat_map(quoted).filter(is_name)
}

#[test]
fn tests_that_the_page_on_security_names_exist() {
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let sources = files(&["src", "tests", "webhook"], &["rs"]).unwrap();
    let exists = |name: &str| sources.iter().any(|source| source.text.contains(&format!("fn {name}()")));
    assert!(named_tests(&page).count() > 20, "the page names its tests");
    let missing: Vec<&str> = named_tests(&page).filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "docs/security.md names tests that do not exist: {missing:?}");
    assert!(!exists("a_test_that_does_not_exist"));
}

#[test]
fn a_path_that_does_not_exist_is_found() {
    let text = "| x | `src/core/` | `nothing.rs`, `model/`; `src/core/lib.rs`, `src/nothing.rs` |";
    assert_eq!(missing(of_rows(text)), [Path::new("src/core/nothing.rs"), Path::new("src/nothing.rs")]);
    assert_eq!(missing(named(text)), [Path::new("src/nothing.rs")]);
}
