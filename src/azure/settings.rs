//! Settings: the cloud, resource group and cluster that the adapter works on, and the settings of every VM.

use napkeeper_core::model::names::{ArmId, Region};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Where the adapter works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AzureSettings {
    /// The node resource group.
    pub group: ArmId,
    /// Its region.
    pub region: Region,
    /// The cluster whose Machines are listed; none if it is not an AKS cluster.
    pub aks: Option<AksCluster>,
    /// The settings of VMs; none in companion mode, which launches none.
    pub vms: Option<VmSettings>,
    /// Where Azure Resource Manager is.
    pub endpoint: Arc<str>,
    /// Longest wait for one response.
    pub deadline: Duration,
}

/// A separate Azure, with its own authority for tokens and Resource Manager (Microsoft's documentation of national
/// clouds).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AzureCloud {
    /// Azure itself.
    #[default]
    Public,
    /// Azure US Government.
    UsGovernment,
    /// Azure operated by 21Vianet in China.
    China,
}

impl AzureCloud {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Public, Self::UsGovernment, Self::China];

    /// Its name, as `--azure-cloud` and `cloud` in napkeeper.yaml have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::UsGovernment => "us-government",
            Self::China => "china",
        }
    }

    /// The cloud of a name: napkeeper's, or that of the Azure CLI.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let others = match name.to_ascii_lowercase().as_str() {
            "azurecloud" | "azurepubliccloud" => Some(Self::Public),
            "azureusgovernment" | "azureusgovernmentcloud" => Some(Self::UsGovernment),
            "azurechinacloud" => Some(Self::China),
            _ => None,
        };
        others.or_else(|| Self::ALL.into_iter().find(|cloud| cloud.name().eq_ignore_ascii_case(name)))
    }

    /// Where its Resource Manager is.
    #[must_use]
    pub fn endpoint(self) -> &'static str {
        match self {
            Self::Public => "https://management.azure.com",
            Self::UsGovernment => "https://management.usgovcloudapi.net",
            Self::China => "https://management.chinacloudapi.cn",
        }
    }

    /// Who issues its tokens.
    #[must_use]
    pub fn authority(self) -> &'static str {
        match self {
            Self::Public => "https://login.microsoftonline.com",
            Self::UsGovernment => "https://login.microsoftonline.us",
            Self::China => "https://login.chinacloudapi.cn",
        }
    }
}

/// A managed cluster with agent pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AksCluster {
    /// Its id.
    pub id: ArmId,
    /// It may be absent: then it has no Machines, which `ResourceNotFound` proves. Otherwise an absent
    /// cluster is a wrong setting, and no listing is complete.
    pub may_be_absent: bool,
}

impl AksCluster {
    /// A cluster that must be there.
    #[must_use]
    pub fn present(id: ArmId) -> Self {
        Self { id, may_be_absent: false }
    }

    /// The cluster of this id, where it is the id of a managed cluster of AKS.
    #[must_use]
    pub fn of(id: &ArmId) -> Option<Self> {
        let words: Vec<&str> = id.folded().split('/').collect();
        let is_aks = words.len() == 9 && words[6..8] == ["microsoft.containerservice", "managedclusters"];
        is_aks.then(|| Self::present(id.clone()))
    }
}

/// The settings of every VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmSettings {
    /// The subnet of NICs.
    pub subnet: ArmId,
    /// The OS image: a resource id, or the id of a community gallery's image (`/CommunityGalleries/…`).
    pub image: Arc<str>,
    /// The administrator's public SSH key, as `authorized_keys` has it.
    pub ssh_public_key: Arc<str>,
    /// The administrator's name.
    pub admin_username: Arc<str>,
    /// The disk encryption set of OS disks; `None` is Azure's own keys.
    pub disk_encryption_set: Option<ArmId>,
}

/// An error in the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The endpoint is not one that a token may be sent to.
    #[error("endpoint {0:?}: must be an https URL without a path, or http on a loopback address")]
    Endpoint(Arc<str>),
    /// The group is no resource group.
    #[error("resource group {0:?}: must be the id of a resource group")]
    Group(ArmId),
    /// The image is neither a resource nor of a community gallery.
    #[error("image {0:?}: must begin with /subscriptions/ or /CommunityGalleries/")]
    Image(Arc<str>),
    /// The ARM crates refuse to be set up.
    #[error("cannot set up the Azure Resource Manager clients: {0}")]
    Clients(Arc<str>),
}

