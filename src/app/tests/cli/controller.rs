//! The built program: when does `controller` refuse to start?

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

/// Exit code and standard error of a controller that cannot run: its configuration does not exist.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_napkeeper"));
    command.args(["controller", "--config", "/nonexistent/napkeeper.yaml"]).args(args);
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_provisioner_buys_nothing_on_azure_itself() {
    for endpoint in [&[][..], &["--azure-endpoint", "https://management.chinacloudapi.cn"]] {
        let (code, text) = refused(&[&["--mode", "provisioner"], endpoint].concat());
        assert_eq!(code, Some(2), "{text}");
        for part in ["could not join the cluster", "--mode companion", "napkeeper azure-sim"] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
}

#[test]
fn a_simulated_azure_and_a_companion_get_further() {
    for args in [&["--mode", "provisioner", "--azure-endpoint", "http://127.0.0.1:1"][..], &["--mode", "companion"]] {
        let (code, text) = refused(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("reading /nonexistent/napkeeper.yaml"), "{text}");
    }
}
