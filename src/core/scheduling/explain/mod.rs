//! Explanations of a finished simulation, per group of equal pods.
//!
//! They are computed after the simulation, from its final state: [`schedule`](super::schedule) does no work for them.
//! Equal pods with the same kind of placement share one explanation, and the number of explanations is limited, so that
//! those of ten thousand pods stay short.

pub(crate) mod display;
pub(crate) mod filter_steps;
pub(crate) mod placed;
pub(crate) mod raised_limits;
pub(crate) mod size;
pub(crate) mod suggestion;
pub(crate) mod unschedulable;
use crate::model::amounts::resources::Resources;
use crate::model::cluster::claim::PlannedOffering;
use crate::model::cluster::pod::{Pod, PodShape};
use crate::model::names::{ClaimName, NodeName, NodePoolName, ObjectKey, Zone};
use crate::model::requirements::Requirements;
use crate::scheduling::explain::filter_steps::{PoolFilterSteps, filter_steps};
use crate::scheduling::explain::placed::explain_placed;
use crate::scheduling::explain::size::{Size, SizeExplanation};
use crate::scheduling::explain::suggestion::{SuggestedChange, Suggestion, suggest};
use crate::scheduling::explain::unschedulable::{pool_reason, unschedulable_reasons};
use crate::scheduling::input::Input;
use crate::scheduling::nodes::planned_offerings::write_result;
use crate::scheduling::nodes::simulation_state::{RejectedPod, SchedulingState, Solution};
use crate::scheduling::pods::pod_class::PodClassId;
use crate::scheduling::pods::preferences::Preference;
use crate::scheduling::result::{SchedulingResult, UnschedulableReason};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most explanations that are computed.
const MAX_EXPLANATIONS: usize = 32;

/// Explanations of some pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explanations {
    /// Unschedulable pods first.
    pub explanations: Vec<Explanation>,
    /// Groups of pods beyond `MAX_EXPLANATIONS`.
    pub omitted_groups: usize,
    /// The pods of those groups.
    pub omitted_pods: usize,
    /// Those of them that are unschedulable.
    pub omitted_unschedulable: usize,
}

/// The explanation of equal pods with the same result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The pods.
    pub pods: Vec<ObjectKey>,
    /// What each of them requests.
    pub requests: Resources,
    /// The result, and why.
    pub result: ExplainedResult,
}

/// The result of some pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplainedResult {
    /// They are placed.
    Placed(Box<PlacementExplanation>),
    /// They are not.
    Unschedulable(Box<UnschedulableExplanation>),
}

/// Why pods are unschedulable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnschedulableExplanation {
    /// Why each pool cannot help; `None` stands for all pools.
    pub reasons: Vec<(Option<NodePoolName>, UnschedulableReason)>,
    /// The remaining offerings of each pool after each scheduling criterion.
    pub filter_steps: Vec<PoolFilterSteps>,
    /// The smallest change that would make them schedulable.
    pub suggestion: Option<Suggestion>,
}

/// Why pods are placed where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementExplanation {
    /// Where they are placed.
    pub placement: PlacementSummary,
    /// Labels that topology constraints or volumes decided.
    pub topology_decisions: Vec<TopologyDecision>,
    /// Preferences that could not be satisfied.
    pub relaxed: Vec<Preference>,
    /// How many preferences are satisfied. On existing nodes only kube-scheduler considers them.
    pub satisfied_preferences: usize,
}

/// A kind of placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementSummary {
    /// On existing nodes.
    Existing {
        /// The first of them, with the number of these pods.
        nodes: Vec<(NodeName, usize)>,
        /// How many there are.
        count: usize,
    },
    /// On NodeClaims in flight.
    InFlight {
        /// The first of them, with the number of these pods.
        claims: Vec<(ClaimName, usize)>,
        /// How many there are.
        count: usize,
        /// How many of the pods these claims were created for.
        planned_pods: usize,
    },
    /// On new nodes of one size and pool.
    New(Box<NewNodesSummary>),
}

/// New nodes of one size and pool. Pods and sizes are those of the first of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNodesSummary {
    /// How many there are.
    pub node_count: usize,
    /// Their pool.
    pub pool: NodePoolName,
    /// Pools of higher precedence, and why they cannot help.
    pub skipped_pools: Vec<(NodePoolName, UnschedulableReason)>,
    /// The offering that is requested first.
    pub first_offering: PlannedOffering,
    /// The zones in which nodes are requested first, and how many nodes in each.
    pub zones: BTreeMap<Zone, usize>,
    /// How many offerings are requested, one after another, if Azure refuses them.
    pub offering_count: usize,
    /// How many of these pods it holds.
    pub own_pods: usize,
    /// How many others it holds.
    pub other_pods: usize,
    /// What all of them request.
    pub requests: Resources,
    /// Why it is of this size.
    pub size: SizeExplanation,
    /// Its size without these pods, if it holds others.
    pub size_without_own: Option<Size>,
    /// The size of a new node for one of these pods alone.
    pub size_for_one_pod: Option<Size>,
}

