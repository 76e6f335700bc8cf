//! Conversion of NodeOverlays.

use crate::convert::common;
use crate::convert::karpenter::conditions::read_conditions;
use crate::convert::violations::Violations;
use crate::field_path::Path;
use crate::types::karpenter::RequirementEntry;
use crate::types::node_overlay::{FIXED_RESOURCES, NodeOverlay, OverlayRequirement};
use napkeeper_core::catalog::overlay::{Overlay, PriceAdjustment};
use napkeeper_core::model::names::ObjectName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reads a NodeOverlay.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn node_overlay(object: &NodeOverlay) -> Result<Overlay, Violations> {
    let mut found = Violations::default();
    let at = Path::from_dotted("spec");
    let spec = &object.spec;
    let name = common::name(&object.metadata, &mut found, |n| ObjectName::new(n));
    let uid = common::uid(&object.metadata, &mut found);
    let entries: Vec<RequirementEntry> = spec.requirements.iter().map(entry).collect();
    let requirements = common::requirements(&entries, &at.key("requirements"), &mut found);
    for (i, requirement) in entries.iter().enumerate() {
        // Of a NodePool Karpenter takes it, of an overlay not (`validateRequirements` in `nodeoverlay_validation.go`).
        if requirement.operator == "NotIn" && requirement.values.as_ref().is_none_or(Vec::is_empty) {
            found.add(&at.key("requirements").index(i).key("values"), "operator NotIn needs at least one value");
        }
    }
    let fixed = spec.price.as_deref();
    let fixed = found.take_some(&at.key("price"), fixed, PriceAdjustment::parse_price);
    let adjustment = spec.price_adjustment.as_deref();
    let adjustment = found.take_some(&at.key("priceAdjustment"), adjustment, PriceAdjustment::parse_adjustment);
    if spec.price.is_some() && spec.price_adjustment.is_some() {
        found.add(&at.key("priceAdjustment"), "price and priceAdjustment are mutually exclusive: remove one of them");
    }
    let capacity = capacity(spec.capacity.iter().flatten(), &at.key("capacity"), &mut found);
    let weight = spec.weight.unwrap_or(0);
    if spec.weight.is_some_and(|weight| !(1..=10_000).contains(&weight)) {
        found.add(&at.key("weight"), "must be 1 to 10000, or absent");
    }
    let built = name.zip(uid);
    let price = fixed.or(adjustment);
    let generation = object.metadata.generation.unwrap_or_default();
    let conditions = read_conditions(object.status.as_ref().and_then(|status| status.conditions.as_deref()));
    let overlay = |(name, uid)| Overlay { name, uid, generation, weight, requirements, price, capacity, conditions };
    found.finish(built.map(overlay))
}

fn entry(wire: &OverlayRequirement) -> RequirementEntry {
    let OverlayRequirement { key, operator, values, .. } = wire.clone();
    RequirementEntry { key, operator, values, ..RequirementEntry::default() }
}

fn capacity<'a>(
    list: impl Iterator<Item = (&'a String, &'a crate::types::common::Amount)>,
    at: &Path,
    found: &mut Violations,
) -> BTreeMap<Arc<str>, i64> {
    let mut capacity = BTreeMap::new();
    for (name, quantity) in list {
        if FIXED_RESOURCES.contains(&name.as_str()) {
            found.add(&at.key(name), "an overlay can add only extended resources: remove it");
            continue;
        }
        match found.take(&at.key(name), common::amount(name, &quantity.to_string())) {
            Some(amount) if amount < 0 => found.add(&at.key(name), "must not be negative"),
            Some(amount) => drop(capacity.insert(Arc::from(name.as_str()), amount)),
            None => {}
        }
    }
    capacity
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(spec: Value) -> Result<Overlay, String> {
        let object = json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "o" }, "spec": spec,
        });
        node_overlay(&serde_json::from_value(object).unwrap()).map_err(|violations| violations.to_string())
    }

    #[test]
    fn all_of_it_is_read() {
        let overlay = read(json!({
            "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["a"] }],
            "priceAdjustment": "-12.5%", "weight": 7, "capacity": { "example.com/fpga": "2" },
        }));
        let overlay = overlay.unwrap();
        assert_eq!((overlay.name.as_str(), overlay.weight), ("o", 7));
        assert_eq!(overlay.price, Some(PriceAdjustment::Percent(-12_500_000_000)));
        assert_eq!(overlay.capacity, BTreeMap::from([(Arc::from("example.com/fpga"), 2)]));
        assert!(overlay.requirements.allows("karpenter.sh/nodepool", Some("a")));
        assert!(!overlay.requirements.allows("karpenter.sh/nodepool", Some("b")));
        let least = read(json!({ "requirements": [] })).unwrap();
        assert_eq!((least.weight, least.price, least.capacity.len()), (0, None, 0));
    }

    #[test]
    fn every_violation_is_reported_with_its_path() {
        let error = read(json!({
            "requirements": [
                { "key": "a", "operator": "In" },
                { "key": "b", "operator": "NotIn", "values": [] },
                { "key": "c", "operator": "Gt", "values": ["x"] },
                { "key": "d", "operator": "Is", "values": ["x"] },
            ],
            "price": "cheap", "priceAdjustment": "10%", "weight": 0,
            "capacity": { "cpu": "1", "example.com/fpga": "many", "example.com/nic": "-1" },
        }))
        .unwrap_err();
        for path in [
            "spec.requirements[0].values",
            "spec.requirements[1].values",
            "spec.requirements[2].values",
            "spec.requirements[3].operator",
            "spec.price: ",
            "spec.priceAdjustment: ",
            "mutually exclusive",
            "spec.weight",
            "spec.capacity.cpu",
            "spec.capacity[example.com/fpga]",
            "spec.capacity[example.com/nic]",
        ] {
            assert!(error.contains(path), "{path} is missing in {error}");
        }
    }
}
