//! How `napkeeper certificates` ends when it cannot do its work.

use anyhow::{Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, Mode, Process};
use napkeeper_tests::environment::{NAMESPACE, install_without_accounts};
use napkeeper_tests::webhook;
use std::time::Duration;

const STEP: Duration = Duration::from_secs(90);

/// It has neither a probe nor a metric, so that only its end shows that it cannot go on. The time of a check follows the
/// lifetime of certificates.
#[tokio::test]
async fn without_its_rights_it_says_why_and_ends_with_an_error() -> Result<()> {
    let plane = ControlPlane::start(Mode::Api).await?;
    install_without_accounts(&plane, "provisioner").await?;
    let kubeconfig = plane.service_account_kubeconfig(NAMESPACE, "napkeeper-webhook").await?;
    let program = webhook::certificates(&kubeconfig)?.args(["--authority-life=3", "--certificate-life=1"]);
    let process = Process::spawn("certificates", &program)?;
    let exit = process.exited(STEP).await?;
    let lines = process.lines().join("\n");
    ensure!(exit.code() == Some(2), "it ended with {exit}: {lines}");
    for part in ["30 checks in a row have failed", "napkeeper-webhook-ca", "forbidden"] {
        ensure!(lines.contains(part), "{part} is not in its log: {lines}");
    }
    Ok(())
}
