//! What quotas, subnets and capacity reservations leave for new nodes.

mod quota;
mod reservations;
mod subnets;

use crate::model::cluster::claim::Claim;
use jiff::{SignedDuration, Timestamp};
pub use quota::{QuotaHeadroom, QuotaShortage};
pub use reservations::{ReservationHeadroom, ReservationShortage};
pub use subnets::{SubnetHeadroom, SubnetShortage};

/// By then Azure counts a VM that was asked for, whether or not it has come up.
const COUNTED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// A NodeClaim of ours whose VM may be asked for, or was asked for, after Azure counted. One that was asked for just
/// before, and does not run yet, is counted twice until Azure is asked again: that refuses a VM for a while, where the
/// other way would send one into a refusal.
fn is_in_flight(claim: &Claim, as_of: Timestamp) -> bool {
    let asked_long_ago =
        claim.intent.as_ref().is_some_and(|intent| as_of.duration_since(intent.written_at) > COUNTED_AFTER);
    let uncounted = claim.status.launched.is_none_or(|at| at > as_of) && !asked_long_ago;
    // A claim that goes away without an intent never asked for a VM.
    let asks = claim.deleting_at.is_none() || claim.intent.is_some();
    claim.is_ours() && asks && uncounted && claim.status.launch_failed.is_none()
}
