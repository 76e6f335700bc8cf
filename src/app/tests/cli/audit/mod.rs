//! `audit` of saved listings, and of a simulated Azure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod inputs;

use crate::output::{assert_golden, stderr, stdout};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const FORMATS: [&str; 6] = ["text", "json", "markdown", "csv", "sarif", "policyreport"];

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/audit")
}

/// Runs an audit in a folder without a cluster configuration.
fn audit(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    command.arg("audit").args(args).current_dir(folder.path()).env_remove("KUBECONFIG");
    command.output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The report on a folder, as JSON, and the exit code.
fn report(folder: &Path, args: &[&str]) -> (Value, Option<i32>) {
    let output = audit(&[&["--from", text(folder), "-o", "json"], args].concat());
    let report = serde_json::from_slice(&output.stdout);
    let report = report.map_err(|_| stderr(&output)).unwrap();
    (report, output.status.code())
}

fn finding<'r>(report: &'r Value, name: &str) -> &'r Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|f| f["name"] == name).ok_or_else(|| format!("there is no finding of {name}")).unwrap()
}

/// The committed listings, to be changed.
fn copy() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(cases().join("saved")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

fn read(folder: &TempDir, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path().join(format!("{name}.json"))).unwrap()).unwrap()
}

fn write(folder: &TempDir, name: &str, value: &Value) {
    fs::write(folder.path().join(format!("{name}.json")), value.to_string()).unwrap();
}

fn edit(folder: &TempDir, name: &str, change: impl FnOnce(&mut Value)) {
    let mut value = read(folder, name);
    change(&mut value);
    write(folder, name, &value);
}

#[test]
fn each_format_is_as_committed_and_none_changes_the_exit_code() {
    for format in FORMATS {
        let output = audit(&["--from", text(&cases().join("saved")), "-o", format]);
        assert_eq!(output.status.code(), Some(1), "{format}: {}", stderr(&output));
        // CSV has no rows for problems besides resources.
        let beside = stderr(&output);
        assert_eq!(beside.matches("approval: OrphanSweep nightly").count(), if format == "csv" { 2 } else { 0 });
        assert!(format == "csv" || beside.is_empty(), "{format}: {beside}");
        assert_golden(&cases().join(format!("{format}.txt")), &stdout(&output));
    }
}

#[test]
fn an_approval_is_asked_for_only_where_its_lines_are_printed() {
    let remedy = |folder: &Path| {
        let (report, _) = report(folder, &[]);
        let disk = finding(&report, "pvc-deleted").clone();
        let refusals = disk["refusals"].as_array().unwrap().clone();
        let approval = refusals.into_iter().find(|refusal| refusal["refusal"] == "approval").unwrap();
        (disk["approval"].is_null(), approval["remedy"].as_str().unwrap().to_owned())
    };
    let (is_absent, text) = remedy(&cases().join("saved"));
    assert!(!is_absent && text == "commit the lines under `approvals` below", "{text}");
    // Detached two days ago, so that its minimum age is not over.
    let folder = copy();
    edit(&folder, "disks", |disks| {
        let disk =
            disks["value"].as_array_mut().unwrap().iter_mut().find(|disk| disk["name"] == "pvc-deleted").unwrap();
        disk["properties"]["LastOwnershipUpdateTime"] = json!("2026-11-18T12:00:00+00:00");
    });
    let (is_absent, text) = remedy(folder.path());
    assert!(is_absent && text == "approve it once it is an orphan: audit prints the lines then", "{text}");
}

#[test]
fn times_of_records_are_shown_in_seconds() {
    let folder = copy();
    edit(&folder, "orphanrecords", |records| {
        let text = records.to_string().replace(":10:00Z", ":10:00.123456789Z").replace(":50:00Z", ":50:00.987654321Z");
        *records = serde_json::from_str(&text).unwrap();
    });
    let (report, _) = report(folder.path(), &[]);
    let evidence = finding(&report, "pvc-deleted")["evidence"].to_string();
    assert!(evidence.contains("last seen 2026-10-31T23:50:00Z"), "{evidence}");
    assert!(evidence.contains("from 2026-11-01T00:10:00Z to 2026-11-20T11:50:00Z"), "{evidence}");
}

