//! `controller`: the flags that it refuses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

/// Exit code and standard error of a controller that cannot run: its configuration does not exist.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    let config = ["--config", "/nonexistent/napkeeper.yaml"];
    command.arg("controller").args(config.iter().filter(|_| !args.contains(&"--config"))).args(args);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// The configuration of a cluster without join settings.
const NO_BOOTSTRAP: &str = "\
clusters:
- name: prod
  region: westeurope
  identity:
    subscription: 00000000-0000-4000-8000-000000000001
    clusterId: /subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/prod
    nodeResourceGroup: MC_g_prod_westeurope
  nodes:
    subnet: /subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/n/providers/Microsoft.Network/virtualNetworks/v/subnets/s
    image: /CommunityGalleries/g/images/i/versions/latest
    sshPublicKey: ssh-ed25519 AAAA
";

#[test]
fn a_provisioner_on_azure_requires_join_settings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("napkeeper.yaml");
    std::fs::write(&file, NO_BOOTSTRAP).unwrap();
    let file = file.to_str().unwrap();
    for more in [&[][..], &["--azure-cloud", "china"], &["--azure-endpoint", "https://management.chinacloudapi.cn"]] {
        let (code, text) = refused(&[&["--config", file, "--mode", "provisioner"], more].concat());
        assert_eq!(code, Some(2), "{text}");
        for part in ["nodes.bootstrap", "could not join the cluster", "--mode companion", "napkeeper azure-sim"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
    let (code, text) = refused(&["--mode", "companion", "--azure-cloud", "mars"]);
    assert!(code == Some(2) && text.contains("public, us-government, china"), "{text}");
}

#[test]
fn a_simulated_azure_and_a_companion_get_further() {
    for args in [&["--mode", "provisioner", "--azure-endpoint", "http://127.0.0.1:1"][..], &["--mode", "companion"]] {
        let (code, text) = refused(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("cannot read /nonexistent/napkeeper.yaml"), "{text}");
    }
}
