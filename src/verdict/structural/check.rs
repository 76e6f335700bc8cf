//! Does a value, defaults put in, satisfy its schema?

use crate::finding::Issue;
use crate::patterns::Patterns;
use crate::rules::{Rule, structure as rules};
use napkeeper_api::path::{Path, Segment};
use napkeeper_api::wire::describe_pattern;
use napkeeper_core::suggest::nearest;
use serde_json::{Map, Value};

/// Values that were renamed: the field, what it was, what it is.
const RENAMED: [(&str, &str, &str); 1] = [("consolidationPolicy", "WhenUnderutilized", "WhenEmptyOrUnderutilized")];

/// Required fields that have but one value: the object, the field, the value.
const WANTED: [(&str, &str, &str); 2] =
    [("nodeClassRef", "group", "karpenter.azure.com"), ("nodeClassRef", "kind", "AKSNodeClass")];

pub(super) struct Check<'c> {
    pub(super) patterns: &'c Patterns,
    pub(super) found: &'c mut Vec<Issue>,
}

impl Check<'_> {
    fn add(&mut self, rule: &'static Rule, path: &Path, message: String) {
        self.found.push(Issue::new(rule, path, message));
    }

    pub(super) fn value(&mut self, value: &Value, schema: &Value, path: &Path) {
        if !self.has_type(value, schema, path) {
            return;
        }
        self.one_of(value, schema, path);
        match value {
            Value::Object(map) => self.object(map, schema, path),
            Value::Array(items) => self.list(items, schema, path),
            Value::String(text) => self.text(text, schema, path),
            Value::Number(number) => {
                let n = number.as_f64().unwrap_or(f64::NAN);
                self.bounds(n, &VALUE, schema, path);
                let int32 = schema["format"] == "int32" && !(-2_147_483_648.0..=2_147_483_647.0).contains(&n);
                if int32 {
                    self.add(&rules::FORMAT, path, format!("{number} does not fit in 32 bits"));
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn has_type(&mut self, value: &Value, schema: &Value, path: &Path) -> bool {
        let is = |name: &str| match name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "null" => value.is_null(),
            _ => true,
        };
        let either = schema["x-kubernetes-int-or-string"] == true;
        let wanted: Vec<&str> = match &schema["type"] {
            _ if either => vec!["integer", "string"],
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => return true,
        };
        let fits = wanted.iter().any(|name| is(name));
        if !fits {
            let wanted: Vec<&str> = wanted.into_iter().filter(|w| *w != "null").collect();
            let message = format!("must be {}, not {}", article(&wanted), describe(value));
            let quotes = wanted == ["string"] && !value.is_object() && !value.is_array() && !value.is_null();
            let fix = quotes.then(|| "put quotes around it".to_owned());
            self.found.push(Issue::new(&rules::TYPE, path, message).fix(fix));
        }
        fits
    }

    fn one_of(&mut self, value: &Value, schema: &Value, path: &Path) {
        let Some(allowed) = schema["enum"].as_array().filter(|a| !a.contains(value)) else {
            return;
        };
        let names: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        let given = value.as_str().unwrap_or_default();
        let renamed = RENAMED.iter().find(|(field, old, _)| {
            *old == given && path.segments().last() == Some(&Segment::Key((*field).to_owned()))
        });
        let fix = match renamed {
            Some((_, _, now)) => Some(format!("it is now {now}")),
            None => nearest(given, names.iter().copied()).map(|n| format!("did you mean {n}?")),
        };
        let message = format!("{value} is not one of {}", names.join(", "));
        self.found.push(Issue::new(&rules::ENUM, path, message).fix(fix));
    }

    fn object(&mut self, map: &Map<String, Value>, schema: &Value, path: &Path) {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !map.contains_key(name) {
                let last = path.segments().last();
                let value = WANTED
                    .iter()
                    .find(|(parent, field, _)| *field == name && last == Some(&Segment::Key((*parent).to_owned())));
                let fix = value.map(|(_, field, value)| format!("add {field}: {value}"));
                let message = format!("required field {name} is missing");
                let issue = Issue::new(&rules::REQUIRED, &path.key(name), message);
                self.found.push(issue.fix(fix));
            }
        }
        let size = count(map.len());
        self.bounds(size, &ENTRIES, schema, path);
        for (key, child) in map {
            let known = schema["properties"].get(key);
            let schema = known.unwrap_or_else(|| &schema["additionalProperties"]);
            self.value(child, schema, &path.key(key));
        }
    }

    fn list(&mut self, items: &[Value], schema: &Value, path: &Path) {
        self.bounds(count(items.len()), &ITEMS, schema, path);
        for (i, item) in items.iter().enumerate() {
            self.value(item, &schema["items"], &path.index(i));
        }
        match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => self.distinct(items, |item| item.clone(), path),
            Some("map") => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array();
                let keys: Vec<&str> = keys.into_iter().flatten().filter_map(Value::as_str).collect();
                self.distinct(items, |item| keys.iter().map(|k| item[*k].clone()).collect(), path);
            }
            _ => {}
        }
    }

    fn distinct(&mut self, items: &[Value], key: impl Fn(&Value) -> Value, path: &Path) {
        for (i, item) in items.iter().enumerate() {
            let own = key(item);
            if let Some(first) = items[..i].iter().position(|other| key(other) == own) {
                let shown = match &own {
                    Value::Array(keys) => keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                    other => other.to_string(),
                };
                let message = format!("{shown} is given twice, first as item {first}");
                self.add(&rules::LIST, &path.index(i), message);
            }
        }
    }

    fn text(&mut self, text: &str, schema: &Value, path: &Path) {
        self.bounds(count(text.chars().count()), &LENGTH, schema, path);
        let pattern = schema["pattern"].as_str();
        if let Some(pattern) = pattern.filter(|p| !self.patterns.matches(p, text)) {
            let issue = match describe_pattern(pattern) {
                Some(form) => format!("{text:?} is not {form}"),
                None => format!("{text:?} does not match {pattern}"),
            };
            self.add(&rules::PATTERN, path, issue);
        }
        let is_time = || !text.contains(' ') && text.to_ascii_uppercase().parse::<jiff::Timestamp>().is_ok();
        if schema["format"] == "date-time" && !is_time() {
            let message = format!("{text:?} is not a time in RFC 3339, such as 2026-11-21T08:00:00Z");
            self.add(&rules::FORMAT, path, message);
        }
    }

    fn bounds(&mut self, n: f64, measure: &Measure, schema: &Value, path: &Path) {
        let Measure { least, most, unit } = measure;
        if let Some(least) = schema[*least].as_f64().filter(|least| n < *least) {
            let message = format!("must be at least {least}{unit}, not {n}");
            self.add(&rules::RANGE, path, message);
        }
        if let Some(most) = schema[*most].as_f64().filter(|most| n > *most) {
            let message = format!("must be at most {most}{unit}, not {n}");
            self.add(&rules::RANGE, path, message);
        }
    }
}

/// The keywords that bound something, and the unit to name.
struct Measure {
    least: &'static str,
    most: &'static str,
    unit: &'static str,
}

const VALUE: Measure = Measure { least: "minimum", most: "maximum", unit: "" };
const LENGTH: Measure = Measure { least: "minLength", most: "maxLength", unit: " characters" };
const ITEMS: Measure = Measure { least: "minItems", most: "maxItems", unit: " items" };
const ENTRIES: Measure = Measure { least: "minProperties", most: "maxProperties", unit: " entries" };

#[expect(clippy::cast_precision_loss, reason = "no manifest has 2^52 entries")]
fn count(n: usize) -> f64 {
    n as f64
}

fn article(names: &[&str]) -> String {
    let with = |name: &&str| match *name {
        "integer" => "a whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => "a list".to_owned(),
        "object" => "a map".to_owned(),
        "string" => "text".to_owned(),
        other => format!("a {other}"),
    };
    names.iter().map(with).collect::<Vec<_>>().join(" or ")
}

fn describe(value: &Value) -> String {
    match value {
        Value::Object(_) => "a map".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "null".to_owned(),
        Value::String(text) => format!("the text {text:?}"),
        other => other.to_string(),
    }
}
