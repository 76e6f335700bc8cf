//! Relaxation: what does a pod ask for if it gets all that it prefers, and what if it gets less and less?
//!
//! The steps are Karpenter's (`preferences.go`): a preference is asked for until no node can be had for it, then the
//! heaviest is dropped, affinity to pods first, then anti-affinity, labels of nodes, spreading, and at last taints that
//! say `PreferNoSchedule` are put up with.

use crate::cluster::pod::{PodShape, Preferences};
use std::sync::Arc;

/// Most steps of one shape: beyond, all that is left is dropped at once.
const MOST_STEPS: usize = 32;

/// The shape with all that it prefers, with less and less of it, and last with what it requires alone.
pub(super) fn steps(shape: &Arc<PodShape>) -> Vec<Arc<PodShape>> {
    let Some(preferences) = shape.preferences.as_deref().filter(|preferences| !preferences.is_empty()) else {
        return vec![Arc::clone(shape)];
    };
    let mut left = preferences.clone();
    let mut steps = Vec::new();
    while !left.is_empty() && steps.len() < MOST_STEPS {
        steps.push(Arc::new(asking(shape, &left)));
        drop_one(&mut left);
    }
    steps.push(Arc::new(PodShape { preferences: None, ..PodShape::clone(shape) }));
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
