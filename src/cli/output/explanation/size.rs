//! Why a node has its VM size.

use crate::output::plural;
use napkeeper_core::scheduling::{Size, SizeExplanation};
use serde_json::{Value, json};

/// `Standard_D4s_v5 spot at $0.0359/h`.
pub(crate) fn shown(Size { name, capacity_type, price }: &Size) -> String {
    format!("{name} {} at {price}/h", capacity_type.as_str())
}

/// Why cheaper sizes do not fit; `None` where there are none.
pub(crate) fn cheaper(choice: &SizeExplanation) -> Option<String> {
    let SizeExplanation { incompatible, too_small, over_limits, priciest_too_small, .. } = choice;
    let mut parts = Vec::new();
    if *too_small > 0 {
        let priciest =
            priciest_too_small.as_ref().map(|(size, lacks)| format!(" ({} has insufficient {lacks})", shown(size)));
        parts.push(format!("{} too small{}", plural(*too_small, "size"), priciest.unwrap_or_default()));
    }
    if *incompatible > 0 {
        parts.push(format!("{incompatible} excluded by labels or zones"));
    }
    if *over_limits > 0 {
        parts.push(format!("{over_limits} excluded by limits or quotas"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub(crate) fn json(choice: &SizeExplanation) -> Value {
    let SizeExplanation { fitting, incompatible, too_small, over_limits, priciest_too_small, next_fitting } = choice;
    let priciest = priciest_too_small.as_ref().map(|(size, lacks)| {
        let mut priciest = of(size);
        priciest["lacks"] = json!(lacks);
        priciest
    });
    json!({
        "fitting": fitting,
        "cheaper": { "tooSmall": too_small, "incompatible": incompatible, "overLimits": over_limits },
        "mostExpensiveTooSmall": priciest,
        "nextMostExpensive": next_fitting.as_ref().map(of),
    })
}

/// A size as JSON; `price` is in nano-USD per hour.
pub(crate) fn of(Size { name, capacity_type, price }: &Size) -> Value {
    json!({ "size": name.as_str(), "capacityType": capacity_type.as_str(), "price": price.nanos(), "cost": format!("{price}/h") })
}
