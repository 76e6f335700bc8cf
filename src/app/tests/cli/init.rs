//! `init`: what it writes builds and is valid, and it overwrites nothing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::output::{stderr, stdout};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SUBSCRIPTION: &str = "5f2c1d3e-8a4b-4c6d-9e0f-1a2b3c4d5e6f";
const CLIENT: &str = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
const OVERLAYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kustomize/overlays");
const FILES: [&str; 3] = ["napkeeper.yaml", "napkeeper-system/kustomization.yaml", "napkeeper-system/napkeeper.yaml"];

/// What `az aks show -o json` prints of a cluster with managed NAP, in part.
fn aks() -> Value {
    json!({
        "id": format!("/subscriptions/{SUBSCRIPTION}/resourcegroups/rg/providers/Microsoft.ContainerService/managedClusters/prod"),
        "name": "prod",
        "location": "westeurope",
        "resourceGroup": "rg",
        "nodeResourceGroup": "MC_rg_prod_westeurope",
        "kubernetesVersion": "1.33",
        "currentKubernetesVersion": "1.33.5",
        "agentPoolProfiles": [{ "name": "system", "mode": "System", "podSubnetId": null, "vnetSubnetId": null }],
        "networkProfile": {
            "networkPlugin": "azure", "networkPluginMode": "overlay", "networkDataplane": "cilium",
            "podCidr": "192.168.0.0/16", "dnsServiceIp": "10.0.0.10",
        },
        "nodeProvisioningProfile": { "defaultNodePools": "Auto", "mode": "Auto" },
        "oidcIssuerProfile": { "enabled": true, "issuerUrl": "https://westeurope.oic.prod-aks.azure.com/a/b/" },
        "securityProfile": { "workloadIdentity": { "enabled": true } },
        "windowsProfile": null,
    })
}

fn folder(aks: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("aks.json"), aks.to_string()).unwrap();
    folder
}

fn napkeeper(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_napkeeper")).args(args).current_dir(folder).output().unwrap()
}

fn init(folder: &Path, args: &[&str]) -> Output {
    napkeeper(folder, &[&["init", "--from", "aks.json"], args].concat())
}

/// What is wrong with it: nothing is printed or written.
fn refused(aks: &Value, args: &[&str]) -> String {
    let folder = folder(aks);
    let output = init(folder.path(), args);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""), "{}", stderr(&output));
    assert!(!folder.path().join("napkeeper.yaml").exists() && !folder.path().join("napkeeper-system").exists());
    stderr(&output)
}

/// The objects of an overlay.
fn build(folder: &Path) -> Vec<Value> {
    let output = Command::new("kubectl").args(["kustomize", "napkeeper-system"]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let read = napkeeper_api::yaml::read("overlay", &stdout(&output));
    assert!(read.problems.is_empty(), "{:?}", read.problems);
    read.documents.into_iter().map(|document| document.value).collect()
}

fn find<'o>(objects: &'o [Value], kind: &str, name: &str) -> &'o Value {
    let is = |o: &&Value| o["kind"] == kind && o["metadata"]["name"].as_str().is_some_and(|n| n.starts_with(name));
    objects.iter().find(is).unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn what_it_writes_builds_and_is_valid_in_every_mode() {
    for (mode, account) in
        [("companion", "napkeeper-controller"), ("provisioner", "napkeeper-controller"), ("audit", "napkeeper-audit")]
    {
        let mut aks = aks();
        if mode == "provisioner" {
            aks["nodeProvisioningProfile"]["mode"] = json!("Manual");
        }
        let folder = folder(&aks);
        let output = init(folder.path(), &["--mode", mode, "--client-id", CLIENT, "--overlays", OVERLAYS]);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{mode}");
        let objects = build(folder.path());
        let annotations = &find(&objects, "ServiceAccount", account)["metadata"]["annotations"];
        assert_eq!(annotations["azure.workload.identity/client-id"], CLIENT, "{mode}");
        let config = find(&objects, "ConfigMap", "napkeeper-config")["data"]["napkeeper.yaml"].as_str().unwrap();
        let own = fs::read_to_string(folder.path().join("napkeeper.yaml")).unwrap();
        assert!(config.ends_with(&own) && config.starts_with("# A copy of"), "{config}");
        if mode != "audit" {
            let policy = find(&objects, "NetworkPolicy", "napkeeper-webhook");
            let except = &policy["spec"]["ingress"][0]["from"][1]["ipBlock"]["except"];
            assert_eq!(*except, json!(["192.168.0.0/16"]), "{mode}: its pods are elsewhere than AKS's default");
        }
        let valid = napkeeper(folder.path(), &["validate", "napkeeper.yaml", "napkeeper-system"]);
        assert_eq!(valid.status.code(), Some(0), "{mode}: {}{}", stdout(&valid), stderr(&valid));
    }
}

#[test]
fn the_configuration_is_that_of_the_cluster() {
    let folder = folder(&aks());
    let output = init(folder.path(), &["--dry-run"]);
    let id = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/prod"
    );
    let config = format!(
        "clusters:
  - name: prod
    region: westeurope
    kubernetesVersion: \"1.33\"
    networkMode: overlay
    identity:
      subscription: {SUBSCRIPTION}
      clusterId: {id}
      nodeResourceGroup: MC_rg_prod_westeurope
"
    );
    let text = stdout(&output);
    assert!(text.contains(&format!("# ./napkeeper.yaml\n{config}")), "{text}");
    let base =
        format!("https://github.com/OWNER/napkeeper//kustomize/overlays/companion?ref=v{}", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&format!("resources:\n  - {base}\n")), "{text}");
    assert!(stderr(&output).contains("no --client-id"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "--dry-run writes nothing");
}

