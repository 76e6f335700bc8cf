//! `napkeeper audit --as-controller`: checks the controller's permissions, and what blocks it.

mod blockers;
mod permissions;
mod table;
#[cfg(test)]
mod tests;

use super::OutputFormat;
use crate::output::{Format, write_json};
use anyhow::{bail, ensure};
use blockers::Blocker;
use napkeeper_azure::Preflight;
use napkeeper_controller::azure_args::ModeArg;
use napkeeper_core::model::names::ArmId;
use permissions::{Permission, PermissionState};
use serde::Serialize;
use std::io::Write;

/// The permissions in Azure, compared with those that the controller's jobs need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreflightReport {
    group: String,
    permissions: Vec<Permission>,
    blockers: Vec<Blocker>,
    /// Actions to grant at the group.
    grant: Vec<String>,
    /// Actions to grant at the cluster.
    grant_at_cluster: Vec<String>,
}

impl PreflightReport {
    /// Compares them.
    ///
    /// # Errors
    /// If a role that ships is broken.
    pub(super) fn of(preflight: &Preflight, group: &ArmId, mode: ModeArg) -> anyhow::Result<Self> {
        let mut permissions = permissions::in_group(preflight, group, mode)?;
        let grant = permissions::missing(&permissions);
        let at_cluster = preflight.cluster.as_ref().map(|cluster| permissions::at_cluster(cluster, mode));
        let at_cluster = at_cluster.transpose()?.unwrap_or_default();
        let grant_at_cluster = permissions::missing(&at_cluster);
        permissions.extend(at_cluster);
        let blockers = blockers::blockers(preflight);
        Ok(Self { group: group.to_string(), permissions, blockers, grant, grant_at_cluster })
    }

    /// True when nothing is missing and nothing blocks.
    pub(super) fn is_clear(&self) -> bool {
        let present = |permission: &Permission| permission.state == PermissionState::Present;
        self.blockers.is_empty() && self.permissions.iter().all(present)
    }
}

const UNSUPPORTED: &str = "--as-controller supports only -o text and -o json";

impl Format<PreflightReport> for OutputFormat {
    fn write(self, report: &PreflightReport, out: &mut dyn Write) -> anyhow::Result<()> {
        match self {
            Self::Text => Ok(table::write(report, out)?),
            Self::Json => write_json(report, out),
            _ => bail!(UNSUPPORTED),
        }
    }
}

/// Refuses other formats before any request is sent.
pub(super) fn check_format(format: OutputFormat) -> anyhow::Result<()> {
    ensure!(matches!(format, OutputFormat::Text | OutputFormat::Json), UNSUPPORTED);
    Ok(())
}
