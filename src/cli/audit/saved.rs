//! Folders of saved listings.
//!
//! `--save` writes the responses of a live run. `--from` reads them, or what `az … -o json` and `kubectl get … -o json`
//! wrote under the same names, which have no manifest.

use super::listing_check::{self, KUBERNETES};
use anyhow::{Context, anyhow, bail, ensure};
use jiff::Timestamp;
use napkeeper_api::manifests::read_failure;
use napkeeper_azure::Pages;
use napkeeper_core::model::azure::inventory::{Inventory, InventoryListing, ListFailure};
use napkeeper_core::model::errors::FailureCause;
use napkeeper_core::model::settings::Settings;
use napkeeper_kube::list::recording::Objects;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Name of the file that only `--save` writes.
const MANIFEST: &str = "manifest";
/// Name of the file of the group itself.
pub(super) const GROUP: &str = "resourceGroup";
/// Version of the folder's form.
const VERSION: u32 = 1;
/// Listings that may be missing: napkeeper may not be installed.
const OPTIONAL: [&str; 2] = ["orphansweeps", "orphanrecords"];
/// The command of the Azure CLI for each file.
const AZ: [(&str, &str); 8] = [
    (GROUP, "group show --name"),
    ("virtualMachines", "vm list --resource-group"),
    ("networkInterfaces", "network nic list --resource-group"),
    ("disks", "disk list --resource-group"),
    ("snapshots", "snapshot list --resource-group"),
    ("virtualMachineScaleSets", "vmss list --resource-group"),
    ("publicIPAddresses", "network public-ip list --resource-group"),
    ("loadBalancers", "network lb list --resource-group"),
];

/// The cluster, time and failures of a saved run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    version: u32,
    /// Id of the managed cluster.
    pub(super) cluster: String,
    /// Id of the node resource group.
    pub(super) group: String,
    pub(super) region: String,
    pub(super) started_at: Timestamp,
    pub(super) taken_at: Timestamp,
    /// Deletes were paused.
    pub(super) paused: bool,
    /// Kinds that the API server did not serve.
    pub(super) not_served: BTreeSet<String>,
    /// Listings that failed.
    failures: Vec<Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Failure {
    listing: FailedOf,
    #[serde(rename = "what")]
    name: String,
    #[serde(rename = "why")]
    reason: String,
    /// Folders of older versions have none.
    #[serde(default)]
    cause: FailureCause,
}

/// What a failure is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum FailedOf {
    Inventory(InventoryListing),
    /// [`OWN`].
    Other(String),
}

/// The word for objects of napkeeper's own.
const OWN: &str = "own";

impl Failure {
    fn of(listing: FailedOf, failure: &ListFailure) -> Self {
        Self { listing, name: failure.listing.to_string(), reason: failure.reason.to_string(), cause: failure.cause }
    }

    fn failure(&self) -> ListFailure {
        ListFailure { cause: self.cause, ..ListFailure::new(&self.name, self.reason.as_str()) }
    }
}

impl Manifest {
    /// The manifest of a live run.
    pub(super) fn new(
        settings: &Settings,
        inventory: &Inventory,
        own_failures: &[ListFailure],
        paused: bool,
        not_served: BTreeSet<String>,
    ) -> Self {
        let listed = inventory.failures().map(|(listing, failure)| Failure::of(FailedOf::Inventory(listing), failure));
        let own = own_failures.iter().map(|failure| Failure::of(FailedOf::Other(OWN.to_owned()), failure));
        let cluster = &settings.cluster;
        Self {
            version: VERSION,
            cluster: cluster.id.to_string(),
            group: cluster.node_resource_group.to_string(),
            region: cluster.region.to_string(),
            started_at: inventory.started_at,
            taken_at: inventory.finished_at,
            paused,
            not_served,
            failures: listed.chain(own).collect(),
        }
    }

