//! Explanations of a finished simulation, per group of alike pods.
//!
//! All of it is worked out after the solve, from what that left behind: [`schedule`](super::schedule) does nothing for
//! it. Pods that are alike and went to places of one sort share one account, and only so many are worked out, so that
//! those of ten thousand pods stay short.

pub(crate) mod display;
pub(crate) mod filter_steps;
pub(crate) mod placed;
pub(crate) mod size;
pub(crate) mod suggestion;
pub(crate) mod unschedulable;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{ClaimName, NodeName, NodePoolName, ObjectKey};
use crate::model::requirements::Requirements;
use crate::scheduling::explain::filter_steps::{PoolFilterSteps, filter_steps};
use crate::scheduling::explain::placed::explain_placed;
use crate::scheduling::explain::size::{Size, SizeExplanation};
use crate::scheduling::explain::suggestion::{SuggestedChange, Suggestion, suggest};
use crate::scheduling::explain::unschedulable::{pool_reason, unschedulable_reasons};
use crate::scheduling::input::Input;
use crate::scheduling::nodes::planned_offerings::write_result;
use crate::scheduling::nodes::state::{RejectedPod, SchedulingState, Solution};
use crate::scheduling::pods::class::PodClassId;
use crate::scheduling::pods::preferences::Preference;
use crate::scheduling::result::{SchedulingResult, UnschedulableReason};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most accounts that are worked out.
const MAX_EXPLANATIONS: usize = 32;

/// What is said of some pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanations {
    /// Pods without a place first.
    pub explanations: Vec<Explanation>,
    /// Groups of pods beyond, of which nothing is said.
    pub omitted_groups: usize,
    /// The pods of those groups.
    pub omitted_pods: usize,
    /// Those of them that have no place.
    pub omitted_unschedulable: usize,
}

/// What is said of pods that are alike and fared alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The pods.
    pub pods: Vec<ObjectKey>,
    /// What each of them asks for.
    pub requests: Resources,
    /// How they fared, and why.
    pub result: ExplainedResult,
}

/// How pods fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplainedResult {
    /// They have a place.
    Placed(Box<PlacementExplanation>),
    /// They have none.
    Unschedulable(Box<UnschedulableExplanation>),
}

/// Why pods have no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulableExplanation {
    /// Why each pool cannot help; `None` stands for all pools.
    pub reasons: Vec<(Option<NodePoolName>, UnschedulableReason)>,
    /// What is left of each pool after each thing that they ask for.
    pub filter_steps: Vec<PoolFilterSteps>,
    /// The least that would have to change.
    pub suggestion: Option<Suggestion>,
}

/// Why pods have the place that they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementExplanation {
    /// Where it is.
    pub placement: PlacementSummary,
    /// What of it follows from constraints on neighbours, or from volumes.
    pub topology_decisions: Vec<TopologyDecision>,
    /// What they would have liked, and could not have.
    pub relaxed: Vec<Preference>,
    /// How much of what they would have liked they have. On nodes that are there nobody asks for it but kube-scheduler.
    pub satisfied_preferences: usize,
}

/// A sort of places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementSummary {
    /// Nodes that exist have room; the first of them, with the number of pods.
    Existing {
        /// The first of them, with the number of these pods.
        nodes: Vec<(NodeName, usize)>,
        /// How many there are.
        count: usize,
    },
    /// NodeClaims in flight have room.
    InFlight {
        /// The first of them, with the number of these pods.
        claims: Vec<(ClaimName, usize)>,
        /// How many there are.
        count: usize,
        /// How many of the pods these claims were made for.
        planned_pods: usize,
    },
    /// New nodes, of one size and pool.
    New(Box<NewNodesSummary>),
}

/// New nodes of one size and pool. What is said of pods and of sizes holds for the first of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNodesSummary {
    /// How many there are.
    pub node_count: usize,
    /// Their pool.
    pub pool: NodePoolName,
    /// Pools that come before it, and why they cannot help.
    pub skipped_pools: Vec<(NodePoolName, UnschedulableReason)>,
    /// What will be asked for first.
    pub first_offering: PlannedOffering,
    /// How many offerings will be asked for, one after the other, should Azure refuse it.
    pub offering_count: usize,
    /// How many of these pods it holds.
    pub own_pods: usize,
    /// How many others it holds.
    pub other_pods: usize,
    /// What all of them ask for.
    pub requests: Resources,
    /// Why this size.
    pub size: SizeExplanation,
    /// What it would be without these pods, where it holds others.
    pub size_without_own: Option<Size>,
    /// What one of these pods would get by itself.
    pub size_for_one_pod: Option<Size>,
}

/// What ties pods to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopologyCause {
    /// A spread constraint.
    TopologySpread,
    /// Affinity to other pods.
    PodAffinity,
    /// Anti-affinity to other pods.
    PodAntiAffinity,
    /// Where a volume can be used.
    Volume,
}

/// A label that was chosen because of a tie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyDecision {
    /// What ties them.
    pub cause: TopologyCause,
    /// The label.
    pub key: Arc<str>,
    /// How many of the pods go to each value; of names of hosts none are given.
    pub values: BTreeMap<Arc<str>, usize>,
}