/// How an image is named.
pub(crate) enum Image<'a> {
    Resource(&'a str),
    CommunityGallery(&'a str),
}

impl AzureSettings {
    /// Azure's public cloud.
    pub const ENDPOINT: &'static str = "https://management.azure.com";

    /// The scope of tokens: the cloud's Resource Manager, or the endpoint itself if that is different (Azure Stack, for
    /// example). A private endpoint of a known cloud takes that cloud's tokens.
    pub(crate) fn audience(&self, endpoint: &azure_core::Url) -> String {
        let host = endpoint.host_str().unwrap_or_default();
        let own = |cloud: &AzureCloud| {
            let known = cloud.endpoint().trim_start_matches("https://");
            host.eq_ignore_ascii_case(known) || host.to_ascii_lowercase().ends_with(&format!(".{known}"))
        };
        match AzureCloud::ALL.iter().find(|cloud| own(cloud)) {
            Some(cloud) => format!("{}/.default", cloud.endpoint()),
            None => format!("{}/.default", endpoint.origin().ascii_serialization()),
        }
    }

    /// A wait that covers the slowest answers of Azure's front ends.
    pub const DEADLINE: Duration = Duration::from_secs(60);

    /// The endpoint as a URL.
    pub(crate) fn endpoint(&self) -> Result<azure_core::Url, SettingsError> {
        let wrong = || SettingsError::Endpoint(Arc::clone(&self.endpoint));
        let url: azure_core::Url = self.endpoint.parse().map_err(|_| wrong())?;
        let safe = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
        let bare = url.path() == "/" && url.query().is_none() && url.username().is_empty() && url.password().is_none();
        if safe && bare { Ok(url) } else { Err(wrong()) }
    }
}

/// True for an endpoint on this machine, to which a fixed token may be sent.
#[must_use]
pub fn is_loopback_endpoint(endpoint: &str) -> bool {
    endpoint.parse::<azure_core::Url>().is_ok_and(|url| is_loopback(&url))
}

fn is_loopback(url: &azure_core::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

impl VmSettings {
    pub(crate) fn image(&self) -> Result<Image<'_>, SettingsError> {
        let folded = self.image.to_ascii_lowercase();
        match () {
            () if folded.starts_with("/subscriptions/") => Ok(Image::Resource(&self.image)),
            () if folded.starts_with("/communitygalleries/") => Ok(Image::CommunityGallery(&self.image)),
            () => Err(SettingsError::Image(Arc::clone(&self.image))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audience(endpoint: &str) -> String {
        let settings = AzureSettings {
            group: ArmId::new("/subscriptions/s/resourceGroups/g").unwrap(),
            region: Region::new("westeurope").unwrap(),
            aks: None,
            vms: None,
            endpoint: Arc::from(endpoint),
            deadline: AzureSettings::DEADLINE,
        };
        settings.audience(&settings.endpoint().unwrap())
    }

    #[test]
    fn tokens_are_for_the_cloud_of_the_endpoint() {
        for cloud in AzureCloud::ALL {
            assert_eq!(audience(cloud.endpoint()), format!("{}/.default", cloud.endpoint()));
            assert_eq!(AzureCloud::named(cloud.name()), Some(cloud));
            assert!(cloud.authority().starts_with("https://login."));
        }
        assert_eq!(audience("https://westeurope.management.azure.com"), "https://management.azure.com/.default");
        assert_eq!(
            audience("https://management.azure.com.evil.example"),
            "https://management.azure.com.evil.example/.default"
        );
        assert_eq!(audience("https://management.stamp.example"), "https://management.stamp.example/.default");
        assert_eq!(AzureCloud::named("AzureUSGovernment"), Some(AzureCloud::UsGovernment));
        assert_eq!(AzureCloud::named("AzureChinaCloud"), Some(AzureCloud::China));
        assert_eq!(AzureCloud::named("mars"), None);
    }
}
