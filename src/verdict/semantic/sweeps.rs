//! NK9xxx: settings of an OrphanSweep that the controller ignores.
//!
//! Both rules need the time. They do not apply at admission: an object that was valid when it was merged must not be
//! denied because of the webhook's clock.

use crate::finding::Issue;
use crate::rules::sweeps as rules;
use crate::semantic::ValidObject;
use crate::semantic::facts::Facts;
use jiff::{SignedDuration, Timestamp};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use napkeeper_core::model::orphans::sweep::Sweep;

/// Tolerated clock skew.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

pub(super) fn check_object(manifest: &ValidObject<'_>, facts: &Facts, found: &mut Vec<Issue>) {
    let (Object::OrphanSweep(sweep), Some(now)) = (manifest.object, facts.now) else { return };
    let approvals = sweep.approvals.iter().enumerate();
    let far = approvals.filter(|(_, approval)| approval.expires_at.duration_since(now) > Sweep::MAX_APPROVAL_VALIDITY);
    found.extend(far.map(|(i, _)| too_far(i)));
    found.extend(sweep.breaker_cleared_at.filter(|at| at.duration_since(now) > MAX_CLOCK_SKEW).map(cleared_ahead));
}

fn too_far(index: usize) -> Issue {
    let path = Path::from_dotted("spec.approvals").index(index).key("expiresAt");
    let message = "the approval is more than 14 days ahead: it is not valid until less than 14 days remain";
    let fix = "use a time within 14 days; napkeeper audit proposes 7".to_owned();
    Issue::new(&rules::APPROVAL_TOO_LONG, &path, message).fix(fix)
}

fn cleared_ahead(at: Timestamp) -> Issue {
    let path = Path::from_dotted("spec.breaker.clearedAt");
    let message = format!("{at} is in the future: until then it clears nothing, since it would disable the breaker");
    let fix = "use the time that the report proposes: one second after the trip that you have reviewed".to_owned();
    Issue::new(&rules::CLEARED_AHEAD, &path, message).fix(fix)
}
