//! Reads `napkeeper.yaml`: which cluster is managed, and with which settings.

mod node_health;

use anyhow::{Context, bail, ensure};
use jiff::SignedDuration;
use napkeeper_api::bootstrap::Join;
use napkeeper_api::config::{self, Cluster, Config, Disruption, NetworkMode, Nodes, Provisioning};
use napkeeper_api::types::duration;
use napkeeper_api::yaml;
use napkeeper_azure::{AzureCloud, VmSettings};
use napkeeper_core::catalog::InstanceTypeOptions;
use napkeeper_core::catalog::live::PriceSheet;
use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::cluster::node_base::NodeBase;
use napkeeper_core::model::names::{ArmId, Region};
use napkeeper_core::model::settings::{ClusterIdentity, ControllerMode, MinValuesPolicy, Settings};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

/// More threads than this do not speed up consolidation: it rarely has to examine so many nodes.
const MAX_CONSOLIDATION_THREADS: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// Default name of the nodes' administrator; the same as that of AKS.
const DEFAULT_ADMIN_USERNAME: &str = "azureuser";

/// A cluster of the file, as the controller needs it.
#[derive(Debug)]
pub struct ClusterConfig {
    /// The settings of the deciders.
    pub settings: Settings,
    /// How instance types of the cluster are computed.
    pub options: InstanceTypeOptions,
    /// The settings of VMs, if the file has them.
    pub nodes: Option<Nodes>,
    /// The customer's own prices.
    pub sheet: PriceSheet,
    /// The Azure cloud, if the file names it.
    pub cloud: Option<AzureCloud>,
}

/// Reads `napkeeper.yaml`, and the settings of the cluster of this name, or of the only one.
///
/// # Errors
/// When the file cannot be read, has no such cluster, or is invalid.
pub fn read_cluster(file: &Path, name: Option<&str>, mode: ControllerMode) -> anyhow::Result<ClusterConfig> {
    let shown = file.display().to_string();
    let config = read(file)?;
    let cluster = select_cluster(&shown, &config, name)?;
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    let sheet = crate::price_sheet::of_cluster(folder, cluster)?;
    convert(cluster, mode, sheet).with_context(|| format!("{shown}: cluster {:?}", cluster.name))
}

/// Reads `napkeeper.yaml`.
///
/// # Errors
/// When the file cannot be read, or its content is not valid.
pub fn read(file: &Path) -> anyhow::Result<Config> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let documents = yaml::read(&shown, &text);
    if let Some(problem) = documents.problems.first() {
        bail!("{shown}:{}: {}", problem.position, problem.message);
    }
    let Some(document) = documents.documents.first() else { bail!("{shown}: the file is empty") };
    config::read(document).map_err(|problem| anyhow::anyhow!("{problem}"))
}

/// The cluster of this name, or the only one.
///
/// # Errors
/// When there is no such cluster, or there are several and no name is given.
pub fn select_cluster<'c>(shown: &str, config: &'c Config, name: Option<&str>) -> anyhow::Result<&'c Cluster> {
    let names = || config.clusters.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
    Ok(match (name, config.clusters.as_slice()) {
        (None, [only]) => only,
        (None, _) => bail!("{shown}: found clusters {}; select one with --cluster", names()),
        (Some(name), all) => all
            .iter()
            .find(|c| c.name == name)
            .with_context(|| format!("{shown}: cluster {name:?} not found (found: {})", names()))?,
    })
}