#[test]
fn every_resource_has_the_status_of_the_deletion_rules() {
    let (whole, code) = report(&cases().join("saved"), &["--all"]);
    assert_eq!(code, Some(1));
    for (name, status, kept_by) in [
        ("aks-general-aaaaa", "owned", &["sign_of_life"][..]),
        ("aks-general-quota", "orphan", &[]),
        ("aks-general-fresh", "suspect", &["too_young", "seen_once", "mode"]),
        ("aks-general-ageless", "suspect", &["too_young", "seen_once", "mode"]),
        ("aks-general-old_OsDisk_1_y", "unproven", &["too_young", "seen_once", "mode"]),
        ("pvc-deleted", "orphan", &["approval"]),
        ("pvc-attached", "owned", &["sign_of_life"]),
        ("pvc-detached", "protected", &["sign_of_life"]),
        ("pvc-retained", "protected", &["retained"]),
        ("pvc-before-us", "foreign", &["no_volume_record"]),
        ("asrseeddisk-db-1", "foreign", &["no_volume_record"]),
        ("jumpbox", "foreign", &["not_owned"]),
        ("aks-system-00001", "owned", &["sign_of_life"]),
        ("kube-apiserver.nic", "foreign", &["not_owned"]),
        ("aks-general-other", "foreign", &["not_owned"]),
    ] {
        let finding = finding(&whole, name);
        assert_eq!(finding["status"], status, "{name}: {finding}");
        let refusals: BTreeSet<&str> =
            finding["refusals"].as_array().unwrap().iter().map(|k| k["refusal"].as_str().unwrap()).collect();
        for refusal in kept_by {
            assert!(refusals.contains(refusal), "{name} is not kept by {refusal}: {finding}");
        }
        let safe = !matches!(status, "orphan") || finding["kind"] == "DataDisk";
        assert!(!safe || !refusals.is_empty(), "nothing keeps {name}");
    }
    let missing =
        whole["findings"].as_array().unwrap().iter().find(|f| f["name"] == "aks-general-gone1" && f["kind"] == "Vm");
    assert_eq!(missing.unwrap()["status"], "unproven");
    assert!(missing.unwrap()["approval"].is_null(), "beside managed NAP no approval helps a VM");
    let statuses: BTreeSet<&str> =
        whole["findings"].as_array().unwrap().iter().map(|f| f["status"].as_str().unwrap()).collect();
    assert_eq!(statuses.len(), 6, "all but unknown and in-flight: {statuses:?}");
    let provisioner = report(&cases().join("saved"), &["--mode", "provisioner"]).0;
    let missing =
        provisioner["findings"].as_array().unwrap().iter().find(|f| f["kind"] == "Vm" && f["status"] == "unproven");
    assert!(missing.unwrap()["approval"].as_str().unwrap().contains("incarnation: 0000"));
}

#[test]
fn totals_sum_the_cost_of_orphans_and_of_collectable_ones() {
    let (report, _) = report(&cases().join("saved"), &[]);
    let orphans: Vec<&Value> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f["status"] == "orphan" || f["status"] == "unproven")
        .collect();
    let of = |total: &Value, rows: &[&Value]| {
        assert_eq!(total["resources"], rows.len());
        let nanos: i64 = rows.iter().map(|f| f["nanoUsdPerHour"].as_i64().unwrap()).sum();
        let cents = i128::from(nanos) * 730 * 100 / 1_000_000_000;
        let dollars: f64 = total["usdPerMonth"].as_str().unwrap().replace(',', "").parse().unwrap();
        assert!((dollars * 100.0 - cents as f64).abs() <= 1.0, "{dollars} {cents}");
    };
    of(&report["orphans"], &orphans);
    assert_eq!(report["orphans"]["addresses"], 31);
    // Beside managed NAP no VM is collected.
    let may: Vec<&Value> = orphans.into_iter().filter(|f| f["kind"] != "Vm").collect();
    of(&report["savings"], &may);
    let table = stdout(&audit(&["--from", text(&cases().join("saved"))]));
    let last = table.lines().last().unwrap();
    assert_eq!(
        last,
        "4 orphans cost $490.68 per month and hold 31 addresses; napkeeper can delete 3 of them ($154.88)"
    );
    let provisioner = of_saved(&["--mode", "provisioner"]);
    assert_eq!(provisioner["savings"], provisioner["orphans"]);
}

fn of_saved(args: &[&str]) -> Value {
    report(&cases().join("saved"), args).0
}

