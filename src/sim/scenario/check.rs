//! Checks that the steps of a scenario name things that exist.

use super::{MOST_NODES, MOST_PODS, Manifests, Scenario, problem};
use crate::world::{Action, ShortageSpec};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Problem;
use napkeeper_api::yaml::Document;
use napkeeper_core::catalog::{Catalog, RegionCatalog};
use napkeeper_core::model::names::{NodePoolName, ObjectKey, ObjectName};
use napkeeper_core::model::support::spelling::nearest;
use std::collections::BTreeSet;

/// Most names in a message.
const SHOWN: usize = 5;
const OF_MANIFESTS: &str = " in the manifests";

/// All steps with unknown names: a NodePool or workload that is not in the manifests, a VM size or zone that is not in
/// the region, an unknown VM family, a volume that no step has added.
#[must_use]
pub fn check(scenario: &Scenario, document: &Document, manifests: &Manifests, catalog: &Catalog) -> Vec<Problem> {
    let Some(region) = catalog.region(&scenario.region) else {
        let near = catalog.nearest_region(scenario.region.as_str());
        let meant = near.map(|r| format!("; did you mean {r}?")).unwrap_or_default();
        let message = format!("region {1} not found in the catalogue of {0}{meant}", catalog.as_of(), scenario.region);
        return vec![problem(document, &Path::from_dotted("spec.region"), message)];
    };
    let known = KnownNames::new(scenario, manifests, &region, catalog);
    let mut wrong = Vec::new();
    let at = Path::from_dotted("spec.systemNodes");
    let many = too_many("nodes", scenario.system_nodes.into(), MOST_NODES);
    wrong.extend(many.map(|message| problem(document, &at, message)));
    let mut made: BTreeSet<&ObjectName> = BTreeSet::new();
    for step in &scenario.steps {
        let refusal = match &step.action {
            Action::Scale { workload, replicas } => {
                let known = known.running(workload).map(|m| ("scale.workload", m));
                known.or_else(|| too_many("pods", (*replicas).into(), MOST_PODS).map(|m| ("scale.replicas", m)))
            }
            Action::Delete { workload } => known.running(workload).map(|m| ("delete.workload", m)),
            Action::StartJob { workload } => known.suspended(workload).map(|m| ("startJob.workload", m)),
            Action::ScalePool { pool, replicas } => {
                let known = known.static_pool(pool).map(|m| ("scalePool.pool", m));
                known.or_else(|| too_many("nodes", *replicas, MOST_NODES).map(|m| ("scalePool.replicas", m)))
            }
            Action::DeletePool { pool, .. } => known.pool(pool).map(|m| ("deletePool.pool", m)),
            Action::LabelPool { pool, .. } => known.pool(pool).map(|m| ("labelPool.pool", m)),
            Action::Quota { family: Some(family), .. } => {
                missing("VM family", "", family, &known.families).map(|m| ("quota.family", m))
            }
            Action::Reserve { size, zone, .. } => {
                let zone = zone.as_ref().and_then(|zone| missing("zone", &known.within, zone.as_str(), &known.zones));
                let size = missing("VM size", &known.within, size.as_str(), &known.sizes).map(|m| ("reserve.size", m));
                size.or_else(|| zone.map(|m| ("reserve.zone", m)))
            }
            Action::Refuse(shortage) => known.shortage(shortage, "refuse"),
            Action::NoCapacity(shortage) => known.shortage(shortage, "noCapacity"),
            Action::LoseVolume { name } => missing("volume", "", name.as_str(), &known.volumes)
                .map(|m| ("loseVolume.name", format!("{m}; create one with a step addVolume"))),
            Action::AddVolume { name, .. } => {
                known.check_created_once(name, step.every.is_some(), &mut made, "addVolume.name")
            }
            Action::LeakNic { name } => known.check_created_once(name, step.every.is_some(), &mut made, "leakNic.name"),
            Action::ForeignVm { name } => {
                known.check_created_once(name, step.every.is_some(), &mut made, "foreignVm.name")
            }
            _ => None,
        };
        if let Some((at, message)) = refusal {
            let path = at.split('.').fold(step.path.clone(), |path, key| path.key(key));
            wrong.push(problem(document, &path, message));
        }
    }
    wrong
}

/// Names that steps may use.
struct KnownNames {
    /// ` in ` the region.
    within: String,
    pools: Vec<String>,
    static_pools: Vec<String>,
    running: Vec<String>,
    suspended: Vec<String>,
    sizes: Vec<String>,
    families: Vec<String>,
    zones: Vec<String>,
    volumes: Vec<String>,
}

