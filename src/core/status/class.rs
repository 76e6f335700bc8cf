//! Whether an AKSNodeClass can be used.

use super::validity;
use crate::model::cluster::pool::NodeClass;
use crate::model::cluster::status::{ConditionType, Conditions, InvalidClass, StatusCondition};
use crate::model::names::NodeClassName;
use crate::snapshot::Snapshot;

/// Why an AKSNodeClass that can be read cannot be used.
const UNSUPPORTED: &str = "UnsupportedFields";

/// The conditions of an AKSNodeClass.
pub(super) fn conditions_of(class: &NodeClass) -> Conditions {
    validity(validation(class), class.generation)
}

/// The conditions of an AKSNodeClass that cannot be read.
pub(super) fn conditions_of_invalid(class: &InvalidClass) -> Conditions {
    validity(StatusCondition::failing("NodeClassValidationFailed", &class.reason), class.generation)
}

/// Whether all that it sets has an effect on nodes. Where something has none, nothing is launched.
fn validation(class: &NodeClass) -> StatusCondition {
    if class.unhonoured.is_empty() {
        return StatusCondition::holding(ConditionType::ValidationSucceeded.as_str());
    }
    let fields: Vec<String> = class.unhonoured.iter().map(|field| format!("spec.{field}")).collect();
    let message = format!(
        "{}: not supported on nodes that napkeeper launches itself, so it launches none of this class; remove what is \
         not needed",
        fields.join(", ")
    );
    StatusCondition::failing(UNSUPPORTED, &message)
}

/// The condition `NodeClassReady` of NodePools of an AKSNodeClass, with its own reason.
pub(super) fn readiness(name: &NodeClassName, snapshot: &Snapshot) -> StatusCondition {
    let conditions = match (snapshot.classes().get(name), snapshot.invalid_classes().get(name)) {
        (_, Some(class)) => conditions_of_invalid(class),
        (Some(class), None) => conditions_of(class),
        (None, None) => {
            return StatusCondition::failing("NodeClassNotFound", &format!("AKSNodeClass {name} does not exist"));
        }
    };
    match conditions.get(ConditionType::Ready) {
        Some(ready) if !ready.holds => {
            StatusCondition::failing(&ready.reason, &format!("AKSNodeClass {name}: {}", ready.message))
        }
        _ => StatusCondition::holding(ConditionType::NodeClassReady.as_str()),
    }
}
