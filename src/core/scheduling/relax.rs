//! Relaxation: what does a pod ask for if it gets all that it prefers, and what if it gets less and less?
//!
//! The steps are Karpenter's (`preferences.go`): a preference is asked for until no node can be had for it, then the
//! heaviest is dropped, affinity to pods first, then anti-affinity, labels of nodes, spreading, and at last taints that
//! say `PreferNoSchedule` are put up with.

use crate::model::cluster::pod::{PodShape, Preferences};
use crate::model::requirements::Requirements;
use std::sync::Arc;

/// Most steps of one shape: beyond, all that is left is dropped at once.
const MOST_STEPS: usize = 32;

/// Something that a pod would like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// To be near other pods, by this label.
    Near(Arc<str>),
    /// To be apart from other pods, by this label.
    Apart(Arc<str>),
    /// A node with these labels.
    Node(Requirements),
    /// To be spread, by this label.
    Spread(Arc<str>),
    /// No node with a taint that says `PreferNoSchedule`.
    Taints,
}

/// What is asked for in one step.
pub(super) struct Step {
    pub(super) shape: Arc<PodShape>,
    /// Taints with `PreferNoSchedule` keep it away too.
    pub(super) avoids: bool,
}

/// The shape with all that it prefers, with less and less of it, and last with what it requires alone. `avoids` says that
/// some pool has a taint that it would rather not put up with.
pub(super) fn steps(shape: &Arc<PodShape>, avoids: bool) -> Vec<Step> {
    let mut left = shape.preferences.as_deref().cloned().unwrap_or_default();
    let mut steps = Vec::new();
    while !left.is_empty() && steps.len() < MOST_STEPS {
        steps.push(Step { shape: Arc::new(asking(shape, &left)), avoids });
        drop_one(&mut left);
    }
    let bare = match shape.preferences {
        None => Arc::clone(shape),
        Some(_) => Arc::new(PodShape { preferences: None, ..PodShape::clone(shape) }),
    };
    if avoids {
        steps.push(Step { shape: Arc::clone(&bare), avoids });
    }
    steps.push(Step { shape: bare, avoids: false });
    steps
}

/// Drops the preference that is given up first.
fn drop_one(left: &mut Preferences) {
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
fn asking(shape: &PodShape, preferences: &Preferences) -> PodShape {
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
pub(super) fn wishes(shape: &PodShape, steps: usize) -> Vec<Wish> {
    let preferences = shape.preferences.as_deref().cloned().unwrap_or_default();
    let Preferences { node, near, apart, spread } = preferences;
    let near = near.into_iter().map(|(_, term)| Wish::Near(term.topology_key));
    let apart = apart.into_iter().map(|(_, term)| Wish::Apart(term.topology_key));
    let node = node.into_iter().map(|(_, labels)| Wish::Node(labels));
    let spread = spread.into_iter().map(|spread| Wish::Spread(spread.topology_key));
    let mut wishes: Vec<Wish> = near.chain(apart).chain(node).chain(spread).collect();
    // One step for each of them, one without any, and one more where some pool has such a taint.
    let avoids = steps > wishes.len().min(MOST_STEPS) + 1;
    wishes.extend(avoids.then_some(Wish::Taints));
    wishes
}

/// What is not asked for in a step of the relaxation of a shape, of so many.
pub(super) fn given_up(shape: &PodShape, step: usize, steps: usize) -> Vec<Wish> {
    let mut wishes = wishes(shape, steps);
    let preferences = wishes.iter().filter(|wish| **wish != Wish::Taints).count();
    // The last step asks for nothing; after the most that are tried one by one, all others go at once.
    let given_up = match step {
        _ if step + 1 >= steps => wishes.len(),
        _ if step >= MOST_STEPS => preferences,
        step => step.min(preferences),
    };
    wishes.truncate(given_up);
    wishes
}
