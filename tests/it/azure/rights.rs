//! What Azure checks: a preflight sees what the listing of Machines runs into, and the roles that ship permit what each
//! mode calls, and hardly more.

use super::facts::{Lab, SUBNET, lab};
use super::same::{machine_spec, stand_by};
use super::world::quickstart;
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use napkeeper_core::catalog::live::ImageDefinition;
use napkeeper_core::catalog::{CapacityType, Catalog, OfferingKey};
use napkeeper_core::model::azure::cloud::Tags;
use napkeeper_core::model::names::{ArmId, VmSize, Zone};
use napkeeper_core::model::settings::{ControllerMode, DeletionRules};
use napkeeper_core::plan::{AksMachineRequest, CloudRequest};
use napkeeper_sim::cloud::{ListedKind, ListingFault};
use napkeeper_sim::fuzz::{self, Hazard};
use napkeeper_sim::world::World;
use napkeeper_tests::arm::{InProcess, ThroughAdapter, scopes};
use napkeeper_tests::azure_roles::{Checked, Granted, Scopes, role};
use napkeeper_tests::manifests::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const POOLS: &str = "Microsoft.ContainerService/managedClusters/agentPools/read";
const MACHINES: &str = "Microsoft.ContainerService/managedClusters/agentPools/machines/read";

#[tokio::test]
async fn a_preflight_sees_whether_machines_may_be_listed() {
    let lab = lab();
    let may = async || {
        let cluster = lab.azure.preflight().await.cluster.unwrap();
        [POOLS, MACHINES].map(|action| cluster.allows(action))
    };
    assert_eq!(may().await, [Some(true); 2]);
    lab.wire.with(|cloud, now| {
        let end = *now + SignedDuration::from_hours(1);
        cloud.faults.listings.insert(ListedKind::Machines, (end, ListingFault::Forbidden));
    });
    assert_eq!(may().await, [Some(false); 2]);
    assert!(lab.azure.preflight().await.permissions.is_ok(), "rights in the group are not those at the cluster");
}

/// The roles that the controller of a world has.
pub(super) fn granted(world: &World) -> Granted {
    match world.mode() {
        ControllerMode::Companion => Granted::Companion,
        ControllerMode::Provisioner => Granted::Provisioner,
    }
}

/// Has a world reach its Azure through the adapter. The wire knows what Azure checked, the scopes where.
fn watched(world: &mut World) -> (Arc<InProcess>, Scopes) {
    let through = ThroughAdapter::new(world.cloud().settings());
    let found = (Arc::clone(through.wire()), scopes(world.cloud().settings()));
    world.set_azure_access(Box::new(through));
    found
}

/// What a provisioner calls in the quick start.
fn provisioner() -> Result<BTreeSet<Checked>> {
    let (mut world, end) = quickstart(|_| {}).map_err(|error| anyhow::anyhow!("{error}"))?;
    let (wire, scopes) = watched(&mut world);
    world.run_until(end)?;
    ensure!(granted(&world) == Granted::Provisioner);
    Granted::Provisioner.permits(&scopes, &wire.checked())?;
    Ok(wire.checked())
}

/// What a companion calls while NICs and disks are leaked.
fn companion() -> Result<BTreeSet<Checked>> {
    let mut found = None;
    let world = fuzz::run_prepared(&Catalog::embedded()?, Hazard::Companion as u64, DeletionRules::all(), |world| {
        found = Some(watched(world));
    })?;
    let (wire, scopes) = found.context("the world was not prepared")?;
    ensure!(granted(&world) == Granted::Companion);
    Granted::Companion.permits(&scopes, &wire.checked())?;
    Ok(wire.checked())
}

/// Calls what an audit calls.
async fn audit(lab: &Lab) -> Result<()> {
    lab.azure.list().await.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
    lab.azure.list_related().await.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
    lab.azure.group_managed_by().await.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
    Ok(())
}

