//! Backs up the data of etcd, and restores it.

use super::ControlPlane;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the data of etcd.
#[derive(Debug)]
pub struct Backup(PathBuf);

impl ControlPlane {
    /// Copies the data of etcd. The control plane is away for some seconds.
    ///
    /// # Errors
    /// When a program does not start again, or the data cannot be copied.
    pub async fn back_up(&mut self) -> Result<Backup> {
        self.stop();
        let backup = self.folder().join("etcd-backup");
        copy(&self.layout.etcd_data(), &backup)?;
        self.start_again().await?;
        Ok(Backup(backup))
    }

    /// Sets the data of etcd back, as whoever restores a cluster does: all that has happened since is lost, and
    /// resourceVersions are used again.
    ///
    /// # Errors
    /// As there.
    pub async fn restore(&mut self, backup: &Backup) -> Result<()> {
        self.stop();
        let data = self.layout.etcd_data();
        std::fs::remove_dir_all(&data).with_context(|| format!("removing {}", data.display()))?;
        copy(&backup.0, &data)?;
        self.start_again().await
    }

    fn stop(&mut self) {
        self.others.clear();
        self.apiserver = None;
        self.etcd = None;
    }

    async fn start_again(&mut self) -> Result<()> {
        self.start_etcd()?;
        self.start_apiserver().await?;
        self.start_clients().await
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-r").arg(from).arg(to).status().context("running cp")?;
    ensure!(status.success(), "cp -r {} {}: {status}", from.display(), to.display());
    Ok(())
}
