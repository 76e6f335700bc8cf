//! NodeRecords: which nodes were removed, why, and by what they were replaced.
//!
//! The entries are spread over a fixed number of objects, by their NodePool. Each keeps the newest entries up to
//! [`MAX_ENTRIES`] and [`MAX_BYTES`]. Adding an entry twice is the same as once.

use super::offering::OfferingKey;
use crate::model::amounts::money::HourlyPrice;
use crate::model::names::{ClaimName, NodeName, NodePoolName, Uid};
use crate::model::support::hash::fnv1a;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Most entries of a NodeRecord.
pub const MAX_ENTRIES: usize = 500;
/// Most bytes of the entries of a NodeRecord as JSON: less than half of the 1.5 MiB that etcd takes.
pub const MAX_BYTES: usize = 700_000;
/// Most replacements that an entry names.
pub const MAX_REPLACEMENTS: usize = 10;
/// Longest text of an entry, in characters. Longer ones are cut.
pub const MAX_TEXT: usize = 1_000;
/// How many NodeRecords there are.
const SHARDS: u8 = 8;

/// Number of a NodeRecord.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeRecordShard(u8);

impl NodeRecordShard {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SHARDS).map(Self)
    }

    /// That of the nodes of a NodePool, or of those without one.
    #[must_use]
    pub fn of(pool: Option<&NodePoolName>) -> Self {
        let name = pool.map(NodePoolName::as_str).unwrap_or_default();
        let number = fnv1a(name.bytes()) % u64::from(SHARDS);
        Self(u8::try_from(number).unwrap_or_default())
    }
}

/// The name of the object.
impl fmt::Display for NodeRecordShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "napkeeper-history-{}", self.0)
    }
}

/// Who removed a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovedBy {
    /// This controller.
    Napkeeper,
    /// Karpenter.
    Karpenter,
    /// Azure took the VM away, or announced that it would.
    Azure,
    /// Somebody else: a user, or another controller.
    Other,
    /// It is not known, as after a restart of the controller.
    Unknown,
}

impl RemovedBy {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Napkeeper, Self::Karpenter, Self::Azure, Self::Other, Self::Unknown];

    /// As in objects and output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Napkeeper => "napkeeper",
            Self::Karpenter => "Karpenter",
            Self::Azure => "Azure",
            Self::Other => "other",
            Self::Unknown => "unknown",
        }
    }
}

/// A NodeClaim with its node and what it was launched as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedNode {
    /// The NodeClaim.
    pub claim: ClaimName,
    /// Its Node; `None` if it had not joined.
    pub node: Option<NodeName>,
    /// The offering; `None` where that is not known.
    pub offering: Option<OfferingKey>,
    /// Its price when it was planned; `None` where that is not known.
    pub price: Option<HourlyPrice>,
}

/// The removal of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRemoval {
    /// UID of the NodeClaim. There is one entry of each.
    pub uid: Uid,
    /// What was removed.
    pub removed: RecordedNode,
    /// Its NodePool; none for a standalone claim.
    pub pool: Option<NodePoolName>,
    /// The nodes that were launched to replace it, alone or with others; at most [`MAX_REPLACEMENTS`].
    pub replacements: Vec<RecordedNode>,
    /// Who removed it.
    pub by: RemovedBy,
    /// Why, as a word in CamelCase: as in the condition `DisruptionReason`, where it has one.
    pub reason: Arc<str>,
    /// Why, for people: for drift, the fields that have changed.
    pub cause: Arc<str>,
    /// When the deletion of its NodeClaim was requested.
    pub started: Timestamp,
    /// When its NodeClaim was gone, as far as that was seen.
    pub ended: Option<Timestamp>,
    /// Pods that were bound to it when its deletion began, except those that had ended, those of DaemonSets, and static
    /// ones: all others had to leave.
    pub pods: u32,
}

impl NodeRemoval {
    /// The NodeRecord that has it.
    #[must_use]
    pub fn shard(&self) -> NodeRecordShard {
        NodeRecordShard::of(self.pool.as_ref())
    }

    /// No less than its length as JSON: fields and texts, of which a character becomes at most two.
    #[must_use]
    pub fn max_json_len(&self) -> usize {
        const FIELDS: usize = 320;
        let texts = self.uid.as_str().len() + self.reason.len() + self.cause.len();
        let pool = self.pool.as_ref().map_or(0, |pool| pool.as_str().len());
        let nodes = std::iter::once(&self.removed).chain(&self.replacements);
        FIELDS + 2 * (texts + pool) + nodes.map(RecordedNode::max_json_len).sum::<usize>()
    }
}

impl RecordedNode {
    fn max_json_len(&self) -> usize {
        const FIELDS: usize = 160;
        let node = self.node.as_ref().map_or(0, |node| node.as_str().len());
        let offering = self.offering.as_ref().map_or(0, |key| key.size.as_str().len() + key.zone.as_str().len());
        FIELDS + 2 * (self.claim.as_str().len() + node + offering)
    }
}

/// A text as entries have it: at most [`MAX_TEXT`] characters on one line, none of them a control character.
#[must_use]
pub fn entry_text(text: &str) -> Arc<str> {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let taken: String = text.chars().take(MAX_TEXT).map(clean).collect();
    Arc::from(if text.chars().nth(MAX_TEXT).is_some() { format!("{taken}…") } else { taken })
}

