//! What quotas, subnets and capacity reservations leave for new nodes.

mod quota;
mod reservations;
mod subnets;

use crate::model::cluster::claim::Claim;
use jiff::{SignedDuration, Timestamp};
pub use quota::{QuotaHeadroom, QuotaShortage};
pub use reservations::{ReservationHeadroom, ReservationShortage};
pub use subnets::{SubnetHeadroom, SubnetShortage};

/// After this Azure counts a VM that was requested, whether or not it runs.
const COUNTED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// A NodeClaim of ours whose VM was, or may be, requested after Azure's numbers were read. A VM that was requested just
/// before and does not run yet is counted twice until they are read again. That delays a launch, where not counting it
/// could cause a refusal.
fn is_in_flight(claim: &Claim, as_of: Timestamp) -> bool {
    let requested_long_ago =
        claim.intent.as_ref().is_some_and(|intent| as_of.duration_since(intent.written_at) > COUNTED_AFTER);
    let uncounted = claim.status.launched.is_none_or(|at| at > as_of) && !requested_long_ago;
    // A claim that is deleted without an intent never requested a VM.
    let may_launch = claim.deleting_at.is_none() || claim.intent.is_some();
    claim.is_ours() && may_launch && uncounted && claim.status.launch_failed.is_none()
}
