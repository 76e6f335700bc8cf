//! Inputs of `audit`: incomplete listings, files written by hand, an Azure that rejects requests; and their messages.

use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Asserts that a file is reported as incomplete.
fn assert_not_whole(folder: &TempDir, name: &str, parts: &[&str]) {
    let (report, code) = report(folder.path(), &[]);
    assert_eq!((code, &report["complete"]), (Some(2), &json!(false)), "{name}: {report}");
    assert_eq!(report["orphans"]["resources"], 0, "{name}");
    let failed = report["failed"].to_string();
    for part in [&format!("{name}.json: ")[..], "recreate it with: "].iter().chain(parts) {
        assert!(failed.contains(part), "{name}: {part:?} is not in {failed}");
    }
}

#[test]
fn a_listing_that_is_cut_off_is_no_listing() {
    let folder = copy();
    fs::remove_file(folder.path().join("networkInterfaces.page2.json")).unwrap();
    assert_not_whole(&folder, "networkInterfaces", &["networkInterfaces.page2.json is missing", "az network nic list"]);
    for name in ["nodes", "pods", "nodeclaims"] {
        let folder = copy();
        edit(&folder, name, |list| list["metadata"]["continue"] = json!("abc"));
        assert_not_whole(&folder, name, &["metadata.continue", "kubectl get"]);
    }
}