    /// Makes the listings that failed in the live run fail again.
    pub(super) fn put_failures(&self, inventory: &mut Inventory) {
        for failure in &self.failures {
            if let FailedOf::Inventory(listing) = &failure.listing {
                inventory.fail(*listing, failure.failure());
            }
        }
    }

    /// The failures of napkeeper's own objects.
    pub(super) fn own_failures(&self) -> Vec<ListFailure> {
        let is_own = |failure: &&Failure| matches!(&failure.listing, FailedOf::Other(word) if word == OWN);
        let own = self.failures.iter().filter(is_own);
        own.map(Failure::failure).collect()
    }
}

/// The content of a folder.
pub(super) struct Folder {
    pub(super) manifest: Option<Manifest>,
    pub(super) pages: Pages,
    pub(super) objects: Objects,
    /// Files that are not a complete listing, by name, and why.
    pub(super) incomplete: BTreeMap<String, String>,
    /// When the first of its files was written.
    pub(super) first_written: Timestamp,
}

/// Kinds that count as not served where a folder has neither a manifest nor a file of them.
pub(super) fn optional() -> BTreeSet<String> {
    OPTIONAL.map(str::to_owned).into()
}

/// The message for a listing that is missing in a folder, or incomplete for a reason.
pub(super) fn missing(folder: &str, name: &str, group: &str, incomplete: Option<&str>) -> String {
    let file = format!("{folder}/{name}.json");
    let command = command(&file, name, group);
    match incomplete {
        Some(reason) => format!("{file}: {reason}; recreate it with: {command}"),
        None => format!("{file} is missing; create it with: {command}"),
    }
}

/// The command that lists into a file.
fn command(file: &str, name: &str, group: &str) -> String {
    if KUBERNETES.iter().any(|(known, _)| *known == name) {
        let unserved = if name == "volumesnapshotcontents" {
            "; if the cluster does not serve this kind, write {\"items\": []}"
        } else {
            ""
        };
        return format!("kubectl get {name} --all-namespaces -o json > {file}{unserved}");
    }
    let words: Vec<&str> = name.split('.').collect();
    match (AZ.iter().find(|(known, _)| *known == name), &words[..]) {
        (Some((_, list)), _) => format!("az {list} {group} -o json > {file}"),
        (None, ["resources", "networkInterfaces"]) => format!(
            "az resource list --resource-group {group} --resource-type Microsoft.Network/networkInterfaces -o json > \
             {file}"
        ),
        (None, ["managedClusters", cluster, "agentPools"]) => {
            format!("az aks nodepool list --cluster-name {cluster} --resource-group <its group> -o json > {file}")
        }
        (None, ["managedClusters", cluster, "agentPools", pool, "machines"]) => format!(
            "az aks machine list --nodepool-name {pool} --cluster-name {cluster} --resource-group <its group> -o \
             json > {file}"
        ),
        (None, ["virtualMachineScaleSets", set, "virtualMachines"]) => {
            format!("az vmss list-instances --name {set} --resource-group {group} -o json > {file}")
        }
        (None, _) => "napkeeper audit --save".to_owned(),
    }
}

