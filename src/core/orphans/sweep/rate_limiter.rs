//! Rate limit of sweep commands.
//!
//! The transport stays below the limits of Azure Resource Manager. This keeps a sweep from using all of that: launches
//! and lifecycle deletes come first. It also limits the damage of a bug.

use crate::model::orphans::attempt::SweepAction;
use jiff::{SignedDuration, Timestamp};

/// Most concurrent commands of sweeps on cloud resources.
pub const MAX_CONCURRENT: usize = 4;
/// Most deletes that begin within a minute.
pub const DELETES_PER_MINUTE: usize = 6;
/// Most marks that are added or removed within a minute.
pub const TAGS_PER_MINUTE: usize = 30;
/// The minute.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// Recently started actions. Disposable: if lost, the rate limit restarts.
#[derive(Debug, Clone, Default)]
pub(in crate::orphans) struct RateLimiter(Vec<(Timestamp, SweepAction)>);

impl RateLimiter {
    /// Starts one more, with this many running.
    ///
    /// # Errors
    /// When to try again.
    pub(in crate::orphans) fn try_start(
        &mut self,
        action: SweepAction,
        running: usize,
        now: Timestamp,
    ) -> Result<(), Timestamp> {
        self.0.retain(|(at, _)| now.duration_since(*at) < MINUTE);
        let later = |at: Timestamp| at.saturating_add(MINUTE).unwrap_or(Timestamp::MAX);
        if running >= MAX_CONCURRENT {
            return Err(later(now));
        }
        let most = match action {
            SweepAction::Delete => DELETES_PER_MINUTE,
            SweepAction::Tag => TAGS_PER_MINUTE,
        };
        let mut same = self.0.iter().filter(|(_, started)| *started == action);
        if same.clone().count() >= most {
            return Err(same.next().map_or(now, |(at, _)| later(*at)));
        }
        self.0.push((now, action));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orphans::tests::fixtures::start;

    #[test]
    fn concurrency_and_rate_are_limited() {
        let mut limiter = RateLimiter::default();
        assert_eq!(limiter.try_start(SweepAction::Delete, MAX_CONCURRENT, start()), Err(start() + MINUTE));
        for n in 0..DELETES_PER_MINUTE {
            assert_eq!(
                limiter.try_start(SweepAction::Delete, 0, start() + SignedDuration::from_secs(n as i64)),
                Ok(())
            );
        }
        let later = start() + SignedDuration::from_secs(30);
        assert_eq!(limiter.try_start(SweepAction::Delete, 0, later), Err(start() + MINUTE));
        assert_eq!(limiter.try_start(SweepAction::Tag, 0, later), Ok(()), "tags have a separate limit");
        assert_eq!(limiter.try_start(SweepAction::Delete, 0, start() + MINUTE), Ok(()));
        assert_eq!(
            limiter.try_start(SweepAction::Delete, 0, start() + MINUTE),
            Err(start() + MINUTE + SignedDuration::from_secs(1))
        );
    }
}
