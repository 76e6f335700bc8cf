//! When statuses, and other parts of objects, were last written.

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Numbers and messages of a status are written at most this often; a status that the write before has not changed less often
/// each time.
pub const WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Doublings of the interval for a status that its writes do not change: 10 min 40 s.
const MAX_DOUBLINGS: u32 = 6;

/// The status of each object that was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteTimes<N, S>(BTreeMap<N, LastWrite<S>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct LastWrite<S> {
    status: S,
    at: Timestamp,
    /// How often the same was written before.
    repeats: u32,
}

impl<N, S> Default for WriteTimes<N, S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<N: Ord + Clone, S: PartialEq> WriteTimes<N, S> {
    /// Forgets objects that no longer exist.
    pub(crate) fn retain(&mut self, exists: impl Fn(&N) -> bool) {
        self.0.retain(|name, _| exists(name));
    }

    /// The next write of this object does not wait.
    pub(crate) fn forget(&mut self, name: &N) {
        self.0.remove(name);
    }

    /// The status of the object is as it is to be. Only if it stays so for as long as the next write would wait is it not
    /// somebody else's too.
    pub(crate) fn settled(&mut self, name: &N, now: Timestamp) {
        if let Some(last) = self.0.get_mut(name).filter(|last| last.at + interval(last.repeats + 1) <= now) {
            last.repeats = 0;
        }
    }

    /// A status may be written now, which is noted. News may be written at once. What the write before should have written
    /// waits longer each time: others may own a field of it, or write it too.
    ///
    /// # Errors
    /// When it may be written, if that is later.
    pub(crate) fn begin(&mut self, name: &N, wanted: S, is_news: bool, now: Timestamp) -> Result<(), Timestamp> {
        let last = self.0.get(name);
        let repeats = last.filter(|last| last.status == wanted).map_or(0, |last| last.repeats + 1);
        let wait = match repeats {
            0 if is_news => SignedDuration::ZERO,
            0 => WRITE_INTERVAL,
            more => interval(more),
        };
        // The clock may have been set back since.
        let due = last.map(|last| last.at.min(now) + wait).filter(|due| *due > now);
        match due {
            Some(due) => Err(due),
            None => {
                self.0.insert(name.clone(), LastWrite { status: wanted, at: now, repeats });
                Ok(())
            }
        }
    }
}

/// How long a write waits that has been repeated so often.
fn interval(repeats: u32) -> SignedDuration {
    WRITE_INTERVAL * (1 << repeats.saturating_sub(1).min(MAX_DOUBLINGS))
}
