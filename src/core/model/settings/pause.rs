//! The pause switch.

use std::collections::BTreeSet;
use std::fmt;

/// The three pause switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseSwitch {
    /// Nothing new is launched.
    Launch,
    /// Nothing is disrupted.
    Disrupt,
    /// Nothing is deleted in Azure.
    Delete,
}

impl PauseSwitch {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Launch, Self::Disrupt, Self::Delete];

    /// Its key in the ConfigMap.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Disrupt => "disrupt",
            Self::Delete => "delete",
        }
    }
}

/// The pause switch: paused actions. Checked at every write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pause(BTreeSet<PauseSwitch>);

impl Pause {
    /// Pauses the actions of these switches.
    #[must_use]
    pub fn of(switches: impl IntoIterator<Item = PauseSwitch>) -> Self {
        Self(switches.into_iter().collect())
    }

    /// True when this switch is set.
    #[must_use]
    pub fn blocks(&self, switch: PauseSwitch) -> bool {
        self.0.contains(&switch)
    }
}

/// Paused actions, joined by commas, or `nothing`.
impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(|switch| switch.name()).collect();
        f.pad(&if words.is_empty() { "nothing".to_owned() } else { words.join(", ") })
    }
}