/// A field of a step, and its problem.
type StepProblem = (&'static str, String);

impl KnownNames {
    fn new(scenario: &Scenario, manifests: &Manifests, region: &RegionCatalog, catalog: &Catalog) -> Self {
        let sorted = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>();
        let sizes = &region.sizes;
        let volume = |action: &Action| match action {
            Action::AddVolume { name, .. } => Some(name.to_string()),
            _ => None,
        };
        Self {
            within: format!(" in {}", region.region),
            pools: manifests.pools.iter().map(|pool| pool.name.to_string()).collect(),
            static_pools: manifests.pools.iter().filter(|p| p.replicas.is_some()).map(|p| p.name.to_string()).collect(),
            running: manifests.workloads.iter().map(|(key, _)| key.to_string()).collect(),
            suspended: manifests.suspended.iter().map(|(key, _)| key.to_string()).collect(),
            sizes: sorted(sizes.iter().map(|s| s.facts.name.to_string()).collect()),
            // A quota on a family that the region lacks is harmless, so that a scenario works in many regions.
            families: sorted(catalog.sizes().iter().map(|s| s.family.to_string()).collect()),
            zones: sorted(sizes.iter().flat_map(|s| &s.zones).map(ToString::to_string).collect()),
            volumes: scenario.steps.iter().filter_map(|s| volume(&s.action)).collect(),
        }
    }

    fn pool(&self, name: &NodePoolName) -> Option<String> {
        missing("NodePool", OF_MANIFESTS, name.as_str(), &self.pools)
    }

    fn static_pool(&self, name: &NodePoolName) -> Option<String> {
        let is_fixed = self.static_pools.iter().any(|known| known == name.as_str());
        let refusal = || format!("NodePool {name} has no replicas: the API server does not allow adding them later");
        self.pool(name).or_else(|| (!is_fixed).then(refusal))
    }

    fn running(&self, key: &ObjectKey) -> Option<String> {
        let name = key.to_string();
        if self.suspended.contains(&name) {
            return Some(format!("Job {name} is suspended: start it with a step startJob"));
        }
        missing("workload", OF_MANIFESTS, &name, &self.running)
    }

    fn suspended(&self, key: &ObjectKey) -> Option<String> {
        let name = key.to_string();
        if self.running.contains(&name) {
            return Some(format!("{name} runs from the start: only a Job with spec.suspend: true can be started"));
        }
        missing("suspended Job", OF_MANIFESTS, &name, &self.suspended)
    }

    fn shortage(&self, shortage: &ShortageSpec, step: &str) -> Option<StepProblem> {
        let size = shortage.size.as_ref().and_then(|s| missing("VM size", &self.within, s.as_str(), &self.sizes));
        let zone = shortage.zone.as_ref().and_then(|z| missing("zone", &self.within, z.as_str(), &self.zones));
        match (step, size, zone) {
            ("refuse", Some(message), _) => Some(("refuse.size", message)),
            ("refuse", None, Some(message)) => Some(("refuse.zone", message)),
            (_, Some(message), _) => Some(("noCapacity.size", message)),
            (_, None, Some(message)) => Some(("noCapacity.zone", message)),
            (_, None, None) => None,
        }
    }

    /// A name is made once: Azure has one resource of a name and kind.
    fn check_created_once<'s>(
        &self,
        name: &'s ObjectName,
        repeats: bool,
        made: &mut BTreeSet<&'s ObjectName>,
        at: &'static str,
    ) -> Option<StepProblem> {
        if repeats {
            return Some((at, format!("{name} can be created only once: remove every, or use one step per name")));
        }
        (!made.insert(name)).then(|| (at, format!("{name} is already created by an earlier step: use unique names")))
    }
}

/// The message for a number above the limit of a simulation.
pub(super) fn too_many(noun: &str, number: u64, most: u32) -> Option<String> {
    (number > u64::from(most)).then(|| format!("{number} {noun} exceed the limit of a simulation: use at most {most}"))
}

/// The message for a name that does not exist; `None` when it does.
fn missing(kind: &str, within: &str, name: &str, known: &[String]) -> Option<String> {
    if known.iter().any(|known| known == name) {
        return None;
    }
    let remedy = match nearest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None if known.is_empty() => "none found".to_owned(),
        None if known.len() <= SHOWN => format!("found: {}", known.join(", ")),
        None => format!("found {}, for example {}", known.len(), known[..SHOWN].join(", ")),
    };
    Some(format!("{kind} {name} not found{within}: {remedy}"))
}
