//! Whether a NodeOverlay has an effect.

use super::{ConditionsOf, ConditionsReporter, StatusMemory, validity};
use crate::model::cluster::status::{ConditionType, StatusCondition};
use crate::model::names::ObjectName;
use crate::plan::{Command, OverlayReport, Plan};
use crate::scheduling::OverlayConflict;
use crate::snapshot::Snapshot;
use jiff::Timestamp;

/// Has the statuses of NodeOverlays written that have changed. `conflicts` are those of the overlays that are ignored.
pub fn report_overlays(
    snapshot: &Snapshot,
    conflicts: &[OverlayConflict],
    memory: &mut StatusMemory,
    now: Timestamp,
) -> Plan {
    let mut plan = Plan::default();
    let validation = |name: &ObjectName| match conflicts.iter().find(|conflict| conflict.overlay == *name) {
        Some(conflict) => StatusCondition::failing("Conflict", &conflict.to_string()),
        None => StatusCondition::holding(ConditionType::ValidationSucceeded.as_str()),
    };
    let valid = snapshot.overlays().values().map(|overlay| ConditionsOf {
        name: &overlay.name,
        uid: &overlay.uid,
        known: &overlay.conditions,
        wanted: validity(validation(&overlay.name), overlay.generation),
    });
    let invalid = snapshot.invalid_overlays().values().map(|overlay| ConditionsOf {
        name: &overlay.name,
        uid: &overlay.uid,
        known: &overlay.status,
        wanted: validity(StatusCondition::failing("RuntimeValidation", &overlay.reason), overlay.generation),
    });
    let command =
        |(overlay, uid, conditions)| Command::ReportOverlay(Box::new(OverlayReport { overlay, uid, conditions }));
    let reporter = ConditionsReporter { snapshot, now, times: &mut memory.overlays, plan: &mut plan };
    reporter.report(valid.chain(invalid).collect(), command);
    plan
}
