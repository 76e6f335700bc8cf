//! Preference relaxation, step by step as in Karpenter's `preferences.go`.
//!
//! The steps are Karpenter's (`preferences.go`): a preference is asked for until no node can be had for it, then the
//! heaviest is dropped, affinity to pods first, then anti-affinity, labels of nodes, spreading, and at last taints that
//! say `PreferNoSchedule` are put up with.

use crate::model::cluster::pod::{PodShape, Preferences};
use crate::model::requirements::Requirements;
use std::sync::Arc;

/// Most steps of one shape: beyond, all that is left is dropped at once.
const MAX_STEPS: usize = 32;

/// Something that a pod would like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preference {
    /// To be near other pods, by this label.
    PodAffinity(Arc<str>),
    /// To be apart from other pods, by this label.
    PodAntiAffinity(Arc<str>),
    /// A node with these labels.
    NodeAffinity(Requirements),
    /// To be spread, by this label.
    TopologySpread(Arc<str>),
    /// No node with a taint that says `PreferNoSchedule`.
    PreferNoSchedule,
}

/// What is asked for in one step.
pub(crate) struct RelaxationStep {
    pub(crate) shape: Arc<PodShape>,
    /// Taints with `PreferNoSchedule` keep it away too.
    pub(crate) avoid_prefer_no_schedule: bool,
}

/// The shape with all that it prefers, with less and less of it, and last with what it requires alone. `avoids` says that
/// some pool has a taint that it would rather not put up with.
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
    let required_class = match shape.preferences {
        None => Arc::clone(shape),
        Some(_) => Arc::new(PodShape { preferences: None, ..PodShape::clone(shape) }),
    };
    if avoid_prefer_no_schedule {
        steps.push(RelaxationStep { shape: Arc::clone(&required_class), avoid_prefer_no_schedule });
    }
    steps.push(RelaxationStep { shape: required_class, avoid_prefer_no_schedule: false });
    steps
}

/// Drops the preference that is given up first.
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

/// The shape with these preferences as if they were required; of those for labels of nodes the heaviest alone.
fn with_preferences_required(shape: &PodShape, preferences: &Preferences) -> PodShape {
    let mut asking = PodShape { preferences: None, ..shape.clone() };
    if let Some((_, node)) = preferences.node.first() {
        asking.selector.add_all(node);
    }
    if !preferences.near.is_empty() || !preferences.apart.is_empty() {
        let affinity = asking.affinity.get_or_insert_default();
        affinity.near.extend(preferences.near.iter().map(|(_, term)| term.clone()));
        affinity.apart.extend(preferences.apart.iter().map(|(_, term)| term.clone()));
    }
    asking.spread.extend(preferences.spread.iter().cloned());
    asking
}

/// All that a shape prefers, in the order in which it is given up; `steps` is the number of steps of its relaxation.
pub(crate) fn preferences_in_order(shape: &PodShape, steps: usize) -> Vec<Preference> {
    let preferences = shape.preferences.as_deref().cloned().unwrap_or_default();
    let Preferences { node, near, apart, spread } = preferences;
    let near = near.into_iter().map(|(_, term)| Preference::PodAffinity(term.topology_key));
    let apart = apart.into_iter().map(|(_, term)| Preference::PodAntiAffinity(term.topology_key));
    let node = node.into_iter().map(|(_, labels)| Preference::NodeAffinity(labels));
    let spread = spread.into_iter().map(|spread| Preference::TopologySpread(spread.topology_key));
    let mut wishes: Vec<Preference> = near.chain(apart).chain(node).chain(spread).collect();
    // One step for each of them, one without any, and one more where some pool has such a taint.
    let avoids = steps > wishes.len().min(MAX_STEPS) + 1;
    wishes.extend(avoids.then_some(Preference::PreferNoSchedule));
    wishes
}

/// What is not asked for in a step of the relaxation of a shape, of so many.
pub(crate) fn relaxed_preferences(shape: &PodShape, step: usize, steps: usize) -> Vec<Preference> {
    let mut wishes = preferences_in_order(shape, steps);
    let preferences = wishes.iter().filter(|wish| **wish != Preference::PreferNoSchedule).count();
    // The last step asks for nothing; after the most that are tried one by one, all others go at once.
    let given_up = match step {
        _ if step + 1 >= steps => wishes.len(),
        _ if step >= MAX_STEPS => preferences,
        step => step.min(preferences),
    };
    wishes.truncate(given_up);
    wishes
}