#[test]
fn invalid_listings_never_count_as_empty() {
    let error = json!({ "error": { "code": "AuthorizationFailed", "message": "no right" } });
    let status = json!({ "kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "may not" });
    let folder = copy();
    write(&folder, "networkInterfaces.page2", &error);
    assert_not_whole(
        &folder,
        "networkInterfaces",
        &["in networkInterfaces.page2.json: expected a listing, got an error", "no right"],
    );
    for name in [
        "virtualMachines",
        "disks",
        "snapshots",
        "virtualMachineScaleSets",
        "publicIPAddresses",
        "resources.networkInterfaces",
        "managedClusters.shop.agentPools",
        "resourceGroup",
    ] {
        for (body, part) in [(&json!({}), "it"), (&error, "AuthorizationFailed"), (&json!(null), "got null")] {
            let folder = copy();
            write(&folder, name, body);
            assert_not_whole(&folder, name, &[part]);
        }
    }
    for name in ["nodes", "persistentvolumes", "orphansweeps", "orphanrecords"] {
        for (body, part) in [
            (&json!(null), "got null"),
            (&json!("x"), "got a string"),
            (&json!([]), "got a list"),
            (&json!({ "a": 1 }), "it has no `items`"),
            (&json!({ "kind": "Service" }), "got Service"),
            (&status, "Forbidden: may not"),
            (&error, "AuthorizationFailed"),
        ] {
            let folder = copy();
            write(&folder, name, body);
            assert_not_whole(&folder, name, &[part]);
        }
    }
}

#[test]
fn a_listing_that_is_missing_makes_everything_unknown_and_says_how_to_make_it() {
    for (name, hint) in [
        ("nodes", "kubectl get nodes"),
        ("nodeclaims", "kubectl get nodeclaims"),
        ("persistentvolumes", "kubectl get persistentvolumes"),
        ("virtualMachines", "az vm list"),
        ("disks", "az disk list"),
        ("snapshots", "az snapshot list"),
        ("managedClusters.shop.agentPools", "az aks nodepool list"),
        ("managedClusters.shop.agentPools.system.machines", "az aks machine list"),
        ("resourceGroup", "az group show"),
    ] {
        let folder = copy();
        fs::remove_file(folder.path().join(format!("{name}.json"))).unwrap();
        let (report, code) = report(folder.path(), &[]);
        assert_eq!(code, Some(2), "{name}");
        assert_eq!((&report["complete"], &report["orphans"]["resources"]), (&json!(false), &json!(0)));
        let reason = report["failed"][0]["reason"].as_str().unwrap();
        assert!(reason.contains(hint) && reason.contains(&format!("{name}.json")), "{reason}");
        for finding in report["findings"].as_array().unwrap() {
            assert_eq!(finding["status"], "unknown", "{finding}");
        }
    }
}

/// A page as the Azure CLI prints it: properties flattened at every level, and nulls for absent fields.
fn as_az(page: &Value) -> Vec<Value> {
    page["value"].as_array().unwrap().iter().map(flat).collect()
}

fn flat(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(flat).collect(),
        Value::Object(map) => {
            let mut item = json!({ "extendedLocation": null });
            let properties = map.get("properties").and_then(Value::as_object);
            let own = map.iter().filter(|(key, _)| *key != "properties");
            for (key, value) in own.chain(properties.into_iter().flatten()) {
                let key = if key == "LastOwnershipUpdateTime" { "lastOwnershipUpdateTime" } else { key };
                item[key] = flat(value);
            }
            item
        }
        other => other.clone(),
    }
}

#[test]
fn files_of_az_and_kubectl_give_the_report_of_a_saved_run() {
    let folder = copy();
    let mut nics = as_az(&read(&folder, "networkInterfaces"));
    nics.extend(as_az(&read(&folder, "networkInterfaces.page2")));
    fs::remove_file(folder.path().join("networkInterfaces.page2.json")).unwrap();
    write(&folder, "networkInterfaces", &json!(nics));
    for name in ["virtualMachines", "disks", "snapshots", "publicIPAddresses", "loadBalancers"] {
        let flat = as_az(&read(&folder, name));
        write(&folder, name, &json!(flat));
    }
    edit(&folder, "resources.networkInterfaces", |page| *page = page["value"].clone());
    write(&folder, "volumesnapshotcontents", &json!({ "items": [] }));
    let manifest = read(&folder, "manifest");
    fs::remove_file(folder.path().join("manifest.json")).unwrap();
    let cluster = manifest["cluster"].as_str().unwrap();
    let args = [
        "--taken-at",
        "2026-11-20T12:00:00Z",
        "--subscription",
        "00000000-0000-4000-8000-000000000001",
        "--resource-group",
        "MC_shop_shop_westeurope",
        "--cluster-id",
        cluster,
        "--all",
    ];
    let (by_hand, _) = report(folder.path(), &args);
    let (saved, _) = report(&cases().join("saved"), &["--all"]);
    assert_eq!(by_hand, saved);
}

/// A cluster by flags.
const WHICH: [&str; 6] = [
    "--subscription",
    "s",
    "--resource-group",
    "MC_g",
    "--cluster-id",
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c",
];

#[test]
fn first_errors_name_problem_location_and_remedy() {
    let empty = tempfile::tempdir().unwrap();
    let broken = copy();
    fs::write(broken.path().join("nodes.json"), "{\"items\": [\n  oops]}").unwrap();
    fs::write(broken.path().join("disks.json"), "").unwrap();
    let (empty, broken) = (text(empty.path()).to_owned(), text(broken.path()).to_owned());
    let nothing = format!("{broken}/disks.json");
    for (args, parts) in [
        (vec![], vec!["no napkeeper.yaml found here or in a parent folder", "--cluster-id"]),
        (vec!["--from", "/nonexistent"], vec!["/nonexistent: does not exist: check the path"]),
        (vec!["--from", &empty], vec![&*empty, "no saved listings found", "napkeeper audit --save", "az group show"]),
        (
            vec!["--from", &broken],
            vec!["nodes.json:2:3: not valid JSON: expected", "disks.json:1:0: the file is empty"],
        ),
        (vec!["--subscription", "s"], vec!["--resource-group", "--cluster-id"]),
        (vec!["--from", "a", "--save", "b"], vec!["cannot be used with"]),
        (vec!["--save", &broken], vec![&*broken, "not empty"]),
        (vec!["--azure-token-file", "x"], vec!["require an --azure-endpoint on this machine"]),
        (
            [&["--azure-endpoint", "http://127.0.0.1:1", "--azure-token-file", "/nonexistent"][..], &WHICH].concat(),
            vec!["cannot read /nonexistent of --azure-token-file"],
        ),
        (
            [&["--azure-endpoint", "http://127.0.0.1:1", "--azure-token-file", &nothing][..], &WHICH].concat(),
            vec![&*nothing, "the file is empty; it must contain a token"],
        ),
        (vec!["--as-controller", "-o", "csv"], vec!["--as-controller supports only -o text and -o json"]),
    ] {
        let output = audit(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        for part in parts {
            assert!(stderr(&output).contains(part), "{args:?}: {part:?} is not in {}", stderr(&output));
        }
    }
}

/// A token, and how to reach a cluster that is not there.
fn unreachable(folder: &Path) -> (PathBuf, PathBuf) {
    let token = folder.join("token");
    fs::write(&token, "t").unwrap();
    let kubeconfig = folder.join("kubeconfig");
    let config = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: \
                  a}}]\nclusters: [{name: a, cluster: {server: \"http://127.0.0.1:1\"}}]\nusers: [{name: a, user: \
                  {}}]\n";
    fs::write(&kubeconfig, config).unwrap();
    (token, kubeconfig)
}

#[test]
fn an_unreachable_azure_and_cluster_are_reported_with_remedies() {
    let folder = tempfile::tempdir().unwrap();
    let (token, kubeconfig) = unreachable(folder.path());
    let args = [
        "--azure-endpoint",
        "http://127.0.0.1:1",
        "--azure-token-file",
        text(&token),
        "--kubeconfig",
        text(&kubeconfig),
    ];
    let args = [&args[..], &WHICH].concat();
    let save = folder.path().join("saved");
    let live = audit(&[&args[..], &["-o", "json", "--save", text(&save)]].concat());
    assert_eq!(live.status.code(), Some(2), "{}", stderr(&live));
    let live: Value = serde_json::from_slice(&live.stdout).unwrap();
    let failed: Vec<String> = live["failed"].as_array().unwrap().iter().map(ToString::to_string).collect();
    assert!(failed.iter().any(|f| f.contains("node resource group") && f.contains("--azure-endpoint")), "{failed:?}");
    assert!(failed.iter().any(|f| f.contains("nodeclaims") && f.contains("kubeconfig")), "{failed:?}");
    let again = report(&save, &[]);
    assert_eq!(again, (live, Some(2)), "what failed then fails in a replay, in the same words");
    let controller = audit(&[&args[..], &["--as-controller"]].concat());
    assert_eq!(controller.status.code(), Some(2), "{}", stderr(&controller));
    assert!(stderr(&controller).contains("--azure-endpoint") && stdout(&controller).is_empty(), "{controller:?}");
}

/// A local Azure with one response to everything, and its number of requests.
fn answering(status: &'static str, code: &'static str, message: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    std::thread::spawn(move || {
        let body = json!({ "error": { "code": code, "message": message } }).to_string();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 65_536];
            if stream.read(&mut request).unwrap_or_default() == 0 {
                continue;
            }
            count.fetch_add(1, Ordering::SeqCst);
            let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
            drop(write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()));
        }
    });
    (url, requests)
}

