//! Layouts of repositories that Flux, Argo CD, Helm and AKS have in their samples, each in a file with parts `-- path --`.
//!
//! Each command is run in the root and in every folder of each.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use super::output::{assert_golden, stderr, stdout};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a folder may lack. All else that ends with 2 is a fault of napkeeper.
const LACKS: [&str; 8] = [
    "no supported manifests found in ",
    "no .yaml, .yml or .json files",
    "no NodePool found",
    "no pod or workload web found",
    "both define ",
    " not found, required by NodePool ",
    "variables such as ${",
    "error[NK",
];

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/repositories")
}

/// The repositories by name.
fn repositories() -> Vec<(String, tempfile::TempDir)> {
    let mut files: Vec<PathBuf> = fs::read_dir(cases()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let unpacked = files.iter().map(|file| (file.file_stem().unwrap().to_str().unwrap().to_owned(), unpack(file)));
    unpacked.collect()
}

fn unpack(archive: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(archive).unwrap();
    for part in format!("\n{text}").split("\n-- ").skip(1) {
        let (path, content) = part.split_once(" --\n").unwrap();
        let file = folder.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{}\n", content.trim_end())).unwrap();
    }
    assert!(Command::new("git").args(["init", "-q"]).current_dir(folder.path()).status().unwrap().success());
    folder
}

/// The root and all folders below it.
fn folders(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned()];
    let mut next = 0;
    while let Some(folder) = all.get(next).cloned() {
        next += 1;
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut below: Vec<PathBuf> = entries.filter(|path| path.is_dir() && !path.ends_with(".git")).collect();
        below.sort();
        all.extend(below);
    }
    all
}

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(args).current_dir(folder).output().unwrap()
}

/// What a folder lacks, by command.
fn lacking_in(repository: &str, root: &Path, inside: &Path) -> Vec<String> {
    let shown = inside.strip_prefix(root).unwrap().display();
    let commands =
        [&["validate"][..], &["simulate", ".", "--for", "5m"], &["explain", "pod", "web", "."], &["migrate", "."]];
    let lacks = |args: &&[&str]| {
        let output = run(inside, args);
        let said = stderr(&output);
        let ends_well = output.status.code().unwrap() < 2;
        assert!(ends_well || LACKS.iter().any(|lack| said.contains(lack)), "{repository}/{shown}: {args:?}: {said}");
        (!ends_well).then(|| format!("{repository}/{shown}: {args:?}"))
    };
    commands.iter().filter_map(lacks).collect()
}

#[test]
fn every_command_ends_well_in_every_folder() {
    let repositories = repositories();
    let all: Vec<_> =
        repositories.iter().flat_map(|one| folders(one.1.path()).into_iter().map(move |f| (one, f))).collect();
    let lacking = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let own = all.iter().skip(half).step_by(2);
            scope.spawn(|| own.flat_map(|((name, root), inside)| lacking_in(name, root.path(), inside)).count())
        });
        halves.map(|half| half.join().unwrap()).iter().sum::<usize>()
    });
    assert!(lacking > 0, "folders without manifests are among them");
}

/// `rule path message` of each finding, as far as it is about one object.
fn findings(output: &Output) -> BTreeSet<String> {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)));
    let all = report["findings"].as_array().unwrap().iter();
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
    all.map(|one| {
        format!("{} {} {} {}", text(one, "object"), text(one, "rule"), text(one, "path"), text(one, "message"))
    })
    .collect()
}

#[test]
fn what_is_found_in_a_kustomization_is_what_is_found_in_its_output() {
    let mut compared = 0;
    for (name, folder) in repositories() {
        // A component is no whole, and from what Flux builds of itself the rest is followed.
        let is_built = |inside: &PathBuf| {
            inside.join("kustomization.yaml").is_file()
                && !name.starts_with("remote")
                && !["spot", "flux-system"].iter().any(|end| inside.ends_with(end))
        };
        for inside in folders(folder.path()).into_iter().filter(is_built) {
            let rendered = Command::new("kubectl").arg("kustomize").arg(&inside).output().unwrap();
            assert!(rendered.status.success(), "{name}: {}", stderr(&rendered));
            let args = ["validate", "-", "-o", "json", "--allow-empty"];
            let mut child = Command::new(env!("CARGO_BIN_EXE_napkeeper"))
                .args(args)
                .current_dir(&inside)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), &rendered.stdout).unwrap();
            let piped = child.wait_with_output().unwrap();
            let found = run(&inside, &["validate", "-o", "json", "--allow-empty"]);
            assert_eq!(findings(&found), findings(&piped), "{name}: {}", inside.display());
            compared += 1;
        }
    }
    assert!(compared >= 8, "{compared}");
}

