//! What `init` knows of a cluster: from flags, and from the output of `az aks show -o json`.

use super::{Args, Mode};
use anyhow::{Context, anyhow, bail, ensure};
use napkeeper_api::config::cloud_of_region;
use napkeeper_api::manifests::{STDIN, text_of};
use napkeeper_core::catalog::Catalog;
use serde_json::Value;
use std::fs;
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::Path;

/// A cluster. Every text has been checked, so that none changes the structure of a file.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) region: String,
    pub(super) resource_group: String,
    pub(super) node_resource_group: String,
    pub(super) subscription: String,
    /// Version and patch of `--kubernetes-version`, the minor version alone of a file: AKS updates patches by itself.
    pub(super) kubernetes_version: Option<String>,
    pub(super) network_mode: Option<&'static str>,
    /// The network of pods in an overlay.
    pub(super) pod_cidr: Option<String>,
    /// What may keep napkeeper from working.
    pub(super) warnings: Vec<String>,
}

/// The output of `az aks show`.
struct AksFile {
    name: String,
    value: Value,
}

impl AksFile {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let (name, bytes) = if path.as_os_str() == STDIN {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).context("stdin: cannot be read")?;
            ("stdin".to_owned(), bytes)
        } else {
            let name = path.display().to_string();
            let bytes = fs::read(path).with_context(|| format!("{name}: cannot be read"))?;
            (name, bytes)
        };
        let text = text_of(bytes).map_err(|message| anyhow!("{name} {message}"))?;
        let value: Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
            .with_context(|| format!("{name}: not JSON; expected az aks show -o json"))?;
        ensure!(value.is_object(), "{name}: not one cluster; expected the output of az aks show -o json");
        Ok(Self { name, value })
    }

    /// The text at a pointer, such as `/networkProfile/podCidr`. Null is absent.
    fn text(&self, pointer: &str) -> anyhow::Result<Option<&str>> {
        match self.value.pointer(pointer) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => bail!("{}: {other} is not text", self.origin(pointer)),
        }
    }

    /// File and field of a pointer, for messages.
    fn origin(&self, pointer: &str) -> String {
        format!("{}: {}", self.name, pointer.trim_start_matches('/').replace('/', "."))
    }

    /// A checked text.
    fn checked(&self, pointer: &str, check: Check) -> anyhow::Result<Option<String>> {
        self.text(pointer)?.map(|text| check(&self.origin(pointer), text)).transpose()
    }

    fn is_true(&self, pointer: &str) -> bool {
        self.value.pointer(pointer) == Some(&Value::Bool(true))
    }

    /// Whether a pool has a subnet of its own for pods: az and Azure spell the last letter differently.
    fn has_pod_subnets(&self) -> bool {
        let mut pools = self.value["agentPoolProfiles"].as_array().into_iter().flatten();
        pools.any(|pool| pool["podSubnetId"].is_string() || pool["podSubnetID"].is_string())
    }
}

/// Checks a text, which comes from a flag or field; the text as it is written.
type Check = fn(&str, &str) -> anyhow::Result<String>;

impl Cluster {
    /// The cluster of the command line.
    ///
    /// # Errors
    /// What is missing, all of it, or what is wrong first, with its flag or its file and field.
    pub(super) fn of(args: &Args) -> anyhow::Result<Self> {
        let file = args.from.as_deref().map(AksFile::read).transpose()?;
        let mut missing = Vec::new();
        let mut required = |flag: &'static str, given: &Option<String>, pointer: &'static str, check: Check| {
            let found = match (given, &file) {
                (Some(text), _) => Some(check(flag, text)?),
                (None, Some(file)) => file.checked(pointer, check)?,
                (None, None) => None,
            };
            if found.is_none() {
                missing.push(file.as_ref().map_or_else(|| flag.to_owned(), |file| file.origin(pointer)));
            }
            anyhow::Ok(found.unwrap_or_default())
        };
        let mut cluster = Self {
            name: required("--cluster-name", &args.cluster_name, "/name", name)?,
            region: required("--region", &args.region, "/location", region)?,
            resource_group: required("--resource-group", &args.resource_group, "/resourceGroup", name)?,
            node_resource_group: required(
                "--node-resource-group",
                &args.node_resource_group,
                "/nodeResourceGroup",
                name,
            )?,
            subscription: required("--subscription", &args.subscription, "/id", subscription)?,
            ..Self::default()
        };
        if !missing.is_empty() {
            let hint = if file.is_some() { "expected the output of az aks show -o json" } else { "or use --from" };
            bail!("missing: {}; {hint}", missing.join(", "));
        }
        cluster.kubernetes_version =
            args.kubernetes_version.as_deref().map(|text| version("--kubernetes-version", text)).transpose()?;
        if let Some(file) = &file {
            cluster.read_profiles(file, args.mode)?;
        }
        Ok(cluster)
    }