#[test]
fn a_rejected_token_and_an_absent_group_are_reported_once_without_retries() {
    let folder = tempfile::tempdir().unwrap();
    let (token, kubeconfig) = unreachable(folder.path());
    let cluster = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c";
    for (status, code, message, parts) in [
        (
            "401 Unauthorized",
            "ExpiredAuthenticationToken",
            "The access token expired.",
            ["is rejected", "sign in again"],
        ),
        (
            "404 Not Found",
            "ResourceGroupNotFound",
            "Resource group 'MC_nope' could not be found.",
            ["resource group 'MC_nope' was not found", "--resource-group, or nodeResourceGroup in napkeeper.yaml"],
        ),
        (
            "404 Not Found",
            "SubscriptionNotFound",
            "The subscription 's' could not be found.",
            ["subscription 's' was not found", "--subscription, or identity.subscription in napkeeper.yaml"],
        ),
    ] {
        let (url, requests) = answering(status, code, message);
        let azure = ["--azure-endpoint", &url, "--azure-token-file", text(&token), "--kubeconfig", text(&kubeconfig)];
        let which = ["--subscription", "s", "--resource-group", "MC_nope", "--cluster-id", cluster];
        let live = audit(&[&azure[..], &which, &["-o", "json"]].concat());
        assert_eq!(live.status.code(), Some(2), "{}", stderr(&live));
        let live: Value = serde_json::from_slice(&live.stdout).unwrap();
        let blocks = live["failed"].as_array().unwrap();
        let of_azure: Vec<String> =
            blocks.iter().filter(|b| b["listing"] == "the node resource group").map(ToString::to_string).collect();
        assert_eq!(of_azure.len(), 1, "{blocks:?}");
        assert!(parts.iter().all(|part| of_azure[0].contains(part)), "{of_azure:?}");
        let controller = audit(&[&azure[..], &which, &["--as-controller"]].concat());
        assert_eq!(controller.status.code(), Some(2), "{}", stderr(&controller));
        assert!(parts.iter().all(|part| stderr(&controller).matches(part).count() == 1), "{}", stderr(&controller));
        assert!(stdout(&controller).is_empty());
        assert!(requests.load(Ordering::SeqCst) <= 4, "it was tried again");
    }
}

#[test]
fn what_an_incomplete_listing_means_for_every_resource_is_said_once() {
    let folder = copy();
    fs::remove_file(folder.path().join("volumeattachments.json")).unwrap();
    let table = stdout(&audit(&["--from", text(folder.path())]));
    for once in ["none until every listing is complete", "(partial_listing)"] {
        assert_eq!(table.matches(once).count(), 1, "{once}: {table}");
    }
    assert!(table.matches(" unknown ").count() > 20, "{table}");
}

#[test]
fn resources_that_a_filter_leaves_out_are_not_called_in_use() {
    let folder = cases().join("saved");
    let last_lines = |args: &[&str]| {
        let table = stdout(&audit(&[&["--from", text(&folder)], args].concat()));
        table.lines().filter(|line| line.contains("not shown")).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let in_use = |n: usize| format!("{n} resources in use not shown: use --all to include them");
    let filtered = |n: usize| format!("{n} resources not shown because of --kind or --status");
    assert_eq!(last_lines(&[]), [in_use(12)]);
    assert_eq!(last_lines(&["--kind", "vm"]), [in_use(3), filtered(22)]);
    assert_eq!(last_lines(&["--status", "orphan"]), [filtered(25)]);
    assert_eq!(last_lines(&["--all"]), [] as [&str; 0]);
}
