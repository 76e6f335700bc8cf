//! What workflows and the action run, and with which rights.

use super::{read, root};
use serde_json::Value;

/// Files that GitHub runs.
fn files() -> Vec<String> {
    let workflows = std::fs::read_dir(root().join(".github/workflows")).unwrap();
    let mut files: Vec<String> =
        workflows.map(|entry| format!(".github/workflows/{}", entry.unwrap().file_name().to_string_lossy())).collect();
    files.push("action.yml".to_owned());
    files
}

/// All steps of a workflow or an action.
fn steps(file: &Value) -> Vec<&Value> {
    let jobs = file["jobs"].as_object().into_iter().flatten().map(|(_, job)| job);
    let steps = jobs.chain([&file["runs"]]).filter_map(|job| job["steps"].as_array());
    steps.flatten().collect()
}

/// A tag can be moved to other code, a commit cannot. The comment tells people, and tools that update, which tag it was.
fn is_pinned(line: &str) -> bool {
    let Some((used, tag)) = line.split_once(" # v") else { return false };
    let Some((_, commit)) = used.split_once('@') else { return false };
    commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()) && tag.starts_with(|c: char| c.is_ascii_digit())
}

#[test]
fn actions_are_pinned_to_commits() {
    let mut seen = 0;
    for file in files() {
        let text = std::fs::read_to_string(root().join(&file)).unwrap();
        let used: Vec<&str> =
            text.lines().filter(|line| line.trim_start_matches(['-', ' ']).starts_with("uses:")).collect();
        assert_eq!(used.len(), steps(&read(&file)).iter().filter(|step| step["uses"].is_string()).count(), "{file}");
        used.iter().for_each(|line| assert!(is_pinned(line), "{file}: {line}"));
        seen += used.len();
    }
    assert!(seen > 8, "{seen} actions are used");
    let commit = "d23441a48e516b6c34aea4fa41551a30e30af803";
    assert!(is_pinned(&format!("- uses: a/b@{commit} # v1")));
    for line in ["a/b@v6 # v6", &format!("a/b@{commit}"), &format!("a/b@{} # v6", &commit[1..]), "./local # v1"] {
        assert!(!is_pinned(line), "{line}");
    }
}

#[test]
fn jobs_have_only_the_rights_that_they_name_and_an_end() {
    for file in files().iter().filter(|file| *file != "action.yml") {
        let workflow = read(file);
        let whole = workflow["permissions"].as_object().unwrap_or_else(|| panic!("{file} names no permissions"));
        assert!(whole.values().all(|right| right == "read"), "{file}: all jobs may write: {whole:?}");
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            assert!(job["timeout-minutes"].is_i64(), "{file}: {name} has no end");
            assert!(!whole.is_empty() || job["permissions"].is_object(), "{file}: {name} names no permissions");
            let text = job.to_string();
            // Build scripts and procedural macros of dependencies run there.
            if text.contains("cargo ") || text.contains("--target program") {
                for right in ["contents", "id-token", "attestations"] {
                    assert_ne!(job["permissions"][right], "write", "{file}: {name} compiles");
                }
            }
        }
    }
}

#[test]
fn scripts_of_workflows_hold_no_expressions_and_checkouts_keep_no_token() {
    for file in files() {
        let file_read = read(&file);
        for step in steps(&file_read) {
            let script = step["run"].as_str().unwrap_or_default();
            assert!(!script.contains("${{"), "{file}: a name of a tag could be a script, it comes by env: {script}");
            if step["uses"].as_str().is_some_and(|used| used.starts_with("actions/checkout@")) {
                assert_eq!(step["with"]["persist-credentials"], false, "{file}: {step}");
            }
        }
    }
}
