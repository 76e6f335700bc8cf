//! Where requests may change something.
//!
//! Resource ids come from listings, and from annotations and status fields that others can write. So the path of every
//! request is checked directly before it is sent, as it is sent.

use super::error::invalid;
use super::resource_id::ResourceType;
use crate::settings::AzureSettings;
use crate::transport::Method;
use azure_core::Url;
use napkeeper_core::model::errors::CloudError;

/// What is below these paths may be changed.
#[derive(Debug)]
pub(crate) struct WriteScope {
    /// The group's, in lower case as in URLs, with a slash at the end.
    group: String,
    /// The same of the cluster's agent pools.
    agent_pools: Option<String>,
}

impl WriteScope {
    /// VMs, NICs and disks of the node resource group, and Machines of the cluster's agent pools.
    pub(crate) fn new(settings: &AzureSettings, endpoint: &Url) -> Self {
        let group = format!("{}/providers/", settings.group);
        let pools = settings.aks.as_ref().map(|cluster| format!("{}/agentPools/", cluster.id));
        let as_sent = |path: &String| {
            let mut url = endpoint.clone();
            url.set_path(path);
            url.path().to_ascii_lowercase()
        };
        Self { group: as_sent(&group), agent_pools: pools.as_ref().map(as_sent) }
    }

    /// Checks a request before it is sent. GET changes nothing.
    ///
    /// # Errors
    /// `Invalid` for any other request outside of the scope, or for a path that Azure could read as another one.
    pub(crate) fn check(&self, method: &Method, url: &Url) -> Result<(), CloudError> {
        let path = url.path().to_ascii_lowercase();
        let in_group = || path.strip_prefix(self.group.as_str()).is_some_and(is_changed_in_group);
        let pools = || path.strip_prefix(self.agent_pools.as_deref()?);
        if *method == Method::GET || in_group() || pools().is_some_and(is_changed_in_pools) {
            return Ok(());
        }
        let path = url.path();
        Err(invalid(format!(
            "{method} {path}: not sent, because only VMs, NICs and disks of the configured node resource group and \
             Machines of the configured cluster are changed"
        )))
    }
}

/// True for a VM, NIC or disk, its tags, and a VM's extension.
fn is_changed_in_group(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').collect();
    let [provider, kind, name, rest @ ..] = &segments[..] else { return false };
    let Some(of) = ResourceType::of(provider, kind) else { return false };
    let is_part = match rest {
        [] | ["providers", "microsoft.resources", "tags", "default"] => true,
        ["extensions", extension] => of == ResourceType::Vm && is_name(extension),
        _ => false,
    };
    is_name(name) && is_part
}

/// True for a Machine, and for the action that deletes some.
fn is_changed_in_pools(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>()[..] {
        [pool, "machines", name] => is_name(pool) && is_name(name),
        [pool, "deletemachines"] => is_name(pool),
        _ => false,
    }
}

/// True for the letters that names of resources consist of, without escapes.
fn is_name(segment: &str) -> bool {
    !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AksCluster;
    use napkeeper_core::model::names::{ArmId, Region};
    use std::sync::Arc;

    const GROUP: &str = "/subscriptions/s/resourceGroups/MC_größe_(1)";
    const CLUSTER: &str = "/subscriptions/s/resourceGroups/r/providers/Microsoft.ContainerService/managedClusters/c";

    fn is_sent(method: &Method, path: &str) -> bool {
        let endpoint: Url = "https://management.azure.com".parse().unwrap();
        let settings = AzureSettings {
            group: ArmId::new(GROUP).unwrap(),
            region: Region::new("westeurope").unwrap(),
            aks: Some(AksCluster::present(ArmId::new(CLUSTER).unwrap())),
            vms: None,
            endpoint: Arc::from(endpoint.as_str()),
            deadline: AzureSettings::DEADLINE,
        };
        let mut url = endpoint.clone();
        url.set_path(path);
        WriteScope::new(&settings, &endpoint).check(method, &url).is_ok()
    }

    #[test]
    fn only_the_group_and_the_agent_pools_are_changed() {
        let compute = "providers/Microsoft.Compute";
        for path in [
            format!("{GROUP}/{compute}/disks/pvc-1"),
            format!("{}/{compute}/virtualMachines/aks-a.b_c", GROUP.to_ascii_uppercase()),
            format!("{GROUP}/{compute}/virtualMachines/v/extensions/computeAksLinuxBilling"),
            format!("{GROUP}/{compute}/disks/d/providers/Microsoft.Resources/tags/default"),
            format!("{CLUSTER}/agentPools/p/machines/m"),
            format!("{CLUSTER}/agentPools/p/deleteMachines"),
        ] {
            assert!(is_sent(&Method::DELETE, &path), "{path}");
        }
        for path in [
            GROUP.to_owned(),
            CLUSTER.to_owned(),
            format!("{GROUP}2/{compute}/disks/d"),
            format!("/subscriptions/s/resourceGroups/other/{compute}/disks/d"),
            format!("/subscriptions/other/resourceGroups/MC_größe_(1)/{compute}/disks/d"),
            format!("{GROUP}/../other/{compute}/disks/d"),
            format!("{GROUP}/providers/../../other/{compute}/disks/d"),
            format!("{GROUP}/{compute}/disks/%2e%2e/%2e%2e/%2e%2e/%2e%2e/other/{compute}/disks/d"),
            format!("{GROUP}/{compute}/disks/..%2f..%2fd"),
            format!("{GROUP}/{compute}/disks/d?force=true"),
            format!("{GROUP}/{compute}/disks/"),
            format!("{CLUSTER}2/agentPools/p/machines/m"),
            format!("{CLUSTER}/providers/Microsoft.Authorization/locks/l"),
            format!("{GROUP}/providers/Microsoft.Authorization/locks/l"),
            format!("{GROUP}/providers/Microsoft.Network/virtualNetworks/v"),
            format!("{GROUP}/{compute}/disks/d/extensions/e"),
            format!("{CLUSTER}/agentPools/system"),
            "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/disks/d".to_owned(),
        ] {
            for method in [Method::PUT, Method::PATCH, Method::POST, Method::DELETE] {
                assert!(!is_sent(&method, &path), "{method} {path}");
            }
            assert!(is_sent(&Method::GET, &path), "{path}");
        }
    }
}
