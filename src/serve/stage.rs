//! Stages: how far has a server come?

/// How far a server has come. It only ever moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Configuration is read, ports are bound, caches fill.
    Starting,
    /// It answers.
    Ready,
    /// The first signal came: no new connections, those that are open finish within the grace time.
    Draining,
    /// The second signal came, or all is finished.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_drains_and_the_second_stops() {
        let draining = Stage::Ready.signalled();
        assert!(!draining.is_ready() && draining.is_healthy());
        assert_eq!(draining.signalled(), Stage::Stopped);
        assert!(!Stage::Stopped.is_healthy());
    }
}
