//! Texts: parts, places, letters. Places count characters, not bytes.

use super::Entry;
use super::Style::{Global, Method};
use super::lists::index_or_minus_one;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::machine::Machine;
use crate::cel::value::Val;

type Result<T> = std::result::Result<T, EvalError>;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry("size", Global, [1, 1], size),
    Entry("size", Method, [1, 1], size),
    Entry("contains", Method, [2, 2], contains),
    Entry("startsWith", Method, [2, 2], starts_with),
    Entry("endsWith", Method, [2, 2], ends_with),
    Entry("charAt", Method, [2, 2], char_at),
    Entry("lowerAscii", Method, [1, 1], lower),
    Entry("upperAscii", Method, [1, 1], upper),
    Entry("replace", Method, [3, 4], replace),
    Entry("split", Method, [2, 3], split),
    Entry("substring", Method, [2, 3], substring),
    Entry("trim", Method, [1, 1], trim),
    Entry("join", Method, [1, 2], join),
    Entry("strings.quote", Global, [1, 1], quote),
];

fn size(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let size = match args {
        [Val::Text(text)] => {
            machine.spend_for_length(text.len())?;
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
fn pair<'v>(machine: &mut Machine<'_>, args: &'v [Val]) -> Result<(&'v str, &'v str)> {
    match args {
        [Val::Text(a), Val::Text(b), ..] => {
            machine.spend_for_length(a.len())?;
            Ok((a, b))
        }
        _ => no_overload(),
    }
}

fn text<'v>(machine: &mut Machine<'_>, args: &'v [Val]) -> Result<&'v str> {
    match args.first() {
        Some(Val::Text(text)) => {
            machine.spend_for_length(text.len())?;
            Ok(text)
        }
        _ => no_overload(),
    }
}

fn contains(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    pair(machine, args).map(|(a, b)| Val::Bool(a.contains(b)))
}

fn starts_with(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    pair(machine, args).map(|(a, b)| Val::Bool(a.starts_with(b)))
}

fn ends_with(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    pair(machine, args).map(|(a, b)| Val::Bool(a.ends_with(b)))
}

/// Where the nth character begins; the end of the text for the one after the last.
fn offset(text: &str, at: i64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    text.char_indices().map(|(i, _)| i).chain([text.len()]).nth(at)
}

fn out_of_range<T>(at: i64) -> Result<T> {
    failed(format!("index out of range: {at}"))
}

fn char_at(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let text = text(machine, args)?;
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

pub(super) fn index_of(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let (text, part) = pair(machine, args)?;
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

pub(super) fn last_index_of(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let (text, part) = pair(machine, args)?;
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

fn lower(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    text(machine, args).map(|text| Val::text(text.to_ascii_lowercase()))
}

fn upper(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    text(machine, args).map(|text| Val::text(text.to_ascii_uppercase()))
}

fn replace(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let (text, old, new, limit) = match args {
        [Val::Text(text), Val::Text(old), Val::Text(new)] => (text, old, new, -1),
        [Val::Text(text), Val::Text(old), Val::Text(new), Val::Int(limit)] => (text, old, new, *limit),
        _ => return no_overload(),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let times = text.matches(old.as_ref()).count().min(limit);
    machine.spend_for_length(text.len().saturating_add(times.saturating_mul(new.len())))?;
    Ok(Val::text(text.replacen(old.as_ref(), new, limit)))
}

fn split(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let (text, separator) = pair(machine, args)?;
    let limit = usize::try_from(beginning(args)?.unwrap_or(-1)).ok();
    machine.spend(text.len())?;
    let parts: Vec<Val> = match (limit, separator) {
        (Some(0), _) => Vec::new(),
        (None, "") => text.chars().map(|c| Val::text(c.to_string())).collect(),
        (Some(limit), "") => characters(text, limit),
        (None, separator) => text.split(separator).map(Val::text).collect(),
        (Some(limit), separator) => text.splitn(limit, separator).map(Val::text).collect(),
    };
    Ok(Val::list(parts))
}

/// Single characters, at most so many parts: the last one is the rest.
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

fn substring(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let text = text(machine, args)?;
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

fn trim(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    text(machine, args).map(|text| Val::text(text.trim()))
}

fn join(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
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
        machine.spend_for_length(part.len() + separator.len())?;
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(part);
    }
    Ok(Val::text(joined))
}

fn quote(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let text = text(machine, args)?;
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