#[test]
fn stdin_and_flags_do_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_napkeeper"))
        .args(["init", "--from", "-", "--dry-run", "--cluster-name", "other", "--kubernetes-version", "1.34.1"])
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(aks().to_string().as_bytes()).unwrap();
    let text = stdout(&child.wait_with_output().unwrap());
    assert!(text.contains("managedClusters/other\n") && text.contains("kubernetesVersion: \"1.34.1\"\n"), "{text}");

    // A name that YAML would read as a number, in a cloud of its own.
    let flags = [
        "init",
        "--cluster-name",
        "123",
        "--region",
        "usgovvirginia",
        "--resource-group",
        "rg",
        "--node-resource-group",
        "MC_rg",
        "--subscription",
        SUBSCRIPTION,
        "--client-id",
        CLIENT,
        "--overlays",
        OVERLAYS,
        "--directory",
        "clusters",
    ];
    let missing = napkeeper(folder.path(), &flags);
    assert!(stderr(&missing).contains("--directory clusters: "), "{}", stderr(&missing));
    fs::create_dir(folder.path().join("clusters")).unwrap();
    let output = napkeeper(folder.path(), &flags);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let config = fs::read_to_string(folder.path().join("clusters/napkeeper.yaml")).unwrap();
    assert!(config.contains("- name: \"123\"\n") && config.contains("cloud: us-government\n"), "{config}");
    build(&folder.path().join("clusters"));
    let unknown = napkeeper(folder.path(), &["init", "--cluster-name", "a", "--region", "westeuropa"]);
    assert!(stderr(&unknown).contains("did you mean westeurope?"), "{}", stderr(&unknown));
    let utf16: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(folder.path().join("aks.json"), utf16).unwrap();
    let utf16 = napkeeper(folder.path(), &["init", "--from", "aks.json"]);
    assert!(
        stderr(&utf16).contains("aks.json is UTF-16, as PowerShell writes it: save it as UTF-8"),
        "{}",
        stderr(&utf16)
    );
    let without = napkeeper(folder.path(), &["init", "--cluster-name", "a", "--region", "westeurope"]);
    let error = stderr(&without);
    assert!(
        error.contains("missing: --resource-group, --node-resource-group, --subscription; or use --from"),
        "{error}"
    );
}

#[test]
fn files_that_exist_are_replaced_by_force_alone() {
    let folder = folder(&aks());
    fs::write(folder.path().join("napkeeper.yaml"), "mine").unwrap();
    let output = init(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("napkeeper.yaml: exists, and nothing was written"), "{}", stderr(&output));
    assert!(!folder.path().join("napkeeper-system").exists());
    assert_eq!(fs::read_to_string(folder.path().join("napkeeper.yaml")).unwrap(), "mine");
    assert_eq!(init(folder.path(), &["--force"]).status.code(), Some(0));
    for file in FILES {
        assert_ne!(fs::read_to_string(folder.path().join(file)).unwrap(), "mine", "{file}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_file_and_field() {
    let with = |pointer: &str, value: Value| {
        let mut aks = aks();
        *aks.pointer_mut(pointer).unwrap() = value;
        aks
    };
    for (aks, args, message) in [
        (
            with("/nodeResourceGroup", Value::Null),
            &[][..],
            "missing: aks.json: nodeResourceGroup; expected the output of az",
        ),
        (with("/name", json!(5)), &[], "aks.json: name: 5 is not text"),
        (with("/location", json!("a: b")), &[], "aks.json: location: \"a:b\" is not a region"),
        (with("/name", json!("a\nb: c")), &[], "aks.json: name: \"a\\nb: c\" is not a name"),
        (with("/id", json!("/subscriptions/x/y")), &[], "aks.json: id: \"x\" is not a GUID"),
        (
            with("/networkProfile/podCidr", json!("10.0.0.0/40")),
            &[],
            "aks.json: networkProfile.podCidr: \"10.0.0.0/40\"",
        ),
        (with("/currentKubernetesVersion", json!("new")), &[], "aks.json: currentKubernetesVersion: \"new\""),
        (aks(), &["--mode", "provisioner"], "aks.json: nodeProvisioningProfile.mode: Auto, so AKS provisions nodes"),
        (aks(), &["--client-id", "x"], "--client-id: \"x\" is not a GUID"),
        (aks(), &["--overlays", "/no/such"], "--overlays /no/such: it has no companion/kustomization.yaml"),
        (json!([aks()]), &[], "aks.json: not one cluster; expected the output of az aks show -o json"),
    ] {
        let error = refused(&aks, args);
        assert!(error.contains(message), "{message}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = stderr(&init(folder.path(), &[]));
    assert!(error.contains("aks.json: cannot be read"), "{error}");
}

#[test]
fn what_may_keep_it_from_working_is_a_warning() {
    let mut aks = aks();
    aks["networkProfile"]["networkPlugin"] = json!("kubenet");
    aks["nodeProvisioningProfile"]["mode"] = json!("Manual");
    aks["oidcIssuerProfile"] = Value::Null;
    aks["nodeResourceGroupProfile"] = json!({ "restrictionLevel": "ReadOnly" });
    let folder = folder(&aks);
    let output = init(folder.path(), &["--client-id", CLIENT]);
    assert_eq!(output.status.code(), Some(0));
    let warnings = stderr(&output);
    for part in [
        "aks.json: networkProfile.networkPlugin: \"kubenet\" has no networkMode",
        "aks.json: nodeProvisioningProfile.mode: not Auto",
        "aks.json: nodeResourceGroupProfile.restrictionLevel: ReadOnly",
        "az aks update -g rg -n prod --enable-oidc-issuer --enable-workload-identity",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    assert!(stdout(&output).contains("az identity federated-credential create -g 'rg' "), "{}", stdout(&output));
}