/// Explains a finished simulation, for the pods that `about` picks.
pub(crate) fn explanations(input: Input<'_>, solution: Solution, about: impl Fn(&ObjectKey) -> bool) -> Explanations {
    let Solution { mut state, unschedulable, rejected } = solution;
    let mut all = Explanations::default();
    for (reason, pods) in by_reason(rejected, &about) {
        all.add_group(pods, |pods| Some(explain_rejected(pods, reason)));
    }
    for group in unschedulable {
        let class = group.relaxation.required_only;
        let pods = group.pods.into_iter().filter(|pod| about(&pod.key)).collect();
        all.add_group(pods, |pods| Some(explain_unschedulable(pods, &mut state, class)));
    }
    all.omitted_unschedulable = all.omitted_pods;
    let mut result = SchedulingResult::default();
    write_result(&state, &mut result);
    explain_placed(&mut state, (input, &result), about, &mut all);
    all
}

impl Explanations {
    /// True when all pods have a place.
    #[must_use]
    pub fn all_placed(&self) -> bool {
        self.omitted_unschedulable == 0
            && self.explanations.iter().all(|account| matches!(account.result, ExplainedResult::Placed(_)))
    }

    /// Takes up a group of pods, which is worked out unless there are too many.
    pub(crate) fn add_group(&mut self, pods: Vec<Arc<Pod>>, work_out: impl FnOnce(&[Arc<Pod>]) -> Option<Explanation>) {
        if pods.is_empty() {
            return;
        }
        if self.explanations.len() < MAX_EXPLANATIONS {
            self.explanations.extend(work_out(&pods));
        } else {
            self.omitted_groups += 1;
            self.omitted_pods += pods.len();
        }
    }
}

impl Explanation {
    pub(crate) fn of(pods: &[Arc<Pod>], fate: ExplainedResult) -> Self {
        let requests = pods.first().map(|pod| pod.shape.requests.clone()).unwrap_or_default();
        Self { pods: pods.iter().map(|pod| pod.key.clone()).collect(), requests, result: fate }
    }
}

/// Pods that no node helps, by why that is.
fn by_reason(
    refused: Vec<RejectedPod>,
    about: impl Fn(&ObjectKey) -> bool,
) -> Vec<(UnschedulableReason, Vec<Arc<Pod>>)> {
    let mut groups: Vec<(UnschedulableReason, Vec<Arc<Pod>>)> = Vec::new();
    for (pod, why) in refused.into_iter().filter(|(pod, _)| about(&pod.key)) {
        match groups.iter_mut().find(|(known, _)| *known == why) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((why, vec![pod])),
        }
    }
    groups
}

fn explain_rejected(pods: &[Arc<Pod>], why: UnschedulableReason) -> Explanation {
    let stuck = UnschedulableExplanation { reasons: vec![(None, why)], filter_steps: Vec::new(), suggestion: None };
    Explanation::of(pods, ExplainedResult::Unschedulable(Box::new(stuck)))
}

fn explain_unschedulable(pods: &[Arc<Pod>], state: &mut SchedulingState, class: PodClassId) -> Explanation {
    let why = unschedulable_reasons(state, class);
    let (waterfalls, remedy) = (filter_steps(state, class), smallest_suggestion(state, class));
    Explanation::of(
        pods,
        ExplainedResult::Unschedulable(Box::new(UnschedulableExplanation {
            reasons: why,
            filter_steps: waterfalls,
            suggestion: remedy,
        })),
    )
}

/// The least change that gives pods of a class a place. Where a pool has nothing against them but their topology
/// constraints, it is those.
fn smallest_suggestion(state: &mut SchedulingState, class: PodClassId) -> Option<Suggestion> {
    let pools = state.open.candidate_sets.pool_count();
    if let Some(pool) = (0..pools).find(|pool| pool_reason(state, class, *pool).is_none()) {
        let unmet = state.topology_reason(class, pool);
        let pool = state.open.candidate_sets.pool_offerings(pool).pool.name.clone();
        return Some(Suggestion { pool, changes: vec![SuggestedChange::MakePreferred(unmet)] });
    }
    let shape = &state.constraints.classes.get(class).shape;
    let places = state
        .constraints
        .classes
        .origin(class)
        .map(|origin| origin.volumes.alternatives.as_slice())
        .unwrap_or_default();
    let mut remedy = suggest(&state.open, &with_volume_alternatives(shape, places))?;
    for change in &mut remedy.changes {
        let SuggestedChange::DropRequirement(key) = &*change else { continue };
        let asked = shape.selector.get(key);
        let [place] = places else { continue };
        // A volume stays where it is: the pool has to come to it.
        if let Some(there) = place.get(key).filter(|there| asked.is_none_or(|asked| asked == *there)) {
            *change = SuggestedChange::AllowLabel(Arc::clone(key), there.to_string());
        }
    }
    Some(remedy)
}

/// A shape that asks for the places of its volumes itself.
fn with_volume_alternatives(shape: &PodShape, places: &[Requirements]) -> PodShape {
    let mut narrowed = shape.clone();
    match places {
        [] => {}
        [only] => narrowed.selector.add_all(only),
        all if narrowed.alternatives.is_empty() => narrowed.alternatives = all.to_vec(),
        all => {
            let both = shape.alternatives.iter().flat_map(|one| all.iter().map(|place| one.intersect(place)));
            narrowed.alternatives = both.collect();
        }
    }
    narrowed
}
