//! NK2002: excluded values that do not exist.
//!
//! Excluding a value that does not exist is harmless, so only a near miss of an existing one is reported: its author
//! thinks that the latter is excluded.

use crate::finding::Issue;
use crate::rules::azure as rules;
use crate::semantic::azure::requirements::{RequirementEntries, RequirementEntry};
use crate::semantic::azure::values::{Domain, domain};
use crate::semantic::facts::Facts;
use napkeeper_core::catalog::{SizeIndex, retirement};
use napkeeper_core::model::labels;

/// Checks the values of a requirement with `NotIn`.
pub(super) fn check(
    entry: &RequirementEntry<'_>,
    facts: &Facts,
    entries: &RequirementEntries<'_>,
    found: &mut Vec<Issue>,
) {
    let key = labels::normalize(entry.key);
    for (i, value) in entry.values() {
        let Some(suggestion) = suggestion(key, value, facts) else { continue };
        let path = entries.path(entry.index).key("values").index(i);
        let message = format!("NotIn {value} has no effect: {key} is never {value:?}, but can be {suggestion:?}");
        found.push(Issue::new(&rules::UNKNOWN_SIZE, &path, message).fix(format!("use {suggestion}")));
    }
}

/// The existing value that differs from this one in case and separators only; `None` when this one exists.
fn suggestion(key: &str, value: &str, facts: &Facts) -> Option<String> {
    let index = facts.region_offerings.index();
    match domain(key) {
        Domain::Closed(allowed) => same(value, allowed.iter().copied()),
        Domain::Catalog => of_catalog(key, value, index),
        Domain::Region => same(value, regions(facts)),
        Domain::Zone => {
            let zones: Vec<String> = regions(facts).flat_map(|r| (1..=3).map(move |n| format!("{r}-{n}"))).collect();
            same(value, zones.iter().map(String::as_str))
        }
        Domain::Number | Domain::Open => None,
    }
}

/// The regions in which a node may be.
fn regions(facts: &Facts) -> impl Iterator<Item = &str> {
    let own = facts.region();
    let all = facts.catalog.regions().filter(move |_| own.is_none());
    own.into_iter().chain(all).map(|region| region.as_str())
}

fn of_catalog(key: &str, value: &str, index: &SizeIndex) -> Option<String> {
    // A family may be called as a series that ends: D.
    let of_series = matches!(key, labels::INSTANCE_TYPE | labels::SKU_NAME | labels::SKU_SERIES);
    let ends = |name: &str| of_series && retirement(name).is_some();
    if index.has_value(key, value) || ends(value) {
        return None;
    }
    let suggestion = match key {
        labels::INSTANCE_TYPE | labels::SKU_NAME => same(value, index.sizes().iter().map(|size| size.name.as_str())),
        _ => same(value, index.values(key).into_iter().flatten().map(|v| &**v)),
    };
    suggestion.filter(|suggestion| !ends(suggestion))
}

fn same<'a>(value: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let folded = fold(value);
    let mut suggestion = None;
    for word in known {
        if word == value {
            return None;
        }
        if suggestion.is_none() && fold(word) == folded {
            suggestion = Some(word.to_owned());
        }
    }
    suggestion
}

/// Without case and separators, and without what begins all names of sizes.
fn fold(text: &str) -> String {
    let plain = text.to_lowercase().replace(['_', '-'], "");
    plain.strip_prefix("standard").unwrap_or(&plain).to_owned()
}
