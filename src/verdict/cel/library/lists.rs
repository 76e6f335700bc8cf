//! Lists: sums, order, places, parts.

use super::Style::{Global, Method};
use super::{Entry, strings};
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::fold::sorted_by;
use crate::cel::machine::{Machine, readable};
use crate::cel::operators;
use crate::cel::value::Val;
use std::cmp::Ordering;

type Result<T> = std::result::Result<T, EvalError>;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry("isSorted", Method, [1, 1], is_sorted),
    Entry("sum", Method, [1, 1], sum),
    Entry("min", Method, [1, 1], min),
    Entry("max", Method, [1, 1], max),
    Entry("indexOf", Method, [2, 3], index_of),
    Entry("lastIndexOf", Method, [2, 3], last_index_of),
    Entry("slice", Method, [3, 3], slice),
    Entry("flatten", Method, [1, 2], flatten),
    Entry("sort", Method, [1, 1], sort),
    Entry("reverse", Method, [1, 1], reverse),
    Entry("distinct", Method, [1, 1], distinct),
    Entry("lists.range", Global, [1, 1], range),
];

/// The items of the list that a method is called on.
fn items<'v>(machine: &mut Machine<'_>, args: &'v [Val]) -> Result<&'v [Val]> {
    match args.first() {
        Some(Val::List(list)) => {
            machine.spend(list.items.len())?;
            Ok(&list.items)
        }
        _ => no_overload(),
    }
}

fn is_sorted(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let list = items(machine, args)?;
    Ok(Val::Bool(list.is_sorted_by(|a, b| a.compare(b) != Some(Ordering::Greater))))
}

fn sum(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let mut list = items(machine, args)?.iter();
    // The type of an empty list is known only to a type checker; nearly all sums are of integers.
    let Some(first) = list.next() else { return Ok(Val::Int(0)) };
    if !matches!(first, Val::Int(_) | Val::UInt(_) | Val::Double(_) | Val::Duration(_)) {
        return no_overload();
    }
    list.try_fold(readable(first.clone())?, |sum, item| operators::add(machine, &[sum, item.clone()]))
}

fn extreme(machine: &mut Machine<'_>, args: &[Val], beats: Ordering) -> Result<Val> {
    let list = items(machine, args)?;
    let name = if beats == Ordering::Less { "min" } else { "max" };
    let mut best: Option<&Val> = None;
    for item in list {
        best = match best {
            Some(best) if item.compare(best) != Some(beats) => Some(best),
            _ => Some(item),
        };
    }
    best.map_or_else(|| failed(format!("{name} called on empty list")), |v| readable(v.clone()))
}

fn min(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    extreme(machine, args, Ordering::Less)
}

fn max(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    extreme(machine, args, Ordering::Greater)
}

pub(super) fn index_or_minus_one(at: Option<usize>) -> Val {
    Val::Int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

fn index_of(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Text(_), ..] => strings::index_of(machine, args),
        [list @ Val::List(_), item] => {
            let list = items(machine, std::slice::from_ref(list))?;
            Ok(index_or_minus_one(list.iter().position(|i| i.equals(item))))
        }
        _ => no_overload(),
    }
}

fn last_index_of(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Text(_), ..] => strings::last_index_of(machine, args),
        [list @ Val::List(_), item] => {
            let list = items(machine, std::slice::from_ref(list))?;
            Ok(index_or_minus_one(list.iter().rposition(|i| i.equals(item))))
        }
        _ => no_overload(),
    }
}

fn slice(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let list = items(machine, args)?;
    let [_, Val::Int(start), Val::Int(end)] = args else { return no_overload() };
    let part = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
    match part.and_then(|(start, end)| list.get(start..end)) {
        Some(part) => Ok(Val::list(part.to_vec())),
        None => failed(format!("cannot slice({start}, {end}), list is length {}", list.len())),
    }
}

fn flatten(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let depth = match args {
        [_, Val::Int(depth)] if *depth < 0 => return failed("level must be non-negative"),
        [_, Val::Int(depth)] => *depth,
        [_] => 1,
        _ => return no_overload(),
    };
    let mut flat = Vec::new();
    let list = items(machine, args)?;
    flatten_into(machine, list, depth, &mut flat)?;
    Ok(Val::list(flat))
}

fn flatten_into(machine: &mut Machine<'_>, list: &[Val], depth: i64, flat: &mut Vec<Val>) -> Result<()> {
    machine.spend(list.len())?;
    for item in list {
        match item {
            Val::List(inner) if depth > 0 => flatten_into(machine, &inner.items, depth - 1, flat)?,
            item => flat.push(item.clone()),
        }
    }
    Ok(())
}

fn sort(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let list = items(machine, args)?.to_vec();
    sorted_by(list.clone(), list)
}

fn reverse(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    Ok(Val::list(items(machine, args)?.iter().rev().cloned().collect()))
}

fn distinct(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let mut found: Vec<Val> = Vec::new();
    for item in items(machine, args)? {
        machine.spend_for_length(found.len())?;
        if !found.iter().any(|known| known.equals(item)) {
            found.push(item.clone());
        }
    }
    Ok(Val::list(found))
}

fn range(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let [Val::Int(end)] = args else { return no_overload() };
    machine.spend(usize::try_from(*end).unwrap_or(0))?;
    Ok(Val::list((0..*end).map(Val::Int).collect()))
}
