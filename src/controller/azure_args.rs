//! Command line arguments for Azure: its endpoint, and the credential of this process.

use crate::wall_clock::WallClock;
use anyhow::{Context, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use napkeeper_azure::{
    AksCluster, AzureCloud, AzureSettings, Credential, CredentialSource, Token, is_loopback_endpoint,
};
use napkeeper_core::model::settings::{ClusterIdentity, ControllerMode};
use std::path::PathBuf;
use std::sync::Arc;

/// Lifetime of a static token: longer than any test runs.
const STATIC_TOKEN_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);

/// Azure cloud and endpoint; the endpoint also for private clouds and tests.
#[derive(Debug, Clone, clap::Args)]
pub struct AzureArgs {
    /// Azure cloud: public, us-government or china [default: that of napkeeper.yaml, else public].
    #[arg(long, value_name = "NAME", value_parser = cloud)]
    pub azure_cloud: Option<AzureCloud>,
    /// Azure Resource Manager endpoint, overrides that of the cloud.
    #[arg(long, value_name = "URL")]
    pub azure_endpoint: Option<String>,
    /// The only source of tokens: workload-identity, managed-identity or azure-cli [default: the first that has one].
    #[arg(long, value_name = "NAME", value_parser = credential_source, conflicts_with = "azure_token_file")]
    pub azure_credential: Option<CredentialSource>,
    /// File with a fixed token. Only for an endpoint on this machine.
    #[arg(long, value_name = "FILE")]
    pub azure_token_file: Option<PathBuf>,
    /// File with an offset for the clock of this process; only for an endpoint on this machine.
    #[arg(long, value_name = "FILE")]
    pub time_offset_file: Option<PathBuf>,
}

impl AzureArgs {
    /// Checks that arguments for tests are used only with an endpoint on this machine.
    ///
    /// # Errors
    /// When they are used with another.
    pub fn check(&self) -> anyhow::Result<()> {
        let only_local = self.azure_token_file.is_some() || self.time_offset_file.is_some();
        let found = match &self.azure_endpoint {
            Some(endpoint) => format!(", not {endpoint}"),
            None => String::new(),
        };
        ensure!(
            !only_local || self.is_local(),
            "--azure-token-file and --time-offset-file are for tests: they require an --azure-endpoint on this \
             machine{found}"
        );
        Ok(())
    }

    /// True if the endpoint is on this machine, so a simulated Azure.
    pub fn is_local(&self) -> bool {
        self.azure_endpoint.as_deref().is_some_and(is_loopback_endpoint)
    }

    /// The cloud of the command line, else that of the file, else the public one.
    pub fn cloud(&self, from_file: Option<AzureCloud>) -> AzureCloud {
        self.azure_cloud.or(from_file).unwrap_or_default()
    }

    /// The URL of Azure Resource Manager.
    pub fn endpoint(&self, cloud: AzureCloud) -> &str {
        self.azure_endpoint.as_deref().unwrap_or_else(|| cloud.endpoint())
    }

    /// The clock of this process.
    pub fn clock(&self) -> WallClock {
        WallClock::new(self.time_offset_file.clone())
    }

    /// The credential of this process: the token of the file, else what the environment provides.
    ///
    /// # Errors
    /// When the file cannot be read or is empty, or no credential can be created.
    pub fn credential(&self, cloud: AzureCloud) -> anyhow::Result<Credential> {
        let Some(file) = &self.azure_token_file else {
            return Ok(Credential::from_environment(cloud, self.azure_credential)?);
        };
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {} of --azure-token-file", file.display()))?;
        if text.trim().is_empty() {
            bail!("{}: the file is empty; it must contain a token", file.display());
        }
        static_credential(text.trim(), Timestamp::now())
    }
}

/// A cloud by its name.
fn cloud(name: &str) -> Result<AzureCloud, String> {
    AzureCloud::named(name).ok_or_else(|| must_be_one_of(AzureCloud::ALL.map(AzureCloud::name)))
}

/// A source of tokens by its name.
fn credential_source(name: &str) -> Result<CredentialSource, String> {
    let found = CredentialSource::ALL.into_iter().find(|source| source.name() == name);
    found.ok_or_else(|| must_be_one_of(CredentialSource::ALL.map(CredentialSource::name)))
}

fn must_be_one_of(names: [&str; 3]) -> String {
    format!("must be one of {}", names.join(", "))
}

/// A credential with a token that is never renewed.
///
/// # Errors
/// When the token's expiry is beyond the end of the calendar.
pub fn static_credential(token: &str, now: Timestamp) -> anyhow::Result<Credential> {
    Ok(Credential::Static(Token::new(token, now.saturating_add(STATIC_TOKEN_LIFETIME)?)))
}

/// Settings of the Azure adapter for a cluster, without those for creating VMs.
pub fn azure_settings(cluster: &ClusterIdentity, endpoint: &str) -> AzureSettings {
    AzureSettings {
        group: cluster.node_resource_group.clone(),
        region: cluster.region.clone(),
        aks: AksCluster::of(&cluster.id),
        vms: None,
        endpoint: Arc::from(endpoint),
        deadline: AzureSettings::DEADLINE,
    }
}

/// Beside managed NAP, or instead of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeArg {
    /// Beside managed NAP: launches nothing, only reports orphaned VMs, can delete orphaned NICs and disks.
    Companion,
    /// Instead of managed NAP: does all that Karpenter does, and can delete orphaned VMs.
    Provisioner,
}

impl From<ModeArg> for ControllerMode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Companion => Self::Companion,
            ModeArg::Provisioner => Self::Provisioner,
        }
    }
}
