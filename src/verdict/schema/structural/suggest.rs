//! Suggests the right value for one that is nearly right.

use crate::schema::structural::node::Types;
use crate::text::re2::Pattern;
use jiff::SignedDuration;
use napkeeper_api::types::common::ValueForm;
use napkeeper_api::types::duration;
use napkeeper_core::model::amounts::quantity::Quantity;

/// Units of durations, and their seconds.
const DURATION_UNITS: [(&[&str], i64); 5] = [
    (&["s", "sec", "secs", "second", "seconds"], 1),
    (&["m", "min", "mins", "minute", "minutes"], 60),
    (&["h", "hr", "hrs", "hour", "hours"], 3600),
    (&["d", "day", "days"], 24 * 3600),
    (&["w", "week", "weeks"], 7 * 24 * 3600),
];

/// The fix of a text that does not match a pattern.
pub(super) fn for_pattern(text: &str, pattern: &Pattern) -> Option<String> {
    let fits = |fix: &String| pattern.matches(fix);
    let compact = without_spaces(text);
    match ValueForm::of_pattern(pattern.source())? {
        ValueForm::DurationOrNever if compact.eq_ignore_ascii_case("never") => Some("use Never".to_owned()),
        ValueForm::Duration | ValueForm::DurationOrNever | ValueForm::BudgetDuration => {
            let days = has_days(&compact);
            let reason = if days { ": hours are the largest unit" } else { "" };
            Some(format!("use {}{reason}", in_hours(&compact).filter(fits)?))
        }
        ValueForm::BudgetNodes => Some(format!("use {}", Some(compact).filter(fits)?)),
        ValueForm::Quantity => for_quantity(text),
        ValueForm::LabelValue | ValueForm::LabelKey => None,
    }
}

/// The fix of a text that is no quantity: spaces and other spellings of units.
pub(super) fn for_quantity(text: &str) -> Option<String> {
    let compact = without_spaces(text);
    if compact.parse::<Quantity>().is_ok() {
        return Some(format!("use {compact}"));
    }
    let (number, unit) = number_and_unit(&compact)?;
    number.parse::<Quantity>().ok()?;
    let unit = unit.to_lowercase();
    let prefix = match unit.as_str() {
        "core" | "cores" | "cpu" | "cpus" | "vcpu" | "vcpus" => return Some(format!("use {number}")),
        "kb" | "kib" | "ki" => "K",
        "mb" | "mib" | "mi" => "M",
        "g" | "gb" | "gib" | "gi" => "G",
        "t" | "tb" | "tib" | "ti" => "T",
        _ => return None,
    };
    let decimal = prefix.replace('K', "k");
    Some(match unit.contains('i') {
        true => format!("use {number}{prefix}i"),
        false => format!("use {number}{prefix}i, or {number}{decimal} in powers of 1000"),
    })
}

/// The fix of a text where a field of another type is required. `field` is its name.
pub(super) fn for_type(text: &str, types: Types, field: Option<&str>) -> Option<String> {
    let compact = without_spaces(text);
    if types == Types::BOOLEAN {
        let folded = compact.to_lowercase();
        let is = |words: [&str; 4]| words.contains(&folded.as_str());
        let meant = if is(["true", "yes", "on", "y"]) { Some("true") } else { None };
        let meant = meant.or_else(|| is(["false", "no", "off", "n"]).then_some("false"));
        return meant.map(|meant| format!("use {meant}, without quotes"));
    }
    if types != Types::INTEGER {
        return None;
    }
    let (number, unit) = number_and_unit(&compact)?;
    let number: u64 = number.parse().ok()?;
    let gigabytes = field.is_some_and(|name| name.ends_with("GB"));
    match unit.to_lowercase().as_str() {
        "" => Some(format!("use {number}, without quotes")),
        "g" | "gb" | "gi" | "gib" if gigabytes => Some(format!("use {number}: the unit is in the field's name")),
        "t" | "tb" | "ti" | "tib" if gigabytes => {
            Some(format!("use {}: the unit is in the field's name", number.checked_mul(1024)?))
        }
        _ => None,
    }
}

fn without_spaces(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The number that a text begins with, and what follows it.
fn number_and_unit(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    (!number.is_empty()).then_some((number, unit))
}

/// True for a duration in days or weeks.
fn has_days(text: &str) -> bool {
    let units = text.split(|c: char| !c.is_ascii_alphabetic()).map(str::to_lowercase);
    let is_long =
        |unit: String| DURATION_UNITS.iter().any(|(names, each)| *each >= 24 * 3600 && names.contains(&unit.as_str()));
    units.into_iter().any(is_long)
}

/// A duration in other units, in those of Karpenter. A capital M may be a month or a minute.
fn in_hours(text: &str) -> Option<String> {
    let mut rest = text;
    let mut seconds: i64 = 0;
    while !rest.is_empty() {
        let (number, after) = number_and_unit(rest)?;
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at_checked(end)?;
        let unit = if unit == "M" { return None } else { unit.to_lowercase() };
        let (_, each) = DURATION_UNITS.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
        seconds = seconds.checked_add(times(number, *each)?)?;
        rest = next;
    }
    (!text.is_empty()).then(|| duration::format(SignedDuration::from_secs(seconds)))
}

/// A decimal number of some seconds; `None` if that is no whole second.
fn times(number: &str, each: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let scale = 10_i64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: i64 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits.checked_mul(each)?;
    (scaled % scale == 0).then(|| scaled / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_given_in_hours_minutes_and_seconds() {
        for (text, meant) in [
            ("30d", Some("720h")),
            ("1 day", Some("24h")),
            ("2w", Some("336h")),
            ("1d12h", Some("36h")),
            ("1.5h", Some("1h30m")),
            ("90 min", Some("1h30m")),
            ("5M", None),
            ("300", None),
            ("soon", None),
            ("", None),
            ("0.1s", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(in_hours(&without_spaces(text)).as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn quantities_and_numbers_lose_the_units_that_are_not_theirs() {
        for (text, meant) in [
            ("400 Gi", Some("use 400Gi")),
            ("400GB", Some("use 400Gi, or 400G in powers of 1000")),
            ("512kb", Some("use 512Ki, or 512k in powers of 1000")),
            ("16gib", Some("use 16Gi")),
            ("2 cores", Some("use 2")),
            ("much", None),
            ("4 apples", None),
        ] {
            assert_eq!(for_quantity(text).as_deref(), meant, "{text}");
        }
        let disk = |text| for_type(text, Types::INTEGER, Some("osDiskSizeGB"));
        assert_eq!(disk("400GB").as_deref(), Some("use 400: the unit is in the field's name"));
        assert_eq!(disk("1 TiB").as_deref(), Some("use 1024: the unit is in the field's name"));
        assert_eq!(disk("400").as_deref(), Some("use 400, without quotes"));
        assert_eq!(for_type("50pods", Types::INTEGER, Some("maxPods")), None);
        assert_eq!(for_type("Yes", Types::BOOLEAN, None).as_deref(), Some("use true, without quotes"));
    }
}
