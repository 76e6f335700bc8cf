//! The input of an audit, live or from saved listings.
//!
//! A live run reads Azure and Kubernetes; a saved one reads the responses that a live one would have received. Both use
//! the same adapters.

use super::Args;
use super::saved::{self, Folder, Manifest};
use anyhow::{Context, bail};
use jiff::Timestamp;
use napkeeper_api::config;
use napkeeper_azure::{Azure, AzureCloud, AzureSettings, HttpTransport, Recorder, Replay};
use napkeeper_controller::config_file;
use napkeeper_controller::{azure_args, inventory};
use napkeeper_core::catalog::live::PriceSheet;
use napkeeper_core::engine::clock::Clock;
use napkeeper_core::model::azure::inventory::{Inventory, ListFailure};
use napkeeper_core::model::names::{ArmId, Region};
use napkeeper_core::model::orphans::record::OrphanRecords;
use napkeeper_core::model::orphans::sweep::Sweep;
use napkeeper_core::model::settings::{ClusterIdentity, ControllerMode, PauseSwitch, Settings};
use napkeeper_kube::list::recording::{record, replay};
use napkeeper_kube::{connect, list, read_pause};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// Placeholder for a region that is not configured: that of the resource group replaces it.
const UNKNOWN_REGION: &str = "unnamed";

/// The input of a report.
pub(super) struct Input {
    pub(super) settings: Settings,
    /// The customer's own prices.
    pub(super) sheet: PriceSheet,
    pub(super) inventory: Inventory,
    pub(super) records: OrphanRecords,
    pub(super) sweeps: Vec<Sweep>,
    pub(super) paused: bool,
    /// When the last listing was complete.
    pub(super) now: Timestamp,
    /// Which of napkeeper's own objects could not be read.
    pub(super) unread: Vec<ListFailure>,
    /// How many requests each listing of Azure took; empty for saved ones.
    pub(super) calls: BTreeMap<String, u32>,
}

/// Name of the pause switch among what could not be read.
const PAUSE: &str = "configmap napkeeper-pause";

impl Input {
    /// True where the pause switch could be read.
    pub(super) fn pause_is_known(&self) -> bool {
        self.unread.iter().all(|failure| &*failure.listing != PAUSE)
    }
}

/// Reads Azure and the cluster, and saves the responses with `--save`.
pub(super) async fn live(args: &Args) -> anyhow::Result<Input> {
    let Target { mut settings, cloud, sheet } = target(args, None)?;
    let clock = args.azure.clock();
    let keeps: fn(&str) -> bool = if args.save.is_some() { |_| true } else { |name| name == saved::GROUP };
    let http = Arc::new(HttpTransport::new(AzureSettings::DEADLINE)?);
    let recorder = Arc::new(Recorder::new(http, keeps));
    let azure = Azure::new(
        azure_args::azure_settings(&settings.cluster, args.azure.endpoint(cloud)),
        recorder.clone(),
        args.azure.credential(cloud)?,
    )?;
    let client = connect(args.kubeconfig.as_deref()).await?;
    let (client, recording) = if args.save.is_some() {
        let (client, recording) = record(client);
        (client, Some(recording))
    } else {
        (client, None)
    };
    let inventory = match azure.reach().await {
        Ok(()) => inventory::take(&azure, &client, &clock).await,
        Err(error) => inventory::without_azure(&error, &client, &clock).await,
    };
    let (sweeps, records) = tokio::join!(list::read_sweeps(&client), list::read_records(&client));
    let paused = read_pause(&client, &args.namespace).await;
    let mut unread = Vec::new();
    let paused = paused.map(|pause| pause.blocks(PauseSwitch::Delete, inventory.finished_at)).unwrap_or_else(|error| {
        unread.push(ListFailure { cause: error.cause(), ..ListFailure::new(PAUSE, error.to_string()) });
        true
    });
    let pages = recorder.pages();
    set_region(&mut settings, &pages);
    let input = Input {
        settings,
        sheet,
        now: inventory.finished_at,
        inventory,
        records: take(records, &mut unread),
        sweeps: take(sweeps, &mut unread),
        paused,
        unread,
        calls: recorder.calls(),
    };
    if let (Some(folder), Some(recording)) = (&args.save, recording) {
        let Input { settings, inventory, unread, paused, .. } = &input;
        let manifest = Manifest::new(settings, inventory, unread, *paused, recording.not_served());
        saved::write(folder, &manifest, &pages, &recording.objects())?;
    }
    Ok(input)
}

/// A client of Azure, and the node resource group.
pub(super) fn adapter(args: &Args) -> anyhow::Result<(Azure, ArmId)> {
    let Target { settings, cloud, .. } = target(args, None)?;
    let wire = Arc::new(HttpTransport::new(AzureSettings::DEADLINE)?);
    let azure = Azure::new(
        azure_args::azure_settings(&settings.cluster, args.azure.endpoint(cloud)),
        wire,
        args.azure.credential(cloud)?,
    )?;
    Ok((azure, settings.cluster.node_resource_group))
}

