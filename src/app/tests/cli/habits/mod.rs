//! What editors, shells, hooks and pipelines expect of the program.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(target_os = "linux")]
mod image;
#[cfg(unix)]
mod release;
mod schema;
mod workflows;

use napkeeper_api::yaml;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn napkeeper(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(args).output().unwrap()
}

fn printed(args: &[&str]) -> String {
    let output = napkeeper(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn read(file: &str) -> Value {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    let reading = yaml::read(file, &text);
    assert_eq!(reading.problems, []);
    reading.documents[0].value.clone()
}

#[test]
fn each_shell_has_completions_of_each_command() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = printed(&["completion", shell]);
        for word in ["validate", "schema", "changed-since", "fail-on"] {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
}

#[cfg(unix)]
#[test]
fn bash_accepts_its_completions() {
    let script = stdin_of(&printed(&["completion", "bash"]));
    let status = Command::new("bash").args(["-n", "/dev/stdin"]).stdin(script).status();
    let status = status.unwrap_or_else(|error| panic!("this test needs bash in PATH: {error}"));
    assert!(status.success());
}

#[cfg(unix)]
fn stdin_of(text: &str) -> std::process::Stdio {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    file.into()
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    assert!(printed(&["man"]).contains(".TH napkeeper 1"));
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    printed(&["man", "--dir", pages.to_str().unwrap()]);
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    for command in ["validate", "simulate", "schema", "rules", "controller", "webhook", "certificates"] {
        assert!(page(&format!("napkeeper-{command}.1")).contains(".SH OPTIONS"), "{command}");
    }
    assert!(page("napkeeper.1").contains("validate"));
}

#[test]
fn rules_are_listed_and_each_has_its_page() {
    let list = printed(&["rules"]);
    let ids: Vec<&str> = list.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(ids, napkeeper_verdict::rules::all().map(|rule| rule.id).collect::<Vec<_>>());
    assert!(printed(&["rules", "nk1013"]).starts_with("# NK1013: Value is not allowed (enum)\n"));
    let all: Value = serde_json::from_str(&printed(&["rules", "-o", "json"])).unwrap();
    assert_eq!(all.as_array().unwrap().len(), ids.len());
    let output = napkeeper(&["rules", "NK1093"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean NK10"));
}

#[cfg(unix)]
#[test]
fn as_a_kubectl_plugin_its_help_names_kubectl() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-napkeeper");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_napkeeper"), &plugin).unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(&plugin).args(args).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let (code, help) = run(&["validate", "--help"]);
    assert_eq!(code, Some(0));
    assert!(help.contains("Usage: kubectl napkeeper validate [OPTIONS] [PATH]...\n"), "{help}");
    assert!(help.contains("  kubectl napkeeper validate clusters/prod apps/pool.yaml\n"), "{help}");
    assert!(help.contains("kustomize build overlays/prod | kubectl napkeeper validate -\n"), "{help}");
    assert!(!help.contains("  napkeeper validate"), "{help}");
    assert!(run(&["explain", "pod", "--help"]).1.contains("  kubectl napkeeper explain pod deployment/web -n shop\n"));
    assert!(run(&["--help"]).1.contains("Usage: kubectl napkeeper [OPTIONS] <COMMAND>\n"));
    let (code, error) = run(&["validate", "--nonsense"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("Usage: kubectl napkeeper validate"), "{error}");
    assert!(printed(&["validate", "--help"]).contains("Usage: napkeeper validate"));
    assert_eq!(run(&["rules", "NK1013"]).0, Some(0));
}

/// The long flags that a text holds.
fn flags(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(ToOwned::to_owned).collect()
}

#[test]
fn the_hooks_call_the_program_as_it_is() {
    let hooks = read(".pre-commit-hooks.yaml");
    let help = printed(&["validate", "--help"]);
    let hooks = hooks.as_array().unwrap();
    assert_eq!(hooks.len(), 2);
    for hook in hooks {
        for field in ["id", "name", "description", "entry", "language", "files"] {
            assert!(hook[field].is_string(), "{field}");
        }
        let entry = hook["entry"].as_str().unwrap();
        assert!(entry.starts_with("napkeeper validate "));
        flags(entry).iter().for_each(|flag| assert!(help.contains(flag), "{flag}"));
        assert!(regex::Regex::new(hook["files"].as_str().unwrap()).unwrap().is_match("clusters/prod/pool.yml"));
        assert_eq!(hook["pass_filenames"], false, "rules that compare objects must see all");
    }
}

#[test]
fn the_action_is_composite_and_its_references_exist() {
    let action = read("action.yml");
    assert_eq!(action["runs"]["using"], "composite");
    let steps = action["runs"]["steps"].as_array().unwrap();
    let ids: Vec<&str> = steps.iter().filter_map(|step| step["id"].as_str()).collect();
    for step in steps {
        // A step of a composite action is a script, which must name its shell, or another action.
        assert!(step["run"].is_string() && step["shell"] == "bash" || step["uses"].is_string(), "{step}");
    }
    let text = std::fs::read_to_string(root().join("action.yml")).unwrap();
    for (_, rest) in text.match_indices("inputs.").map(|(at, word)| text.split_at(at + word.len())) {
        let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        assert!(action["inputs"][&name]["description"].is_string(), "inputs.{name}");
        assert!(action["inputs"][&name]["default"].is_string(), "inputs.{name} must be a text");
    }
    for (_, rest) in text.match_indices("steps.").map(|(at, word)| text.split_at(at + word.len())) {
        let name = rest.split('.').next().unwrap();
        assert!(ids.contains(&name), "steps.{name}");
    }
    for step in steps.iter().filter_map(|step| step["run"].as_str()) {
        assert!(!step.contains("${{"), "an input within a script could be a script: it comes by env");
    }
    let help = printed(&["validate", "--help"]);
    let script = steps.iter().find(|step| step["id"] == "validate").unwrap()["run"].as_str().unwrap();
    let used = flags(script);
    assert!(used.len() >= 3, "{used:?}");
    used.iter().for_each(|flag| assert!(help.contains(flag), "{flag}"));
}

/// Runs the script of the action's step as the runner would.
fn run_action(folder: &Path, paths: &str, fail_on: &str) -> (String, String, String) {
    let kustomize = read("action.yml")["inputs"]["kustomize"]["default"].as_str().unwrap().to_owned();
    run_action_with(folder, paths, fail_on, &kustomize)
}

fn run_action_with(folder: &Path, paths: &str, fail_on: &str, kustomize: &str) -> (String, String, String) {
    let action = read("action.yml");
    let steps = action["runs"]["steps"].as_array().unwrap();
    let script = steps.iter().find(|step| step["id"] == "validate").unwrap()["run"].as_str().unwrap();
    let (outputs, summary) = (folder.join("outputs"), folder.join("summary"));
    std::fs::write(&outputs, "").unwrap();
    std::fs::write(&summary, "").unwrap();
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script])
        .current_dir(folder)
        .env("PROGRAM", env!("CARGO_BIN_EXE_napkeeper"))
        .env("PATHS", paths)
        .env("FAIL_ON", fail_on)
        .env("CHANGED_SINCE", "")
        .env("CLUSTER", "")
        .env("KUSTOMIZE", kustomize)
        .env("RUNNER_TEMP", folder)
        .env("GITHUB_OUTPUT", &outputs)
        .env("GITHUB_STEP_SUMMARY", &summary)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    (String::from_utf8(output.stdout).unwrap(), text(&outputs), text(&summary))
}

