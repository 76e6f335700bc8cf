//! The stage of the process, from start to stop, and notice of its changes.

use std::time::Duration;
use tokio::sync::watch;

/// How long open work may take after the first signal, by default: below the 30 s that Kubernetes gives a pod.
pub const GRACE: Duration = Duration::from_secs(25);

/// The stage of a process. It only moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Configuration is read, ports are bound, caches fill.
    Starting,
    /// It answers.
    Ready,
    /// After the first signal: no new connections, open ones finish within the grace time.
    Draining,
    /// After the second signal, or when everything has ended.
    Stopped,
}

impl Stage {
    /// `/readyz`: may it be sent requests?
    #[must_use]
    pub fn is_ready(self) -> bool {
        self == Self::Ready
    }

    /// `/healthz`: is it right not to restart it? A server that drains is well.
    #[must_use]
    pub fn is_healthy(self) -> bool {
        self != Self::Stopped
    }

    /// The stage after a signal to stop: the first drains, the second ends it.
    #[must_use]
    pub fn signalled(self) -> Self {
        match self {
            Self::Starting | Self::Ready => Self::Draining,
            Self::Draining | Self::Stopped => Self::Stopped,
        }
    }
}

/// The stage of this process. Clones share it.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    stage: watch::Sender<Stage>,
    grace: Duration,
}

impl Lifecycle {
    /// A process that starts, and has `grace` to finish open work once it is to stop.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self { stage: watch::Sender::new(Stage::Starting), grace }
    }

    /// The stage now.
    #[must_use]
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// How long open work may take after the first signal.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Marks it ready. No effect while stopping.
    pub fn ready(&self) {
        self.advance(Stage::Ready);
    }

    /// Begins to stop, as a first signal does.
    pub fn drain(&self) {
        self.advance(Stage::Draining);
    }

    /// Ends at once, as a second signal does.
    pub fn stop(&self) {
        self.advance(Stage::Stopped);
    }

    /// Handles a signal to stop: the first drains, the second ends it.
    pub fn signal(&self) {
        self.advance(self.stage().signalled());
    }

    /// Waits until no new work should begin.
    pub async fn draining(&self) {
        self.reached(Stage::Draining).await;
    }

    /// Waits until all work should have ended.
    pub async fn stopped(&self) {
        self.reached(Stage::Stopped).await;
    }

    async fn reached(&self, stage: Stage) {
        // It cannot fail: `self` holds the sender.
        drop(self.stage.subscribe().wait_for(|now| *now >= stage).await);
    }

    fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            if later {
                *now = stage;
            }
            later
        });
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new(GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_never_go_back() {
        let lifecycle = Lifecycle::default();
        lifecycle.ready();
        lifecycle.signal();
        lifecycle.ready();
        assert_eq!(lifecycle.stage(), Stage::Draining);
        lifecycle.clone().signal();
        lifecycle.drain();
        assert_eq!(lifecycle.stage(), Stage::Stopped);
    }

    #[test]
    fn the_first_signal_drains_and_the_second_stops() {
        let draining = Stage::Ready.signalled();
        assert!(!draining.is_ready() && draining.is_healthy());
        assert_eq!(draining.signalled(), Stage::Stopped);
        assert!(!Stage::Stopped.is_healthy());
    }
}
