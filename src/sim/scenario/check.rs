//! Checking: which steps of a scenario name nothing?

use super::{MOST_NODES, MOST_PODS, Manifests, Scenario, problem};
use crate::world::{Deed, Scarce};
use napkeeper_api::manifests::Problem;
use napkeeper_api::path::Path;
use napkeeper_api::yaml::Document;
use napkeeper_core::catalog::{Catalog, RegionCatalog};
use napkeeper_core::model::names::{NodePoolName, ObjectKey, ObjectName};
use napkeeper_core::model::support::spelling::nearest;
use std::collections::BTreeSet;

/// Most names in a message.
const SHOWN: usize = 5;
const OF_MANIFESTS: &str = " in the manifests";

/// All steps that name what is not there: a NodePool or a workload that the manifests do not have, a VM size or zone that
/// the region does not have, a VM family that nobody has, a volume that no step has added.
#[must_use]
pub fn check(scenario: &Scenario, document: &Document, manifests: &Manifests, catalog: &Catalog) -> Vec<Problem> {
    let Some(region) = catalog.region(&scenario.region) else {
        let near = catalog.nearest_region(scenario.region.as_str());
        let meant = near.map(|r| format!("; did you mean {r}?")).unwrap_or_default();
        let message = format!("region {1} not found in the catalogue of {0}{meant}", catalog.as_of(), scenario.region);
        return vec![problem(document, &Path::from_dotted("spec.region"), message)];
    };
    let there = There::new(scenario, manifests, &region, catalog);
    let mut wrong = Vec::new();
    let at = Path::from_dotted("spec.systemNodes");
    let many = too_many("nodes", scenario.system_nodes.into(), MOST_NODES);
    wrong.extend(many.map(|message| problem(document, &at, message)));
    let mut made: BTreeSet<&ObjectName> = BTreeSet::new();
    for step in &scenario.steps {
        let refusal = match &step.deed {
            Deed::Scale { workload, replicas } => {
                let known = there.running(workload).map(|m| ("scale.workload", m));
                known.or_else(|| too_many("pods", (*replicas).into(), MOST_PODS).map(|m| ("scale.replicas", m)))
            }
            Deed::Delete { workload } => there.running(workload).map(|m| ("delete.workload", m)),
            Deed::StartJob { workload } => there.suspended(workload).map(|m| ("startJob.workload", m)),
            Deed::ScalePool { pool, replicas } => {
                let known = there.fleet(pool).map(|m| ("scalePool.pool", m));
                known.or_else(|| too_many("nodes", *replicas, MOST_NODES).map(|m| ("scalePool.replicas", m)))
            }
            Deed::LabelPool { pool, .. } => there.pool(pool).map(|m| ("labelPool.pool", m)),
            Deed::Quota { family: Some(family), .. } => {
                missing("VM family", "", family, &there.families).map(|m| ("quota.family", m))
            }
            Deed::Reserve { size, zone, .. } => {
                let zone = zone.as_ref().and_then(|zone| missing("zone", &there.within, zone.as_str(), &there.zones));
                let size = missing("VM size", &there.within, size.as_str(), &there.sizes).map(|m| ("reserve.size", m));
                size.or_else(|| zone.map(|m| ("reserve.zone", m)))
            }
            Deed::Refuse(scarce) => there.scarce(scarce, "refuse"),
            Deed::NoCapacity(scarce) => there.scarce(scarce, "noCapacity"),
            Deed::LoseVolume { name } => missing("volume", "", name.as_str(), &there.volumes)
                .map(|m| ("loseVolume.name", format!("{m}; create one with a step addVolume"))),
            Deed::AddVolume { name, .. } => there.again(name, step.every.is_some(), &mut made, "addVolume.name"),
            Deed::LeakNic { name } => there.again(name, step.every.is_some(), &mut made, "leakNic.name"),
            Deed::ForeignVm { name } => there.again(name, step.every.is_some(), &mut made, "foreignVm.name"),
            _ => None,
        };
        if let Some((at, message)) = refusal {
            let path = at.split('.').fold(step.path.clone(), |path, key| path.key(key));
            wrong.push(problem(document, &path, message));
        }
    }
    wrong
}

