//! The commands of docs/upgrade.md and docs/uninstall.md work, one after the other, in one cluster.

use super::overlay;
use anyhow::{Context, Result, ensure};
use napkeeper_tests::control_plane::{ControlPlane, Mode, napkeeper_binary};
use napkeeper_tests::guide;
use napkeeper_tests::manifests::quickstart_file;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

const WITHIN: Duration = Duration::from_secs(400);

/// A folder with the overlay `napkeeper-system`, and `bin` with the program.
async fn folder() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let system = folder.path().join("napkeeper-system");
    std::fs::create_dir(&system)?;
    std::fs::write(system.join("rendered.yaml"), overlay("provisioner").await?)?;
    std::fs::write(system.join("kustomization.yaml"), "resources: [rendered.yaml]\n")?;
    std::fs::create_dir(folder.path().join("bin"))?;
    std::os::unix::fs::symlink(napkeeper_binary()?, folder.path().join("bin/napkeeper"))?;
    Ok(folder)
}

async fn run(plane: &ControlPlane, folder: &Path, command: &str) -> Result<()> {
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH")?);
    let mut shell = Command::new("bash");
    shell.args(["-e", "-o", "pipefail", "-c", command]).current_dir(folder).kill_on_drop(true);
    shell.env("PATH", path).env("KUBECONFIG", plane.admin_kubeconfig()).env("KUBECACHEDIR", folder.join("cache"));
    let output =
        tokio::time::timeout(WITHIN, shell.output()).await.with_context(|| format!("{command} does not end"))??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{command}: {}\n{}", text(&output.stdout), text(&output.stderr));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_both_pages_work() -> Result<()> {
    let (plane, folder) = (ControlPlane::start(Mode::Full).await?, folder().await?);
    plane.create_node("system-0", "8", "32Gi").await?;
    plane.create_node("system-1", "8", "32Gi").await?;
    // As docs/install.md installs it.
    run(&plane, folder.path(), "kubectl apply --server-side --kustomize napkeeper-system").await?;
    for (page, least) in [("docs/upgrade.md", 6), ("docs/uninstall.md", 6)] {
        let blocks = guide::page(page)?.blocks().concat();
        let commands: Vec<&str> = blocks.lines().collect();
        ensure!(commands.len() >= least, "{page}: {commands:?}");
        for command in commands {
            run(&plane, folder.path(), command).await.with_context(|| page.to_owned())?;
        }
        // What a cluster has between both.
        if page == "docs/upgrade.md" {
            plane.apply(&quickstart_file("aksnodeclass")?).await?;
            plane.apply(&quickstart_file("nodepool-gpu")?).await?;
        }
    }
    Ok(())
}