/// Why pods are restricted to a topology domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopologyCause {
    /// A spread constraint.
    TopologySpread,
    /// Affinity to other pods.
    PodAffinity,
    /// Anti-affinity to other pods.
    PodAntiAffinity,
    /// The zones of a volume.
    Volume,
}

/// A label whose value was decided by a topology constraint or a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyDecision {
    /// Why it was decided.
    pub cause: TopologyCause,
    /// The label.
    pub key: Arc<str>,
    /// How many of the pods go to each value; empty for hostnames.
    pub values: BTreeMap<Arc<str>, usize>,
}

/// Explains a finished simulation, for the pods that `about` selects.
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
    /// True when all pods are placed.
    #[must_use]
    pub fn all_placed(&self) -> bool {
        self.omitted_unschedulable == 0
            && self.explanations.iter().all(|explanation| matches!(explanation.result, ExplainedResult::Placed(_)))
    }

    /// Adds a group of pods, which is explained unless there are too many.
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
    pub(crate) fn of(pods: &[Arc<Pod>], result: ExplainedResult) -> Self {
        let requests = pods.first().map(|pod| pod.shape.requests.clone()).unwrap_or_default();
        Self { pods: pods.iter().map(|pod| pod.key.clone()).collect(), requests, result }
    }
}

/// Pods that no node can help, by reason.
fn by_reason(
    rejected: Vec<RejectedPod>,
    about: impl Fn(&ObjectKey) -> bool,
) -> Vec<(UnschedulableReason, Vec<Arc<Pod>>)> {
    let mut groups: Vec<(UnschedulableReason, Vec<Arc<Pod>>)> = Vec::new();
    for (pod, reason) in rejected.into_iter().filter(|(pod, _)| about(&pod.key)) {
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((reason, vec![pod])),
        }
    }
    groups
}

fn explain_rejected(pods: &[Arc<Pod>], reason: UnschedulableReason) -> Explanation {
    let explanation =
        UnschedulableExplanation { reasons: vec![(None, reason)], filter_steps: Vec::new(), suggestion: None };
    Explanation::of(pods, ExplainedResult::Unschedulable(Box::new(explanation)))
}

fn explain_unschedulable(pods: &[Arc<Pod>], state: &mut SchedulingState, class: PodClassId) -> Explanation {
    let reasons = unschedulable_reasons(state, class);
    let (filter_steps, suggestion) = (filter_steps(state, class), smallest_suggestion(state, class));
    Explanation::of(
        pods,
        ExplainedResult::Unschedulable(Box::new(UnschedulableExplanation { reasons, filter_steps, suggestion })),
    )
}

/// The smallest change that makes pods of a class schedulable. Where only topology constraints exclude a pool, it is to
/// make those preferred.
fn smallest_suggestion(state: &mut SchedulingState, class: PodClassId) -> Option<Suggestion> {
    let pools = state.open.candidate_sets.pool_count();
    if let Some(pool) = (0..pools).find(|pool| pool_reason(state, class, *pool).is_none()) {
        let unmet = state.topology_reason(class, pool);
        let pool = state.open.candidate_sets.pool_offerings(pool).pool.name.clone();
        return Some(Suggestion { pool, changes: vec![SuggestedChange::MakePreferred(unmet)] });
    }
    let shape = &state.constraints.classes.get(class).shape;
    let volume_terms = state
        .constraints
        .classes
        .origin(class)
        .map(|origin| origin.volumes.alternatives.as_slice())
        .unwrap_or_default();
    let mut suggestion = suggest(&state.open, &with_volume_alternatives(shape, volume_terms))?;
    for change in &mut suggestion.changes {
        let SuggestedChange::DropRequirement(key) = &*change else { continue };
        let requested = shape.selector.get(key);
        let [term] = volume_terms else { continue };
        // A volume cannot move, so the pool must allow its zone.
        if let Some(required) = term.get(key).filter(|required| requested.is_none_or(|own| own == *required)) {
            *change = SuggestedChange::AllowLabel(Arc::clone(key), required.to_string());
        }
    }
    Some(suggestion)
}

/// A shape that requires the node affinity terms of its volumes itself.
fn with_volume_alternatives(shape: &PodShape, terms: &[Requirements]) -> PodShape {
    let mut narrowed = shape.clone();
    match terms {
        [] => {}
        [only] => narrowed.selector.add_all(only),
        all if narrowed.alternatives.is_empty() => narrowed.alternatives = all.to_vec(),
        all => {
            let both = shape.alternatives.iter().flat_map(|one| all.iter().map(|term| one.intersect(term)));
            narrowed.alternatives = both.collect();
        }
    }
    narrowed
}