fn convert(cluster: &Cluster, mode: ControllerMode, sheet: PriceSheet) -> anyhow::Result<ClusterConfig> {
    let identity = cluster.identity.as_ref().context("identity is missing: it identifies the cluster in Azure")?;
    let region = cluster.region.as_deref().context("region is missing, for example westeurope")?;
    let id = ArmId::new(&identity.cluster_id).context("identity.clusterId")?;
    let group = format!("/subscriptions/{}/resourceGroups/{}", identity.subscription, identity.node_resource_group);
    let group = ArmId::new(group).context("identity.nodeResourceGroup")?;
    let identity = ClusterIdentity {
        tag_value: Arc::from(id.name()),
        id,
        node_resource_group: group,
        region: Region::new(region)?,
    };
    let mut settings = Settings::new(identity);
    settings.mode = mode;
    settings.consolidation_threads =
        available_parallelism().map_or(NonZeroUsize::MIN, |threads| threads.min(MAX_CONSOLIDATION_THREADS));
    provisioning(cluster.provisioning.as_ref(), &mut settings).context("provisioning")?;
    disruption(cluster.disruption.as_ref(), &mut settings).context("disruption")?;
    if let Some(given) = &cluster.node_health {
        settings.node_health = Arc::new(node_health::rules(given)?);
    }
    if let Some(windows) = &cluster.maintenance_windows {
        settings.maintenance_windows = windows.read().map_err(|error| anyhow::anyhow!("maintenanceWindows.{error}"))?;
    }
    ensure!(
        mode == ControllerMode::Companion || cluster.nodes.is_some(),
        "nodes is missing: provisioner mode requires the subnet, image and SSH key of new nodes"
    );
    let cloud = cluster.cloud.as_deref();
    let cloud =
        cloud.map(|name| AzureCloud::named(name).with_context(|| format!("cloud: {name:?} is not an Azure cloud")));
    let mut options = node_options(cluster.network_mode);
    options.self_managed = mode == ControllerMode::Provisioner;
    node_costs(cluster.provisioning.as_ref(), &mut options).context("provisioning")?;
    let nodes = cluster.nodes.clone();
    Ok(ClusterConfig { settings, options, nodes, sheet, cloud: cloud.transpose()? })
}

/// Longest time that pending pods may be batched.
const MAX_BATCH: SignedDuration = SignedDuration::from_mins(10);

/// Sets how pending pods are batched, and how minValues are treated.
fn provisioning(given: Option<&Provisioning>, settings: &mut Settings) -> anyhow::Result<()> {
    let Some(given) = given else { return Ok(()) };
    if let Some(text) = &given.batch_idle {
        settings.batch_idle_duration = duration::parse(text).with_context(|| format!("batchIdle: {text:?}"))?;
    }
    if let Some(text) = &given.batch_max {
        settings.batch_max_duration = duration::parse(text).with_context(|| format!("batchMax: {text:?}"))?;
    }
    let Settings { batch_idle_duration: batch_idle, batch_max_duration: batch_max, .. } = settings;
    ensure!(*batch_idle <= *batch_max, "batchIdle is {batch_idle:#}, longer than batchMax, {batch_max:#}");
    ensure!(*batch_max <= MAX_BATCH, "batchMax is {batch_max:#}: the maximum is {MAX_BATCH:#}");
    settings.min_values_policy = match given.min_values_policy.as_deref() {
        None | Some("Strict") => MinValuesPolicy::Strict,
        Some("BestEffort") => MinValuesPolicy::BestEffort,
        Some(other) => bail!("minValuesPolicy is {other:?}: it must be Strict or BestEffort"),
    };
    Ok(())
}

/// Sets how nodes are replaced.
fn disruption(given: Option<&Disruption>, settings: &mut Settings) -> anyhow::Result<()> {
    if let Some(text) = given.and_then(|given| given.expiry_lead.as_deref()) {
        settings.expiry_lead = duration::parse(text).with_context(|| format!("expiryLead: {text:?}"))?;
    }
    Ok(())
}

/// Sets what nodes cost beside their VM.
///
/// # Errors
/// When a price is not a number of USD per hour.
fn node_costs(given: Option<&Provisioning>, options: &mut InstanceTypeOptions) -> anyhow::Result<()> {
    let Some(Provisioning { per_node, os_disk_price, .. }) = given else { return Ok(()) };
    let price = |field: &str, text: &Option<String>| -> anyhow::Result<Option<HourlyPrice>> {
        text.as_deref().map(HourlyPrice::parse_usd).transpose().with_context(|| field.to_owned())
    };
    options.per_node = price("perNode", per_node)?.unwrap_or(options.per_node);
    options.os_disk_price = price("osDiskPrice", os_disk_price)?.or(options.os_disk_price);
    Ok(())
}

