//! Tests of the command: its report, that runs are reproducible, and what it refuses.

use super::*;
use crate::repository::ReadingArgs;
use std::fs;
use std::path::Path;

fn catalog() -> Catalog {
    Catalog::embedded().unwrap()
}

/// What is read of a folder; without one, the quickstart.
fn read(path: Option<&Path>, catalog: &Catalog, err: &mut Vec<u8>) -> anyhow::Result<Option<Input>> {
    let (reading, facts) = (ReadingArgs::default(), RepositoryFacts::default());
    input::read(InputArgs { path, scenario: None, reading: &reading, facts: &facts, catalog }, |_| {}, err)
}

fn quickstart(catalog: &Catalog) -> Input {
    read(None, catalog, &mut Vec::new()).unwrap().unwrap()
}

/// The text of a report, without the time that it took.
fn text(report: &Report<'_>) -> String {
    let mut out = Vec::new();
    report.write_text(&mut out).unwrap();
    let text = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
    text.rsplit_once(" simulated in ").unwrap().0.to_owned()
}

/// The problems of a folder with these files.
fn refused(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let (catalog, mut err) = (catalog(), Vec::new());
    let error = match read(Some(folder.path()), &catalog, &mut err) {
        Ok(None) => anstream::adapter::strip_str(&String::from_utf8(err).unwrap()).to_string(),
        Ok(Some(_)) => panic!("this runs"),
        Err(error) => error.to_string(),
    };
    error.replace(&format!("{}/", folder.path().display()), "")
}

fn shipped(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/quickstart").join(name);
    fs::read_to_string(file).unwrap()
}

#[test]
fn the_quickstart_has_its_events_and_is_reproducible() {
    let catalog = catalog();
    let input = quickstart(&catalog);
    let report = simulate(&input, &catalog, RepositoryFacts::default(), false).unwrap();
    assert_eq!(report.violation, None);
    let printed = text(&report);
    for words in [
        "scaled to 100",
        "Azure evicted the spot VM",
        "scaled to 2",
        " is empty (only DaemonSet pods)",
        "family_quota: ",
        "deleting the NIC of the failed launch of gpu-",
        "Standard_NC4as_T4_v3 westeurope-1 on-demand at $0.6850/h",
        "collected  aks-general-purpose-gone0-nic ",
        "collected  pvc-scratch ",
        "kept       bastion ",
        "kept       pvc-archive ",
        "PersistentVolume pvc-database",
        "merged: an approval of its deletion",
        "resources became suspect within an hour",
        "2 collected",
        "waits      for breaker.clearedAt in Git",
    ] {
        assert!(printed.contains(words), "{words:?} is not in\n{printed}");
    }
    let again = simulate(&input, &catalog, RepositoryFacts::default(), false).unwrap();
    assert_eq!(printed, text(&again));
    let json = |report: &Report<'_>| {
        let mut value = report.to_json().unwrap();
        value["tookMs"] = Value::Null;
        value.to_string()
    };
    assert_eq!(json(&report), json(&again));
}

#[test]
fn without_a_vm_nothing_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["aksnodeclass.yaml", "nodepool-general-purpose.yaml"] {
        fs::write(folder.path().join(name), shipped(name)).unwrap();
    }
    let catalog = catalog();
    let input = read(Some(folder.path()), &catalog, &mut Vec::new()).unwrap().unwrap();
    let printed = text(&simulate(&input, &catalog, RepositoryFacts::default(), false).unwrap());
    assert!(printed.contains("\ncost         $0.00: there are no VMs\n"), "{printed}");
    assert!(printed.contains("\nbaseline     cluster-autoscaler $0.00; 0 launched, 0 node-hours, "), "{printed}");
    assert!(!printed.contains("\npending"), "{printed}");
}

#[test]
fn another_seed_is_another_run() {
    let catalog = catalog();
    let args = InputArgs {
        path: None,
        scenario: None,
        reading: &ReadingArgs::default(),
        facts: &RepositoryFacts::default(),
        catalog: &catalog,
    };
    let change = |scenario: &mut Scenario| {
        scenario.seed = 2;
        scenario.duration = SignedDuration::from_hours(1);
    };
    let other = input::read(args, change, &mut Vec::new()).unwrap().unwrap();
    let first = quickstart(&catalog);
    let start = |input: &Input| {
        simulate(input, &catalog, RepositoryFacts::default(), false).unwrap().world.timeline().first().cloned()
    };
    assert_ne!(start(&other), start(&first));
}

#[test]
fn invalid_scenarios_are_rejected_with_position_and_remedy() {
    let class = shipped("aksnodeclass.yaml");
    let pool = shipped("nodepool-general-purpose.yaml");
    let scenario = shipped("scenario.yaml");
    let cases: [(&[(&str, &str)], &str); 8] = [
        (&[], "no .yaml, .yml or .json files found; pass a folder"),
        (&[("class.yaml", &class)], "no NodePool found, so no pod could get a node; add one"),
        (
            &[("pool.yaml", &pool)],
            "pool.yaml:17:15: spec.template.spec.nodeClassRef.name: AKSNodeClass \"default\" not found",
        ),
        (
            &[("class.yaml", &class), ("pool.yaml", &pool.replacen("operator: In", "operator: in", 1))],
            "pool.yaml:20:21: error[NK1013]",
        ),
        (&[("class.yaml", &class), ("pool.yaml", "spec: [1\n")], "error[NK1001]"),
        (
            &[("class.yaml", &class), ("pool.yaml", &pool), ("s.yaml", &scenario)],
            "workload default/inflate not found in the manifests: none found",
        ),
        (
            &[("class.yaml", &class), ("pool.yaml", &pool), ("s.yaml", &scenario.replace("westeurope", "westeuorpe"))],
            "did you mean westeurope?",
        ),
        (
            &[("class.yaml", &class), ("pool.yaml", &pool), ("s.yaml", &scenario.replace("approve", "aprove"))],
            "unknown step \"aprove\"; did you mean approve?",
        ),
    ];
    for (files, expected) in cases {
        let error = refused(files);
        assert!(error.contains(expected), "{expected:?} is not in\n{error}");
    }
}

#[test]
fn a_region_that_does_not_exist_is_refused_with_the_nearest() {
    let error = catalog().find_region("West Europ").unwrap_err().to_string();
    assert!(error.ends_with("did you mean westeurope?"), "{error}");
}

#[test]
fn a_flood_is_one_line() {
    use napkeeper_sim::world::{EventKind, TimelineEntry};
    let start = Timestamp::UNIX_EPOCH;
    let entry = |n: i64| TimelineEntry {
        at: start + SignedDuration::from_secs(n),
        kind: EventKind::Provision,
        subject: format!("pool-{n}"),
        text: "Standard_D2s_v5".to_owned(),
    };
    let entries: Vec<TimelineEntry> = (0..10).chain([70, 86_400]).map(entry).collect();
    let mut out = Vec::new();
    timeline::write(&mut out, &entries, start).unwrap();
    let text = anstream::adapter::strip_str(&String::from_utf8(out).unwrap()).to_string();
    let lines: Vec<&str> = text.lines().map(|l| l.split("  Standard").next().unwrap().trim_end()).collect();
    assert_eq!(lines[0], "0d 00:00:00 launch     pool-0 and 9 more");
    assert_eq!(lines[1], "0d 00:01:10 launch     pool-70");
    assert_eq!(lines[2], "1d 00:00:00 launch     pool-86400");
}
