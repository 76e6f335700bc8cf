//! Formats of `validate`: golden files, escaping, and exit codes.

use super::{assert_golden, cases, class, stdout, validate, write};
use serde_json::Value;
use std::path::Path;

const FORMATS: [&str; 8] = ["text", "json", "jsonl", "sarif", "junit", "github", "gitlab", "markdown"];

/// A class with warning and errors, and a sweep with some.
const CLASS: &str = "apiVersion: karpenter.azure.com/v1alpha2\nkind: AKSNodeClass\nmetadata:\n  name: bad\nspec:\n  \
    maxPods: 5\n  imageFamily: ubuntu\n  tags:\n    cost: 12\n";
const SWEEP: &str = "apiVersion: napkeeper.io/v1alpha1\nkind: OrphanSweep\nmetadata:\n  name: bad\nspec:\n  mode: report\n  \
    minimumage: {}\n  exclusions:\n    - tag: {key: y}\n";

/// A repository with bad files and a good one.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".git")).unwrap();
    let files = [("class.yaml", CLASS), ("sweep.yaml", SWEEP), ("good.yaml", &class("good", 40))];
    for (file, text) in files {
        write(folder.path(), &[(&format!("clusters/{file}"), text)]);
    }
    folder
}

fn printed(folder: &Path, format: &str) -> String {
    stdout(&validate(folder, &["-o", format, "clusters"]))
}

#[test]
fn each_format_is_as_committed() {
    let folder = repository();
    for format in FORMATS {
        let text = printed(folder.path(), format);
        // The table of rules grows with every rule; its form is checked elsewhere.
        let text = if format == "sarif" { without_rules(&text) } else { text };
        assert_golden(&cases().join(format!("formats/{format}.txt")), &text);
    }
}

#[test]
fn each_format_names_kind_namespace_and_name_of_the_object() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  replicas: many\n";
    write(folder.path(), &[("a.yaml", &class("nodes", 5)), ("b.yaml", text)]);
    for format in FORMATS {
        let names = match format {
            "json" | "jsonl" => ["karpenter.azure.com/v1beta1/AKSNodeClass/nodes", "apps/v1/Deployment/shop/web"],
            _ => ["AKSNodeClass nodes", "Deployment shop/web"],
        };
        let text = stdout(&validate(folder.path(), &["-o", format]));
        for name in names {
            assert!(text.contains(name), "{format} lacks {name}: {text}");
        }
    }
    let text = stdout(&validate(folder.path(), &[]));
    assert!(text.contains("must be at least 10, got 5 (AKSNodeClass nodes: spec.maxPods)\n"), "{text}");
}

fn without_rules(text: &str) -> String {
    let mut log: Value = serde_json::from_str(text).unwrap();
    log["runs"][0]["tool"]["driver"]["rules"] = Value::Null;
    for result in log["runs"][0]["results"].as_array_mut().unwrap() {
        result["ruleIndex"] = Value::Null;
    }
    serde_json::to_string_pretty(&log).unwrap() + "\n"
}

#[test]
fn the_exit_code_depends_on_findings_and_fail_on_alone() {
    let deprecated = "apiVersion: karpenter.azure.com/v1alpha2\nkind: AKSNodeClass\nmetadata: {name: a}\n";
    let broken = class("a", 5);
    let good = class("a", 40);
    // Each format meets each level, and each level each text.
    let texts = [(good.as_str(), [0, 0, 0]), (deprecated, [0, 1, 0]), (broken.as_str(), [1, 1, 0])];
    for (n, (text, codes)) in texts.into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("a.yaml", text)]);
        let levels = ["error", "warning", "never"].into_iter().zip(codes).cycle().skip(n);
        for (format, (fail_on, code)) in FORMATS.into_iter().zip(levels) {
            let output = validate(folder.path(), &["-o", format, "--fail-on", fail_on, "a.yaml"]);
            assert_eq!(output.status.code(), Some(code), "{format} {fail_on} {text}");
            assert!(output.stderr.is_empty());
        }
    }
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("a.yaml", &broken)]);
    for (format, fail_on) in FORMATS.into_iter().zip(["error", "warning", "never"].into_iter().cycle()) {
        let output = validate(folder.path(), &["-o", format, "--fail-on", fail_on, "a.yaml", "nowhere.yaml"]);
        assert_eq!(output.status.code(), Some(2), "{format} {fail_on}");
    }
}

#[test]
fn sarif_without_findings_has_results_and_rules_with_help() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("a.yaml", &class("a", 40))]);
    let text = stdout(&validate(folder.path(), &["-o", "sarif"]));
    let log: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(log["runs"][0]["results"], serde_json::json!([]));
    let rules = log["runs"][0]["tool"]["driver"]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), napkeeper_verdict::rules::all().count());
    for rule in rules {
        assert!(["error", "warning"].contains(&rule["defaultConfiguration"]["level"].as_str().unwrap()));
        assert!(rule["help"]["markdown"].as_str().unwrap().starts_with("# NK"));
    }
}

