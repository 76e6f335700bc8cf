//! Conditions of NodePools, AKSNodeClasses and NodeOverlays.

use crate::convert::common::{self, ConditionState};
use crate::types::common::Condition;
use jiff::Timestamp;
use napkeeper_core::model::cluster::status::{ConditionType, Conditions, StatusCondition};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The conditions that are ours. One that is Unknown counts as absent.
pub(super) fn read_conditions(all: Option<&[Condition]>) -> Conditions {
    let ours = |condition: &&Condition| ConditionType::ALL.iter().any(|kind| kind.as_str() == condition.kind);
    let ours: Vec<&Condition> = all.unwrap_or_default().iter().filter(ours).collect();
    let read = |kind: ConditionType| {
        let found = ours.iter().find(|condition| condition.kind == kind.as_str())?;
        let holds = match &*found.status {
            "True" => true,
            "False" => false,
            _ => return None,
        };
        let (reason, message) = (Arc::from(&*found.reason), Arc::from(&*found.message));
        Some((kind, StatusCondition { holds, reason, message }))
    };
    // Unknown ones are never written, and may be left from before.
    let known = ours.iter().filter(|condition| condition.status != "Unknown");
    let generations: BTreeSet<Option<i64>> = known.map(|condition| condition.observed_generation).collect();
    Conditions {
        by_type: ConditionType::ALL.into_iter().filter_map(read).collect(),
        observed_generation: generations.first().copied().flatten().filter(|_| generations.len() == 1),
    }
}

/// Our conditions as the wire has them. The transition time of one that is known stays if its status does.
pub(super) fn write_conditions(known: &[Condition], conditions: &Conditions, now: Timestamp) -> Vec<Condition> {
    let written = |(kind, condition): (&ConditionType, &StatusCondition)| {
        let status = if condition.holds { "True" } else { "False" };
        let (name, reason, message) = (kind.as_str(), &*condition.reason, &*condition.message);
        let state = ConditionState { name, status, reason, message };
        common::condition(known, &state, conditions.observed_generation, now)
    };
    conditions.by_type.iter().map(written).collect()
}

/// The conditions of an object, which is all that is read of its status.
#[derive(Debug, Clone, Deserialize)]
pub struct StatusConditions {
    /// All of them.
    pub conditions: Option<Vec<Condition>>,
}

/// Conditions of an object with ours; those of others stay. For kinds whose list has no keys in some definition: of such a list
/// a server-side apply of ours alone would remove those of others.
#[must_use]
pub fn merged_conditions(known: &[Condition], conditions: &Conditions, now: Timestamp) -> Vec<Condition> {
    let mut ours = write_conditions(known, conditions, now);
    let mut merged = Vec::with_capacity(known.len() + ours.len());
    for condition in known {
        match ours.iter().position(|own| own.kind == condition.kind) {
            Some(i) => merged.push(ours.remove(i)),
            None => merged.push(condition.clone()),
        }
    }
    merged.extend(ours);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn conditions(condition: StatusCondition, generation: i64) -> Conditions {
        Conditions { by_type: [(ConditionType::Ready, condition)].into(), observed_generation: Some(generation) }
    }

    #[test]
    fn conditions_are_read_as_they_were_written_and_keep_their_time() {
        let failing = conditions(StatusCondition::failing("UnsupportedFields", "spec.kubelet"), 1);
        let written = write_conditions(&[], &failing, at(10));
        assert_eq!(read_conditions(Some(&written)), failing);
        assert_eq!(write_conditions(&written, &failing, at(20)), written);
        let recovered = conditions(StatusCondition::holding("Ready"), 2);
        let again = write_conditions(&written, &recovered, at(20));
        assert_eq!(again[0].last_transition_time, at(20).to_string());
        assert_eq!(read_conditions(Some(&again)), recovered);
    }

    #[test]
    fn conditions_about_several_generations_or_unknown_ones_are_written_anew() {
        let mut all = conditions(StatusCondition::holding("Ready"), 1);
        all.by_type.insert(ConditionType::ValidationSucceeded, StatusCondition::holding("ValidationSucceeded"));
        let mut written = write_conditions(&[], &all, at(10));
        written[1].observed_generation = Some(2);
        assert_eq!(read_conditions(Some(&written)).observed_generation, None);
        written[1].status = "Unknown".to_owned();
        assert_eq!(read_conditions(Some(&written)).get(ConditionType::ValidationSucceeded), None);
    }

    #[test]
    fn conditions_of_others_stay_in_their_place() {
        let known: Vec<Condition> = serde_json::from_value(serde_json::json!([
            { "type": "Ready", "status": "Unknown", "reason": "a", "message": "",
              "lastTransitionTime": "2026-01-01T00:00:00Z" },
            { "type": "example.com/Audited", "status": "True", "reason": "a", "message": "",
              "lastTransitionTime": "2026-01-01T00:00:00Z" },
        ]))
        .unwrap();
        let ready = conditions(StatusCondition::holding("Ready"), 1);
        let merged = merged_conditions(&known, &ready, at(10));
        assert_eq!((merged.len(), &merged[1]), (2, &known[1]));
        assert_eq!(read_conditions(Some(&merged)), ready);
        assert_eq!(merged_conditions(&merged, &ready, at(20)), merged, "twice changes nothing");
        let new = merged_conditions(&known[1..], &ready, at(10));
        assert_eq!((new.len(), &*new[1].kind), (2, "Ready"));
    }
}
