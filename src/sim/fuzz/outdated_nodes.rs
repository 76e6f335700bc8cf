//! Adds changes of NodePools and upgrades of Kubernetes to a history, so that its nodes drift.

use super::{FAULTS, History};
use crate::random::Random;
use crate::world::Action;
use jiff::SignedDuration;
use napkeeper_core::model::settings::ControllerMode;
use std::sync::Arc;

/// The history with such changes, which are drawn apart from all else. Beside managed NAP there are none to make.
pub(super) fn with_outdated_nodes(mut history: History) -> History {
    if history.mode == ControllerMode::Companion {
        return history;
    }
    let mut random = Random::of(history.setup.seed, "outdated nodes");
    let pools: Vec<_> = history.setup.manifests.pools.iter().map(|pool| pool.name.clone()).collect();
    for _ in 0..random.between(2, 6) {
        let Some(pool) = random.pick(&pools).cloned() else { continue };
        // Few values: a change may be taken back before all nodes are replaced.
        let value = Arc::from(*random.pick(&["a", "b"]).unwrap_or(&"a"));
        let label = Action::LabelPool { pool, label: Arc::from("team"), value };
        history.setup.actions.push((time(&mut random), label));
    }
    if random.one_in(2) {
        let (version, new_nodes) = (Arc::from("v1.34.1"), !random.one_in(3));
        history.setup.actions.push((time(&mut random), Action::UpgradeKubernetes { version, new_nodes }));
    }
    history
}

/// A time within the hours of faults.
fn time(random: &mut Random) -> SignedDuration {
    random.duration(SignedDuration::from_mins(10), FAULTS)
}
