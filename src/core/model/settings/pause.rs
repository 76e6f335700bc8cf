//! The pause switch.
//!
//! A key names what is paused, and its value for how long: `"true"` until it is changed, `until <time>` until that time. Where
//! a key or a value cannot be read more is paused, not less.

use crate::model::cluster::claim::Claim;
use crate::model::cluster::pool::DisruptionReason;
use crate::model::names::NodePoolName;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;

/// What follows `disrupt.` in keys for one NodePool.
const NODEPOOL: &str = "nodepool.";
/// What follows `disrupt.` in keys for one reason.
const REASON: &str = "reason.";
/// What precedes a time in a value.
const UNTIL: &str = "until ";

/// The three pause switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// Disruptions of the nodes of a NodePool, for a reason. In a key of the pause switch, what is left out is any; of a node that
/// is disrupted, what is left out is not known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct DisruptionScope {
    /// The NodePool.
    pub pool: Option<NodePoolName>,
    /// The reason.
    pub reason: Option<DisruptionReason>,
}

impl DisruptionScope {
    /// Disruptions of the nodes of a NodePool for a reason.
    #[must_use]
    pub fn new(pool: &NodePoolName, reason: DisruptionReason) -> Self {
        Self { pool: Some(pool.clone()), reason: Some(reason) }
    }

    /// The disruption of the node of a NodeClaim for a reason; `None` is one that budgets do not have.
    #[must_use]
    pub fn of(claim: &Claim, reason: Option<DisruptionReason>) -> Self {
        Self { pool: claim.spec.pool.clone(), reason }
    }

    /// True where this, of a key, is about the disruption of a node.
    fn covers(&self, disrupted: &Self) -> bool {
        let reason = disrupted.reason.map(DisruptionReason::in_budgets);
        (self.pool.is_none() || self.pool == disrupted.pool) && (self.reason.is_none() || self.reason == reason)
    }
}

/// A key of the pause switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseKey {
    /// One of the three.
    Switch(PauseSwitch),
    /// Of disruptions, only those of a NodePool, for a reason, or both.
    Disruptions(DisruptionScope),
}

impl From<PauseSwitch> for PauseKey {
    fn from(switch: PauseSwitch) -> Self {
        Self::Switch(switch)
    }
}

/// As in the ConfigMap.
impl fmt::Display for PauseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(switch) => f.pad(switch.name()),
            Self::Disruptions(DisruptionScope { pool, reason }) => {
                f.write_str(PauseSwitch::Disrupt.name())?;
                reason.iter().try_for_each(|reason| write!(f, ".{REASON}{}", reason.as_str()))?;
                pool.iter().try_for_each(|pool| write!(f, ".{NODEPOOL}{pool}"))
            }
        }
    }
}

impl PauseKey {
    /// The key that a text names.
    ///
    /// # Errors
    /// What is wrong with it, with the key that holds back all that may be meant; with `None` where it is none at all.
    pub fn read(text: &str) -> Result<Self, (Option<Self>, String)> {
        if let Some(switch) = PauseSwitch::ALL.into_iter().find(|switch| switch.name() == text) {
            return Ok(Self::Switch(switch));
        }
        let Some(scope) = text.strip_prefix(PauseSwitch::Disrupt.name()).and_then(|rest| rest.strip_prefix('.')) else {
            return Err((None, KEYS.to_owned()));
        };
        let (reason, pool) = match scope.strip_prefix(REASON) {
            Some(rest) => rest.split_once('.').map_or((Some(rest), None), |(reason, pool)| (Some(reason), Some(pool))),
            None => (None, Some(scope)),
        };
        let known = reason.map(|name| BUDGET_REASONS.into_iter().find(|known| known.as_str() == name));
        let pool = pool.map(|text| text.strip_prefix(NODEPOOL).and_then(|name| NodePoolName::new(name).ok()));
        let is_read = known != Some(None) && pool != Some(None);
        let scope = DisruptionScope { pool: pool.flatten(), reason: known.flatten() };
        let key = if scope == DisruptionScope::default() {
            Self::Switch(PauseSwitch::Disrupt)
        } else {
            Self::Disruptions(scope)
        };
        if is_read { Ok(key) } else { Err((Some(key), KEYS.to_owned())) }
    }
}

/// The reasons of budgets.
const BUDGET_REASONS: [DisruptionReason; 3] =
    [DisruptionReason::Underutilized, DisruptionReason::Empty, DisruptionReason::Drifted];

/// The keys, for people.
const KEYS: &str = "keys are launch, disrupt, delete, disrupt.nodepool.NAME, disrupt.reason.REASON and \
disrupt.reason.REASON.nodepool.NAME, with the reasons Underutilized, Empty and Drifted";

