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
    /// Pods of the new template, and those of them that run.
    pub new: (usize, usize),
    /// Pods of older templates, and those of them that run.
    pub old: (usize, usize),
}

/// The next step of a rolling update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RolloutStep {
    /// New pods to be created.
    pub create: usize,
    /// Old pods that do not run to be deleted.
    pub delete_pending: usize,
    /// Old pods that run to be deleted.
    pub delete_running: usize,
}

impl Rollout {
    /// What the Deployment controller does next: it creates new pods as far as the surge allows, and deletes old ones, those
    /// that do not run first, as far as enough run (`rolling.go`, kubernetes `pkg/controller/deployment`).
    #[must_use]
    pub fn step(&self, counts: RolloutCounts) -> RolloutStep {
        let RolloutCounts { wanted, new: (new, new_running), old: (old, old_running) } = counts;
        let (surge, unavailable) = (as_usize(self.max_surge), as_usize(self.max_unavailable));
        let room = (wanted + surge).saturating_sub(new + old);
        let create = wanted.saturating_sub(new).min(room);
        let least = wanted.saturating_sub(unavailable);
        // New pods that do not run yet count as missing.
        let deletable = (new + old).saturating_sub(least + (new - new_running));
        let delete_pending = (old - old_running).min(deletable);
        let spare = (new_running + old_running).saturating_sub(least);
        let delete_running = old_running.min(spare).min(deletable - delete_pending);
        RolloutStep { create, delete_pending, delete_running }
    }
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(max_surge: u32, max_unavailable: u32, new: (usize, usize), old: (usize, usize)) -> (usize, usize, usize) {
        let rollout = Rollout { requests: None, max_surge, max_unavailable };
        let RolloutStep { create, delete_pending, delete_running } =
            rollout.step(RolloutCounts { wanted: 10, new, old });
        (create, delete_pending, delete_running)
    }

    #[test]
    fn new_pods_are_created_within_the_surge_and_old_ones_deleted_when_enough_run() {
        assert_eq!(step(3, 0, (0, 0), (10, 10)), (3, 0, 0), "nothing may be missing");
        assert_eq!(step(3, 0, (3, 0), (10, 10)), (0, 0, 0), "the new ones do not run");
        assert_eq!(step(3, 0, (3, 2), (10, 10)), (0, 0, 2));
        assert_eq!(step(3, 0, (3, 3), (7, 7)), (3, 0, 0));
        assert_eq!(step(3, 0, (9, 9), (1, 1)), (1, 0, 0));
        assert_eq!(step(3, 0, (10, 10), (1, 1)), (0, 0, 1));
    }

    #[test]
    fn old_pods_that_do_not_run_are_deleted_first() {
        assert_eq!(step(0, 2, (0, 0), (10, 10)), (0, 0, 2));
        assert_eq!(step(0, 2, (0, 0), (10, 9)), (0, 1, 1));
        assert_eq!(step(0, 2, (2, 0), (8, 8)), (0, 0, 0));
    }
}
