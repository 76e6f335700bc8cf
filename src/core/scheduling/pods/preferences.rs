//! Preference relaxation, step by step as in Karpenter's `preferences.go`.
//!
//! Preferences are required until no node can be found, then the heaviest is dropped: pod affinity first, then
//! anti-affinity, node affinity, topology spread, and at last `PreferNoSchedule` taints are tolerated.

use crate::model::cluster::pod::{PodShape, Preferences};
use crate::model::requirements::Requirements;
use std::sync::Arc;

/// Most steps of one shape: after them all remaining preferences are dropped at once.
pub(crate) const MAX_STEPS: usize = 32;

/// A preference of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preference {
    /// Preferred pod affinity, by topology key.
    PodAffinity(Arc<str>),
    /// Preferred pod anti-affinity, by topology key.
    PodAntiAffinity(Arc<str>),
    /// A preferred node affinity term.
    NodeAffinity(Requirements),
    /// A `ScheduleAnyway` spread constraint, by topology key.
    TopologySpread(Arc<str>),
    /// No node with a `PreferNoSchedule` taint.
    PreferNoSchedule,
}

/// The requirements of one step.
pub(crate) struct RelaxationStep {
    pub(crate) shape: Arc<PodShape>,
    /// `PreferNoSchedule` taints must be tolerated too.
    pub(crate) avoid_prefer_no_schedule: bool,
}

/// The shape with all preferences, then with fewer and fewer, and last without any. `avoid_prefer_no_schedule` is true
/// when some pool has a `PreferNoSchedule` taint that it does not tolerate.
pub(crate) fn relaxation_steps(shape: &Arc<PodShape>, avoid_prefer_no_schedule: bool) -> Vec<RelaxationStep> {
    let mut left = shape.preferences.as_deref().cloned().unwrap_or_default();
    let mut steps = Vec::new();
    while !left.is_empty() && steps.len() < MAX_STEPS {
        steps.push(RelaxationStep {
            shape: Arc::new(with_preferences_required(shape, &left)),
            avoid_prefer_no_schedule,
        });
        drop_first_preference(&mut left);
    }
    let required_shape = match shape.preferences {
        None => Arc::clone(shape),
        Some(_) => Arc::new(PodShape { preferences: None, ..PodShape::clone(shape) }),
    };
    if avoid_prefer_no_schedule {
        steps.push(RelaxationStep { shape: Arc::clone(&required_shape), avoid_prefer_no_schedule });
    }
    steps.push(RelaxationStep { shape: required_shape, avoid_prefer_no_schedule: false });
    steps
}

/// Drops the first preference in the order of relaxation.
fn drop_first_preference(left: &mut Preferences) {
    if !left.near.is_empty() {
        left.near.remove(0);
    } else if !left.apart.is_empty() {
        left.apart.remove(0);
    } else if !left.node.is_empty() {
        left.node.remove(0);
    } else if !left.spread.is_empty() {
        left.spread.remove(0);
    }
}

/// The shape with these preferences as requirements; of node affinity only the heaviest term.
fn with_preferences_required(shape: &PodShape, preferences: &Preferences) -> PodShape {
    let mut required = PodShape { preferences: None, ..shape.clone() };
    if let Some((_, node)) = preferences.node.first() {
        required.selector.add_all(node);
    }
    if !preferences.near.is_empty() || !preferences.apart.is_empty() {
        let affinity = required.affinity.get_or_insert_default();
        affinity.near.extend(preferences.near.iter().map(|(_, term)| term.clone()));
        affinity.apart.extend(preferences.apart.iter().map(|(_, term)| term.clone()));
    }
    required.spread.extend(preferences.spread.iter().cloned());
    required
}

/// All preferences of a shape in the order of relaxation; `steps` is the number of its relaxation steps.
pub(crate) fn preferences_in_order(shape: &PodShape, steps: usize) -> Vec<Preference> {
    let preferences = shape.preferences.as_deref().cloned().unwrap_or_default();
    let Preferences { node, near, apart, spread } = preferences;
    let near = near.into_iter().map(|(_, term)| Preference::PodAffinity(term.topology_key));
    let apart = apart.into_iter().map(|(_, term)| Preference::PodAntiAffinity(term.topology_key));
    let node = node.into_iter().map(|(_, labels)| Preference::NodeAffinity(labels));
    let spread = spread.into_iter().map(|spread| Preference::TopologySpread(spread.topology_key));
    let mut ordered: Vec<Preference> = near.chain(apart).chain(node).chain(spread).collect();
    // One step per preference, one without any, and one more where some pool has such a taint.
    let avoids = steps > ordered.len().min(MAX_STEPS) + 1;
    ordered.extend(avoids.then_some(Preference::PreferNoSchedule));
    ordered
}

/// Preferences that are relaxed in a step of a shape, of `steps` steps.
pub(crate) fn relaxed_preferences(shape: &PodShape, step: usize, steps: usize) -> Vec<Preference> {
    let mut relaxed = preferences_in_order(shape, steps);
    let preferences = relaxed.iter().filter(|preference| **preference != Preference::PreferNoSchedule).count();
    // The last step has no preferences; after `MAX_STEPS` all others are relaxed at once.
    let count = match step {
        _ if step + 1 >= steps => relaxed.len(),
        _ if step >= MAX_STEPS => preferences,
        step => step.min(preferences),
    };
    relaxed.truncate(count);
    relaxed
}