#[test]
fn the_findings_of_each_repository_are_as_committed() {
    let mut text = String::new();
    for (name, folder) in repositories() {
        let output = run(folder.path(), &["validate"]);
        let summary = stdout(&output);
        let lines = summary.lines().filter(|line| line.contains(": error[") || line.contains(": warning["));
        writeln!(text, "{name}: {}", output.status.code().unwrap()).unwrap();
        lines.for_each(|line| writeln!(text, "  {line}").unwrap());
        let last = summary.lines().last().unwrap_or_default().split("; CRD schemas").next().unwrap();
        writeln!(text, "  {last}").unwrap();
        stderr(&output).lines().for_each(|line| writeln!(text, "  {line}").unwrap());
    }
    assert_golden(&cases().join("findings.md"), &text);
}

/// The text of each file below a folder, but for Git's own.
fn texts(root: &Path) -> BTreeMap<PathBuf, String> {
    let entries = folders(root).into_iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|file| (file.clone(), fs::read_to_string(file).unwrap())).collect()
}

/// Brings all objects and selectors to the versions before the current ones.
fn make_old(root: &Path) {
    for (file, text) in texts(root) {
        let old = text
            .replace("apiVersion: karpenter.sh/v1\n", "apiVersion: karpenter.sh/v1beta1\n")
            .replace("karpenter.azure.com/v1beta1\n", "karpenter.azure.com/v1alpha2\n");
        fs::write(file, old).unwrap();
    }
}

#[test]
fn old_versions_in_each_repository_are_migrated_or_told() {
    let mut text = String::new();
    for (name, folder) in repositories() {
        let root = folder.path();
        let validate = ["validate", "-o", "json"];
        let (before, found) = (texts(root), findings(&run(root, &validate)));
        make_old(root);
        let output = run(root, &["migrate", "--write"]);
        writeln!(text, "{name}: {}", output.status.code().unwrap()).unwrap();
        stderr(&output).lines().for_each(|line| writeln!(text, "  {line}").unwrap());
        let after = texts(root);
        for (file, new) in after.iter().filter(|(file, new)| before[*file] != **new) {
            writeln!(text, "  old: {}", file.strip_prefix(root).unwrap().display()).unwrap();
            assert!(new.contains("karpenter"), "{}: {new}", file.display());
        }
        assert_eq!(findings(&run(root, &validate)), found, "{name}");
        assert_eq!(run(root, &["migrate", "--check"]).status.code(), Some(0), "{name}");
        assert_eq!(texts(root), after, "{name}");
    }
    assert_golden(&cases().join("migrations.md"), &text);
}

#[test]
fn a_patch_is_migrated_together_with_what_it_patches() {
    let folder = unpack(&cases().join("flux-monorepo.txt"));
    let overlay = folder.path().join("infrastructure/production");
    let before = texts(folder.path());
    make_old(folder.path());
    let old = texts(folder.path());
    let output = run(&overlay, &["migrate", "--write"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(texts(folder.path()), old);
    let said = stderr(&output);
    for line in [
        "warning: limits.yaml: not changed: it patches what is in ../base/pool.yaml, which stays as it is",
        "warning: ../base/class.yaml: not changed: it is built or synced with the files of PATH",
        "warning: ../base/pool.yaml: not changed: it is built or synced with the files of PATH",
        "nothing to migrate; 3 left as is\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let output = run(&overlay, &["migrate", "--write", ".", "../base"]);
    assert_eq!((output.status.code(), texts(folder.path())), (Some(0), before), "{}", stderr(&output));
}
