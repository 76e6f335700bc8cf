//! Strings: parts, indices, letters. Indices count characters, not bytes.

pub(crate) mod format;
pub(crate) mod regex;

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::library::lists::index_or_minus_one;
use crate::cel::value::Val;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("size", Global, [1, 1], size),
    FunctionDef("size", Method, [1, 1], size),
    FunctionDef("contains", Method, [2, 2], contains),
    FunctionDef("startsWith", Method, [2, 2], starts_with),
    FunctionDef("endsWith", Method, [2, 2], ends_with),
    FunctionDef("charAt", Method, [2, 2], char_at),
    FunctionDef("lowerAscii", Method, [1, 1], lower),
    FunctionDef("upperAscii", Method, [1, 1], upper),
    FunctionDef("replace", Method, [3, 4], replace),
    FunctionDef("split", Method, [2, 3], split),
    FunctionDef("substring", Method, [2, 3], substring),
    FunctionDef("trim", Method, [1, 1], trim),
    FunctionDef("join", Method, [1, 2], join),
    FunctionDef("strings.quote", Global, [1, 1], quote),
];

fn size(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let size = match args {
        [Val::Text(text)] => {
            budget.spend_for_length(text.len())?;
            text.chars().count()
        }
        [Val::Bytes(bytes)] => bytes.len(),
        [Val::List(list)] => list.items.len(),
        [Val::Map(map)] => map.len(),
        _ => return no_overload(),
    };
    Ok(Val::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

/// The text and the one that it is compared with.
fn pair<'v>(budget: &mut Budget, args: &'v [Val]) -> Result<(&'v str, &'v str)> {
    match args {
        [Val::Text(a), Val::Text(b), ..] => {
            budget.spend_for_length(a.len())?;
            Ok((a, b))
        }
        _ => no_overload(),
    }
}

fn text<'v>(budget: &mut Budget, args: &'v [Val]) -> Result<&'v str> {
    match args.first() {
        Some(Val::Text(text)) => {
            budget.spend_for_length(text.len())?;
            Ok(text)
        }
        _ => no_overload(),
    }
}

fn contains(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    pair(budget, args).map(|(a, b)| Val::Bool(a.contains(b)))
}

fn starts_with(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    pair(budget, args).map(|(a, b)| Val::Bool(a.starts_with(b)))
}

fn ends_with(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    pair(budget, args).map(|(a, b)| Val::Bool(a.ends_with(b)))
}

/// Where the nth character begins; the end of the text for the one after the last.
fn offset(text: &str, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    text.char_indices().map(|(i, _)| i).chain([text.len()]).nth(at)
}

fn out_of_range<T>(at: i64) -> Result<T> {
    failed(format!("index out of range: {at}"))
}

fn char_at(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let text = text(budget, args)?;
    let [_, Val::Int(at)] = args else { return no_overload() };
    match offset(text, *at).and_then(|i| text.get(i..)) {
        Some(rest) => Ok(Val::text(rest.chars().next().map(String::from).unwrap_or_default())),
        None => out_of_range(*at),
    }
}

/// The optional third argument: where to begin.
fn beginning(args: &[Val]) -> Result<Option<i64>> {
    match args {
        [_, _] => Ok(None),
        [_, _, Val::Int(at)] => Ok(Some(*at)),
        _ => no_overload(),
    }
}

pub(crate) fn index_of(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let (text, part) = pair(budget, args)?;
    let from = beginning(args)?.unwrap_or(0);
    if part.is_empty() {
        return Ok(Val::Int(from));
    }
    if from < 0 {
        return out_of_range(from);
    }
    let Some(start) = offset(text, from) else { return Ok(Val::Int(-1)) };
    let found = text.get(start..).and_then(|rest| rest.find(part)).map(|at| start + at);
    Ok(index_or_minus_one(found.map(|at| count(text, at))))
}

fn count(text: &str, end: usize) -> usize {
    text.get(..end).map_or(0, |before| before.chars().count())
}