/// What commands that read manifests take from `napkeeper.yaml`.
#[derive(Debug, Clone, Default)]
pub struct RepositoryFacts {
    /// The cluster.
    pub cluster: Option<String>,
    /// Its region.
    pub region: Option<Region>,
    /// Its version of Kubernetes.
    pub kubernetes_version: Option<String>,
    /// Most pods of a node, and what nodes cost beside their VM.
    pub options: InstanceTypeOptions,
}

/// The facts about the cluster of the repository that contains a path: the one of this name, else the only one, or the only one whose
/// paths contain it. Without one, the defaults.
///
/// # Errors
/// When `napkeeper.yaml` cannot be read, has no such cluster, or a value in it is not valid.
pub fn find_facts(path: Option<&Path>, name: Option<&str>) -> anyhow::Result<RepositoryFacts> {
    let path = path.filter(|path| *path != Path::new("-"));
    let Some((path, file)) = path.and_then(|path| Some((path, config::find(path)?))) else {
        return Ok(RepositoryFacts::default());
    };
    let (shown, config) = (file.display().to_string(), read(&file)?);
    let cluster = match (name, config.clusters.as_slice()) {
        (None, [] | [_]) => config.clusters.first(),
        (None, all) => only_with(all, file.parent().unwrap_or_else(|| Path::new(".")), path),
        (Some(_), _) => Some(select_cluster(&shown, &config, name)?),
    };
    let Some(cluster) = cluster else { return Ok(RepositoryFacts::default()) };
    let mut options = node_options(cluster.network_mode);
    node_costs(cluster.provisioning.as_ref(), &mut options).with_context(|| format!("{shown}: provisioning"))?;
    let region = cluster.region.as_deref().map(Region::new).transpose();
    Ok(RepositoryFacts {
        cluster: Some(cluster.name.clone()),
        region: region.with_context(|| format!("{shown}: region of cluster {:?}", cluster.name))?,
        kubernetes_version: cluster.kubernetes_version.clone(),
        options,
    })
}

/// The only cluster with a path that contains this one.
fn only_with<'c>(clusters: &'c [Cluster], folder: &Path, path: &Path) -> Option<&'c Cluster> {
    let path = path.canonicalize().ok()?;
    let contains = |inside: &String| folder.join(inside).canonicalize().is_ok_and(|inside| path.starts_with(inside));
    let mut all = clusters.iter().filter(|cluster| cluster.paths.iter().flatten().any(contains));
    all.next().filter(|_| all.next().is_none())
}

/// Most pods of a node whose class does not say it, by network mode (karpenter-provider-azure, `pkg/utils/utils.go`:
/// the plugin `azure` without a mode, which pod subnets have too, gives 30).
pub fn node_options(mode: Option<NetworkMode>) -> InstanceTypeOptions {
    let default_max_pods = match mode {
        Some(NetworkMode::NodeSubnet | NetworkMode::PodSubnet) => 30,
        Some(NetworkMode::Overlay | NetworkMode::None) | None => InstanceTypeOptions::default().default_max_pods,
    };
    InstanceTypeOptions { default_max_pods, ..InstanceTypeOptions::default() }
}

/// Where a pod has the certificate authority of its cluster.
const POD_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Galleries of AKS's own node images (karpenter-provider-azure, `pkg/providers/imagefamily`).
const AKS_GALLERIES: [&str; 4] = ["aksubuntu", "aksazurelinux", "akscblmariner", "akswindows"];

/// True for an image in one of AKS's own galleries, by the id of a resource or of a community gallery's image.
fn is_of_aks_gallery(image: &str) -> bool {
    let folded = image.to_ascii_lowercase();
    let mut segments = folded.split('/').skip_while(|segment| !matches!(*segment, "communitygalleries" | "galleries"));
    let gallery = segments.nth(1).unwrap_or_default();
    // The public name of a community gallery has a suffix.
    let name = gallery.split_once('-').map_or(gallery, |(name, _)| name);
    AKS_GALLERIES.contains(&name)
}

