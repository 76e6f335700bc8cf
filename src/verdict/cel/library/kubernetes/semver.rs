//! Versions by the rules of semver.org.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::library::kubernetes::quantity;
use crate::cel::value::Val;
use crate::cel::value::opaque::Opaque;
use semver::Version;
use std::cmp::Ordering;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("semver", Global, [1, 2], semver),
    FunctionDef("isSemver", Global, [1, 2], is_semver),
    FunctionDef("isGreaterThan", Method, [2, 2], |_, args| compared(args, |o| Val::Bool(o.is_gt()))),
    FunctionDef("isLessThan", Method, [2, 2], |_, args| compared(args, |o| Val::Bool(o.is_lt()))),
    FunctionDef("compareTo", Method, [2, 2], |_, args| compared(args, |o| Val::Int(o as i64))),
    FunctionDef("major", Method, [1, 1], |_, args| number(args, |v| v.major)),
    FunctionDef("minor", Method, [1, 1], |_, args| number(args, |v| v.minor)),
    FunctionDef("patch", Method, [1, 1], |_, args| number(args, |v| v.patch)),
];

/// Both are versions, or both are quantities: the names of the methods are the same.
fn compared(args: &[Val], result: impl Fn(Ordering) -> Val) -> Result<Val> {
    let [Val::Opaque(a), Val::Opaque(b)] = args else { return no_overload() };
    match (a.as_ref(), b.as_ref()) {
        (Opaque::Semver(a), Opaque::Semver(b)) => Ok(result(a.cmp_precedence(b))),
        (Opaque::Quantity(a), Opaque::Quantity(b)) => Ok(result(quantity::Amount::compare(a, b))),
        _ => no_overload(),
    }
}

fn number(args: &[Val], of: impl Fn(&Version) -> u64) -> Result<Val> {
    match args {
        [Val::Opaque(opaque)] => match opaque.as_ref() {
            Opaque::Semver(v) => Ok(Val::Int(i64::try_from(of(v)).unwrap_or(i64::MAX))),
            _ => no_overload(),
        },
        _ => no_overload(),
    }
}

fn read(args: &[Val]) -> Result<std::result::Result<Version, String>> {
    let (text, normalize) = match args {
        [Val::Text(text)] => (text, false),
        [Val::Text(text), Val::Bool(normalize)] => (text, *normalize),
        _ => return no_overload(),
    };
    let normal = if normalize { normalized(text) } else { Some(text.to_string()) };
    let refused = || format!("{text:?} is not a semantic version");
    Ok(normal.and_then(|text| Version::parse(&text).ok()).ok_or_else(refused))
}

fn semver(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match read(args)? {
        Ok(version) => Ok(Val::opaque(Opaque::Semver(version))),
        Err(reason) => failed(reason),
    }
}

fn is_semver(_: &mut Budget, args: &[Val]) -> Result<Val> {
    Ok(Val::Bool(read(args)?.is_ok()))
}

/// Without a `v` before it and zeros before its numbers, and with the minor and patch number that it may lack.
fn normalized(text: &str) -> Option<String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last()?.contains(['+', '-']) {
        return None;
    }
    parts.resize(3, "0".to_owned());
    Some(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}
