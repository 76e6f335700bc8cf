//! The built program: are results on stdout alone, the same for a seed, and does bad input end with exit code 2?

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).arg("simulate").args(args).output().unwrap()
}

#[test]
fn two_runs_with_a_seed_print_the_same_bytes_but_for_the_time_taken() {
    let run = || {
        let output = simulate(&["--seed", "3", "--for", "4h", "-o", "json"]);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter(|l| !l.contains("\"took_ms\""));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = run();
    assert!(lines.len() > 100);
    assert_eq!(lines, run());
}

#[test]
fn bad_input_ends_with_2_a_message_and_nothing_on_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let refused = |args: &[&str], words: &str| {
        let output = simulate(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{words:?} is not in\n{said}");
        assert!(output.stdout.is_empty(), "nothing is half done");
    };
    refused(&[path], "there is no .yaml, .yml or .json file");
    refused(&[&format!("{path}/nowhere")], "cannot be read");
    refused(&["--region", "westeuorpe"], "did you mean westeurope?");
    refused(&["--for", "0s"], "must be more than nothing");
    fs::write(folder.path().join("pool.yaml"), "apiVersion: karpenter.sh/v1\nkind: NodePol\nspec: [").unwrap();
    refused(&[path], "pool.yaml:3:");
    let step = "apiVersion: napkeeper.io/v1alpha1\nkind: Scenario\nmetadata: {name: s}\nspec:\n  region: westeurope\n  \
                start: 2026-08-03T06:00:00Z\n  for: 1h\n  steps:\n  - {at: 1m, scale: {workload: inflat, replicas: 1}}\n";
    let file = folder.path().join("steps.yaml");
    fs::write(&file, step).unwrap();
    refused(
        &["--scenario", file.to_str().unwrap()],
        "steps.yaml:9:32: spec.steps[0].scale.workload: there is no workload default/inflat: did you mean default/inflate?",
    );
}

#[test]
fn the_repository_s_own_prices_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let quickstart = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/quickstart");
    for entry in fs::read_dir(quickstart).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let cost = |args: &[&str]| {
        let output = simulate(&[&[path, "--for", "4h", "-o", "json"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        told["summary"]["cost"].clone()
    };
    let list = cost(&[]);
    write("prices.csv", "region,size,capacityType,discountPercent\n*,*,*,50\n");
    write("napkeeper.yaml", "clusters:\n- {name: a, priceSheet: prices.csv}\n");
    let own = cost(&[]);
    assert_ne!(own, list);
    assert_eq!(own, cost(&["--price-sheet", &format!("{path}/prices.csv")]));
}
