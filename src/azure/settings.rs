//! Settings: where does the adapter work, and what goes into every VM?

use crate::bystanders::AksCluster;
use napkeeper_core::names::{ArmId, Region};
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
    /// The cluster whose Machines are looked at; none where it is no cluster of AKS.
    pub aks: Option<AksCluster>,
    /// What VMs are made with; none where none are made, beside managed NAP.
    pub machines: Option<Machines>,
    /// Where Azure Resource Manager is.
    pub endpoint: Arc<str>,
    /// Longest wait for one response.
    pub deadline: Duration,
}

/// What goes into every VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machines {
    /// The subnet of NICs.
    pub subnet: ArmId,
    /// The OS image: a resource id, or the id of a community gallery's image (`/CommunityGalleries/…`).
    pub image: Arc<str>,
    /// The administrator's public SSH key, as `authorized_keys` has it.
    pub ssh_public_key: Arc<str>,
    /// The administrator's name.
    pub admin_username: Arc<str>,
}

/// What is wrong with the settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The endpoint is not one that a token may be sent to.
    #[error("endpoint {0:?}: must be an https URL without a path, or http on a loopback address")]
    Endpoint(Arc<str>),
    /// The group is no resource group.
    #[error("group {0}: must be the id of a resource group")]
    Group(ArmId),
    /// The image is neither a resource nor of a community gallery.
    #[error("image {0:?}: must begin with /subscriptions/ or /CommunityGalleries/")]
    Image(Arc<str>),
    /// The ARM crates refuse to be set up.
    #[error("setting up the clients of Azure Resource Manager: {0}")]
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

/// True for an endpoint on this machine, where a fixed token does no harm.
#[must_use]
pub fn on_this_machine(endpoint: &str) -> bool {
    endpoint.parse::<azure_core::Url>().is_ok_and(|url| is_loopback(&url))
}

fn is_loopback(url: &azure_core::Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

impl Machines {
    pub(crate) fn image(&self) -> Result<Image<'_>, SettingsError> {
        let folded = self.image.to_ascii_lowercase();
        match () {
            () if folded.starts_with("/subscriptions/") => Ok(Image::Resource(&self.image)),
            () if folded.starts_with("/communitygalleries/") => Ok(Image::CommunityGallery(&self.image)),
            () => Err(SettingsError::Image(Arc::clone(&self.image))),
        }
    }
}
