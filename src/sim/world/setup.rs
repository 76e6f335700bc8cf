//! The initial state of a world.

use super::actions::InjectedState;
use super::controller::SimulatedController;
use super::invariants::GroundTruth;
use super::timeline::Timeline;
use super::{Accounting, Action, DirectAccess, World};
use crate::cloud::{Cloud, CloudSettings};
use crate::cluster::{Cluster, NewNode, Timings as ClusterTimings};
use crate::workload::{PodBudget, PodTemplate, SuspendedJobs, Workload};
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::catalog::overlay::Overlay;
use napkeeper_core::catalog::{Catalog, RegionCatalog, capacity, overhead};
use napkeeper_core::model::cluster::pod::{Labels, Pod, Taint, TaintEffect};
use napkeeper_core::model::cluster::pool::{NodeClass, NodePool};
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{ArmId, NameError, NodeName, ObjectKey, ProviderId, Region, Zone};
use napkeeper_core::model::orphans::sweep::Sweep;
use napkeeper_core::model::settings::{ClusterIdentity, DeletionRule, DeletionRules, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The objects of a folder that a world knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifests {
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
    /// Deployments, StatefulSets and Jobs.
    pub workloads: Vec<(ObjectKey, Workload)>,
    /// Jobs with `spec.suspend: true`.
    pub suspended: Vec<(ObjectKey, Workload)>,
    /// PodDisruptionBudgets.
    pub budgets: Vec<(ObjectKey, PodBudget)>,
    /// Pods without an owner. They are not simulated, and counted as skipped.
    pub pods: Vec<Pod>,
    /// How many objects of other kinds there are, by `apiVersion kind`.
    pub skipped: BTreeMap<String, usize>,
}

/// The initial state of a world.
#[derive(Debug, Clone)]
pub struct WorldSetup {
    /// The region.
    pub region: Region,
    /// The seed of all random choices.
    pub seed: u64,
    /// The first instant.
    pub at: Timestamp,
    /// Its objects.
    pub manifests: Manifests,
    /// Nodes of AKS's own system pool, which is not managed here.
    pub system_nodes: u32,
    /// What happens, and when after the setup.
    pub actions: Vec<(SignedDuration, Action)>,
    /// The deletion rules in force.
    pub deletion_rules: DeletionRules,
}

/// Why a world cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
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
    /// A name is invalid.
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

/// The region's part of the catalogue.
pub(crate) fn region_of(catalog: &Catalog, setup: &WorldSetup) -> Result<RegionCatalog, SetupError> {
    catalog.region(&setup.region).ok_or_else(|| SetupError::Region {
        region: setup.region.to_string(),
        nearest: catalog.nearest_region(setup.region.as_str()).map(ToString::to_string),
        as_of: catalog.as_of().to_string(),
    })
}

/// The version of Kubernetes that worlds begin with.
const FIRST_KUBERNETES_VERSION: &str = "v1.33.0";

impl World {
    /// Sets up a world.
    ///
    /// # Errors
    /// [`SetupError`] when the catalogue does not have the region.
    pub fn new(catalog: &Catalog, setup: WorldSetup) -> Result<Self, SetupError> {
        let region = region_of(catalog, &setup)?;
        let identity = identity(&setup.region)?;
        let cloud = Cloud::new(CloudSettings::of_region(&identity, &region, setup.seed));
        let mut settings = Settings::new(identity);
        settings.deletion_rules = setup.deletion_rules;
        let mut controller = SimulatedController::default();
        controller.clock.is_unchecked = !setup.deletion_rules.enforces(DeletionRule::ClocksAgree);
        let mut world = Self {
            settings,
            seed: setup.seed,
            now: setup.at,
            started_at: setup.at,
            catalog: region,
            cloud,
            azure: Box::new(DirectAccess),
            cluster: Cluster::new(setup.seed, ClusterTimings::default()),
            controller,
            truth: GroundTruth::default(),
            accounting: Accounting::default(),
            timeline: Timeline::default(),
            agenda: BTreeMap::new(),
            scheduled: 0,
            jobs: SuspendedJobs::new(setup.manifests.suspended.iter().cloned()),
            injected: InjectedState::default(),
            provisioner: None,
            launch_reasons: None,
            kubelet_version: Arc::from(FIRST_KUBERNETES_VERSION),
        };
        world.set_control_plane_version(Arc::from(FIRST_KUBERNETES_VERSION));
        for (after, action) in &setup.actions {
            world.schedule_action(setup.at + *after, action.clone());
        }
        install_objects(&mut world.cluster, &world.catalog, &world.settings.cluster.node_resource_group, setup)?;
        Ok(world)
    }
}

/// Creates the manifests and the system nodes in the API server.
pub(crate) fn install_objects(
    cluster: &mut Cluster,
    region: &RegionCatalog,
    group: &ArmId,
    setup: WorldSetup,
) -> Result<(), SetupError> {
    let (now, manifests) = (setup.at, setup.manifests);
    for class in manifests.classes {
        cluster.apply_class(class);
    }
    for pool in manifests.pools {
        cluster.apply_pool(pool);
    }
    for overlay in manifests.overlays {
        cluster.apply_overlay(overlay);
    }
    for sweep in manifests.sweeps {
        cluster.apply_sweep(sweep);
    }
    for (key, template) in &manifests.daemon_sets {
        cluster.apply_daemon_set(key.clone(), template, now);
    }
    for (key, budget) in manifests.budgets {
        cluster.apply_budget(key, budget);
    }
    for i in 0..setup.system_nodes {
        if let Some(node) = system_node(region, group, i)? {
            cluster.add_unmanaged_node(node, now);
        }
    }
    for (key, workload) in manifests.workloads {
        cluster.apply_workload(key, workload, now);
    }
    Ok(())
}

/// A node of AKS's own system pool: 4 cores, in a scale set of this group, for critical addons only.
fn system_node(region: &RegionCatalog, group: &ArmId, index: u32) -> Result<Option<NewNode>, SetupError> {
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
        kubelet_version: None,
    }))
}