#[test]
fn filters_show_less_and_change_neither_sums_nor_exit_code() {
    let (all, _) = report(&cases().join("saved"), &["--all"]);
    let (nics, code) = report(&cases().join("saved"), &["--kind", "nic", "--status", "suspect,orphan"]);
    assert_eq!((code, &nics["totals"]), (Some(1), &all["totals"]));
    let names: BTreeSet<&str> =
        nics["findings"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["aks-general-quota", "aks-general-fresh", "aks-general-ageless"]));
    assert_eq!(report(&cases().join("saved"), &["--fail-on", "never"]).1, Some(0));
}

#[test]
fn ineffective_approvals_and_a_tripping_breaker_are_reported() {
    let about = |report: &Value, subject: &str| -> Vec<String> {
        let remarks = report["remarks"].as_array().unwrap().iter().filter(|r| r["about"] == subject);
        remarks.map(|r| r["message"].as_str().unwrap().to_owned()).collect()
    };
    let saved = report(&cases().join("saved"), &[]).0;
    let approvals = about(&saved, "approval");
    assert_eq!(approvals.len(), 2, "{approvals:?}");
    assert!(
        approvals[0].contains("pvc-retained has no effect (Expired)")
            && approvals[1].contains("pvc-long-gone has no effect (Spent)")
    );
    assert_eq!(about(&saved, "breaker"), [""; 0]);
    // As after the restore of an API server: most resources are no longer referenced.
    let folder = copy();
    edit(&folder, "virtualMachines", |vms| vms["value"] = json!([]));
    edit(&folder, "nodeclaims", |list| list["items"] = json!([]));
    edit(&folder, "nodes", |list| {
        list["items"].as_array_mut().unwrap().retain(|node| node["metadata"]["name"] != "aks-general-bbbbb");
    });
    for page in ["networkInterfaces", "networkInterfaces.page2"] {
        edit(&folder, page, |nics| {
            for nic in nics["value"].as_array_mut().unwrap() {
                nic["properties"]["virtualMachine"] = Value::Null;
            }
        });
    }
    let lost = report(folder.path(), &[]).0;
    let breaker = about(&lost, "breaker");
    assert!(breaker.len() == 1 && breaker[0].contains("would trip"), "{breaker:?}");
    assert!(breaker[0].contains("commit `breaker: {clearedAt:"), "{breaker:?}");
}

#[test]
fn a_group_of_another_cluster_holds_no_orphans() {
    let folder = copy();
    edit(&folder, "resourceGroup", |group| {
        group["managedBy"] =
            json!("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/other")
    });
    edit(&folder, "orphansweeps", |list| {
        let other = "/subscriptions/s/resourceGroups/MC_other/providers/Microsoft.Compute/disks/d";
        list["items"][0]["spec"]["approvals"][0]["id"] = json!(other);
    });
    let (report, code) = report(folder.path(), &[]);
    assert_eq!(code, Some(2), "{report}");
    assert_eq!((&report["ofCluster"], &report["orphans"]["resources"]), (&json!(false), &json!(0)));
    assert!(report["remarks"][0]["message"].as_str().unwrap().contains("is not managed by"), "{report}");
    let advice = report["remarks"].to_string();
    assert!(!advice.contains("no such resource in") && !advice.contains("is gone"), "{advice}");
    for format in FORMATS {
        let output = audit(&["--from", text(folder.path()), "-o", format]);
        assert_eq!(output.status.code(), Some(2), "{format}");
        let all = stdout(&output) + &stderr(&output);
        assert!(all.contains("is not managed by"), "{format}: {all}");
        assert!(!all.contains("can delete"), "{format}: {all}");
    }
    let table = stdout(&audit(&["--from", text(folder.path())]));
    assert!(table.find("cluster: ").unwrap() < table.find("KIND ").unwrap(), "{table}");
}

#[test]
fn a_kubeconfig_of_another_cluster_ends_in_2() {
    let folder = copy();
    edit(&folder, "nodes", |list| {
        for node in list["items"].as_array_mut().unwrap() {
            let id = node["spec"]["providerID"].as_str().unwrap().replace("MC_shop", "MC_other");
            node["spec"]["providerID"] = json!(id);
        }
    });
    let (report, code) = report(folder.path(), &["--fail-on", "never"]);
    assert_eq!(code, Some(2), "{report}");
    assert!(report["remarks"][0]["message"].as_str().unwrap().contains("no ready Node of an agent pool"), "{report}");
}

