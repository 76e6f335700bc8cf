//! Does a text match a pattern of a schema, as the API server sees it?
//!
//! Patterns are Go's. Its `\d`, `\w` and `\s` know ASCII only, and Rust's do not.

use crate::schemas::SchemaError;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;

/// The patterns of schemas, compiled once.
#[derive(Debug, Default)]
pub(crate) struct Patterns(BTreeMap<String, Regex>);

impl Patterns {
    /// Compiles all patterns of a schema.
    pub(crate) fn learn(&mut self, schema: &Value) -> Result<(), SchemaError> {
        match schema {
            Value::Object(map) => {
                if let Some(Value::String(pattern)) = map.get("pattern") {
                    self.add(pattern)?;
                }
                map.values().try_for_each(|v| self.learn(v))
            }
            Value::Array(list) => list.iter().try_for_each(|v| self.learn(v)),
            _ => Ok(()),
        }
    }

    fn add(&mut self, pattern: &str) -> Result<(), SchemaError> {
        if !self.0.contains_key(pattern) {
            let regex = Regex::new(&ascii_classes(pattern))
                .map_err(|source| SchemaError::Pattern { pattern: pattern.to_owned(), source: Box::new(source) })?;
            self.0.insert(pattern.to_owned(), regex);
        }
        Ok(())
    }

    /// True when the text matches. A pattern that was not learnt matches nothing.
    pub(crate) fn matches(&self, pattern: &str, text: &str) -> bool {
        self.0.get(pattern).is_some_and(|regex| regex.is_match(text))
    }
}

fn ascii_classes(pattern: &str) -> String {
    let mut out = String::new();
    let mut in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            in_class = match c {
                '[' => true,
                ']' => false,
                _ => in_class,
            };
            out.push(c);
            continue;
        }
        let Some(escaped) = chars.next() else {
            out.push(c);
            break;
        };
        let set = match escaped.to_ascii_lowercase() {
            'd' => "0-9",
            'w' => "0-9A-Za-z_",
            's' => r"\t\n\x0c\r ",
            _ => {
                out.push(c);
                out.push(escaped);
                continue;
            }
        };
        let not = if escaped.is_ascii_uppercase() { "^" } else { "" };
        let class = format!("[{not}{set}]");
        out.push_str(if in_class && not.is_empty() { set } else { &class });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ascii_as_in_go() {
        let mut patterns = Patterns::default();
        for pattern in [r"^\d+$", r"^[\w-]+$", r"^\S+\s\S+$"] {
            patterns.add(pattern).unwrap();
        }
        assert!(patterns.matches(r"^\d+$", "12"));
        assert!(!patterns.matches(r"^\d+$", "１２"));
        assert!(patterns.matches(r"^[\w-]+$", "a-b_1"));
        assert!(!patterns.matches(r"^[\w-]+$", "é"));
        assert!(patterns.matches(r"^\S+\s\S+$", "a b"));
        assert!(!patterns.matches(r"^\S+\s\S+$", "a\u{a0}b"));
    }
}
