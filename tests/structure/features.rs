//! Commands of the docs that follow each other compile no third-party crate twice for its features alone.
//!
//! Cargo unites the features of a crate over the packages that it is asked to build, so that `-p` can ask for fewer than
//! `--workspace` does. Development dependencies count only when tests, examples or benchmarks are built.

use crate::tree::{Source, files, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

/// Packages that the docs build alone.
const ALONE: [&str; 3] = ["napkeeper-core", "napkeeper-structure", "napkeeper-tests"];

/// The versions of third-party crates that a selection of packages needs, each with the sets of features it is built
/// with: one for what runs, perhaps another for what runs while compiling.
type Features = BTreeMap<String, BTreeSet<String>>;

fn features(selection: &[&str], dependencies: &str) -> Features {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}|", "--edges", dependencies])
        .args(selection)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    parse(&String::from_utf8(output.stdout).unwrap())
}

/// Lines such as `serde v1.0.229|alloc,default| (*)`; what has a path in parentheses is ours.
fn parse(tree: &str) -> Features {
    let mut found = Features::new();
    for line in tree.lines() {
        let mut parts = line.split('|');
        if let (Some(package), Some(features)) = (parts.next(), parts.next())
            && !package.contains("(/")
        {
            let package = package.trim_end_matches(" (proc-macro)").to_owned();
            found.entry(package).or_default().insert(features.to_owned());
        }
    }
    found
}

/// A sentence for each crate that `selection` builds with features that `workspace` does not.
fn differences(selection: &Features, workspace: &Features) -> Vec<String> {
    let lacking = |(package, sets): (&String, &BTreeSet<String>)| {
        let had = workspace.get(package)?;
        sets.iter().find(|set| !had.contains(*set)).map(|set| format!("{package} [{set}], elsewhere {had:?}"))
    };
    selection.iter().filter_map(lacking).collect()
}

#[test]
fn commands_of_the_docs_share_what_they_compile() {
    let workspace = features(&["--workspace"], "normal,build");
    assert!(workspace.len() > 100, "{} crates", workspace.len());
    let tests = features(&["--workspace"], "normal,build,dev");
    let different = differences(&tests, &workspace);
    let fix = "name the crate with these features in Cargo.toml of the workspace or of tests/";
    assert!(different.is_empty(), "tests are built with other features than programs: {fix}: {different:#?}");
    let defaults = differences(&features(&[], "normal,build"), &workspace);
    assert!(defaults.is_empty(), "`cargo run`: name the features in tests/features/Cargo.toml: {defaults:#?}");
    for package in ALONE {
        let different = differences(&features(&["-p", package], "normal,build,dev"), &workspace);
        assert!(different.is_empty(), "-p {package}: name the features in tests/features/Cargo.toml: {different:#?}");
    }
}

#[test]
fn the_docs_build_only_certain_packages_alone() {
    let mut docs = files(&["docs"], &["md"]).unwrap();
    for path in ["README.md", "CONTRIBUTING.md"] {
        docs.push(Source::new(path, &fs::read_to_string(root().join(path)).unwrap()));
    }
    let package = |line: &str| {
        let (_, rest) = line.split_once("cargo ")?.1.split_once(" -p ")?;
        Some(rest.split([' ', '`']).next().unwrap_or(rest).to_owned())
    };
    let others: Vec<_> = docs
        .iter()
        .flat_map(|doc| doc.text.lines().filter_map(package).map(|package| (doc.path.clone(), package)))
        .filter(|(_, package)| !ALONE.contains(&&**package))
        .collect();
    assert!(others.is_empty(), "use --workspace, or add the package to ALONE: {others:?}");
}

#[test]
fn other_features_are_a_difference() {
    let workspace = parse("serde v1.0.0|alloc,std|\nserde v1.0.0|std| (*)\nnapkeeper v0.1.0 (/here)||\n");
    assert_eq!(workspace.len(), 1);
    assert_eq!(differences(&parse("serde v1.0.0|std|\nrand v0.1.0||"), &workspace), [""; 0]);
    let different = differences(&parse("serde v1.0.0||"), &workspace);
    assert!(different[0].starts_with("serde v1.0.0 [], elsewhere"), "{different:?}");
}
