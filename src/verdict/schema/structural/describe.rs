//! Writes the message and the fix of each fault.

use crate::finding::{Issue, NotAString};
use crate::rules::structure as rules;
use crate::schema::structural::checks::numbers::NumberError;
use crate::schema::structural::field_path::FieldPath;
use crate::schema::structural::node::formats::Format;
use crate::schema::structural::node::{SchemaNode, Types};
use crate::schema::structural::suggest;
use crate::text::re2::Pattern;
use napkeeper_api::field_path::Segment;
use napkeeper_api::types::common::ValueForm;
use napkeeper_core::model::support::spelling::nearest;
use serde_json::Value;

/// Renamed values: the field, the old value, the new one.
const RENAMED: [(&str, &str, &str); 1] = [("consolidationPolicy", "WhenUnderutilized", "WhenEmptyOrUnderutilized")];

/// Required fields with one value, or one to begin with: the object, the field, the value.
const EXPECTED_VALUES: [(&str, &str, &str); 3] = [
    ("nodeClassRef", "group", "karpenter.azure.com"),
    ("nodeClassRef", "kind", "AKSNodeClass"),
    ("disruption", "consolidateAfter", "1m"),
];

/// Fields and maps with free text, which YAML often parses as another type.
const TEXT_FIELDS: [&str; 9] =
    ["labels", "annotations", "matchLabels", "nodeSelector", "tags", "value", "values", "data", "stringData"];

pub(crate) fn wrong_type(value: &Value, node: &SchemaNode, path: &FieldPath<'_>) -> Issue {
    let path = path.to_path();
    let names: Vec<&str> = node.types.names().collect();
    let Some(scalar) = NotAString::of(value).filter(|_| node.types == Types::STRING) else {
        let message = format!("must be {}, got {}", article(&names), describe(value));
        let fix = value.as_str().and_then(|text| suggest::for_type(text, node.types, path.last_key()));
        return Issue::new(&rules::TYPE, &path, message).fix(fix);
    };
    let keys = path.segments().iter().rev().filter_map(|segment| match segment {
        Segment::Key(key) => Some(&**key),
        Segment::Index(_) => None,
    });
    // The field itself, or the map that it is a key of.
    let is_word = keys.take(2).any(|key| TEXT_FIELDS.contains(&key));
    let rule = if is_word { &rules::UNQUOTED } else { &rules::TYPE };
    Issue::not_a_string(rule, &path, scalar)
}

pub(crate) fn not_one_of(value: &Value, node: &SchemaNode, path: &FieldPath<'_>) -> Issue {
    let path = path.to_path();
    let names: Vec<&str> = node.allowed.iter().filter_map(Value::as_str).collect();
    let given = value.as_str().unwrap_or_default();
    let renamed = || RENAMED.iter().filter(|(field, _, _)| path.last_key() == Some(*field));
    let fix = match renamed().find(|(_, old, _)| *old == given) {
        Some((_, _, now)) => Some(format!("renamed to {now}")),
        // One that is nearly an old value means the new one.
        None => nearest(given, names.iter().copied())
            .or_else(|| renamed().find(|(_, old, _)| nearest(given, [*old]).is_some()).map(|(_, _, now)| *now))
            .map(|meant| format!("did you mean {meant}?")),
    };
    let shown = |allowed: &Value| allowed.as_str().map_or_else(|| allowed.to_string(), ToOwned::to_owned);
    let named = node.allowed.iter().filter(|allowed| **allowed != "");
    let allowed: Vec<String> = named.map(shown).collect();
    Issue::new(&rules::ENUM, &path, format!("{value} is not one of {}", allowed.join(", "))).fix(fix)
}

pub(crate) fn missing(name: &str, path: &FieldPath<'_>) -> Issue {
    let path = path.to_path();
    let wanted = EXPECTED_VALUES.iter().find(|(parent, field, _)| *field == name && path.last_key() == Some(*parent));
    let fix = wanted.map(|(_, field, value)| format!("add {field}: {value}"));
    Issue::new(&rules::REQUIRED, &path.key(name), format!("required field {name} is missing")).fix(fix)
}

pub(crate) fn least(least: u64, count: u64, unit: &str, path: &FieldPath<'_>) -> Issue {
    Issue::new(&rules::RANGE, &path.to_path(), format!("must be at least {least}{unit}, got {count}"))
}

pub(crate) fn most(most: u64, count: u64, unit: &str, path: &FieldPath<'_>) -> Issue {
    Issue::new(&rules::RANGE, &path.to_path(), format!("must be at most {most}{unit}, got {count}"))
}

pub(crate) fn number(value: &Value, wrong: NumberError, path: &FieldPath<'_>) -> Issue {
    let message = match wrong {
        NumberError::Least { bound, exclusive: false } => format!("must be at least {bound}, got {value}"),
        NumberError::Least { bound, exclusive: true } => format!("must be greater than {bound}, got {value}"),
        NumberError::Most { bound, exclusive: false } => format!("must be at most {bound}, got {value}"),
        NumberError::Most { bound, exclusive: true } => format!("must be less than {bound}, got {value}"),
        NumberError::Multiple(factor) => format!("must be a multiple of {factor}, got {value}"),
        NumberError::Range => format!("{value} is out of range"),
    };
    Issue::new(&rules::RANGE, &path.to_path(), message)
}

pub(crate) fn out_of_range(value: &Value, node: &SchemaNode, path: &FieldPath<'_>) -> Issue {
    let message = match node.format {
        Some(Format::Int32) => format!("{value} does not fit in 32 bits"),
        Some(Format::Float) => format!("{value} does not fit in a 32-bit float"),
        _ => format!("{value} does not fit in 64 bits"),
    };
    Issue::new(&rules::FORMAT, &path.to_path(), message)
}

pub(crate) fn pattern(text: &str, pattern: &Pattern, path: &FieldPath<'_>) -> Issue {
    let message = match ValueForm::of_pattern(pattern.source()) {
        Some(form) => format!("{text:?} is not {}", form.describe()),
        None => format!("{text:?} does not match {}", pattern.source()),
    };
    Issue::new(&rules::PATTERN, &path.to_path(), message).fix(suggest::for_pattern(text, pattern))
}

pub(crate) fn format(text: &str, format: Format, path: &FieldPath<'_>) -> Issue {
    Issue::new(&rules::FORMAT, &path.to_path(), format!("{text:?} is not {}", format.describe()))
}

pub(crate) fn combined(path: &FieldPath<'_>, message: &str) -> Issue {
    Issue::new(&rules::MEANING, &path.to_path(), message)
}

pub(crate) fn no_quantity(value: &Value, path: &FieldPath<'_>) -> Issue {
    let message = format!("{value} is not a quantity such as 500m, 2 or 4Gi");
    let is_scalar = matches!(value, Value::String(_) | Value::Number(_));
    let rule = if is_scalar { &rules::PATTERN } else { &rules::TYPE };
    Issue::new(rule, &path.to_path(), message).fix(value.as_str().and_then(suggest::for_quantity))
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

pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Object(_) => "a map".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "null".to_owned(),
        Value::String(text) => format!("a string ({text:?})"),
        Value::Bool(value) => format!("a boolean ({value})"),
        Value::Number(value) => format!("a number ({value})"),
    }
}