#[test]
fn remarks_are_results_of_a_policy_report() {
    let saved = cases().join("saved");
    let report: Value = serde_json::from_slice(&audit(&["--from", text(&saved), "-o", "policyreport"]).stdout).unwrap();
    let results = report["results"].as_array().unwrap();
    let remarks: Vec<_> = results.iter().filter(|r| r["rule"] == "remark-approval").collect();
    assert_eq!(remarks.len(), 2);
    let warnings = results.iter().filter(|r| r["result"] == "warn").count();
    assert_eq!(report["summary"]["warn"], warnings, "remarks are counted");
}

#[test]
fn locations_in_sarif_are_valid_for_code_scanning() {
    let saved = cases().join("saved");
    let sarif: Value = serde_json::from_slice(&audit(&["--from", text(&saved), "-o", "sarif"]).stdout).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    for result in results {
        let location = &result["locations"][0];
        let uri = location["physicalLocation"]["artifactLocation"]["uri"].as_str().unwrap();
        assert!(uri.starts_with("subscriptions/") && !uri.contains(':'), "{uri}");
        assert_ne!(location["logicalLocations"][0]["name"], "", "{result}");
    }
    assert!(results[0]["properties"]["portal"].as_str().unwrap().starts_with("https://portal.azure.com/#resource/"));
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].to_string();
    assert!(rules.contains("An OS disk in") && rules.contains("A NIC in") && !rules.contains("OsDisk in"), "{rules}");
}

#[test]
fn blockers_of_a_sweep_are_reported() {
    let explained = |folder: &TempDir, refusal: &str| {
        let nic = report(folder.path(), &[]).0;
        let refusals = finding(&nic, "aks-general-quota")["refusals"].as_array().unwrap().clone();
        let found = refusals.into_iter().find(|found| found["refusal"] == refusal).unwrap();
        format!("{}: {}", found["reason"].as_str().unwrap(), found["remedy"].as_str().unwrap())
    };
    let folder = copy();
    let scheduled = "OrphanSweep nightly runs on a schedule, next at 2026-11-21T03:00:00Z: wait until \
        2026-11-21T03:00:00Z";
    assert_eq!(explained(&folder, "mode"), scheduled);
    edit(&folder, "orphansweeps", |list| list["items"][0]["spec"]["mode"] = json!("Report"));
    assert_eq!(
        explained(&folder, "mode"),
        "the OrphanSweep's mode is Report: set mode: Collect in OrphanSweep nightly"
    );
    let remark = |folder: &TempDir| report(folder.path(), &[]).0["remarks"][0]["message"].clone();
    edit(&folder, "manifest", |manifest| manifest["paused"] = json!(true));
    assert_eq!(
        (explained(&folder, "paused").split(':').next(), remark(&folder)),
        (Some("deletions are paused"), json!("deletions are paused"))
    );
    edit(&folder, "manifest", |manifest| {
        manifest["failures"] =
            json!([{ "listing": "own", "what": "configmap napkeeper-pause", "why": "permission denied" }]);
    });
    let unknown = "unknown whether deletions are paused";
    assert_eq!((explained(&folder, "paused").split(':').next(), remark(&folder)), (Some(unknown), json!(unknown)));
    let failed = |folder: &TempDir| report(folder.path(), &[]).0["failed"].to_string();
    assert!(failed(&folder).contains("try again"), "a folder of an older version has no cause: {}", failed(&folder));
    edit(&folder, "manifest", |manifest| manifest["failures"][0]["cause"] = json!("forbidden"));
    assert!(failed(&folder).contains("grant `get` on ConfigMap napkeeper-pause"), "{}", failed(&folder));
}

#[test]
fn the_time_of_files_is_reported_once_and_not_in_the_future() {
    let folder = copy();
    let refused = |args: &[&str]| {
        let output = audit(&[&["--from", text(folder.path())], args].concat());
        assert_eq!(output.status.code(), Some(2));
        stderr(&output)
    };
    let beside = refused(&["--taken-at", "2026-11-20T12:00:00Z"]);
    assert!(beside.contains("its manifest.json has the time"), "{beside}");
    let future = refused(&["--taken-at", "2999-01-01T00:00:00Z"]);
    assert!(future.contains("2999-01-01T00:00:00Z is in the future"), "{future}");
    edit(&folder, "manifest", |manifest| manifest["takenAt"] = json!("2026-11-20T12:00:00.987654321Z"));
    let rounded = report(folder.path(), &["--all"]).0.to_string();
    assert!(rounded.contains("2026-11-20T12:00:00Z") && !rounded.contains(".98"), "{rounded}");
}
