//! Conversions between types, and the type of a value.

pub(crate) mod floats;

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::function::CallStyle::Global;
use crate::cel::library::function::FunctionDef;
use crate::cel::library::time;
use crate::cel::library::time::timestamp::CelTimestamp;
use crate::cel::value::Val;
use crate::cel::value::opaque::Opaque;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("int", Global, [1, 1], int),
    FunctionDef("uint", Global, [1, 1], uint),
    FunctionDef("double", Global, [1, 1], double),
    FunctionDef("string", Global, [1, 1], string),
    FunctionDef("bytes", Global, [1, 1], bytes),
    FunctionDef("bool", Global, [1, 1], boolean),
    FunctionDef("duration", Global, [1, 1], duration),
    FunctionDef("timestamp", Global, [1, 1], timestamp),
    FunctionDef("dyn", Global, [1, 1], same),
    FunctionDef("type", Global, [1, 1], type_of),
];

fn not_a<T>(text: &str, type_name: &str) -> Result<T> {
    failed(format!("type conversion error from 'string' to '{type_name}': {text:?}"))
}

/// Digits with a sign before them, and nothing else.
fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
fn int(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Int(_)] => same_value(args),
        [Val::UInt(u)] => i64::try_from(*u).map_or_else(|_| failed("integer overflow"), |i| Ok(Val::Int(i))),
        // The bounds themselves are no doubles that fit: Go refuses both ends.
        [Val::Double(d)] if *d > -9_223_372_036_854_775_808.0 && *d < 9_223_372_036_854_775_808.0 => {
            Ok(Val::Int(*d as i64))
        }
        [Val::Double(_)] => failed("integer overflow"),
        [Val::Text(text)] => match text.parse() {
            Ok(i) if is_decimal(text) => Ok(Val::Int(i)),
            _ => not_a(text, "int"),
        },
        [Val::Duration(d)] => Ok(Val::Int(*d)),
        [Val::Timestamp(at)] => Ok(Val::Int(at.seconds())),
        _ => no_overload(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
fn uint(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::UInt(_)] => same_value(args),
        [Val::Int(i)] => u64::try_from(*i).map_or_else(|_| failed("unsigned integer overflow"), |u| Ok(Val::UInt(u))),
        [Val::Double(d)] if *d >= 0.0 && *d < 18_446_744_073_709_551_616.0 => Ok(Val::UInt(*d as u64)),
        [Val::Double(_)] => failed("unsigned integer overflow"),
        [Val::Text(text)] => match text.parse() {
            Ok(u) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(Val::UInt(u)),
            _ => not_a(text, "uint"),
        },
        _ => no_overload(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "that is what the conversion does")]
fn double(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Double(_)] => same_value(args),
        [Val::Int(i)] => Ok(Val::Double(*i as f64)),
        [Val::UInt(u)] => Ok(Val::Double(*u as f64)),
        [Val::Text(text)] => floats::parse(text).map_or_else(|| not_a(text, "double"), |d| Ok(Val::Double(d))),
        _ => no_overload(),
    }
}

fn string(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let [value] = args else { return no_overload() };
    match value {
        Val::Text(_) => same_value(args),
        Val::Bytes(bytes) => {
            budget.spend_for_length(bytes.len())?;
            match std::str::from_utf8(bytes) {
                Ok(text) => Ok(Val::text(text)),
                Err(_) => failed("invalid UTF-8 in bytes, cannot convert to string"),
            }
        }
        Val::Opaque(opaque) => match opaque.as_ref() {
            Opaque::Ip(ip) => Ok(Val::text(ip.to_string())),
            Opaque::Cidr(net) => Ok(Val::text(net.to_string())),
            _ => no_overload(),
        },
        Val::Int(_) | Val::UInt(_) | Val::Double(_) | Val::Bool(_) | Val::Duration(_) | Val::Timestamp(_) => {
            Ok(Val::text(display(value)))
        }
        _ => no_overload(),
    }
}

/// A simple value as text.
pub(crate) fn display(value: &Val) -> String {
    match value {
        Val::Null => "null".to_owned(),
        Val::Bool(b) => b.to_string(),
        Val::Int(i) => i.to_string(),
        Val::UInt(u) => u.to_string(),
        Val::Double(d) => floats::shortest(*d),
        Val::Text(text) => text.to_string(),
        Val::Duration(d) => time::print_duration(*d),
        Val::Timestamp(at) => at.to_string(),
        Val::Type(name) => (*name).to_owned(),
        other => format!("a value of type {}", other.type_name()),
    }
}

fn bytes(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Bytes(_)] => same_value(args),
        [Val::Text(text)] => {
            budget.spend_for_length(text.len())?;
            Ok(Val::Bytes(text.as_bytes().into()))
        }
        _ => no_overload(),
    }
}

fn boolean(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Bool(_)] => same_value(args),
        [Val::Text(text)] => match text.as_ref() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Val::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Val::Bool(false)),
            _ => not_a(text, "bool"),
        },
        _ => no_overload(),
    }
}

pub(crate) fn duration(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Duration(_)] => same_value(args),
        [Val::Int(nanos)] => Ok(Val::Duration(*nanos)),
        [Val::Text(text)] => {
            time::parse_duration(text).map_or_else(|| not_a(text, "duration"), |d| Ok(Val::Duration(d)))
        }
        _ => no_overload(),
    }
}

pub(crate) fn timestamp(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Timestamp(_)] => same_value(args),
        [Val::Int(seconds)] => CelTimestamp::from_seconds(*seconds)
            .map_or_else(|| failed("timestamp overflow"), |at| Ok(Val::Timestamp(at))),
        [Val::Text(text)] => {
            CelTimestamp::parse(text).map_or_else(|| not_a(text, "timestamp"), |at| Ok(Val::Timestamp(at)))
        }
        _ => no_overload(),
    }
}

fn same_value(args: &[Val]) -> Result<Val> {
    args.first().cloned().map_or_else(no_overload, Ok)
}

fn same(_: &mut Budget, args: &[Val]) -> Result<Val> {
    same_value(args)
}

fn type_of(_: &mut Budget, args: &[Val]) -> Result<Val> {
    args.first().map_or_else(no_overload, |value| Ok(Val::Type(value.type_name())))
}