/// Reads a folder.
pub(super) fn read(folder: &Path) -> anyhow::Result<Folder> {
    let shown = folder.display();
    let mut read = Folder {
        manifest: None,
        pages: Pages::new(),
        objects: Objects::new(),
        incomplete: BTreeMap::new(),
        first_written: Timestamp::now(),
    };
    let mut paged: BTreeMap<String, BTreeMap<u32, Value>> = BTreeMap::new();
    let mut broken = Vec::new();
    let entries = fs::read_dir(folder).map_err(|error| anyhow!("{shown}: {}", read_failure(&error)))?;
    for entry in entries {
        let path = entry.with_context(|| format!("reading {shown}"))?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_suffix(".json")) else {
            continue;
        };
        let (text, at) = read_file(&path)?;
        read.first_written = read.first_written.min(at);
        let value: Value = match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(error) => {
                broken.push(broken_json(&path, &text, &error));
                continue;
            }
        };
        if name == MANIFEST {
            read.manifest = Some(manifest(value, &path)?);
        } else if let Some((_, kind)) = KUBERNETES.iter().find(|(known, _)| *known == name) {
            match listing_check::objects(value, kind) {
                Ok(items) => drop(read.objects.insert(name.to_owned(), items)),
                Err(reason) => drop(read.incomplete.insert(name.to_owned(), reason)),
            }
        } else {
            let paged_as = name.rsplit_once(".page").and_then(|(name, page)| Some((name, page.parse().ok()?)));
            let (listing, page) = paged_as.unwrap_or((name, 1));
            if paged.entry(listing.to_owned()).or_default().insert(page, value).is_some() {
                broken.push(format!("{}: duplicate page {page} of {listing}", path.display()));
            }
        }
    }
    if !broken.is_empty() {
        broken.sort();
        bail!("{}", broken.join("\n"));
    }
    for (name, pages) in paged {
        let file = |page| if page == 1 { format!("{name}.json") } else { format!("{name}.page{page}.json") };
        if let Err(reason) = listing_check::pages(&pages, name == GROUP, file) {
            read.incomplete.insert(name.clone(), reason);
        }
        read.pages.insert(name, pages.into_values().collect());
    }
    if read.manifest.is_none() && read.pages.is_empty() && read.objects.is_empty() && read.incomplete.is_empty() {
        bail!(
            "{shown}: no saved listings found. Create them with `napkeeper audit --save {shown}`, or with az and \
             kubectl (see docs/audit.md), starting with: {}",
            missing(&shown.to_string(), GROUP, "<the node resource group>", None)
        );
    }
    Ok(read)
}

fn manifest(value: Value, path: &Path) -> anyhow::Result<Manifest> {
    let shown = path.display();
    let manifest: Manifest =
        serde_json::from_value(value).with_context(|| format!("{shown}: not a manifest of saved listings"))?;
    let version = manifest.version;
    ensure!(version == VERSION, "{shown}: unsupported version {version}");
    Ok(manifest)
}

fn read_file(path: &Path) -> anyhow::Result<(String, Timestamp)> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let written = fs::metadata(path).and_then(|meta| meta.modified());
    let written = written.with_context(|| format!("reading the time of {}", path.display()))?;
    Ok((text, Timestamp::try_from(written)?))
}

/// The error in a file, with its position.
fn broken_json(path: &Path, text: &str, error: &serde_json::Error) -> String {
    let position = format!("{}:{}:{}", path.display(), error.line(), error.column());
    if text.trim().is_empty() {
        return format!(
            "{position}: the file is empty: the command that wrote it failed; run it again and check its error"
        );
    }
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    format!("{position}: not valid JSON: {message}; recreate it")
}

/// Writes a folder. It must be new or empty, so that listings of different times are not mixed.
pub(super) fn write(folder: &Path, manifest: &Manifest, pages: &Pages, objects: &Objects) -> anyhow::Result<()> {
    check_empty(folder)?;
    let put = |name: &str, value: &Value| {
        let path = folder.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(value)? + "\n";
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    for (name, pages) in pages {
        for (page, value) in (1..).zip(pages) {
            let name = if page == 1 { name.clone() } else { format!("{name}.page{page}") };
            put(&name, value)?;
        }
    }
    for (name, items) in objects {
        put(name, &json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items }))?;
    }
    // Last, so that a folder with a manifest is whole.
    put(MANIFEST, &serde_json::to_value(manifest)?)
}

/// Makes sure that a folder exists and is empty.
pub(super) fn check_empty(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    fs::create_dir_all(folder).with_context(|| format!("creating {shown}"))?;
    let mut entries = fs::read_dir(folder).with_context(|| format!("reading {shown}"))?;
    ensure!(entries.next().is_none(), "{shown}: not empty; use a new folder, so that listings are not mixed");
    Ok(())
}
