//! `simulate`: results on stdout, reproducible by seed, and exit codes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
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
        let lines = text.lines().filter(|l| !l.contains("\"tookMs\""));
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
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(words), "{words:?} is not in\n{error}");
        assert!(output.stdout.is_empty(), "nothing is half done");
    };
    refused(&[path], "no .yaml, .yml or .json files found");
    refused(&[&format!("{path}/nowhere")], "does not exist: check the path");
    refused(&["--region", "westeuorpe"], "did you mean westeurope?");
    refused(&["--for", "0s"], "must be greater than 0");
    refused(&["--seed", "x"], "must be a whole number from 0 to 18446744073709551615");
    refused(&["--seed", "-1"], "must be a whole number from 0 to 18446744073709551615");
    fs::write(folder.path().join("pool.yaml"), "apiVersion: karpenter.sh/v1\nkind: NodePol\nspec: [").unwrap();
    refused(&[path], "pool.yaml:3:");
    let step = "apiVersion: napkeeper.io/v1alpha1\nkind: Scenario\nmetadata: {name: s}\nspec:\n  region: westeurope\n  \
                start: 2026-08-03T06:00:00Z\n  for: 1h\n  steps:\n  - {at: 1m, scale: {workload: inflat, replicas: 1}}\n";
    let file = folder.path().join("steps.yaml");
    fs::write(&file, step).unwrap();
    refused(
        &["--scenario", file.to_str().unwrap()],
        "steps.yaml:9:32: spec.steps[0].scale.workload: workload default/inflat not found in the manifests: did you \
         mean default/inflate?",
    );
}

#[test]
fn every_scenario_of_the_repository_is_valid() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/scenarios");
    let folders: Vec<_> = fs::read_dir(scenarios).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(folders.len() >= 5, "{folders:?}");
    for folder in folders {
        let output = simulate(&[folder.to_str().unwrap(), "--for", "1m"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8(output.stderr).unwrap());
    }
}

/// The errors of the quickstart with a part of one file replaced.
fn changed(file: &str, from: &str, to: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/quickstart")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let text = if name == file { text.replacen(from, to, 1) } else { text };
        fs::write(folder.path().join(name), text).unwrap();
    }
    let output = simulate(&[folder.path().to_str().unwrap(), "--for", "1m"]);
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_invalid_object_is_not_also_reported_as_missing() {
    let error = changed("aksnodeclass.yaml", "imageFamily", "imageFamly");
    assert!(error.contains("imageFamly") && !error.contains("no AKSNodeClass"), "{error}");
    assert_eq!(error.matches("error").count(), 1, "{error}");
}

#[test]
fn numbers_out_of_range_are_rejected() {
    let error = changed("scenario.yaml", "replicas: 40", "replicas: 99999999");
    assert!(error.contains("use at most 100000") && error.contains("scale.replicas"), "{error}");
    let error = changed("scenario.yaml", "  region:", "  systemNodes: 4000000000\n  region:");
    assert!(error.contains("use at most 5000") && error.contains("spec.systemNodes"), "{error}");
    let error = changed("inflate.yaml", "replicas: 10", "replicas: 2000000000");
    assert!(error.contains("use at most 100000") && error.contains("spec.replicas"), "{error}");
    let error = changed("inflate.yaml", "cpu: \"1\"", "cpu: \"-1\"");
    assert!(error.contains("-1 must not be negative") && error.contains("requests.cpu"), "{error}");
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
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["summary"]["cost"].clone()
    };
    let list = cost(&[]);
    write("prices.csv", "region,size,capacityType,discountPercent\n*,*,*,50\n");
    write("napkeeper.yaml", "clusters:\n- {name: a, priceSheet: prices.csv}\n");
    let own = cost(&[]);
    assert_ne!(own, list);
    assert_eq!(own, cost(&["--price-sheet", &format!("{path}/prices.csv")]));
}

#[test]
fn manifests_run_in_the_region_of_their_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let quickstart = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/quickstart");
    let clusters = "clusters:\n- {name: a, paths: [a], region: northeurope, kubernetesVersion: '1.33'}\n- {name: b, paths: [b], region: eastus}\n";
    fs::write(folder.path().join("napkeeper.yaml"), clusters).unwrap();
    for name in ["a", "b"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        for file in ["aksnodeclass.yaml", "nodepool-general-purpose.yaml", "inflate.yaml"] {
            fs::copy(quickstart.join(file), folder.path().join(name).join(file)).unwrap();
        }
    }
    let header = |args: &[&str]| {
        let path = folder.path().join("a");
        let output = simulate(&[&[path.to_str().unwrap()], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().skip(1).take(2).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let [region, cluster] = &header(&[])[..] else { panic!() };
    assert!(region.starts_with("region       northeurope, "), "{region}");
    assert_eq!(cluster, "cluster      a of napkeeper.yaml, Kubernetes 1.33");
    assert!(header(&["--cluster", "b"])[0].starts_with("region       eastus, "));
    assert!(header(&["--region", "uksouth"])[0].starts_with("region       uksouth, "));
}

#[test]
fn only_what_is_simulated_must_be_of_one_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let quickstart = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/quickstart");
    for file in ["aksnodeclass.yaml", "nodepool-general-purpose.yaml", "inflate.yaml"] {
        fs::copy(quickstart.join(file), folder.path().join(file)).unwrap();
    }
    for name in ["a", "b"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
        fs::write(folder.path().join(name).join("namespace.yaml"), namespace).unwrap();
    }
    let path = folder.path().to_str().unwrap();
    let output = simulate(&[path, "--for", "5m"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for name in ["a", "b"] {
        fs::copy(quickstart.join("aksnodeclass.yaml"), folder.path().join(name).join("aksnodeclass.yaml")).unwrap();
    }
    fs::remove_file(folder.path().join("aksnodeclass.yaml")).unwrap();
    let output = simulate(&[path, "--for", "5m"]);
    let said = "/b both define AKSNodeClass default: pass the folder of one of them";
    assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{}", String::from_utf8_lossy(&output.stderr));
}