/// A run on saved listings. Nothing is sent.
pub(super) async fn from_folder(args: &Args, folder: &std::path::Path) -> anyhow::Result<Input> {
    if let Some(at) = args.taken_at.filter(|at| *at > Timestamp::now()) {
        bail!("--taken-at {at} is in the future; use the time when the first file was listed");
    }
    let Folder { manifest, pages, objects, incomplete, first_written } = saved::read(folder)?;
    if manifest.is_some() && args.taken_at.is_some() {
        bail!("{}: --taken-at cannot be used: its manifest.json has the time", folder.display());
    }
    let Target { mut settings, sheet, .. } = target(args, manifest.as_ref())?;
    set_region(&mut settings, &pages);
    // Files of az and kubectl have no time but when they were written. The first one counts: a later time would make
    // resources look older than they are.
    let (started, now) = match (&manifest, args.taken_at) {
        (Some(manifest), _) => (manifest.started_at, manifest.taken_at),
        (None, given) => {
            let at = given.unwrap_or(first_written);
            (at, at)
        }
    };
    let (shown, group) = (folder.display().to_string(), settings.cluster.node_resource_group.name().to_owned());
    let names: BTreeSet<String> = incomplete.keys().cloned().collect();
    let hint = move |name: &str| saved::missing(&shown, name, &group, incomplete.get(name).map(String::as_str));
    let wire = Arc::new(Replay::new(pages, hint.clone()).refusing(names.clone()));
    let token = azure_args::static_credential("no action needed", now)?;
    let azure = Azure::new(azure_args::azure_settings(&settings.cluster, AzureCloud::Public.endpoint()), wire, token)?;
    let mut not_served = manifest.as_ref().map(|m| m.not_served.clone()).unwrap_or_else(saved::optional);
    // An incomplete file is not an absent one.
    not_served.retain(|name| !names.contains(name));
    let client = replay(objects, not_served, hint);
    let mut inventory = inventory::take(&azure, &client, &StoppedClock(now)).await;
    (inventory.started_at, inventory.finished_at) = (started, now);
    let (sweeps, records) = tokio::join!(list::read_sweeps(&client), list::read_records(&client));
    let mut unread = Vec::new();
    let (mut records, mut sweeps) = (take(records, &mut unread), take(sweeps, &mut unread));
    if let Some(manifest) = &manifest {
        manifest.put_failures(&mut inventory);
        let own_failures = manifest.own_failures();
        unread.retain(|failure| own_failures.iter().all(|known| known.listing != failure.listing));
        unread.extend(own_failures);
        // The first pages of a listing that failed later are not a listing.
        let failed = |listing: &str| unread.iter().any(|failure| &*failure.listing == listing);
        if failed("orphanrecords") {
            records = OrphanRecords::default();
        }
        if failed("orphansweeps") {
            sweeps = Vec::new();
        }
    }
    let paused = manifest.is_some_and(|m| m.paused);
    Ok(Input { settings, sheet, inventory, records, sweeps, paused, now, unread, calls: BTreeMap::new() })
}

fn take<T: Default>(read: Result<T, ListFailure>, unread: &mut Vec<ListFailure>) -> T {
    read.unwrap_or_else(|failure| {
        unread.push(failure);
        T::default()
    })
}

/// A fixed clock: saved listings are of one time.
#[derive(Debug)]
struct StoppedClock(Timestamp);

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn shifted(&self, real: Timestamp) -> Timestamp {
        real
    }
}

/// The cluster to inspect.
struct Target {
    settings: Settings,
    cloud: AzureCloud,
    sheet: PriceSheet,
}

/// The cluster by flags, else by the manifest of saved listings, else by napkeeper.yaml. Prices are those of
/// `--price-sheet`, else those of the cluster in napkeeper.yaml.
fn target(args: &Args, manifest: Option<&Manifest>) -> anyhow::Result<Target> {
    let mode = ControllerMode::from(args.mode);
    let named = args.price_sheet.as_deref().map(napkeeper_controller::price_sheet::read).transpose()?;
    let of = |cluster: &str, group: String, region: Option<&str>| {
        let id = ArmId::new(cluster).context("the id of the cluster")?;
        let group = ArmId::new(group).context("the id of the node resource group")?;
        let region = Region::new(region.unwrap_or(UNKNOWN_REGION))?;
        let mut settings =
            Settings::new(ClusterIdentity { tag_value: Arc::from(id.name()), id, node_resource_group: group, region });
        settings.mode = mode;
        anyhow::Ok(Target { settings, cloud: args.azure.cloud(None), sheet: named.clone().unwrap_or_default() })
    };
    let identity = &args.identity;
    if let (Some(subscription), Some(group), Some(cluster)) =
        (&identity.subscription, &identity.resource_group, &identity.cluster_id)
    {
        return of(cluster, format!("/subscriptions/{subscription}/resourceGroups/{group}"), None);
    }
    if let Some(manifest) = manifest.filter(|_| args.config.is_none() && args.cluster.is_none()) {
        return of(&manifest.cluster, manifest.group.clone(), Some(&manifest.region));
    }
    let file = match &args.config {
        Some(file) => file.clone(),
        None => config::find(&PathBuf::from(".")).with_context(no_config)?,
    };
    let known = config_file::read_cluster(&file, args.cluster.as_deref(), mode)?;
    let cloud = args.azure.cloud(known.cloud);
    Ok(Target { settings: known.settings, cloud, sheet: named.unwrap_or(known.sheet) })
}

fn no_config() -> String {
    format!(
        "no {} found here or in a parent folder to identify the cluster. Create one (see docs/controller.md), or \
         pass --config, or --subscription, --resource-group and --cluster-id",
        config::FILE_NAME
    )
}

/// Sets the region of the resource group where none is configured.
fn set_region(settings: &mut Settings, pages: &napkeeper_azure::Pages) {
    let group = pages.get(saved::GROUP).and_then(|pages| pages.first());
    let location = group.and_then(|group| group.get("location")).and_then(serde_json::Value::as_str);
    let location = location.map(|text| text.to_ascii_lowercase().replace(' ', ""));
    if settings.cluster.region.as_str() == UNKNOWN_REGION
        && let Some(region) = location.and_then(|text| Region::new(text).ok())
    {
        settings.cluster.region = region;
    }
}