pub(crate) fn last_index_of(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let (text, part) = pair(budget, args)?;
    let from = beginning(args)?;
    if part.is_empty() {
        return Ok(Val::Int(from.unwrap_or_else(|| i64::try_from(text.chars().count()).unwrap_or(i64::MAX))));
    }
    let length = text.chars().count();
    let last = match from {
        None => length.saturating_sub(1),
        Some(from) if from < 0 => return out_of_range(from),
        Some(from) => usize::try_from(from).unwrap_or(usize::MAX),
    };
    if last >= length {
        return Ok(Val::Int(-1));
    }
    // What begins at `last` or before ends at most so far.
    let end = last.saturating_add(part.chars().count()).min(length);
    let end = i64::try_from(end).ok().and_then(|end| offset(text, end)).unwrap_or(text.len());
    let found = text.get(..end).and_then(|head| head.rfind(part));
    Ok(index_or_minus_one(found.map(|at| count(text, at))))
}

fn lower(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    text(budget, args).map(|text| Val::text(text.to_ascii_lowercase()))
}

fn upper(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    text(budget, args).map(|text| Val::text(text.to_ascii_uppercase()))
}

fn replace(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let (text, old, new, limit) = match args {
        [Val::Text(text), Val::Text(old), Val::Text(new)] => (text, old, new, -1),
        [Val::Text(text), Val::Text(old), Val::Text(new), Val::Int(limit)] => (text, old, new, *limit),
        _ => return no_overload(),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let times = text.matches(old.as_ref()).count().min(limit);
    budget.spend_for_length(text.len().saturating_add(times.saturating_mul(new.len())))?;
    Ok(Val::text(text.replacen(old.as_ref(), new, limit)))
}

fn split(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let (text, separator) = pair(budget, args)?;
    let limit = usize::try_from(beginning(args)?.unwrap_or(-1)).ok();
    budget.spend(text.len())?;
    let parts: Vec<Val> = match (limit, separator) {
        (Some(0), _) => Vec::new(),
        (None, "") => text.chars().map(|c| Val::text(c.to_string())).collect(),
        (Some(limit), "") => characters(text, limit),
        (None, separator) => text.split(separator).map(Val::text).collect(),
        (Some(limit), separator) => text.splitn(limit, separator).map(Val::text).collect(),
    };
    Ok(Val::list(parts))
}

/// Single characters, at most this many parts: the last one is the rest.
fn characters(text: &str, limit: usize) -> Vec<Val> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(Val::text(rest));
            break;
        }
        let (one, others) = rest.split_at(c.len_utf8());
        parts.push(Val::text(one));
        rest = others;
    }
    parts
}

fn substring(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let text = text(budget, args)?;
    let (start, end) = match args {
        [_, Val::Int(start)] => (*start, None),
        [_, Val::Int(start), Val::Int(end)] if start > end => {
            return failed(format!("invalid substring range. start: {start}, end: {end}"));
        }
        [_, Val::Int(start), Val::Int(end)] => (*start, Some(*end)),
        _ => return no_overload(),
    };
    let Some(from) = offset(text, start) else { return out_of_range(start) };
    let to = match end {
        None => text.len(),
        Some(end) => match offset(text, end) {
            Some(to) => to,
            None => return out_of_range(end),
        },
    };
    text.get(from..to).map_or_else(|| out_of_range(start), |part| Ok(Val::text(part)))
}

fn trim(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    text(budget, args).map(|text| Val::text(text.trim()))
}

fn join(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let (list, separator) = match args {
        [Val::List(list)] => (list, ""),
        [Val::List(list), Val::Text(separator)] => (list, separator.as_ref()),
        _ => return no_overload(),
    };
    let mut joined = String::new();
    for (i, item) in list.items.iter().enumerate() {
        let Val::Text(part) = item else {
            return failed(format!("join: invalid input: a value of type {}", item.type_name()));
        };
        budget.spend_for_length(part.len() + separator.len())?;
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(part);
    }
    Ok(Val::text(joined))
}

fn quote(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let text = text(budget, args)?;
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(Val::text(quoted))
}
