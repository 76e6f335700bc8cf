//! Scenario files.
//!
//! [`read`] turns a document into a [`Scenario`], [`Manifests::collect`] collects the objects of a folder,
//! and [`check`] finds steps with unknown names. All errors are [`Problem`]s with positions, reported before anything
//! runs.

mod check;
mod manifests;
mod read;
#[cfg(test)]
mod tests;

pub use crate::world::Manifests;
use crate::world::{Action, WorldSetup};
pub use check::check;
use jiff::{SignedDuration, Timestamp};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Problem;
use napkeeper_api::yaml::Document;
use napkeeper_core::model::names::{NameError, Region};
use napkeeper_core::model::settings::DeletionRules;
pub use read::read;

/// `apiVersion` of a scenario.
pub const API_VERSION: &str = "napkeeper.io/v1alpha1";
/// `kind` of a scenario.
pub const KIND: &str = "Scenario";
/// Longest time that a scenario may last: a leap year.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(366 * 24);
/// The default number of nodes of AKS's system pool: one per zone.
const SYSTEM_NODES: u32 = 3;
/// Most pods of a workload: a world is held in memory, and evaluated every few simulated seconds.
const MOST_PODS: u32 = 100_000;
/// Most nodes of a pool of fixed size.
const MOST_NODES: u32 = 5_000;

/// What happens to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scenario {
    /// Name.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Where.
    pub region: Region,
    /// The first instant.
    pub start: Timestamp,
    /// How long it lasts.
    pub duration: SignedDuration,
    /// The seed of all random choices.
    pub seed: u64,
    /// Nodes of AKS's own system pool.
    pub system_nodes: u32,
    /// What happens, in the order of the file.
    pub steps: Vec<Step>,
}

/// One step of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When after the start; of a step that repeats, the first time.
    pub at: SignedDuration,
    /// It happens again after this.
    pub every: Option<SignedDuration>,
    /// It no longer repeats after this time from the start; absent is the end of the scenario.
    pub until: Option<SignedDuration>,
    /// What happens.
    pub action: Action,
    /// Its path in the document.
    path: Path,
}

impl Scenario {
    /// A scenario without steps: pods of the manifests get nodes for an hour, from the morning of a Monday.
    ///
    /// # Errors
    /// [`NameError`] if the region is not a valid name.
    pub fn quiet(region: &str) -> Result<Self, NameError> {
        Ok(Self {
            name: "no scenario".to_owned(),
            description: None,
            region: Region::new(region)?,
            start: Timestamp::UNIX_EPOCH + SignedDuration::from_hours(20_668 * 24 + 6),
            duration: SignedDuration::from_hours(1),
            seed: 1,
            system_nodes: SYSTEM_NODES,
            steps: Vec::new(),
        })
    }

    /// Every action with its time after the start, as often as it happens while the scenario lasts.
    #[must_use]
    pub fn actions(&self) -> Vec<(SignedDuration, Action)> {
        let mut actions = Vec::new();
        for step in &self.steps {
            let last = step.until.unwrap_or(self.duration).min(self.duration);
            let mut at = step.at;
            while at <= last || (step.every.is_none() && at <= self.duration) {
                actions.push((at, step.action.clone()));
                let Some(every) = step.every else { break };
                at += every;
            }
        }
        actions.sort_by_key(|(at, _)| *at);
        actions
    }

    /// The initial state of a world with these manifests.
    #[must_use]
    pub fn setup(&self, manifests: Manifests) -> WorldSetup {
        WorldSetup {
            region: self.region.clone(),
            seed: self.seed,
            at: self.start,
            manifests,
            system_nodes: self.system_nodes,
            actions: self.actions(),
            deletion_rules: DeletionRules::all(),
        }
    }
}

/// True when a document is a scenario.
#[must_use]
pub fn is_scenario(document: &Document) -> bool {
    let group = API_VERSION.split_once('/').map_or(API_VERSION, |(group, _)| group);
    let of_group = document.value["apiVersion"].as_str().is_some_and(|v| v.split('/').next() == Some(group));
    of_group && document.value["kind"] == KIND
}

/// Something wrong at a path of a document.
fn problem(document: &Document, path: &Path, message: impl std::fmt::Display) -> Problem {
    Problem {
        file: std::sync::Arc::clone(&document.file),
        position: Some(document.position(path)),
        message: format!("{path}: {message}"),
    }
}