/// Calls what every controller reads beside the resources of the group, and its check of rights.
async fn reads_of_a_controller(lab: &Lab) -> Result<()> {
    lab.azure.sizes().await?;
    lab.azure.usages().await?;
    lab.azure.images(&ImageDefinition::all(33)).await?;
    lab.azure.subnets(&[ArmId::new(SUBNET)?]).await?;
    lab.azure.group_locks().await?;
    let preflight = lab.azure.preflight().await;
    ensure!(preflight.policies.is_ok() && preflight.deny_assignments.is_ok(), "{preflight:?}");
    Ok(())
}

/// Tags an orphan, as sweeps of mode Mark do.
async fn mark(lab: &Lab) -> Result<()> {
    lab.add_vm("orphan", "Standard_D2s_v5", CapacityType::OnDemand);
    let id = lab.wire.with(|cloud, _| cloud.vm_id("orphan"));
    lab.azure.perform(&CloudRequest::Tag(id, Tags::from([("found".into(), "today".into())]))).await?;
    Ok(())
}

/// Has AKS count a node, as it does where nodes join a cluster.
async fn bill(lab: &Lab) -> Result<()> {
    let id = lab.wire.with(|cloud, _| cloud.vm_id("orphan"));
    lab.azure.perform(&CloudRequest::PutBillingExtension(id)).await?;
    Ok(())
}

/// Reads a group of capacity reservations.
async fn reservations(lab: &Lab) -> Result<()> {
    let group = "/subscriptions/s/resourceGroups/other/providers/Microsoft.Compute/capacityReservationGroups/paid";
    let (group, region) = (ArmId::new(group)?, lab.region.region.clone());
    let size = VmSize::new("Standard_D4s_v5")?;
    lab.wire.with(|cloud, _| cloud.reserve_vms(&group, &size, &Zone::of(&region, 2), Some(3)));
    lab.azure.reservations(&group, &region).await?;
    Ok(())
}

/// Creates, reads and deletes a Machine.
async fn machines(lab: &Lab) -> Result<()> {
    let id = lab.wire.with(|cloud, _| cloud.machine_id("nodes", "one-aaaaa")).context("no pool")?;
    let zone = Zone::of(&lab.region.region, 2);
    let offering = OfferingKey { size: VmSize::new("Standard_D4s_v5")?, zone, capacity_type: CapacityType::OnDemand };
    let spec = machine_spec(id.clone(), offering);
    for call in
        [AksMachineRequest::Put(Box::new(spec)), AksMachineRequest::Get(id.clone()), AksMachineRequest::Delete(id)]
    {
        lab.azure.perform(&CloudRequest::AksMachine(call)).await?;
    }
    Ok(())
}

/// A row of the table of actions in docs/azure-roles.md.
struct Row {
    roles: BTreeSet<String>,
    /// Why azure-sim sees no request that needs it; empty if it sees one.
    unseen: String,
}

/// The table of actions, by action in lower case.
fn documented() -> Result<BTreeMap<String, Row>> {
    let page = std::fs::read_to_string(repository("docs/azure-roles.md"))?;
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", action, roles, reason, unseen, ""] = cells[..] else { continue };
        let Some(action) = action.strip_prefix("`Microsoft.").and_then(|rest| rest.strip_suffix('`')) else { continue };
        let action = format!("microsoft.{action}").to_ascii_lowercase();
        ensure!(!reason.is_empty(), "{action} has no reason");
        let roles = roles.split(", ").map(str::to_owned).collect();
        ensure!(rows.insert(action.clone(), Row { roles, unseen: unseen.to_owned() }).is_none(), "{action} twice");
    }
    Ok(rows)
}

const ROLES: [&str; 6] = ["read-only", "janitor", "provisioner", "node-resources", "subscription", "machines"];

