//! Starting: how does a world begin?

use super::controller::Keeper;
use super::truth::Truth;
use super::{Books, Deed, Direct, World};
use crate::cloud::{Cloud, CloudSettings};
use crate::cluster::{Cluster, NewNode, Timings as ClusterTimings};
use crate::workload::{PodBudget, PodTemplate, Workload};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::overlay::Overlay;
use napkeeper_core::catalog::{Catalog, RegionCatalog, capacity, overhead};
use napkeeper_core::model::cluster::pod::{Labels, Taint, TaintEffect};
use napkeeper_core::model::cluster::pool::{NodeClass, NodePool};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, NameError, NodeName, ObjectKey, ProviderId, Region, Zone};
use napkeeper_core::model::orphans::sweep::Sweep;
use napkeeper_core::model::settings::{ClusterIdentity, DeletionRules, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How a world begins.
#[derive(Debug, Clone)]
pub struct Start {
    /// The region.
    pub region: Region,
    /// The seed of all chance.
    pub seed: u64,
    /// The first instant.
    pub at: Timestamp,
    /// NodePools.
    pub pools: Vec<NodePool>,
    /// AKSNodeClasses.
    pub classes: Vec<NodeClass>,
    /// NodeOverlays.
    pub overlays: Vec<Overlay>,
    /// OrphanSweeps.
    pub sweeps: Vec<Sweep>,
    /// DaemonSets.
    pub daemon_sets: Vec<(ObjectKey, PodTemplate)>,
    /// Deployments, StatefulSets and Jobs that run from the start.
    pub workloads: Vec<(ObjectKey, Workload)>,
    /// Jobs that a deed starts.
    pub suspended: Vec<(ObjectKey, Workload)>,
    /// PodDisruptionBudgets.
    pub budgets: Vec<(ObjectKey, PodBudget)>,
    /// Nodes of AKS's own system pool, which nobody here manages.
    pub system_nodes: u32,
    /// What happens, and when after the start.
    pub deeds: Vec<(SignedDuration, Deed)>,
    /// The law of deleting.
    pub law: DeletionRules,
}

/// Why a world cannot begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The catalogue does not have the region.
    #[error("region {region:?} not found in the catalogue of \
             {as_of}{}", nearest.as_ref().map(|n| format!("; did you mean {n}?")).unwrap_or_default())]
    Region {
        /// As given.
        region: String,
        /// The nearest name that it has.
        nearest: Option<String>,
        /// The month of the catalogue.
        as_of: String,
    },
    /// A name is not a good one.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// Subscription, cluster and group of the embedded world.
pub(crate) fn identity(region: &Region) -> Result<ClusterIdentity, NameError> {
    let subscription = "/subscriptions/00000000-0000-4000-8000-000000000001";
    Ok(ClusterIdentity {
        id: ArmId::new(format!(
            "{subscription}/resourceGroups/demo/providers/Microsoft.ContainerService/managedClusters/demo"
        ))?,
        tag_value: Arc::from("demo"),
        node_resource_group: ArmId::new(format!("{subscription}/resourceGroups/MC_demo_demo_{region}"))?,
        region: region.clone(),
    })
}

/// What the region of a start offers.
pub(crate) fn region_of(catalog: &Catalog, start: &Start) -> Result<RegionCatalog, StartError> {
    catalog.region(&start.region).ok_or_else(|| StartError::Region {
        region: start.region.to_string(),
        nearest: catalog.nearest_region(start.region.as_str()).map(ToString::to_string),
        as_of: catalog.as_of().to_string(),
    })
}

impl World {
    /// Begins a world.
    ///
    /// # Errors
    /// [`StartError`] when the catalogue does not have the region.
    pub fn begin(catalog: &Catalog, start: Start) -> Result<Self, StartError> {
        let region = region_of(catalog, &start)?;
        let identity = identity(&start.region)?;
        let cloud = Cloud::new(CloudSettings::of_region(&identity, &region, start.seed));
        let mut settings = Settings::new(identity);
        settings.deletion_rules = start.law;
        let mut world = Self {
            settings,
            seed: start.seed,
            now: start.at,
            started_at: start.at,
            catalog: region,
            cloud,
            azure: Box::new(Direct),
            cluster: Cluster::new(start.seed, ClusterTimings::default()),
            controller: Keeper::default(),
            truth: Truth::default(),
            books: Books::default(),
            timeline: Vec::new(),
            agenda: BTreeMap::new(),
            suspended: start.suspended.iter().cloned().collect(),
            jobs_started: 0,
            uids: BTreeMap::new(),
            ledger_read: 0,
            group_is_ours: true,
            listed_as_ours: true,
            faults_end: None,
            told_waiting: BTreeSet::new(),
            races: Vec::new(),
            beside: Vec::new(),
            bystanders_fail: None,
            kept: BTreeMap::new(),
            reasons: None,
        };
        for (after, deed) in &start.deeds {
            world.plan_deed(start.at + *after, deed.clone());
        }
        furnish(&mut world.cluster, &world.catalog, &world.settings.cluster.node_resource_group, start)?;
        Ok(world)
    }
}

/// Puts the manifests and the system nodes into the API server.
pub(crate) fn furnish(
    cluster: &mut Cluster,
    region: &RegionCatalog,
    group: &ArmId,
    start: Start,
) -> Result<(), StartError> {
    let now = start.at;
    for class in start.classes {
        cluster.apply_class(class);
    }
    for pool in start.pools {
        cluster.apply_pool(pool);
    }
    for overlay in start.overlays {
        cluster.apply_overlay(overlay);
    }
    for sweep in start.sweeps {
        cluster.apply_sweep(sweep);
    }
    for (key, template) in &start.daemon_sets {
        cluster.apply_daemon_set(key.clone(), template, now);
    }
    for (key, budget) in start.budgets {
        cluster.apply_budget(key, budget);
    }
    for i in 0..start.system_nodes {
        if let Some(node) = system_node(region, group, i)? {
            cluster.add_unmanaged_node(node, now);
        }
    }
    for (key, workload) in start.workloads {
        cluster.apply_workload(key, workload, now);
    }
    Ok(())
}

/// A node of AKS's own system pool: 4 cores, in a scale set of this group, for critical addons only.
fn system_node(region: &RegionCatalog, group: &ArmId, index: u32) -> Result<Option<NewNode>, StartError> {
    let wanted = |s: &&napkeeper_core::catalog::OfferedSize| s.facts.name.as_str() == "Standard_D4s_v5";
    let size = region.sizes.iter().find(wanted).or_else(|| region.sizes.iter().find(|s| s.facts.vcpus == 4));
    let Some(facts) = size.map(|s| Arc::clone(&s.facts)) else { return Ok(None) };
    let name = NodeName::new(format!("aks-system-00000000-vmss{index:06}"))?;
    let vm = format!(
        "{group}/providers/Microsoft.Compute/virtualMachineScaleSets/aks-system-00000000-vmss/virtualMachines/{index}"
    );
    let zone = Zone::of(&region.region, u8::try_from(index % 3 + 1).unwrap_or(1));
    let label = |k: &str, v: &str| (Arc::from(k), Arc::from(v));
    let has = capacity(&facts, 128, 110);
    Ok(Some(NewNode {
        name,
        provider_id: ProviderId::of_vm(&ArmId::new(vm)?),
        labels: Labels::from([
            label(labels::ZONE, zone.as_str()),
            label(labels::ARCH, facts.arch.as_str()),
            label(labels::OS, "linux"),
            label(labels::INSTANCE_TYPE, facts.name.as_str()),
            label(labels::MODE, "system"),
        ]),
        taints: vec![Taint {
            key: Arc::from("CriticalAddonsOnly"),
            value: Arc::from("true"),
            effect: TaintEffect::NoSchedule,
        }],
        allocatable: has.minus(&overhead(&facts)),
        capacity: has,
    }))
}
