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
    let SizeExplanation {
        incompatible: unsuited,
        too_small: small,
        over_limits: forbidden,
        priciest_too_small: nearest_small,
        ..
    } = choice;
    let mut parts = Vec::new();
    if *small > 0 {
        let nearest =
            nearest_small.as_ref().map(|(size, lacks)| format!(" ({} has insufficient {lacks})", shown(size)));
        parts.push(format!("{} too small{}", plural(*small, "size"), nearest.unwrap_or_default()));
    }
    if *unsuited > 0 {
        parts.push(format!("{unsuited} excluded by labels or zones"));
    }
    if *forbidden > 0 {
        parts.push(format!("{forbidden} excluded by limits or quotas"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub(crate) fn json(choice: &SizeExplanation) -> Value {
    let SizeExplanation {
        fitting: suiting,
        incompatible: unsuited,
        too_small: small,
        over_limits: forbidden,
        priciest_too_small: nearest_small,
        next_fitting: next,
    } = choice;
    let nearest = nearest_small.as_ref().map(|(size, lacks)| {
        let mut nearest = of(size);
        nearest["lacks"] = json!(lacks);
        nearest
    });
    json!({
        "fitting": suiting,
        "cheaper": { "tooSmall": small, "incompatible": unsuited, "overLimits": forbidden },
        "mostExpensiveTooSmall": nearest,
        "nextMostExpensive": next.as_ref().map(of),
    })
}

/// A size as JSON; `price` is in nano-USD per hour.
pub(crate) fn of(Size { name, capacity_type, price }: &Size) -> Value {
    json!({ "size": name.as_str(), "capacityType": capacity_type.as_str(), "price": price.nanos(), "cost": format!("{price}/h") })
}
