//! When the nodes of a NodePool have all been replaced under its budgets.

use super::spans::AllowedSpan;
use jiff::{SignedDuration, Timestamp};
use std::collections::VecDeque;

/// Nodes that are replaced, and others that count against the budgets from the beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct RollNodes {
    /// Nodes to replace.
    pub(super) nodes: u32,
    /// Nodes that are going already.
    pub(super) going: u32,
}

/// When these nodes have been replaced if each takes this long and begins as soon as budgets allow it, and those that are going
/// are gone after as long; `None` if that is not within these spans. A node counts against the budgets until it is gone.
///
/// It grows with the time that each takes: where none takes less, or none more, it is a bound of the end.
#[must_use]
pub(super) fn roll_end(
    spans: &[AllowedSpan],
    RollNodes { nodes, going }: RollNodes,
    each: SignedDuration,
) -> Option<Timestamp> {
    let mut left = nodes;
    let first = spans.first()?.from.checked_add(each).ok()?;
    let mut ends: VecDeque<Timestamp> = std::iter::repeat_n(first, going as usize).collect();
    for span in spans {
        let mut at = span.from;
        while left > 0 && at < span.until {
            while ends.front().is_some_and(|end| *end <= at) {
                ends.pop_front();
            }
            let running = u32::try_from(ends.len()).unwrap_or(u32::MAX);
            let begun = left.min(span.allowed.saturating_sub(running));
            let end = at.checked_add(each.max(SignedDuration::from_secs(1))).ok()?;
            ends.extend(std::iter::repeat_n(end, begun as usize));
            left -= begun;
            // All take equally long: the first that ends makes room.
            match ends.front() {
                Some(next) if span.allowed > 0 => at = *next,
                _ => break,
            }
        }
    }
    (left == 0).then(|| ends.back().copied().or_else(|| spans.first().map(|span| span.from)))?
}