#[test]
fn the_page_on_roles_lists_the_actions_of_their_files() -> Result<()> {
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in ROLES {
        for action in role(name)? {
            files.entry(action).or_default().insert(name.to_owned());
        }
    }
    let page: BTreeMap<_, _> = documented()?.into_iter().map(|(action, row)| (action, row.roles)).collect();
    assert_eq!(page, files);
    let mut shipped: Vec<_> = std::fs::read_dir(repository("manifests/azure/roles"))?
        .map(|entry| Ok(entry?.path().file_stem().context("no name")?.to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    shipped.sort();
    let mut tested = ROLES.map(str::to_owned);
    tested.sort();
    assert_eq!(shipped, tested);
    Ok(())
}

/// No role has a wildcard or reads what is secret, and each is what its name says.
#[test]
fn roles_grant_single_actions_and_no_secrets() -> Result<()> {
    for name in ROLES {
        let text = std::fs::read_to_string(repository("manifests/azure/roles").join(name).with_extension("json"))?;
        let file: serde_json::Value = serde_json::from_str(&text)?;
        ensure!(file["Name"] == format!("napkeeper {name}") && file["IsCustom"] == true, "{name}");
        ensure!(file["AssignableScopes"] == serde_json::json!(["/subscriptions/SUBSCRIPTION_ID"]), "{name}");
        ensure!(file["Description"].as_str().is_some_and(|text| text.len() <= 1_024), "{name}");
        for empty in ["NotActions", "DataActions", "NotDataActions"] {
            ensure!(file[empty] == serde_json::json!([]), "{name}: {empty}");
        }
        let actions = role(name)?;
        ensure!(file["Actions"].as_array().map(Vec::len) == Some(actions.len()), "{name} has an action twice");
        for action in &actions {
            ensure!(!action.contains('*') && !action.contains("list") && !action.contains("authorization/roles"));
        }
    }
    let (reads, sweeps, nodes) = (role("read-only")?, role("janitor")?, role("provisioner")?);
    ensure!(reads.is_subset(&sweeps) && sweeps.is_subset(&nodes));
    for name in ["read-only", "subscription"] {
        ensure!(role(name)?.iter().all(|action| action.ends_with("/read")), "{name} changes something");
    }
    let changes: Vec<_> = sweeps.iter().filter(|action| !action.ends_with("/read")).collect();
    let wanted = [
        "microsoft.compute/disks/delete",
        "microsoft.network/networkinterfaces/delete",
        "microsoft.resources/tags/write",
    ];
    assert_eq!(changes, wanted, "in companion mode no VM is deleted");
    Ok(())
}

/// Both directions: what is called is permitted, and what is permitted is called, or the page says why it is not seen.
#[test]
fn each_role_has_what_its_mode_calls_and_no_more() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lab = lab();
    let scopes = scopes(&lab.wire.with(|cloud, _| cloud.settings().clone()));
    lab.wire.with(|cloud, now| stand_by(cloud, 1, *now));
    runtime.block_on(audit(&lab))?;
    let audited = lab.wire.checked();
    Granted::Audit.permits(&scopes, &audited)?;
    runtime.block_on(reads_of_a_controller(&lab))?;
    runtime.block_on(mark(&lab))?;
    Granted::Companion.permits(&scopes, &lab.wire.checked())?;
    runtime.block_on(bill(&lab))?;
    runtime.block_on(reservations(&lab))?;
    Granted::Provisioner.permits(&scopes, &lab.wire.checked())?;
    let reads = lab.wire.checked();
    runtime.block_on(machines(&lab))?;
    Granted::Machines.permits(&scopes, &lab.wire.checked())?;

    let (companion, provisioner) = (companion()?, provisioner()?);
    let called = |parts: &[&BTreeSet<Checked>]| -> BTreeSet<String> {
        parts.iter().copied().flatten().map(|one| one.action.clone()).collect()
    };
    let unseen: BTreeSet<_> =
        documented()?.into_iter().filter(|(_, row)| !row.unseen.is_empty()).map(|(a, _)| a).collect();
    for (names, called) in [
        (&["read-only"][..], called(&[&audited])),
        (&["janitor"], called(&[&reads, &companion])),
        (&["provisioner", "node-resources", "subscription"], called(&[&reads, &provisioner])),
        (&["machines"], called(&[&lab.wire.checked()])),
    ] {
        for name in names {
            let role = role(name)?;
            let idle: Vec<_> = role.difference(&called).filter(|action| !unseen.contains(*action)).collect();
            ensure!(idle.is_empty(), "{name} has what nothing calls: {idle:#?}");
            let seen: Vec<_> = role.intersection(&called).filter(|action| unseen.contains(*action)).collect();
            ensure!(seen.is_empty(), "docs/azure-roles.md says that nothing calls {seen:#?}");
        }
    }
    Ok(())
}