#[test]
fn sarif_is_valid_for_code_scanning() {
    let folder = repository();
    let text = printed(folder.path(), "sarif");
    // The types of serde-sarif are generated from the schema of SARIF 2.1.0.
    let typed: serde_sarif::sarif::Sarif = serde_json::from_str(&text).unwrap();
    assert_eq!(typed.runs.len(), 1);
    let log: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert!(results.len() > 4);
    let mut prints = std::collections::BTreeSet::new();
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let location = &result["locations"][0]["physicalLocation"];
        let uri = location["artifactLocation"]["uri"].as_str().unwrap();
        assert!(uri.starts_with("clusters/"), "{uri}");
        assert!(location["region"]["startLine"].as_u64().unwrap() >= 1);
        assert!(location["region"]["startColumn"].as_u64().unwrap() >= 1);
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        assert!(prints.insert(result["partialFingerprints"]["napkeeper/v1"].as_str().unwrap().to_owned()));
    }
}

#[test]
fn junit_is_read_back_with_the_same_counts() {
    let folder = repository();
    let report = quick_junit::Report::deserialize_from_str(&printed(folder.path(), "junit")).unwrap();
    let json: Value = serde_json::from_str(&printed(folder.path(), "json")).unwrap();
    assert_eq!(report.failures as u64, json["summary"]["errors"].as_u64().unwrap());
    assert_eq!(
        report.test_suites.iter().map(|s| s.skipped).sum::<usize>() as u64,
        json["summary"]["warnings"].as_u64().unwrap()
    );
    let good = report.test_suites.iter().find(|s| s.name.as_str() == "clusters/good.yaml").unwrap();
    assert_eq!((good.tests, good.failures), (1, 0), "a file without findings is a test that passed");
}

#[test]
fn fingerprints_are_unique_and_do_not_move_with_lines() {
    let folder = repository();
    let prints = |folder: &Path| -> Vec<String> {
        let report: Value = serde_json::from_str(&printed(folder, "gitlab")).unwrap();
        report.as_array().unwrap().iter().map(|f| f["fingerprint"].as_str().unwrap().to_owned()).collect()
    };
    let before = prints(folder.path());
    for file in ["sweep.yaml", "class.yaml"] {
        let file = folder.path().join("clusters").join(file);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("# one\n# two\n{text}")).unwrap();
    }
    assert_eq!(before, prints(folder.path()));
    let unique: std::collections::BTreeSet<_> = before.iter().collect();
    assert_eq!(unique.len(), before.len());
}

/// What a manifest may hold to steer a terminal, a runner of workflows or a page.
const NASTY: &str = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: a}\nspec:\n  \
    imageFamily: \"\\e[2J%0A\\n::error::x|<img src=x>@all\\r\\x9b\u{202e}\"\n  \
    \"\\e[2J\\n::error::<img src=x>@all\\r\\x9b\": 1\n";

#[test]
fn manifests_cannot_inject_markup_into_the_output() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[("a,b:c%.yaml", NASTY)]);
    for format in FORMATS {
        let output = validate(folder.path(), &["-o", format]);
        assert_eq!(output.status.code(), Some(1), "{format}");
        let text = stdout(&output);
        let steers = |c: char| (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{202a}'..='\u{202e}');
        if !["json", "jsonl"].contains(&format) {
            let line = text.lines().find(|line| line.chars().any(steers));
            assert_eq!(line, None, "{format}");
        }
    }
    let github = stdout(&validate(folder.path(), &["-o", "github"]));
    let lines: Vec<&str> = github.lines().collect();
    let [command, other, summary] = lines[..] else { panic!("{github}") };
    assert!(command.starts_with("::error file=a%2Cb%3Ac%25.yaml,line=5,col=16,title=NK1013 Value"), "{command}");
    assert!(other.starts_with("::error file=a%2Cb%3Ac%25.yaml,line=6,col=3,title=NK1010 Unknown field"), "{other}");
    assert!(summary.starts_with("napkeeper: 1 object"), "{summary}");
    let sarif: Value = serde_json::from_slice(&validate(folder.path(), &["-o", "sarif"]).stdout).unwrap();
    let uri = &sarif["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert_eq!(uri, "a%2Cb%3Ac%25.yaml");
    let markdown = stdout(&validate(folder.path(), &["-o", "markdown"]));
    // Between backticks nothing means anything.
    let text: String = markdown.replace("\\`", "").split('`').step_by(2).collect();
    assert!(text.contains("&lt;img") && !text.contains("<img") && !text.contains("@all"), "{text}");
}

#[test]
fn colours_are_for_terminals_or_on_request() {
    let folder = repository();
    assert!(!printed(folder.path(), "text").contains('\u{1b}'));
    let text = stdout(&validate(folder.path(), &["--color", "always"]));
    assert!(text.contains("\u{1b}[1m\u{1b}[31merror[NK1015]\u{1b}[0m"), "{text:?}");
    let json = stdout(&validate(folder.path(), &["--color", "always", "-o", "json"]));
    assert!(!json.contains('\u{1b}'));
}

#[test]
fn markdown_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let many: String = (0..3000).map(|i| format!("{}---\n", class(&format!("a{i}"), 5))).collect();
    write(folder.path(), &[("a.yaml", &many)]);
    let text = stdout(&validate(folder.path(), &["-o", "markdown"]));
    assert!(text.contains("### napkeeper: 3000 errors") && text.contains("… and 2950 more."), "{text}");
    assert!(text.len() < 60_000);
}
