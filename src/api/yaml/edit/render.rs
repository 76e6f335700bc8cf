//! Values as YAML text.

use crate::yaml::scalar;
use serde_json::Value;

/// How the text around a value is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// The document is JSON: every text is in double quotes.
    pub(super) json: bool,
    /// Columns of one level.
    pub(super) indent: usize,
    /// The end of a line.
    pub(super) newline: &'static str,
}

/// True if a string needs no quotes, in flow style too.
fn is_plain(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text.chars().all(allowed)
        && scalar::resolve(text) == Ok(Value::String(text.to_owned()))
}

/// A text, in quotes where it must.
pub(super) fn text(text: &str, json: bool) -> String {
    if !json && is_plain(text) { text.to_owned() } else { Value::from(text).to_string() }
}

/// A string in the same quotes as the old one, or in lines as the old one.
pub(super) fn text_like(new: &str, old: &str, json: bool) -> String {
    match old.as_bytes().first() {
        Some(b'"') => Value::from(new).to_string(),
        Some(b'\'') => format!("'{}'", new.replace('\'', "''")),
        Some(b'|') if new.contains('\n') => literal_like(new, old),
        _ => text(new, json),
    }
}

/// A literal block with the indicators and the indentation of the old one.
fn literal_like(new: &str, old: &str) -> String {
    let mut lines = old.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    let newline = if first.ends_with("\r\n") { "\r\n" } else { "\n" };
    let indent =
        lines.find(|line| !line.trim().is_empty()).map_or(0, |line| line.len() - line.trim_start_matches(' ').len());
    let moved = new.trim_end().lines().map(|line| match line.is_empty() {
        true => newline.to_owned(),
        false => format!("{newline}{}{line}", " ".repeat(indent)),
    });
    moved.fold(first.trim_end().to_owned(), |text, line| text + &line)
}

/// A value on one line, in flow style.
pub(super) fn flow(value: &Value, json: bool) -> String {
    match value {
        Value::String(s) => text(s, json),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|v| flow(v, json)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<_> = map.iter().map(|(k, v)| format!("{}: {}", text(k, json), flow(v, json))).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// An entry in block style. Lists are on one line.
pub(super) fn block(key: &str, value: &Value, indent: usize, style: Style) -> String {
    let pad = " ".repeat(indent);
    let key_text = text(key, style.json);
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            let inner: String = map.iter().map(|(k, v)| block(k, v, indent + style.indent, style)).collect();
            format!("{pad}{key_text}:{}{inner}", style.newline)
        }
        None => format!("{pad}{key_text}: {}{}", flow(value, style.json), style.newline),
    }
}

/// Lines moved to the right by a number of columns, or to the left; blank lines are unchanged, and no line loses text.
pub(super) fn reindent(lines: &str, by: isize) -> String {
    let moved = |line: &str| {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        if line.trim().is_empty() {
            line.to_owned()
        } else if by >= 0 {
            format!("{}{line}", " ".repeat(by.unsigned_abs()))
        } else {
            line[spaces.min(by.unsigned_abs())..].to_owned()
        }
    };
    lines.split_inclusive('\n').map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ambiguous_scalars_are_quoted() {
        for (value, written) in [
            ("karpenter.sh/v1", "karpenter.sh/v1"),
            ("720h", "720h"),
            ("on", "\"on\""),
            ("12", "\"12\""),
            ("a, b", "\"a, b\""),
            ("", "\"\""),
            ("1e3", "\"1e3\""),
        ] {
            assert_eq!(text(value, false), written);
        }
        assert_eq!(flow(&json!({"a": [1, "x"], "b": {}}), false), "{a: [1, x], b: {}}");
        assert_eq!(flow(&json!({"a": "x"}), true), "{\"a\": \"x\"}");
    }

    #[test]
    fn lines_are_moved_and_blank_ones_stay() {
        assert_eq!(reindent("  a:\n\n    b: 1\n", 2), "    a:\n\n      b: 1\n");
        assert_eq!(reindent("  a:\n # x\n    b: 1", -2), "a:\n# x\n  b: 1");
    }
}
