//! What evictions and double running are worth, and for how long a saving is expected to last.

use super::super::candidate::Candidate;
use crate::catalog::CapacityType;
use crate::model::amounts::money::HourlyPrice;
use jiff::SignedDuration;

/// For how long both a replacement and what it replaces are paid for: until the VM runs, its node is ready and the pods have
/// left.
pub(super) const DOUBLE_RUNNING: SignedDuration = SignedDuration::from_mins(3);
/// What the eviction of a pod is worth where its node is deleted: so long what its requests cost.
pub(super) const EVICTION_WORTH: SignedDuration = SignedDuration::from_mins(3);
/// The same where its node is replaced. The free room that a replacement saves is mostly used by the next pods, for which
/// another node is launched then; a node that is kept may soon be deleted without a replacement; and a replacement may soon
/// be deleted itself, which evicts its pods once more.
const EVICTION_WORTH_OF_REPLACED: SignedDuration = SignedDuration::from_mins(35);
/// The same where spot or reserved nodes are among those that replace an on-demand node. What the capacity type saves lasts
/// however much room is free. That one such node among several is enough was found by measuring (`docs/decisions/0064`).
const EVICTION_WORTH_OF_CHEAPER_TYPE: SignedDuration = SignedDuration::from_mins(7);
/// What has not changed for up to this time is expected not to change for as long again.
const EQUAL_LIFE: SignedDuration = SignedDuration::from_mins(40);
/// What has not changed for longer is expected not to change for its time divided by this, where that is more.
const LIFE_DIVISOR: i32 = 6;
/// The longest time for which a saving is expected to last. A replacement saves at least 1.25 % of its own price so.
const LONGEST_LIFE: SignedDuration = SignedDuration::from_hours(4);

/// False if no replacement of any of these nodes can pay back, of whose new nodes one costs at least this price.
///
/// An upper bound of what is gained: for each node what it costs for as long as that may last, less the evictions, where that
/// is positive. A lower bound of what is paid: one new node at this price, for the shortest of these times and while both run.
pub(super) fn may_pay_back(sources: &[&Candidate<'_>], lowest: HourlyPrice, is_cheaper_type: bool) -> bool {
    let life = |source: &Candidate<'_>| expected_life(source.quiet_for).as_nanos();
    let gain = |source: &&Candidate<'_>| {
        let counted = i128::from((source.price + source.per_node).nanos());
        counted * life(source) - source.used_price() * worth_of_replaced(source, is_cheaper_type).as_nanos()
    };
    let per_node = sources.first().map_or(HourlyPrice::ZERO, |source| source.per_node);
    let shortest = sources.iter().map(|source| life(source)).min().unwrap_or_default();
    let new_node =
        i128::from((lowest + per_node).nanos()) * shortest + i128::from(lowest.nanos()) * DOUBLE_RUNNING.as_nanos();
    sources.iter().map(gain).filter(|gain| *gain > 0).sum::<i128>() >= new_node
}

/// What the eviction of a pod is worth where this node is replaced, by spot or reserved nodes among others or by none such.
pub(super) fn worth_of_replaced(source: &Candidate<'_>, is_by_cheaper_type: bool) -> SignedDuration {
    match is_by_cheaper_type && source.capacity_type == CapacityType::OnDemand {
        true => EVICTION_WORTH_OF_CHEAPER_TYPE,
        false => EVICTION_WORTH_OF_REPLACED,
    }
}

pub(super) fn is_cheaper_type(capacity_type: CapacityType) -> bool {
    matches!(capacity_type, CapacityType::Spot | CapacityType::Reserved)
}

/// For how long it is expected that nothing changes where nothing has for this time. Nobody knows; what has not changed for
/// some time is expected not to change for as long again, so that at the worst twice the cost of the best decision is paid,
/// as with any rule for when to buy instead of rent (Karlin et al., 1988). But most load changes within the day, so from
/// [`EQUAL_LIFE`] on less is expected, and that bound does not hold.
fn expected_life(quiet_for: SignedDuration) -> SignedDuration {
    quiet_for.min(EQUAL_LIFE).max(quiet_for / LIFE_DIVISOR).min(LONGEST_LIFE)
}

/// For how long nothing must have changed to expect so long a life, if that may be expected at all.
pub(super) fn quiet_for_life(life: SignedDuration) -> Option<SignedDuration> {
    match life {
        life if life <= EQUAL_LIFE => Some(life),
        life if life <= LONGEST_LIFE => Some(life * LIFE_DIVISOR),
        _ => None,
    }
}
