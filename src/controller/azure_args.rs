//! Azure: where is it, and how does this process sign in there?

use crate::wall_clock::WallClock;
use anyhow::{Context, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use napkeeper_azure::{AksCluster, AzureCloud, AzureSettings, Credential, Token, is_loopback_endpoint};
use napkeeper_core::model::settings::{ClusterIdentity, ControllerMode};
use std::path::PathBuf;
use std::sync::Arc;

/// A fixed token is for tests, which are over by then.
const TOKEN_LASTS: SignedDuration = SignedDuration::from_hours(24 * 365);

/// Where Azure is, for clouds of one's own and for tests.
#[derive(Debug, Clone, clap::Args)]
pub struct AzureArgs {
    /// Azure cloud: public, us-government or china [default: that of napkeeper.yaml, else public].
    #[arg(long, value_name = "NAME", value_parser = cloud)]
    pub azure_cloud: Option<AzureCloud>,
    /// Azure Resource Manager endpoint, overrides that of the cloud.
    #[arg(long, value_name = "URL")]
    pub azure_endpoint: Option<String>,
    /// File with a fixed token. Only for an endpoint on this machine.
    #[arg(long, value_name = "FILE")]
    pub azure_token_file: Option<PathBuf>,
    /// File with an offset for the clock of this process; only for an endpoint on this machine.
    #[arg(long, value_name = "FILE")]
    pub time_offset_file: Option<PathBuf>,
}

impl AzureArgs {
    /// What is for tests alone needs an endpoint on this machine.
    ///
    /// # Errors
    /// When it has none.
    pub fn check(&self) -> anyhow::Result<()> {
        let only_here = self.azure_token_file.is_some() || self.time_offset_file.is_some();
        let found = match &self.azure_endpoint {
            Some(endpoint) => format!(", not {endpoint}"),
            None => String::new(),
        };
        ensure!(
            !only_here || self.is_here(),
            "--azure-token-file and --time-offset-file are for tests: they require an --azure-endpoint on this \
             machine{found}"
        );
        Ok(())
    }

    /// True where Azure is simulated on this machine.
    pub fn is_here(&self) -> bool {
        self.azure_endpoint.as_deref().is_some_and(is_loopback_endpoint)
    }

    /// The cloud of the command line, else that of the file, else the public one.
    pub fn cloud(&self, of_file: Option<AzureCloud>) -> AzureCloud {
        self.azure_cloud.or(of_file).unwrap_or_default()
    }

    /// Where Azure Resource Manager answers.
    pub fn endpoint(&self, cloud: AzureCloud) -> &str {
        self.azure_endpoint.as_deref().unwrap_or_else(|| cloud.endpoint())
    }

    /// The clock of this process.
    pub fn clock(&self) -> WallClock {
        WallClock::new(self.time_offset_file.clone())
    }

    /// How this process signs in: by the token of the file, else as its surroundings let it.
    ///
    /// # Errors
    /// When the file cannot be read or is empty, or no way to sign in can be made.
    pub fn credential(&self, cloud: AzureCloud) -> anyhow::Result<Credential> {
        let Some(file) = &self.azure_token_file else { return Ok(Credential::chain_in(cloud)?) };
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {} of --azure-token-file", file.display()))?;
        if text.trim().is_empty() {
            bail!("{}: the file is empty; it must contain a token", file.display());
        }
        fixed(text.trim(), Timestamp::now())
    }
}

/// A cloud by its name.
fn cloud(name: &str) -> Result<AzureCloud, String> {
    AzureCloud::named(name).ok_or_else(|| {
        let names: Vec<&str> = AzureCloud::ALL.iter().map(|cloud| cloud.name()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

/// A token that is never renewed.
///
/// # Errors
/// When time is over before the token is.
pub fn fixed(token: &str, now: Timestamp) -> anyhow::Result<Credential> {
    Ok(Credential::Static(Token::new(token, now.saturating_add(TOKEN_LASTS)?)))
}

/// How the adapter looks at a cluster's resources; without what VMs are made with.
pub fn settings(cluster: &ClusterIdentity, endpoint: &str) -> AzureSettings {
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