/// What there is to name.
struct There {
    /// ` in ` the region.
    within: String,
    pools: Vec<String>,
    fleets: Vec<String>,
    running: Vec<String>,
    suspended: Vec<String>,
    sizes: Vec<String>,
    families: Vec<String>,
    zones: Vec<String>,
    volumes: Vec<String>,
}

/// A field of a step, and what is wrong with it.
type Refusal = (&'static str, String);

impl There {
    fn new(scenario: &Scenario, manifests: &Manifests, region: &RegionCatalog, catalog: &Catalog) -> Self {
        let sorted = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>();
        let sizes = &region.sizes;
        let volume = |deed: &Deed| match deed {
            Deed::AddVolume { name, .. } => Some(name.to_string()),
            _ => None,
        };
        Self {
            within: format!(" in {}", region.region),
            pools: manifests.pools.iter().map(|pool| pool.name.to_string()).collect(),
            fleets: manifests.pools.iter().filter(|p| p.replicas.is_some()).map(|p| p.name.to_string()).collect(),
            running: manifests.workloads.iter().map(|(key, _)| key.to_string()).collect(),
            suspended: manifests.suspended.iter().map(|(key, _)| key.to_string()).collect(),
            sizes: sorted(sizes.iter().map(|s| s.facts.name.to_string()).collect()),
            // A quota on a family that is not sold here does no harm, and lets one scenario serve many regions.
            families: sorted(catalog.sizes().iter().map(|s| s.family.to_string()).collect()),
            zones: sorted(sizes.iter().flat_map(|s| &s.zones).map(ToString::to_string).collect()),
            volumes: scenario.steps.iter().filter_map(|s| volume(&s.deed)).collect(),
        }
    }

    fn pool(&self, name: &NodePoolName) -> Option<String> {
        missing("NodePool", OF_MANIFESTS, name.as_str(), &self.pools)
    }

    fn fleet(&self, name: &NodePoolName) -> Option<String> {
        let is_fixed = self.fleets.iter().any(|known| known == name.as_str());
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

    fn scarce(&self, scarce: &Scarce, step: &str) -> Option<Refusal> {
        let size = scarce.size.as_ref().and_then(|s| missing("VM size", &self.within, s.as_str(), &self.sizes));
        let zone = scarce.zone.as_ref().and_then(|z| missing("zone", &self.within, z.as_str(), &self.zones));
        match (step, size, zone) {
            ("refuse", Some(message), _) => Some(("refuse.size", message)),
            ("refuse", None, Some(message)) => Some(("refuse.zone", message)),
            (_, Some(message), _) => Some(("noCapacity.size", message)),
            (_, None, Some(message)) => Some(("noCapacity.zone", message)),
            (_, None, None) => None,
        }
    }

    /// A name is made once: Azure has one resource of a name and kind.
    fn again<'s>(
        &self,
        name: &'s ObjectName,
        repeats: bool,
        made: &mut BTreeSet<&'s ObjectName>,
        at: &'static str,
    ) -> Option<Refusal> {
        if repeats {
            return Some((at, format!("{name} can be created only once: remove every, or use one step per name")));
        }
        (!made.insert(name)).then(|| (at, format!("{name} is already created by an earlier step: use unique names")))
    }
}

/// Says that a number is more than a simulation is made for.
pub(super) fn too_many(what: &str, asked: u64, most: u32) -> Option<String> {
    (asked > u64::from(most)).then(|| format!("{asked} {what} exceed the limit of a simulation: use at most {most}"))
}

/// Says that a name is not among those that there are, in that place.
fn missing(what: &str, within: &str, name: &str, there: &[String]) -> Option<String> {
    if there.iter().any(|known| known == name) {
        return None;
    }
    let remedy = match nearest(name, there.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None if there.is_empty() => "none found".to_owned(),
        None if there.len() <= SHOWN => format!("found: {}", there.join(", ")),
        None => format!("found {}, for example {}", there.len(), there[..SHOWN].join(", ")),
    };
    Some(format!("{what} {name} not found{within}: {remedy}"))
}