/// The join settings of VMs, if the file has them.
pub(super) fn join(nodes: &Nodes) -> anyhow::Result<Option<Join>> {
    let Some(bootstrap) = &nodes.bootstrap else { return Ok(None) };
    ensure!(
        !is_of_aks_gallery(&nodes.image),
        "nodes.image is one of AKS's own node images, which do not join a cluster by nodes.bootstrap (docs/bootstrap.md): \
         use an image of the Kubernetes image-builder, or another with containerd and a kubelet, from a gallery of yours"
    );
    let authority = match &bootstrap.certificate_authority {
        Some(pem) => pem.clone(),
        None => std::fs::read_to_string(POD_CA)
            .with_context(|| format!("nodes.bootstrap.certificateAuthority is not set; reading {POD_CA}"))?,
    };
    let join = Join::new(&bootstrap.api_server, &authority, &bootstrap.cluster_dns).context("nodes.bootstrap")?;
    Ok(Some(join))
}

/// What nodes are made from by `nodes`; nothing of it is known without.
///
/// # Errors
/// When an ID in it is not valid.
pub fn node_base(nodes: Option<&Nodes>) -> anyhow::Result<NodeBase> {
    let vms = nodes.map(vm_settings).transpose()?;
    let (image, subnet) = vms.map(|vms| (vms.image, vms.subnet)).unzip();
    Ok(NodeBase { image, subnet, kubernetes_version: None })
}

