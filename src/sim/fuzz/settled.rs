//! Checks that every pod runs, and that every leaked resource is deleted or waits for manual action, long after the
//! faults.

use crate::world::controller::effects::excuses_delay;
use crate::world::{Violation, World};
use jiff::SignedDuration;
use napkeeper_core::model::azure::cloud::{CloudResource, ProvisioningState, ResourceDetail};

/// Nodes are replaced in a world at rest too: pods that have been evicted just now get a node within this time.
pub(super) const LONGEST_PENDING: SignedDuration = SignedDuration::from_mins(10);

/// Checks a world at rest.
///
/// # Errors
/// [`Violation`] of the first thing that is undone.
pub fn check_settled(world: &World) -> Result<(), Violation> {
    let cluster = world.cluster().state();
    if let Some(key) = cluster.pending().values().flatten().next() {
        return Err(world.violation("settled-pods", format!("pod {key} is still pending")));
    }
    for claim in cluster.claims().values() {
        if claim.status.initialized.is_none() || claim.deleting_at.is_some() {
            let since = claim.deleting_at.unwrap_or(claim.created_at);
            let old = world.now().duration_since(since).as_hours() >= 2;
            if old {
                return Err(world.violation("settled-claims", format!("NodeClaim {} is stuck", claim.name)));
            }
        }
    }
    for resource in world.unused_resources() {
        let findings = cluster.sweeps().iter().filter_map(|(name, _)| world.cluster().report(name));
        let finding = findings.flat_map(|r| &r.findings).find(|f| f.id == resource.id);
        let Some(finding) = finding else {
            return Err(world.violation("settled-leaks", format!("{} is an orphan, and in no report", resource.id)));
        };
        let excused = finding.refusals.iter().any(|r| excuses_delay(*r, world.mode()));
        if !excused && !is_going(&resource) {
            let reasons: Vec<&str> = finding.refusals.iter().map(|r| r.category()).collect();
            let message = format!(
                "{} is an orphan, and kept without a reason that requires manual action: {reasons:?}",
                resource.id
            );
            return Err(world.violation("settled-leaks", message));
        }
    }
    Ok(())
}

/// True for a VM that is being deleted: the history may end during the operation.
fn is_going(resource: &CloudResource) -> bool {
    matches!(&resource.detail, ResourceDetail::Vm(vm) if vm.state == ProvisioningState::Deleting)
}
