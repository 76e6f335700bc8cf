//! Plain scalars as kubectl resolves them.
//!
//! The rules of YAML 1.1 as `sigs.k8s.io/yaml` has them: more scalars are booleans than in YAML 1.2, a leading zero is
//! octal, underscores are ignored in numbers, whole floats are integers, and base 60 and dates are text.

use serde_json::{Number, Value};

/// A scalar without an equivalent in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotFinite;

/// The value of a plain scalar.
pub(super) fn resolve(text: &str) -> Result<Value, NotFinite> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
            return Ok(Value::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            return Ok(Value::Bool(false));
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" | ".nan" | ".NaN"
        | ".NAN" => return Err(NotFinite),
        _ => {}
    }
    let number = text
        .starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
        .then(|| text.replace('_', ""))
        .and_then(|plain| integer(&plain).or_else(|| float(&plain)));
    Ok(number.map_or_else(|| Value::String(text.to_owned()), Value::Number))
}

/// A key: a map of Kubernetes has keys of text only. `None` for null.
pub(super) fn key(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Go's `ParseInt` with base 0: `0x`, `0o`, `0b`, and octal after a lone leading zero.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, base) = if let Some(rest) = lower.strip_prefix("0x") {
        (rest, 16)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (rest, 8)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (rest, 2)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (&lower[1..], 8)
    } else {
        (lower.as_str(), 10)
    };
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, base).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    i64::try_from(value).ok().map(Number::from)
}

fn float(text: &str) -> Option<Number> {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (rest, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.map(|e| e.strip_prefix(['+', '-']).unwrap_or(e));
    let shaped = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|e| !e.is_empty() && digits(e));
    if !shaped {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    if !value.is_finite() {
        return None;
    }
    // Go prints a whole float below 1e21 without a point, and the API server then reads an integer.
    let whole = format!("{value:.0}");
    match whole.parse::<i64>() {
        Ok(n) if value.fract() == 0.0 => Some(Number::from(n)),
        _ => Number::from_f64(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Measured with kubectl 1.36.
    #[test]
    fn plain_scalars_match_kubectl() {
        for (text, value) in [
            ("y", json!(true)),
            ("Off", json!(false)),
            ("tRue", json!("tRue")),
            ("nUll", json!("nUll")),
            ("NULL", json!(null)),
            ("~", json!(null)),
            ("010", json!(8)),
            ("0010", json!(8)),
            ("08", json!(8)),
            ("0o10", json!(8)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("1__0", json!(10)),
            ("1_0.5", json!(10.5)),
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            ("1.", json!(1)),
            ("-0.0", json!(0)),
            ("1e400", json!("1e400")),
            ("12:30:45", json!("12:30:45")),
            ("1:30", json!("1:30")),
            ("2026-11-21", json!("2026-11-21")),
            ("9223372036854775808", json!(9_223_372_036_854_775_808_f64)),
            ("500m", json!("500m")),
            ("10%", json!("10%")),
            ("-", json!("-")),
            ("_1", json!("_1")),
            ("1.2.3", json!("1.2.3")),
        ] {
            assert_eq!(resolve(text), Ok(value), "{text}");
        }
        assert_eq!(resolve(".inf"), Err(NotFinite));
    }
}
