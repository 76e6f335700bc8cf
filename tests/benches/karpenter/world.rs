//! Worlds: Deployments, and what happens to them over time, as data.

use napkeeper_tests::fixtures::TEN_KINDS;
use serde::Serialize;

/// A load on a cluster.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct World {
    /// As it is called on the command line.
    pub(crate) name: &'static str,
    /// `karpenter.sh/capacity-type` of the NodePool.
    pub(crate) capacity_types: &'static [&'static str],
    /// Its Deployments.
    pub(crate) apps: Vec<App>,
    /// What happens, in the order of time.
    pub(crate) steps: Vec<Step>,
    /// How long it lasts.
    pub(crate) seconds: u32,
}

/// A Deployment with a PodDisruptionBudget of `maxUnavailable: 25%`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct App {
    /// Its name.
    pub(crate) name: String,
    /// CPU of a pod, in thousandths of a core.
    pub(crate) cpu_millis: u32,
    /// Memory of a pod, in MiB.
    pub(crate) memory_mib: u32,
    /// Its pods tolerate no spot.
    pub(crate) on_demand: bool,
}

/// What happens at a time.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Step {
    /// Seconds after the start.
    pub(crate) at: u32,
    /// The changes, in order.
    pub(crate) changes: Vec<Change>,
}

/// A change of the Deployment with this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Change {
    /// Its replicas become so many.
    Scale { app: usize, replicas: u32 },
    /// All its pods are replaced: `maxSurge: 25%`, `maxUnavailable: 0`.
    Rollout { app: usize },
}

/// Percent of the largest load, by hour of the day.
const DAY: [u32; 24] =
    [35, 30, 28, 27, 28, 32, 40, 52, 65, 78, 88, 95, 100, 98, 97, 95, 92, 90, 88, 85, 78, 68, 55, 45];
const QUARTER_OF_AN_HOUR: u32 = 900;

/// All worlds, each a quarter of an hour on at most 60 nodes.
pub(crate) fn all() -> Vec<World> {
    vec![steps(), rollouts(), diurnal()]
}

/// 200, 400, 80, 200 and 20 pods, on demand.
fn steps() -> World {
    let levels = [(0, 20), (150, 40), (300, 8), (540, 20), (690, 2)];
    let steps = levels.map(|(at, replicas)| Step { at, changes: scale_all(replicas) });
    world("steps", &["on-demand"], steps.into())
}

/// 150 pods; each minute one Deployment is rolled out, and half of them have twice the pods for five minutes.
fn rollouts() -> World {
    let mut steps = vec![Step { at: 0, changes: scale_all(15) }];
    for round in 0..11 {
        let mut changes = vec![Change::Rollout { app: round as usize * 3 % TEN_KINDS.len() }];
        let level = [(3, 30), (8, 15)].into_iter().find(|(at, _)| *at == round);
        changes
            .extend(level.into_iter().flat_map(|(_, replicas)| (0..5).map(move |app| Change::Scale { app, replicas })));
        steps.push(Step { at: 120 + 60 * round, changes });
    }
    world("rollouts", &["on-demand"], steps)
}

/// A day in a quarter of an hour on spot and on-demand capacity; half of the Deployments tolerate no spot.
fn diurnal() -> World {
    let hour = QUARTER_OF_AN_HOUR / 24;
    let steps = DAY.iter().zip(0..).map(|(percent, n)| Step { at: n * hour, changes: scale_all(28 * percent / 100) });
    let mut world = world("diurnal", &["spot", "on-demand"], steps.collect());
    world.apps.iter_mut().step_by(2).for_each(|app| app.on_demand = true);
    world
}

/// So many pods that wait when the controllers start, of all shapes alike.
pub(crate) fn waiting(pods: u32) -> World {
    let shapes = u32::try_from(TEN_KINDS.len()).unwrap_or(1);
    world("waiting", &["on-demand"], vec![Step { at: 0, changes: scale_all(pods.div_ceil(shapes)) }])
}

fn world(name: &'static str, capacity_types: &'static [&'static str], steps: Vec<Step>) -> World {
    let app = |(n, (cpu_millis, memory_mib)): (usize, &(u32, u32))| App {
        name: format!("app-{n}"),
        cpu_millis: *cpu_millis,
        memory_mib: *memory_mib,
        on_demand: false,
    };
    let apps = TEN_KINDS.iter().enumerate().map(app).collect();
    World { name, capacity_types, apps, steps, seconds: QUARTER_OF_AN_HOUR }
}

fn scale_all(replicas: u32) -> Vec<Change> {
    (0..TEN_KINDS.len()).map(|app| Change::Scale { app, replicas }).collect()
}

impl World {
    /// How many pods its steps alone create: what scaling adds, and all pods of what is rolled out.
    pub(crate) fn pods_created(&self) -> usize {
        let mut replicas = vec![0; self.apps.len()];
        let mut created = 0;
        for change in self.steps.iter().flat_map(|step| &step.changes) {
            match *change {
                Change::Scale { app, replicas: to } => {
                    created += to.saturating_sub(replicas[app]);
                    replicas[app] = to;
                }
                Change::Rollout { app } => created += replicas[app],
            }
        }
        created as usize
    }

    /// When the replicas of all Deployments together change, and when they do so next.
    pub(crate) fn levels(&self) -> Vec<(u32, u32)> {
        let scales = |step: &&Step| step.changes.iter().any(|change| matches!(change, Change::Scale { .. }));
        let mut starts: Vec<u32> = self.steps.iter().filter(scales).map(|step| step.at).collect();
        starts.push(self.seconds);
        starts.windows(2).map(|pair| (pair[0], pair[1])).collect()
    }
}
