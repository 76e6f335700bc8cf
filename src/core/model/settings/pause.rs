//! The pause switch.

use std::collections::BTreeSet;
use std::fmt;

/// The three pause switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Nothing new is launched.
    Launch,
    /// Nothing is disrupted.
    Disrupt,
    /// Nothing is deleted in Azure.
    Delete,
}

/// The pause switch: what must not be done for now. Checked at every write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pause(BTreeSet<Switch>);

impl Pause {
    /// Holds back what these switches stand for.
    #[must_use]
    pub fn of(switches: impl IntoIterator<Item = Switch>) -> Self {
        Self(switches.into_iter().collect())
    }

    /// True when this switch is set.
    #[must_use]
    pub fn holds(&self, switch: Switch) -> bool {
        self.0.contains(&switch)
    }
}

/// What is held back, joined by commas, or `nothing`.
impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |switch: &Switch| match switch {
            Switch::Launch => "launch",
            Switch::Disrupt => "disrupt",
            Switch::Delete => "delete",
        };
        let words: Vec<&str> = self.0.iter().map(word).collect();
        f.pad(&if words.is_empty() { "nothing".to_owned() } else { words.join(", ") })
    }
}
