//! How is a person told what is wrong, and what would be right?

use super::formats::Format;
use super::node::{Node, Types};
use super::numbers::Wrong;
use super::place::Place;
use crate::finding::Issue;
use crate::patterns::Pattern;
use crate::rules::structure as rules;
use napkeeper_api::path::Segment;
use napkeeper_api::wire::describe_pattern;
use napkeeper_core::model::support::spelling::nearest;
use serde_json::Value;

/// Values that were renamed: the field, what it was, what it is.
const RENAMED: [(&str, &str, &str); 1] = [("consolidationPolicy", "WhenUnderutilized", "WhenEmptyOrUnderutilized")];

/// Required fields with one value, or one to begin with: the object, the field, the value.
const WANTED: [(&str, &str, &str); 3] = [
    ("nodeClassRef", "group", "karpenter.azure.com"),
    ("nodeClassRef", "kind", "AKSNodeClass"),
    ("disruption", "consolidateAfter", "1m"),
];

/// Fields and maps whose values are text for people's words, where YAML likes to see something else.
const WORDS: [&str; 9] =
    ["labels", "annotations", "matchLabels", "nodeSelector", "tags", "value", "values", "data", "stringData"];

pub(super) fn wrong_type(value: &Value, node: &Node, place: &Place<'_>) -> Issue {
    let path = place.path();
    let names: Vec<&str> = node.types.names().collect();
    let message = format!("must be {}, got {}", article(&names), describe(value));
    let is_scalar = matches!(value, Value::Bool(_) | Value::Number(_));
    if node.types != Types::STRING || !is_scalar {
        return Issue::new(&rules::TYPE, &path, message);
    }
    let keys = path.segments().iter().rev().filter_map(|segment| match segment {
        Segment::Key(key) => Some(&**key),
        Segment::Index(_) => None,
    });
    // The field itself, or the map that it is a key of.
    let is_word = keys.take(2).any(|key| WORDS.contains(&key));
    let rule = if is_word { &rules::LOOKS_LIKE_TEXT } else { &rules::TYPE };
    Issue::new(rule, &path, message).fix("quote it".to_owned())
}

pub(super) fn not_one_of(value: &Value, node: &Node, place: &Place<'_>) -> Issue {
    let path = place.path();
    let names: Vec<&str> = node.allowed.iter().filter_map(Value::as_str).collect();
    let given = value.as_str().unwrap_or_default();
    let renamed = RENAMED.iter().find(|(field, old, _)| *old == given && path.last_key() == Some(*field));
    let fix = match renamed {
        Some((_, _, now)) => Some(format!("renamed to {now}")),
        None => nearest(given, names.iter().copied()).map(|n| format!("did you mean {n}?")),
    };
    let shown = |allowed: &Value| allowed.as_str().map_or_else(|| allowed.to_string(), ToOwned::to_owned);
    let named = node.allowed.iter().filter(|allowed| **allowed != "");
    let allowed: Vec<String> = named.map(shown).collect();
    Issue::new(&rules::ENUM, &path, format!("{value} is not one of {}", allowed.join(", "))).fix(fix)
}

pub(super) fn missing(name: &str, place: &Place<'_>) -> Issue {
    let path = place.path();
    let wanted = WANTED.iter().find(|(parent, field, _)| *field == name && path.last_key() == Some(*parent));
    let fix = wanted.map(|(_, field, value)| format!("add {field}: {value}"));
    Issue::new(&rules::REQUIRED, &path.key(name), format!("required field {name} is missing")).fix(fix)
}

pub(super) fn least(least: u64, count: u64, unit: &str, place: &Place<'_>) -> Issue {
    Issue::new(&rules::RANGE, &place.path(), format!("must be at least {least}{unit}, got {count}"))
}

pub(super) fn most(most: u64, count: u64, unit: &str, place: &Place<'_>) -> Issue {
    Issue::new(&rules::RANGE, &place.path(), format!("must be at most {most}{unit}, got {count}"))
}

pub(super) fn number(value: &Value, wrong: Wrong, place: &Place<'_>) -> Issue {
    let message = match wrong {
        Wrong::Least { bound, exclusive: false } => format!("must be at least {bound}, got {value}"),
        Wrong::Least { bound, exclusive: true } => format!("must be greater than {bound}, got {value}"),
        Wrong::Most { bound, exclusive: false } => format!("must be at most {bound}, got {value}"),
        Wrong::Most { bound, exclusive: true } => format!("must be less than {bound}, got {value}"),
        Wrong::Multiple(factor) => format!("must be a multiple of {factor}, got {value}"),
        Wrong::Range => format!("{value} is out of range"),
    };
    Issue::new(&rules::RANGE, &place.path(), message)
}

pub(super) fn out_of_range(value: &Value, node: &Node, place: &Place<'_>) -> Issue {
    let message = match node.format {
        Some(Format::Int32) => format!("{value} does not fit in 32 bits"),
        Some(Format::Float) => format!("{value} does not fit in a 32-bit float"),
        _ => format!("{value} does not fit in 64 bits"),
    };
    Issue::new(&rules::FORMAT, &place.path(), message)
}

pub(super) fn pattern(text: &str, pattern: &Pattern, place: &Place<'_>) -> Issue {
    let message = match describe_pattern(pattern.source()) {
        Some(form) => format!("{text:?} is not {form}"),
        None => format!("{text:?} does not match {}", pattern.source()),
    };
    Issue::new(&rules::PATTERN, &place.path(), message)
}

pub(super) fn format(text: &str, format: Format, place: &Place<'_>) -> Issue {
    Issue::new(&rules::FORMAT, &place.path(), format!("{text:?} is not {}", format.describe()))
}

pub(super) fn combined(place: &Place<'_>, said: &str) -> Issue {
    Issue::new(&rules::MEANING, &place.path(), said)
}

pub(super) fn no_quantity(value: &Value, place: &Place<'_>) -> Issue {
    let message = format!("{value} is not a quantity such as 500m, 2 or 4Gi");
    let is_scalar = matches!(value, Value::String(_) | Value::Number(_));
    Issue::new(if is_scalar { &rules::PATTERN } else { &rules::TYPE }, &place.path(), message)
}

fn article(names: &[&str]) -> String {
    let with = |name: &&str| match *name {
        "integer" => "an integer".to_owned(),
        "boolean" => "a boolean".to_owned(),
        "array" => "a list".to_owned(),
        "object" => "a map".to_owned(),
        other => format!("a {other}"),
    };
    names.iter().map(with).collect::<Vec<_>>().join(" or ")
}

pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Object(_) => "a map".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "null".to_owned(),
        Value::String(text) => format!("a string ({text:?})"),
        Value::Bool(value) => format!("a boolean ({value})"),
        Value::Number(value) => format!("a number ({value})"),
    }
}
