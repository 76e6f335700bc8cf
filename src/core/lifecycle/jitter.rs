//! Jitter: how do many that were turned away at once not come back at once?

use jiff::SignedDuration;

/// A wait made longer by up to a quarter, by who waits and for which time. The same again for the same: nothing in here
/// is drawn by chance.
pub(super) fn jittered(wait: SignedDuration, who: &str, turn: u32) -> SignedDuration {
    // FNV-1a, 32 bits (Fowler, Noll and Vo).
    let bytes = who.bytes().chain(turn.to_le_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let parts = i32::from(u8::try_from(hash >> 24).unwrap_or(u8::MAX));
    wait.saturating_add(wait / 1_024 * parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn waits_spread_by_up_to_a_quarter_and_are_never_shorter() {
        let wait = SignedDuration::from_secs(60);
        let waits: Vec<_> = (0..100).map(|n| jittered(wait, &format!("uid-{n}"), 1)).collect();
        assert!(waits.iter().all(|w| *w >= wait && *w <= wait * 5 / 4));
        assert!(waits.iter().map(|w| w.as_secs()).collect::<BTreeSet<_>>().len() > 10);
        assert_eq!(jittered(wait, "a", 1), jittered(wait, "a", 1));
        assert_ne!(jittered(wait, "a", 1), jittered(wait, "a", 2));
    }
}