/// Who opens a pull request must not choose what the job downloads.
#[cfg(unix)]
#[test]
fn the_action_fetches_nothing_unless_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let good = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec: {}\n";
    std::fs::write(folder.path().join("a.yaml"), good).unwrap();
    let remote = "resources: [a.yaml, \"https://127.0.0.1:1/base?ref=main\"]\n";
    std::fs::write(folder.path().join("kustomization.yaml"), remote).unwrap();
    let (_, outputs, _) = run_action(folder.path(), ".", "error");
    assert!(outputs.ends_with("code=0\n"), "{outputs}");
    let (_, outputs, _) = run_action_with(folder.path(), ".", "error", "remote");
    assert!(outputs.ends_with("code=2\n"), "the remote base cannot be fetched: {outputs}");
}

#[cfg(unix)]
#[test]
fn the_script_of_the_action_works_as_documented() {
    let folder = tempfile::tempdir().unwrap();
    let bad = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec: {maxPods: 5}\n";
    std::fs::write(folder.path().join("a b.yaml"), bad).unwrap();
    std::fs::write(folder.path().join("c.yaml"), bad).unwrap();
    let sarif = format!("sarif={}/napkeeper.sarif\n", folder.path().display());
    let (printed, outputs, summary) = run_action(folder.path(), ".\nc.yaml", "error");
    assert!(printed.starts_with("::error file="), "{printed}");
    assert_eq!(outputs, format!("{sarif}code=1\n"));
    assert!(summary.starts_with("### napkeeper: 2 errors"), "{summary}");
    let (_, outputs, _) = run_action(folder.path(), "c.yaml", "never");
    assert_eq!(outputs, format!("{sarif}code=0\n"));
    let (_, outputs, _) = run_action(folder.path(), "--fail-on", "never");
    assert!(outputs.ends_with("code=2\n"), "what looks like a flag is a path: {outputs}");
    std::fs::remove_file(folder.path().join("napkeeper.sarif")).unwrap();
    let (printed, outputs, _) = run_action(folder.path(), ".", "sometimes");
    assert_eq!((printed.as_str(), outputs.as_str()), ("", "code=2\n"));
}
