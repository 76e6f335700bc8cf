//! Builds a world: NodePools as users write them, DaemonSets, workloads, and what happens to them.

use anyhow::Result;
use jiff::SignedDuration;
use napkeeper_core::model::amounts::resources::Resources;
use napkeeper_core::model::cluster::pod::{PodShape, Spread, Toleration};
use napkeeper_core::model::cluster::pool::NodePool;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::{Namespace, ObjectKey, ObjectName};
use napkeeper_core::model::requirements::{Operator, Requirements};
use napkeeper_core::model::settings::DeletionRules;
use napkeeper_sim::random::Random;
use napkeeper_sim::workload::{BudgetLimit, PodBudget, PodTemplate, Rollout, Workload, WorkloadKind};
use napkeeper_sim::world::{Action, Manifests, WorldSetup};
use napkeeper_tests::fixtures;
use std::sync::Arc;

/// A world, and what is known of its load.
pub(crate) struct BenchWorld {
    pub(crate) setup: WorldSetup,
    pub(crate) duration: SignedDuration,
    /// After the start: when load drops, and until when it then stays as it is.
    pub(crate) drops: Vec<(SignedDuration, SignedDuration)>,
}

/// Builds a world. All that it draws depends on the seed alone.
pub(crate) struct WorldBuilder {
    pub(crate) random: Random,
    pub(crate) world: BenchWorld,
}

/// A workload of the world.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    pub(crate) key: ObjectKey,
    pub(crate) requests: Resources,
    pub(crate) replicas: u32,
}

/// Percent of the largest load, by hour of the day.
const DAY: [u32; 24] =
    [35, 30, 28, 27, 28, 32, 40, 52, 65, 78, 88, 95, 100, 98, 97, 95, 92, 90, 88, 85, 78, 68, 55, 45];
/// CPU of a pod, in thousandths of a core.
const CPU: [i64; 6] = [250, 500, 500, 1_000, 2_000, 3_000];
/// Memory of a pod, in MiB per core.
const MEMORY_PER_CORE: [i64; 5] = [1_024, 2_048, 3_072, 4_096, 6_144];

pub(crate) fn minutes(n: i64) -> SignedDuration {
    SignedDuration::from_mins(n)
}

impl WorldBuilder {
    /// An empty cluster with one AKSNodeClass and three DaemonSets.
    pub(crate) fn new(family: &str, seed: u64, days: i64) -> Result<Self> {
        let settings = fixtures::settings();
        let manifests = Manifests {
            classes: vec![fixtures::class()],
            daemon_sets: vec![daemon("logs", 100, 256)?, daemon("metrics", 50, 96)?, daemon("network", 100, 128)?],
            ..Manifests::default()
        };
        let setup = WorldSetup {
            region: settings.cluster.region,
            seed,
            at: "2026-08-03T00:00:00Z".parse()?,
            manifests,
            system_nodes: 3,
            actions: Vec::new(),
            deletion_rules: DeletionRules::default(),
        };
        let duration = SignedDuration::from_hours(24 * days);
        let world = BenchWorld { setup, duration, drops: Vec::new() };
        Ok(Self { random: Random::of(seed, family), world })
    }

    /// A NodePool of D sizes of version 5 and newer with at most 8 vCPU, at these capacity types.
    pub(crate) fn pool(&mut self, name: &str, weight: i32, capacity_types: &[&str]) -> Result<()> {
        let mut pool = pool_with(name, capacity_types)?;
        pool.weight = weight;
        pool.requirements.add_entry(labels::SKU_FAMILY, Operator::In, &["D"])?;
        pool.requirements.add_entry(labels::SKU_VERSION, Operator::Gte, &["5"])?;
        pool.requirements.add_entry(labels::SKU_CPU, Operator::Lte, &["8"])?;
        self.world.setup.manifests.pools.push(pool);
        Ok(())
    }

    /// Deployments of about 17 cores each, every third spread over zones, every second with a disruption budget.
    pub(crate) fn deployments(&mut self, count: usize) -> Result<Vec<Load>> {
        let mut loads = Vec::new();
        for i in 0..count {
            let cpu = self.random.pick(&CPU).copied().unwrap_or(500);
            let memory = cpu * self.random.pick(&MEMORY_PER_CORE).copied().unwrap_or(2_048) / 1_000;
            let cores = self.between(10, 24);
            let replicas = (1_000 * cores).div_ceil(u32::try_from(cpu)?).clamp(4, 60);
            let name = format!("app-{i}");
            let shape = fixtures::shape(&name, cpu, memory, i % 3 == 0);
            loads.push(self.deployment(&name, shape, replicas)?);
            if i % 2 == 0 {
                self.budget(&name, BudgetLimit::MaxUnavailablePercent(20))?;
            }
        }
        Ok(loads)
    }

    pub(crate) fn deployment(&mut self, name: &str, shape: Arc<PodShape>, replicas: u32) -> Result<Load> {
        self.workload(name, PodTemplate::new(shape), WorkloadKind::Deployment { replicas }, replicas)
    }

