//! Rolling updates of a Deployment.

use napkeeper_core::model::amounts::resources::Resources;

/// A new template of a Deployment, and how its pods replace the old ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// What a pod requests from now on, `pods: 1` included; `None` changes no request.
    pub requests: Option<Resources>,
    /// How many pods there may be beside the wanted ones (`maxSurge`).
    pub max_surge: u32,
    /// How many of the wanted pods may be missing (`maxUnavailable`).
    pub max_unavailable: u32,
}

/// The pods of a Deployment during a rolling update. None of them is being deleted or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutCounts {
    /// Pods that there should be.
    pub wanted: usize,
    /// Pods of the new template.
    pub new: RevisionPods,
    /// Pods of older templates.
    pub old: RevisionPods,
}

/// The pods of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisionPods {
    /// All of them.
    pub all: usize,
    /// Those of them that are ready.
    pub ready: usize,
}

/// The next step of a rolling update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RolloutStep {
    /// New pods to be created.
    pub create: usize,
    /// Old pods that are not ready to be deleted.
    pub delete_unready: usize,
    /// Old pods that are ready to be deleted.
    pub delete_ready: usize,
}

impl Rollout {
    /// What the Deployment controller does next: it creates new pods as far as the surge allows, and deletes old ones, those
    /// that are not ready first, as far as enough are (`rolling.go`, kubernetes `pkg/controller/deployment`).
    #[must_use]
    pub fn step(&self, counts: RolloutCounts) -> RolloutStep {
        let RolloutCounts { wanted, new, old } = counts;
        let (surge, unavailable) = (as_usize(self.max_surge), as_usize(self.max_unavailable));
        let room = (wanted + surge).saturating_sub(new.all + old.all);
        let create = wanted.saturating_sub(new.all).min(room);
        let least = wanted.saturating_sub(unavailable);
        // New pods that are not ready yet count as missing.
        let deletable = (new.all + old.all).saturating_sub(least + (new.all - new.ready));
        let delete_unready = (old.all - old.ready).min(deletable);
        let spare = (new.ready + old.ready).saturating_sub(least);
        let delete_ready = old.ready.min(spare).min(deletable - delete_unready);
        RolloutStep { create, delete_unready, delete_ready }
    }
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is created, and deleted of the pods that do not run and of those that do: of 10 wanted pods, by the surge, the
    /// pods that may be missing, and all and ready pods of the new and of the old template.
    fn step([surge, unavailable]: [u32; 2], [new, new_ready]: [usize; 2], [old, old_ready]: [usize; 2]) -> [usize; 3] {
        let rollout = Rollout { requests: None, max_surge: surge, max_unavailable: unavailable };
        let new = RevisionPods { all: new, ready: new_ready };
        let old = RevisionPods { all: old, ready: old_ready };
        let step = rollout.step(RolloutCounts { wanted: 10, new, old });
        [step.create, step.delete_unready, step.delete_ready]
    }

    #[test]
    fn new_pods_are_created_within_the_surge_and_old_ones_deleted_when_enough_are_ready() {
        assert_eq!(step([3, 0], [0, 0], [10, 10]), [3, 0, 0], "nothing may be missing");
        assert_eq!(step([3, 0], [3, 0], [10, 10]), [0, 0, 0], "the new ones are not ready");
        assert_eq!(step([3, 0], [3, 2], [10, 10]), [0, 0, 2]);
        assert_eq!(step([3, 0], [3, 3], [7, 7]), [3, 0, 0]);
        assert_eq!(step([3, 0], [9, 9], [1, 1]), [1, 0, 0]);
        assert_eq!(step([3, 0], [10, 10], [1, 1]), [0, 0, 1]);
    }

    #[test]
    fn old_pods_that_are_not_ready_are_deleted_first() {
        assert_eq!(step([0, 2], [0, 0], [10, 10]), [0, 0, 2]);
        assert_eq!(step([0, 2], [0, 0], [10, 9]), [0, 1, 1]);
        assert_eq!(step([0, 2], [2, 0], [8, 8]), [0, 0, 0]);
    }
}