    /// Reads what only a file says.
    fn read_profiles(&mut self, file: &AksFile, mode: Mode) -> anyhow::Result<()> {
        if self.kubernetes_version.is_none() {
            let found = file.checked("/currentKubernetesVersion", version)?;
            let found = if found.is_some() { found } else { file.checked("/kubernetesVersion", version)? };
            self.kubernetes_version = found.map(|text| text.splitn(3, '.').take(2).collect::<Vec<_>>().join("."));
        }
        let pods = "/networkProfile/podCidr";
        if file.text(pods)?.is_some_and(|text| text.contains(':')) {
            let origin = file.origin(pods);
            self.warnings.push(format!("{origin}: of IPv6: complete the NetworkPolicy napkeeper-webhook by hand"));
        } else {
            self.pod_cidr = file.checked(pods, cidr)?;
        }
        self.network_mode = self.read_network_mode(file)?;
        let provisions = file.text("/nodeProvisioningProfile/mode")? == Some("Auto");
        if mode == Mode::Provisioner && provisions {
            bail!(
                "{}: Auto, so AKS provisions nodes itself, and a provisioner must not run beside it; use --mode companion",
                file.origin("/nodeProvisioningProfile/mode")
            );
        }
        if mode == Mode::Companion && !provisions {
            let origin = file.origin("/nodeProvisioningProfile/mode");
            self.warnings.push(format!("{origin}: not Auto; --mode companion is for clusters with managed NAP"));
        }
        if mode != Mode::Audit && file.text("/nodeResourceGroupProfile/restrictionLevel")? == Some("ReadOnly") {
            let origin = file.origin("/nodeResourceGroupProfile/restrictionLevel");
            self.warnings
                .push(format!("{origin}: ReadOnly, so AKS denies every change that napkeeper would make there"));
        }
        if !file.is_true("/oidcIssuerProfile/enabled") || !file.is_true("/securityProfile/workloadIdentity/enabled") {
            let Self { resource_group, name, .. } = self;
            self.warnings.push(format!(
                "workload identity is not enabled, without which napkeeper cannot sign in to Azure: \
                 az aks update -g {resource_group} -n {name} --enable-oidc-issuer --enable-workload-identity"
            ));
        }
        Ok(())
    }

    fn read_network_mode(&mut self, file: &AksFile) -> anyhow::Result<Option<&'static str>> {
        let plugin = file.text("/networkProfile/networkPlugin")?.unwrap_or_default();
        let is_overlay = file.text("/networkProfile/networkPluginMode")? == Some("overlay");
        Ok(match plugin {
            "azure" if is_overlay => Some("overlay"),
            "azure" if file.has_pod_subnets() => Some("pod-subnet"),
            "azure" => Some("node-subnet"),
            "none" => Some("none"),
            "" => None,
            other => {
                let origin = file.origin("/networkProfile/networkPlugin");
                self.warnings.push(format!("{origin}: {other:?} has no networkMode; napkeeper.yaml is without it"));
                None
            }
        })
    }

    /// The cluster's resource id.
    pub(super) fn id(&self) -> String {
        let Self { subscription, resource_group, name, .. } = self;
        format!(
            "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/\
             Microsoft.ContainerService/managedClusters/{name}"
        )
    }
}

/// The text if all its characters are allowed and there are as many as allowed.
fn of(origin: &str, text: &str, most: usize, allowed: fn(char) -> bool, what: &str) -> anyhow::Result<String> {
    let is_good = !text.is_empty() && text.len() <= most && text.chars().all(allowed);
    ensure!(is_good, "{origin}: {text:?} is not {what}");
    Ok(text.to_owned())
}

/// Of a cluster or resource group, which may have letters of any alphabet.
fn name(origin: &str, text: &str) -> anyhow::Result<String> {
    of(origin, text, 360, |c| c.is_alphanumeric() || "-_.()".contains(c), "a name in Azure")
}

/// As Azure's API spells it: `West Europe` is westeurope.
fn region(origin: &str, text: &str) -> anyhow::Result<String> {
    let text = text.replace(' ', "").to_ascii_lowercase();
    let region =
        of(origin, &text, 40, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "a region such as westeurope")?;
    if cloud_of_region(&region).is_none() {
        Catalog::embedded()?.find_region(&region).with_context(|| origin.to_owned())?;
    }
    Ok(region)
}

/// A GUID, such as a client id.
pub(super) fn guid<'t>(origin: &str, text: &'t str) -> anyhow::Result<&'t str> {
    let groups: Vec<_> = text.split('-').collect();
    let lengths: Vec<_> = groups.iter().map(|group| group.len()).collect();
    let is_hex = groups.iter().all(|group| group.chars().all(|c| c.is_ascii_hexdigit()));
    ensure!(lengths == [8, 4, 4, 4, 12] && is_hex, "{origin}: {text:?} is not a GUID");
    Ok(text)
}

/// The subscription, or that of a resource id.
fn subscription(origin: &str, text: &str) -> anyhow::Result<String> {
    let id = if text.starts_with('/') { text.split('/').nth(2).unwrap_or_default() } else { text };
    guid(origin, id).map(str::to_owned)
}

fn version(origin: &str, text: &str) -> anyhow::Result<String> {
    let parts: Vec<_> = text.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    let is_good = (2..=3).contains(&parts.len()) && parts.iter().all(is_number);
    ensure!(is_good, "{origin}: {text:?} is not a version such as 1.33");
    Ok(text.to_owned())
}

fn cidr(origin: &str, text: &str) -> anyhow::Result<String> {
    let parts =
        text.split_once('/').and_then(|(ip, bits)| Some((ip.parse::<Ipv4Addr>().ok()?, bits.parse::<u8>().ok()?)));
    ensure!(parts.is_some_and(|(_, bits)| bits <= 32), "{origin}: {text:?} is not a network such as 10.244.0.0/16");
    Ok(text.to_owned())
}
