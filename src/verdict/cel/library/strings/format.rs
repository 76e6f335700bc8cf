//! `'%s is %d'.format([a, b])`: how values look in a text.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::convert::{display, floats};
use crate::cel::library::function::CallStyle::Method;
use crate::cel::library::function::FunctionDef;
use crate::cel::value::{Key, Val};
use std::fmt::Write;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[FunctionDef("format", Method, [2, 2], format)];

/// Digits after the point when the clause gives none.
const DEFAULT_PRECISION: usize = 6;
/// Most digits after the point: a double has no more than this.
const MAX_PRECISION: usize = 1100;

fn format(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let [Val::Text(pattern), Val::List(values)] = args else { return no_overload() };
    budget.spend_for_length(pattern.len())?;
    let mut out = String::new();
    let mut values = values.items.iter();
    let mut rest = pattern.as_ref();
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let Some(value) = values.next() else { return failed("format: there are fewer arguments than clauses") };
        let (precision, after) = precision(after)?;
        let Some(verb) = after.chars().next() else { return failed("format: unexpected end of string") };
        let shown = clause(verb, precision, value)?;
        budget.spend_for_length(shown.len())?;
        out.push_str(&shown);
        rest = after.get(verb.len_utf8()..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(Val::text(out))
}

fn precision(text: &str) -> Result<(usize, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Ok((DEFAULT_PRECISION, text)) };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, rest) = rest.split_at(end);
    match digits.parse::<usize>() {
        Ok(precision) if precision <= MAX_PRECISION => Ok((precision, rest)),
        _ => failed("format: error while converting precision to integer"),
    }
}

fn clause(verb: char, precision: usize, value: &Val) -> Result<String> {
    let unfit = || failed(format!("format: %{verb} cannot show a value of type {}", value.type_name()));
    Ok(match (verb, value) {
        ('s', value) => text(value)?,
        ('d', Val::Int(i)) | ('b' | 'o' | 'x' | 'X', Val::Int(i)) => integer(verb, *i < 0, i.unsigned_abs()),
        ('d', Val::UInt(u)) | ('b' | 'o' | 'x' | 'X', Val::UInt(u)) => integer(verb, false, *u),
        ('b', Val::Bool(b)) => if *b { "1" } else { "0" }.to_owned(),
        ('x' | 'X', Val::Text(t)) => hex(verb, t.as_bytes()),
        ('x' | 'X', Val::Bytes(b)) => hex(verb, b),
        ('f' | 'e', Val::Double(d)) => double(verb, precision, *d),
        ('f' | 'e', Val::Text(t)) if matches!(t.as_ref(), "NaN" | "Infinity" | "-Infinity") => {
            double(verb, precision, floats::parse(t).unwrap_or(f64::NAN))
        }
        ('d' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o', _) => return unfit(),
        _ => return failed(format!("format: unrecognized formatting clause \"{verb}\"")),
    })
}

fn integer(verb: char, negative: bool, magnitude: u64) -> String {
    let digits = match verb {
        'b' => format!("{magnitude:b}"),
        'o' => format!("{magnitude:o}"),
        'x' => format!("{magnitude:x}"),
        'X' => format!("{magnitude:X}"),
        _ => magnitude.to_string(),
    };
    if negative { format!("-{digits}") } else { digits }
}

fn hex(verb: char, bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = if verb == 'X' { write!(out, "{byte:02X}") } else { write!(out, "{byte:02x}") };
        out
    })
}

/// As the API server shows numbers for American readers: thousands apart, `×10` and a raised exponent.
fn double(verb: char, precision: usize, d: f64) -> String {
    if d.is_nan() {
        return "NaN".to_owned();
    }
    if d.is_infinite() {
        return if d > 0.0 { "∞" } else { "-∞" }.to_owned();
    }
    if verb == 'f' {
        return with_thousands(&format!("{d:.precision$}"));
    }
    let text = floats::scientific(d, DEFAULT_PRECISION);
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
    let raised: String = exponent.chars().map(superscript).collect();
    // The API server takes the precision of this clause for a least width.
    format!("{:>precision$}", format!("{mantissa}×10{raised}"))
}

fn superscript(c: char) -> char {
    match c {
        '-' => '⁻',
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        '9' => '⁹',
        other => other,
    }
}

fn with_thousands(number: &str) -> String {
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |n| ("-", n));
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(w, f)| (w, Some(f)));
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// What `%s` shows.
fn text(value: &Val) -> Result<String> {
    Ok(match value {
        Val::List(_) | Val::Map(_) => literal(value)?,
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return failed("format: could not convert argument to string"),
        },
        Val::Optional(_) | Val::Opaque(_) | Val::Invalid(_) => {
            return failed(format!("format: %s cannot show a value of type {}", value.type_name()));
        }
        simple => display(simple),
    })
}

/// A value inside of a list or map, as a literal of the language.
fn literal(value: &Val) -> Result<String> {
    Ok(match value {
        Val::List(list) => {
            let items = list.items.iter().map(literal).collect::<Result<Vec<_>>>()?;
            format!("[{}]", items.join(", "))
        }
        Val::Map(map) => {
            let entry = |(key, value): &(Key, Val)| Ok(format!("{}:{}", literal(&key.to_val())?, literal(value)?));
            let mut entries = map.entries().iter().map(entry).collect::<Result<Vec<_>>>()?;
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Val::Text(text) => quoted(text),
        Val::Bytes(_) => format!("b{}", quoted(&text(value)?)),
        Val::Duration(_) => format!("duration({:?})", display(value)),
        Val::Timestamp(_) => format!("timestamp({:?})", display(value)),
        Val::Double(d) if d.is_finite() => format!("{d:.DEFAULT_PRECISION$}"),
        Val::Double(d) => format!("{:?}", floats::shortest(*d)),
        simple => text(simple)?,
    })
}

/// A text in quotes as Go's `%q` has it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            // Writing to a string cannot fail.
            c if c.is_ascii_control() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c if printable(c) => out.push(c),
            c if u32::from(c) > 0xffff => _ = write!(out, "\\U{:08x}", u32::from(c)),
            c => _ = write!(out, "\\u{:04x}", u32::from(c)),
        }
    }
    out.push('"');
    out
}

fn printable(c: char) -> bool {
    c == ' ' || !(c.is_whitespace() || c.is_control() || c.escape_debug().len() > 1)
}