    pub(crate) fn workload(
        &mut self,
        name: &str,
        template: PodTemplate,
        kind: WorkloadKind,
        replicas: u32,
    ) -> Result<Load> {
        let load = Load { key: key(name)?, requests: template.shape.requests.clone(), replicas };
        self.world.setup.manifests.workloads.push((load.key.clone(), Workload { template, kind }));
        Ok(load)
    }

    /// A disruption budget for the pods of an app.
    pub(crate) fn budget(&mut self, app: &str, limit: BudgetLimit) -> Result<()> {
        let budget = PodBudget {
            namespace: Namespace::new("default")?,
            selector: app_is(app)?,
            limit,
            always_allows_unready: false,
        };
        self.world.setup.manifests.budgets.push((key(app)?, budget));
        Ok(())
    }

    /// Something happens; the order of these calls does not matter.
    pub(crate) fn at(&mut self, after: SignedDuration, action: Action) {
        if after < self.world.duration {
            self.world.setup.actions.push((after, action));
        }
    }

    pub(crate) fn scale(&mut self, after: SignedDuration, load: &Load, replicas: u32) {
        self.at(after, Action::Scale { workload: load.key.clone(), replicas });
    }

    /// A rollout with 25 % surge and nothing missing.
    pub(crate) fn roll_out(&mut self, after: SignedDuration, load: &Load, requests: Option<Resources>) {
        let max_surge = load.replicas.div_ceil(4);
        let rollout = Rollout { requests, max_surge, max_unavailable: 0 };
        self.at(after, Action::Rollout { workload: load.key.clone(), rollout });
    }

    /// Every so often, each load follows the hours of the day, give or take some percent.
    pub(crate) fn follow_the_day(&mut self, loads: &[Load], every: SignedDuration, noise: u32) {
        let mut after = every;
        while after < self.world.duration {
            for load in loads {
                let percent = level(after) * self.between(100 - noise, 100 + noise) / 100;
                self.scale(after, load, (load.replicas * percent / 100).max(2));
            }
            after += every;
        }
    }

    /// An instant of a day, in minutes after the start.
    pub(crate) fn minute_of_day(&mut self, day: i64) -> SignedDuration {
        minutes(day * 24 * 60 + i64::from(self.between(30, 24 * 60 - 1)))
    }

    pub(crate) fn days(&self) -> i64 {
        self.world.duration.as_hours() / 24
    }

    pub(crate) fn between(&mut self, least: u32, most: u32) -> u32 {
        u32::try_from(self.random.between(u64::from(least), u64::from(most))).unwrap_or(most)
    }

    /// The world, its actions in the order of their times.
    pub(crate) fn finish(mut self) -> BenchWorld {
        self.world.setup.actions.sort_by_key(|(after, _)| *after);
        self.world
    }
}

/// Percent of the largest load, after the start.
fn level(after: SignedDuration) -> u32 {
    let minutes = after.as_mins().unsigned_abs();
    let hour = |n: u64| DAY[usize::try_from(n % 24).unwrap_or(0)];
    let (this, next) = (hour(minutes / 60), hour(minutes / 60 + 1));
    let part = u32::try_from(minutes % 60).unwrap_or(0);
    (this * (60 - part) + next * part) / 60
}

/// A DaemonSet that runs on every node, whatever its taints.
fn daemon(name: &str, cpu_millis: i64, memory_mib: i64) -> Result<(ObjectKey, PodTemplate)> {
    let mut shape = PodShape::clone(&fixtures::shape(name, cpu_millis, memory_mib, false));
    shape.tolerations.push(Toleration { key: None, value: None, effect: None });
    Ok((key(name)?, PodTemplate::new(shape)))
}

/// A NodePool as users write it, for all sizes.
pub(crate) fn pool_with(name: &str, capacity_types: &[&str]) -> Result<NodePool> {
    let mut pool = fixtures::pool(name);
    pool.requirements.add_entry(labels::CAPACITY_TYPE, Operator::In, capacity_types)?;
    pool.expire_after = Some(SignedDuration::from_hours(720));
    pool.termination_grace_period = Some(SignedDuration::from_hours(24));
    pool.disruption.consolidate_after = Some(minutes(1));
    Ok(pool)
}

pub(crate) fn key(name: &str) -> Result<ObjectKey> {
    Ok(ObjectKey { namespace: Namespace::new("default")?, name: ObjectName::new(name)? })
}

pub(crate) fn app_is(app: &str) -> Result<Requirements> {
    let mut selector = Requirements::new();
    selector.add_entry("app", Operator::In, &[app])?;
    Ok(selector)
}

/// A constraint that spreads the pods of an app over the values of a label.
pub(crate) fn spread_over(label: &str, max_skew: u32, app: &str) -> Result<Spread> {
    Ok(Spread::over(label, max_skew, app_is(app)?))
}