/// Adds entries to those of a NodeRecord, and drops the oldest beyond its limits. The first entry of a NodeClaim stays, and
/// learns from later ones when the removal ended: the first one was made closest to its start. Returns the entries by
/// their start, the oldest first.
#[must_use]
pub fn with_removals(
    known: impl IntoIterator<Item = NodeRemoval>,
    added: impl IntoIterator<Item = NodeRemoval>,
) -> Vec<NodeRemoval> {
    let mut by_uid: BTreeMap<Uid, NodeRemoval> = BTreeMap::new();
    for entry in known.into_iter().chain(added) {
        match by_uid.get_mut(&entry.uid) {
            Some(first) => first.ended = first.ended.or(entry.ended),
            None => drop(by_uid.insert(entry.uid.clone(), entry)),
        }
    }
    let mut entries: Vec<NodeRemoval> = by_uid.into_values().collect();
    entries.sort_by(|a, b| (b.started, &b.uid).cmp(&(a.started, &a.uid)));
    entries.truncate(MAX_ENTRIES);
    let mut bytes = 0;
    let fits = |entry: &&NodeRemoval| {
        // With the comma after it.
        bytes += entry.max_json_len() + 1;
        bytes <= MAX_BYTES
    };
    let kept = entries.iter().take_while(fits).count();
    entries.truncate(kept);
    entries.reverse();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{Dice, at, offering};

    fn entry(number: usize, started: i64) -> NodeRemoval {
        let key = offering("Standard_D2s_v5", 1, crate::catalog::CapacityType::Spot).key;
        let node = |name: String| RecordedNode {
            claim: ClaimName::new(&name).unwrap(),
            node: NodeName::new(format!("aks-{name}")).ok(),
            offering: Some(key.clone()),
            price: Some(HourlyPrice::from_nanos(1)),
        };
        NodeRemoval {
            uid: Uid::new(format!("uid-{number:05}")).unwrap(),
            removed: node(format!("general-{number:05}")),
            pool: NodePoolName::new("general").ok(),
            replacements: vec![node("general-new".to_owned())],
            by: RemovedBy::Napkeeper,
            reason: Arc::from("Drifted"),
            cause: Arc::from("x"),
            started: at(started),
            ended: None,
            pods: 3,
        }
    }

    fn bytes(entries: &[NodeRemoval]) -> usize {
        entries.iter().map(|entry| entry.max_json_len() + 1).sum()
    }

    /// Entries of few NodeClaims at random times, some with long texts, some ended.
    fn drawn(dice: &mut Dice, most: usize) -> Vec<NodeRemoval> {
        let one = |dice: &mut Dice| {
            let number = dice.roll(1_500);
            // The start follows from the NodeClaim, as its deletion timestamp does, and so does the text.
            let mut entry = entry(number, i64::try_from(number * 7_919 % 1_500).unwrap());
            entry.ended = dice.one_in(3).then(|| at(2_000));
            if number.is_multiple_of(4) {
                entry.cause = entry_text(&"\"é".repeat(number));
            }
            entry
        };
        (0..dice.roll(most)).map(|_| one(dice)).collect()
    }

    #[test]
    fn limits_hold_and_the_oldest_are_dropped_and_nothing_is_there_twice() {
        for seed in 0..60 {
            let mut dice = Dice(seed);
            let (mut known, mut newest_dropped) = (Vec::new(), None);
            for _ in 0..dice.roll(6) {
                let added = drawn(&mut dice, 900);
                let all: Vec<_> = known.iter().chain(&added).cloned().collect();
                known = with_removals(known, added.clone());
                let uids: std::collections::BTreeSet<_> = known.iter().map(|entry| &entry.uid).collect();
                assert_eq!(uids.len(), known.len(), "seed {seed}");
                assert!(known.len() <= MAX_ENTRIES && bytes(&known) <= MAX_BYTES, "seed {seed}");
                assert!(known.is_sorted_by_key(|entry| (entry.started, entry.uid.clone())));
                let dropped = all.iter().filter(|entry| !uids.contains(&entry.uid)).map(|entry| entry.started).max();
                newest_dropped = newest_dropped.max(dropped);
                let oldest = known.first().map(|entry| entry.started);
                assert!(dropped.is_none() || dropped <= oldest, "seed {seed}: {dropped:?} before {oldest:?}");
                // Where one was dropped for its length that is not added again, an older one may be short enough.
                let again = with_removals(known.clone(), added);
                assert!(again.ends_with(&known), "seed {seed}: again is the same as once");
            }
        }
    }

    #[test]
    fn the_first_entry_of_a_claim_stays_and_learns_of_its_end() {
        let again = NodeRemoval { by: RemovedBy::Unknown, pods: 0, ended: Some(at(9)), ..entry(1, 5) };
        let merged = with_removals([entry(1, 5)], [again.clone(), NodeRemoval { ended: Some(at(20)), ..again }]);
        assert_eq!(merged, [NodeRemoval { ended: Some(at(9)), ..entry(1, 5) }]);
        assert_eq!(with_removals(merged.clone(), [entry(1, 5)]), merged, "a late write does not begin it again");
    }

    #[test]
    fn texts_are_cut_and_on_one_line() {
        assert_eq!(&*entry_text("a\nb\u{1b}c"), "a b c");
        let cut = entry_text(&"é".repeat(5_000));
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (MAX_TEXT + 1, true));
        assert_eq!(entry_text(&"é".repeat(MAX_TEXT)).chars().count(), MAX_TEXT);
    }

    #[test]
    fn pools_are_spread_over_all_records() {
        let pools = (0..200).map(|n| NodePoolName::new(format!("pool-{n}")).unwrap());
        let used: std::collections::BTreeSet<_> = pools.map(|pool| NodeRecordShard::of(Some(&pool))).collect();
        assert_eq!(used, NodeRecordShard::all().collect());
    }
}