/// What every VM is created with.
pub(super) fn vm_settings(nodes: &Nodes) -> anyhow::Result<VmSettings> {
    Ok(VmSettings {
        subnet: ArmId::new(&nodes.subnet).context("nodes.subnet")?,
        image: Arc::from(nodes.image.as_str()),
        ssh_public_key: Arc::from(nodes.ssh_public_key.as_str()),
        admin_username: Arc::from(nodes.admin_username.as_deref().unwrap_or(DEFAULT_ADMIN_USERNAME)),
        disk_encryption_set: nodes
            .disk_encryption_set_id
            .as_deref()
            .map(ArmId::new)
            .transpose()
            .context("nodes.diskEncryptionSetID")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_api::config::Bootstrap;

    const GOOD: &str = "\
clusters:
- name: prod
  region: westeurope
  networkMode: node-subnet
  identity:
    subscription: 00000000-0000-4000-8000-000000000001
    clusterId: /subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/prod
    nodeResourceGroup: MC_g_prod_westeurope
";

    fn with(provisioning: &str) -> String {
        format!("{GOOD}  provisioning:\n{provisioning}")
    }

    #[test]
    fn the_lead_time_of_expiry_is_as_the_file_says() {
        let read = |lead: &str| {
            let text = format!("{GOOD}  disruption: {{expiryLead: {lead}}}\n");
            read_text(&text, None, ControllerMode::Companion)
        };
        assert_eq!(read("90m").unwrap().settings.expiry_lead.as_mins(), 90);
        assert_eq!(read("0s").unwrap().settings.expiry_lead.as_secs(), 0);
        let error = format!("{:#}", read("soon").unwrap_err());
        assert!(error.contains("disruption: expiryLead: \"soon\""), "{error}");
    }

    #[test]
    fn maintenance_windows_are_those_of_the_file() {
        let read = |window: &str| {
            let text = format!("{GOOD}  maintenanceWindows:\n    kubernetesVersion: {window}\n");
            read_text(&text, None, ControllerMode::Companion)
        };
        let printed = r#"{"durationHours": 4, "startTime": "22:00", "startDate": "2026-08-01", "utcOffset": "+00:00",
      "notAllowedDates": null, "schedule": {"absoluteMonthly": null, "daily": null, "relativeMonthly": null,
      "weekly": {"dayOfWeek": "Friday", "intervalWeeks": 1}}}"#;
        let windows = read(printed).unwrap().settings.maintenance_windows;
        let window = windows.kubernetes_version.unwrap();
        let opens = window.next_open("2026-08-03T00:00:00Z".parse().unwrap());
        assert_eq!((opens, windows.node_image), ("2026-08-07T22:00:00Z".parse().ok(), None));
        let error = format!("{:#}", read(&printed.replace("\": 4", "\": 2")).unwrap_err());
        assert!(error.contains("maintenanceWindows.kubernetesVersion.durationHours: must be from 4 to 24"), "{error}");
        for (valid, invalid) in [("\"22:00\"", "2200"), ("Friday", "friday"), ("durationHours", "hours")] {
            let error = format!("{:#}", read(&printed.replace(valid, invalid)).unwrap_err());
            assert!(error.contains("napkeeper.yaml:1"), "with its line: {error}");
        }
    }

    #[test]
    fn batches_and_variety_are_as_the_file_says() {
        let read = |text: &str| read_text(&with(text), None, ControllerMode::Companion);
        let known = read("    batchIdle: 2s\n    batchMax: 30s\n    minValuesPolicy: BestEffort\n").unwrap();
        let Settings {
            batch_idle_duration: batch_idle,
            batch_max_duration: batch_max,
            min_values_policy: min_values,
            ..
        } = known.settings;
        assert_eq!((batch_idle.as_secs(), batch_max.as_secs()), (2, 30));
        assert_eq!(min_values, MinValuesPolicy::BestEffort);
        let absent = read_text(GOOD, None, ControllerMode::Companion).unwrap().settings;
        assert_eq!((absent.batch_idle_duration.as_secs(), absent.batch_max_duration.as_secs()), (1, 10));
        assert_eq!(absent.min_values_policy, MinValuesPolicy::Strict);
        for (wrong, message) in [
            ("    batchIdle: 11s\n", "longer than batchMax"),
            ("    batchMax: 1h\n", "the maximum is 10m"),
            ("    batchIdle: soon\n", "batchIdle: \"soon\""),
            ("    minValuesPolicy: Lax\n", "must be Strict or BestEffort"),
            ("    perNode: \"-1\"\n", "perNode: amount \"-1\": must be a decimal number of USD"),
            ("    osDiskPrice: free\n", "osDiskPrice: amount \"free\""),
        ] {
            let error = format!("{:#}", read(wrong).unwrap_err());
            assert!(error.contains(message), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_nodes_cost_beside_their_vm_is_as_the_file_says() {
        let options = |text: &str| read_text(text, None, ControllerMode::Companion).unwrap().options;
        let given = options(&with("    perNode: \"0.02\"\n    osDiskPrice: \"0.0135\"\n"));
        assert_eq!(given.per_node.nanos(), 20_000_000);
        assert_eq!(given.os_disk_price.map(HourlyPrice::nanos), Some(13_500_000));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("napkeeper.yaml"), with("    perNode: \"0.02\"\n")).unwrap();
        let found = |name| find_facts(Some(folder.path()), name).map(|facts| facts.options.per_node.nanos());
        assert_eq!((found(None).unwrap(), found(Some("prod")).unwrap()), (20_000_000, 20_000_000));
        assert!(found(Some("dev")).is_err());
        let absent = options(GOOD);
        assert_eq!(absent.per_node, InstanceTypeOptions::DEFAULT_PER_NODE);
        assert_eq!(absent.os_disk_price, None);
    }

    #[test]
    fn manifests_are_for_the_cluster_whose_paths_they_are_in() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir_all(folder.path().join(name).join("pools")).unwrap();
        }
        let text = "clusters:\n- {name: a, paths: [a], region: westeurope, networkMode: node-subnet}\n\
                    - {name: b, paths: [b], region: eastus, kubernetesVersion: '1.33'}\n";
        std::fs::write(folder.path().join("napkeeper.yaml"), text).unwrap();
        let of = |path: &str, name| find_facts(Some(&folder.path().join(path)), name).unwrap();
        let shown = |facts: RepositoryFacts| (facts.cluster, facts.region.map(|region| region.to_string()));
        assert_eq!(shown(of("a/pools", None)), (Some("a".to_owned()), Some("westeurope".to_owned())));
        assert_eq!(of("a", None).options.default_max_pods, 30);
        assert_eq!(of("b", None).kubernetes_version.as_deref(), Some("1.33"));
        assert_eq!(shown(of("", None)), (None, None), "it may be either");
        assert_eq!(shown(of("", Some("b"))).0.as_deref(), Some("b"));
    }

    fn read_text(text: &str, name: Option<&str>, mode: ControllerMode) -> anyhow::Result<ClusterConfig> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("napkeeper.yaml");
        std::fs::write(&file, text)?;
        read_cluster(&file, name, mode)
    }

    #[test]
    fn the_identity_of_the_cluster_is_read() {
        let known = read_text(GOOD, None, ControllerMode::Companion).unwrap();
        assert_eq!(&*known.settings.cluster.tag_value, "prod");
        assert_eq!(known.settings.cluster.node_resource_group.resource_group(), Some("mc_g_prod_westeurope"));
        assert_eq!(known.options.default_max_pods, 30);
        let pods = |mode| node_options(mode).default_max_pods;
        assert_eq!([pods(Some(NetworkMode::PodSubnet)), pods(Some(NetworkMode::None)), pods(None)], [30, 250, 250]);
    }

    #[test]
    fn images_of_aks_do_not_join_by_bootstrap() {
        let nodes = |image: &str| Nodes {
            image: image.to_owned(),
            bootstrap: Some(Bootstrap {
                api_server: "https://prod.hcp.westeurope.azmk8s.io:443".to_owned(),
                cluster_dns: "10.0.0.10".to_owned(),
                certificate_authority: Some(String::new()),
            }),
            ..Nodes::default()
        };
        for image in [
            "/CommunityGalleries/AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2/images/2204gen2containerd/versions/latest",
            "/communitygalleries/aksazurelinux-f7c7cda5/images/V3gen2/versions/1",
            "/subscriptions/s/resourceGroups/AKS-Ubuntu/providers/Microsoft.Compute/galleries/AKSUbuntu/images/2204gen2containerd/versions/1",
        ] {
            let error = format!("{:#}", join(&nodes(image)).unwrap_err());
            assert!(error.starts_with("nodes.image is one of AKS's own node images"), "{image}: {error}");
            assert!(join(&Nodes { bootstrap: None, ..nodes(image) }).unwrap().is_none(), "nothing joins");
        }
        for image in [
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/aksnodes/images/ubuntu/versions/1",
            "/CommunityGalleries/capi-1234/images/ubuntu-2204/versions/1",
            "/subscriptions/s/resourceGroups/aksubuntu/providers/Microsoft.Compute/images/own",
        ] {
            let error = format!("{:#}", join(&nodes(image)).unwrap_err());
            assert!(error.starts_with("nodes.bootstrap"), "only the certificates are missing: {error}");
        }
    }

    #[test]
    fn missing_settings_are_named() {
        let error = |text: &str, name, mode| format!("{:#}", read_text(text, name, mode).unwrap_err());
        assert!(error(GOOD, None, ControllerMode::Provisioner).contains("nodes is missing"));
        assert!(
            error(GOOD, Some("dev"), ControllerMode::Companion).contains("cluster \"dev\" not found (found: prod)")
        );
        assert!(error("clusters:\n- name: a\n", None, ControllerMode::Companion).contains("identity is missing"));
        assert!(
            error("clusters:\n- nam: a\n", None, ControllerMode::Companion)
                .contains("napkeeper.yaml:2:8: clusters[0].nam")
        );
        let two = format!("{GOOD}- name: dev\n");
        assert!(error(&two, None, ControllerMode::Companion).contains("select one with --cluster"));
    }
}