/// How long something is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PauseEnd {
    /// Until this time.
    At(Timestamp),
    /// Until the switch is changed.
    OnChange,
}

impl PauseEnd {
    /// False when it is over.
    #[must_use]
    pub fn is_after(self, now: Timestamp) -> bool {
        match self {
            Self::At(end) => end > now,
            Self::OnChange => true,
        }
    }

    /// The end that a value of the ConfigMap names; `None` where it pauses nothing.
    ///
    /// # Errors
    /// What it must be.
    fn read(value: &str) -> Result<Option<Self>, &'static str> {
        match value.trim() {
            "false" => Ok(None),
            "true" => Ok(Some(Self::OnChange)),
            text => match text.strip_prefix(UNTIL).and_then(|time| time.trim().parse().ok()) {
                Some(end) => Ok(Some(Self::At(end))),
                None => Err("must be \"true\", \"false\", or \"until \" and a time such as 2026-12-01T06:00:00Z"),
            },
        }
    }
}

/// One key that is set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Paused {
    /// The key.
    pub key: PauseKey,
    /// Until when.
    pub end: PauseEnd,
}

/// The key, with its end if it has one.
impl fmt::Display for Paused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            PauseEnd::At(end) => write!(f, "{} until {end}", self.key),
            PauseEnd::OnChange => self.key.fmt(f),
        }
    }
}

/// The pause switch: what is paused, and until when. Checked at every write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pause(BTreeMap<PauseKey, PauseEnd>);

impl Pause {
    /// Pauses the actions of these switches.
    #[must_use]
    pub fn of(switches: impl IntoIterator<Item = PauseSwitch>) -> Self {
        let mut pause = Self::default();
        switches.into_iter().for_each(|switch| pause.add(PauseKey::Switch(switch), PauseEnd::OnChange));
        pause
    }

    /// Pauses what a key names, until the later of this end and the one it has.
    pub fn add(&mut self, key: PauseKey, end: PauseEnd) {
        let known = self.0.entry(key).or_insert(end);
        *known = end.max(*known);
    }

    /// Pauses what another pauses, too.
    pub fn extend(&mut self, other: &Self) {
        other.0.iter().for_each(|(key, end)| self.add(key.clone(), *end));
    }

    /// Reads keys with their values, and tells which cannot be read. A value that is not text is `None`.
    pub fn read<'t>(entries: impl IntoIterator<Item = (&'t str, Option<&'t str>)>) -> (Self, Vec<String>) {
        let (mut pause, mut wrong) = (Self::default(), Vec::new());
        for (name, value) in entries {
            let end = PauseEnd::read(value.unwrap_or("(bytes)"));
            let key = match PauseKey::read(name) {
                Ok(key) => key,
                Err((None, keys)) => {
                    wrong.push(format!("data.{name}: pauses nothing; {keys}"));
                    continue;
                }
                Err((Some(key), keys)) => {
                    let effect = if end == Ok(None) { "pauses nothing".to_owned() } else { pauses(&key) };
                    wrong.push(format!("data.{name}: unknown NodePool name or reason; {effect}; {keys}"));
                    key
                }
            };
            if let Err(expected) = end {
                let value = value.unwrap_or("(bytes)");
                wrong.push(format!("data.{name}: {expected}, got {value:?}; {}", pauses(&key)));
            }
            if let Some(end) = end.unwrap_or(Some(PauseEnd::OnChange)) {
                pause.add(key, end);
            }
        }
        (pause, wrong)
    }

    /// True while this switch is set.
    #[must_use]
    pub fn blocks(&self, switch: PauseSwitch, now: Timestamp) -> bool {
        self.0.get(&PauseKey::Switch(switch)).is_some_and(|end| end.is_after(now))
    }

    /// True while a node must not be disrupted, by the switch for all disruptions or one for some of them.
    #[must_use]
    pub fn blocks_disruption(&self, disrupted: &DisruptionScope, now: Timestamp) -> bool {
        self.disruption_pause(disrupted, now).is_some()
    }

    /// What holds back the disruption of a node longest.
    #[must_use]
    pub fn disruption_pause(&self, disrupted: &DisruptionScope, now: Timestamp) -> Option<Paused> {
        let covers = |key: &PauseKey| match key {
            PauseKey::Switch(switch) => *switch == PauseSwitch::Disrupt,
            PauseKey::Disruptions(scope) => scope.covers(disrupted),
        };
        self.active(now).filter(|paused| covers(&paused.key)).max_by_key(|paused| paused.end)
    }

    /// True while any disruption is paused.
    #[must_use]
    pub fn blocks_any_disruption(&self, now: Timestamp) -> bool {
        let is_of_disruption = |key: &PauseKey| match key {
            PauseKey::Switch(switch) => *switch == PauseSwitch::Disrupt,
            PauseKey::Disruptions(_) => true,
        };
        self.active(now).any(|paused| is_of_disruption(&paused.key))
    }

    /// What is paused now.
    pub fn active(&self, now: Timestamp) -> impl Iterator<Item = Paused> {
        self.all().filter(move |paused| paused.end.is_after(now))
    }

    /// What is or was paused: an end may be over.
    pub fn all(&self) -> impl Iterator<Item = Paused> {
        self.0.iter().map(|(key, end)| Paused { key: key.clone(), end: *end })
    }

    /// When the next pause ends by itself.
    #[must_use]
    pub fn next_release(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.active(now).filter_map(|paused| match paused.end {
            PauseEnd::At(end) => Some(end),
            PauseEnd::OnChange => None,
        });
        ends.min()
    }

    /// What is paused now, without what has ended.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        Self(self.active(now).map(|paused| (paused.key, paused.end)).collect())
    }
}

