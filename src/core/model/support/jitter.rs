//! Deterministic jitter for retries.

use jiff::SignedDuration;

/// Up to a quarter longer: for waits of seconds.
pub(crate) const QUARTER_JITTER: i32 = 4;
/// Up to a tenth longer: for waits of minutes and hours.
pub(crate) const TENTH_JITTER: i32 = 10;

/// A wait made longer by up to one part in `part`, by who waits and for which time. The same again for the same:
/// nothing in here is drawn by chance.
pub(crate) fn with_jitter(wait: SignedDuration, part: i32, who: &str, turn: u32) -> SignedDuration {
    // FNV-1a, 32 bits (Fowler, Noll and Vo).
    let bytes = who.bytes().chain(turn.to_le_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let parts = i32::from(u8::try_from(hash >> 24).unwrap_or(u8::MAX));
    wait.saturating_add(wait / 256 / part.max(1) * parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn waits_spread_by_up_to_their_part_and_are_never_shorter() {
        let wait = SignedDuration::from_secs(60);
        for part in [QUARTER_JITTER, TENTH_JITTER] {
            let waits: Vec<_> = (0..100).map(|n| with_jitter(wait, part, &format!("uid-{n}"), 1)).collect();
            assert!(waits.iter().all(|w| *w >= wait && *w <= wait + wait / part));
            assert!(waits.iter().map(|w| w.as_millis() / 100).collect::<BTreeSet<_>>().len() > 10);
        }
        assert_eq!(with_jitter(wait, QUARTER_JITTER, "a", 1), with_jitter(wait, QUARTER_JITTER, "a", 1));
        assert_ne!(with_jitter(wait, QUARTER_JITTER, "a", 1), with_jitter(wait, QUARTER_JITTER, "a", 2));
    }
}