fn pauses(key: &PauseKey) -> String {
    format!("pauses {key} until this is fixed")
}

/// What is paused, with its end if it has one, joined by commas; or `nothing`.
impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.all().map(|paused| paused.to_string()).collect();
        f.pad(&if words.is_empty() { "nothing".to_owned() } else { words.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn noon() -> Timestamp {
        at("2026-08-03T12:00:00Z")
    }

    fn pool(name: &str) -> NodePoolName {
        NodePoolName::new(name).unwrap()
    }

    fn read(entries: &[(&str, &str)]) -> (Pause, Vec<String>) {
        Pause::read(entries.iter().map(|(key, value)| (*key, Some(*value))))
    }

    /// Which of the disruptions of two NodePools for all reasons are paused: a line each, as `general Empty`.
    fn paused(pause: &Pause, now: Timestamp) -> Vec<String> {
        let pools = ["general", "batch"];
        let scopes = pools.into_iter().flat_map(|name| DisruptionReason::ALL.map(|reason| (name, reason)));
        let is_paused = |(name, reason): &(&str, DisruptionReason)| {
            pause.blocks_disruption(&DisruptionScope::new(&pool(name), *reason), now)
        };
        scopes.filter(is_paused).map(|(name, reason)| format!("{name} {}", reason.as_str())).collect()
    }

    #[test]
    fn a_key_pauses_what_it_names_and_nothing_else() {
        let of_pool = ["Underutilized", "Empty", "Drifted", "Expiring", "NodePoolDeleted"];
        let of_pool = of_pool.map(|reason| format!("general {reason}"));
        // Nodes that expire, and those of deleted NodePools, are replaced as drifted ones, also by budgets.
        let drifted = ["general", "batch"]
            .map(|pool| ["Drifted", "Expiring", "NodePoolDeleted"].map(|reason| format!("{pool} {reason}")));
        let drifted = drifted.concat();
        for (key, expected) in [
            ("disrupt.nodepool.general", of_pool.to_vec()),
            ("disrupt.reason.Drifted", drifted.to_vec()),
            ("disrupt.reason.Drifted.nodepool.general", drifted[..3].to_vec()),
            ("disrupt.reason.Empty.nodepool.general", vec!["general Empty".to_owned()]),
            ("disrupt.nodepool.other", vec![]),
            ("launch", vec![]),
        ] {
            let (pause, wrong) = read(&[(key, "true")]);
            assert_eq!((paused(&pause, noon()), wrong), (expected, vec![]), "{key}");
            assert_eq!(pause.to_string(), key);
            assert!(!pause.blocks(PauseSwitch::Disrupt, noon()), "{key}: not all of them");
        }
        assert_eq!(paused(&read(&[("disrupt", "true")]).0, noon()).len(), 10);
    }

    /// Of a node of which neither NodePool nor reason is known, only the switch for all disruptions holds.
    #[test]
    fn a_disruption_of_unknown_kind_is_held_back_by_the_whole_switch_alone() {
        let unknown = DisruptionScope::default();
        for (key, expected) in [("disrupt", true), ("disrupt.nodepool.general", false), ("disrupt.reason.Empty", false)]
        {
            assert_eq!(read(&[(key, "true")]).0.blocks_disruption(&unknown, noon()), expected, "{key}");
        }
    }

    #[test]
    fn a_pause_until_a_time_ends_then_by_itself() {
        let (pause, wrong) = read(&[
            ("launch", "until 2026-08-03T14:00:00+02:00"),
            ("disrupt.nodepool.general", "until 2026-08-03T12:00:01Z"),
            ("delete", "true"),
        ]);
        assert_eq!(wrong, Vec::<String>::new());
        assert!(!pause.blocks(PauseSwitch::Launch, noon()), "noon is its end");
        assert!(pause.blocks(PauseSwitch::Launch, at("2026-08-03T11:59:59.9Z")));
        assert_eq!((paused(&pause, noon()).len(), paused(&pause, at("2026-08-03T12:00:01Z")).len()), (5, 0));
        assert_eq!(pause.next_release(at("2026-08-03T11:00:00Z")), Some(noon()));
        assert_eq!(pause.next_release(noon()), Some(at("2026-08-03T12:00:01Z")));
        assert_eq!(pause.next_release(at("2026-08-03T13:00:00Z")), None);
        let left = pause.at(noon());
        assert_eq!(left.to_string(), "delete, disrupt.nodepool.general until 2026-08-03T12:00:01Z");
        assert_eq!(pause.at(at("2026-08-04T00:00:00Z")), Pause::of([PauseSwitch::Delete]));
    }

    #[test]
    fn what_cannot_be_read_pauses_more_not_less() {
        let general = "disrupt.nodepool.general";
        for (key, value, held) in [
            ("disrupt", "no", "disrupt"),
            ("disrupt", "", "disrupt"),
            ("disrupt", "TRUE", "disrupt"),
            ("disrupt", "until tomorrow", "disrupt"),
            ("disrupt", "until 2026-08-03", "disrupt"),
            ("launch", "until", "launch"),
            (general, "yes", general),
            ("disrupt.reason.drifted", "true", "disrupt"),
            ("disrupt.reason.Expired", "until 2026-08-04T00:00:00Z", "disrupt until 2026-08-04T00:00:00Z"),
            ("disrupt.reason.empty.nodepool.general", "true", general),
            ("disrupt.reason.Empty.nodepool.General", "true", "disrupt.reason.Empty"),
            ("disrupt.reason.Empty.general", "true", "disrupt.reason.Empty"),
            ("disrupt.general", "true", "disrupt"),
            ("disrupt.", "true", "disrupt"),
            ("disrupt.reason.drifted", "false", "nothing"),
            ("lauch", "true", "nothing"),
            ("disrupted", "true", "nothing"),
        ] {
            let (pause, wrong) = read(&[(key, value)]);
            assert_eq!(pause.to_string(), held, "{key}: {value:?}");
            assert!(wrong.len() == 1 && wrong[0].starts_with(&format!("data.{key}: ")), "{key}: {wrong:?}");
            let effect = if held == "nothing" { "pauses nothing".to_owned() } else { "until this is fixed".to_owned() };
            assert!(wrong[0].contains(&effect), "{wrong:?}");
        }
        let (pause, wrong) = Pause::read([("launch", None)]);
        assert_eq!((pause, wrong.len()), (Pause::of([PauseSwitch::Launch]), 1));
    }

    /// No name of a NodePool makes two keys one, for it has no upper case; and each key is read as what it was written from.
    #[test]
    fn every_key_is_read_as_what_it_was_written_from() {
        let pools = ["general", "nodepool", "reason", "reason.nodepool", "a.nodepool.b", "empty", "x-1.y"];
        let pools = || pools.iter().map(|name| Some(pool(name))).chain([None]);
        let mut seen = std::collections::BTreeSet::new();
        for (pool, reason) in
            pools().flat_map(|pool| BUDGET_REASONS.map(Some).into_iter().chain([None]).map(move |r| (pool.clone(), r)))
        {
            let scope = DisruptionScope { pool, reason };
            if scope == DisruptionScope::default() {
                continue;
            }
            let key = PauseKey::Disruptions(scope);
            let text = key.to_string();
            assert_eq!(PauseKey::read(&text), Ok(key));
            // What Kubernetes allows in a key of a ConfigMap.
            assert!(
                text.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) && text.len() <= 253,
                "{text}"
            );
            assert!(seen.insert(text));
        }
    }

    #[test]
    fn the_longest_pause_is_told() {
        let (pause, _) = read(&[("disrupt", "until 2026-08-03T13:00:00Z"), ("disrupt.nodepool.general", "true")]);
        let told = |name| {
            let scope = DisruptionScope::new(&pool(name), DisruptionReason::Empty);
            pause.disruption_pause(&scope, noon()).map(|paused| paused.key.to_string())
        };
        assert_eq!(told("general").as_deref(), Some("disrupt.nodepool.general"));
        assert_eq!(told("batch").as_deref(), Some("disrupt"));
    }
}
