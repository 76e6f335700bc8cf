//! Lists: sums, order, indices, slices.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::eval::operators;
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::library::strings;
use crate::cel::value::{Val, readable};
use std::cmp::Ordering;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("isSorted", Method, [1, 1], is_sorted),
    FunctionDef("sum", Method, [1, 1], sum),
    FunctionDef("min", Method, [1, 1], min),
    FunctionDef("max", Method, [1, 1], max),
    FunctionDef("indexOf", Method, [2, 3], index_of),
    FunctionDef("lastIndexOf", Method, [2, 3], last_index_of),
    FunctionDef("slice", Method, [3, 3], slice),
    FunctionDef("flatten", Method, [1, 2], flatten),
    FunctionDef("sort", Method, [1, 1], sort),
    FunctionDef("reverse", Method, [1, 1], reverse),
    FunctionDef("distinct", Method, [1, 1], distinct),
    FunctionDef("lists.range", Global, [1, 1], range),
];

/// The items of the list that a method is called on.
fn items<'v>(budget: &mut Budget, args: &'v [Val]) -> Result<&'v [Val]> {
    match args.first() {
        Some(Val::List(list)) => {
            budget.spend(list.items.len())?;
            Ok(&list.items)
        }
        _ => no_overload(),
    }
}

fn is_sorted(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let list = items(budget, args)?;
    Ok(Val::Bool(list.is_sorted_by(|a, b| a.compare(b) != Some(Ordering::Greater))))
}

fn sum(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let mut list = items(budget, args)?.iter();
    // The type of an empty list is known only to a type checker; nearly all sums are of integers.
    let Some(first) = list.next() else { return Ok(Val::Int(0)) };
    if !matches!(first, Val::Int(_) | Val::UInt(_) | Val::Double(_) | Val::Duration(_)) {
        return no_overload();
    }
    list.try_fold(readable(first.clone())?, |sum, item| operators::add(budget, &[sum, item.clone()]))
}

fn extreme(budget: &mut Budget, args: &[Val], beats: Ordering) -> Result<Val> {
    let list = items(budget, args)?;
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

fn min(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    extreme(budget, args, Ordering::Less)
}

fn max(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    extreme(budget, args, Ordering::Greater)
}

pub(crate) fn index_or_minus_one(at: Option<usize>) -> Val {
    Val::Int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

fn index_of(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Text(_), ..] => strings::index_of(budget, args),
        [list @ Val::List(_), item] => {
            let list = items(budget, std::slice::from_ref(list))?;
            Ok(index_or_minus_one(list.iter().position(|i| i.equals(item))))
        }
        _ => no_overload(),
    }
}

fn last_index_of(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Text(_), ..] => strings::last_index_of(budget, args),
        [list @ Val::List(_), item] => {
            let list = items(budget, std::slice::from_ref(list))?;
            Ok(index_or_minus_one(list.iter().rposition(|i| i.equals(item))))
        }
        _ => no_overload(),
    }
}

fn slice(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let list = items(budget, args)?;
    let [_, Val::Int(start), Val::Int(end)] = args else { return no_overload() };
    let part = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
    match part.and_then(|(start, end)| list.get(start..end)) {
        Some(part) => Ok(Val::list(part.to_vec())),
        None => failed(format!("cannot slice({start}, {end}), list is length {}", list.len())),
    }
}

fn flatten(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let depth = match args {
        [_, Val::Int(depth)] if *depth < 0 => return failed("level must be non-negative"),
        [_, Val::Int(depth)] => *depth,
        [_] => 1,
        _ => return no_overload(),
    };
    let mut flat = Vec::new();
    let list = items(budget, args)?;
    flatten_into(budget, list, depth, &mut flat)?;
    Ok(Val::list(flat))
}

fn flatten_into(budget: &mut Budget, list: &[Val], depth: i64, flat: &mut Vec<Val>) -> Result<()> {
    budget.spend(list.len())?;
    for item in list {
        match item {
            Val::List(inner) if depth > 0 => flatten_into(budget, &inner.items, depth - 1, flat)?,
            item => flat.push(item.clone()),
        }
    }
    Ok(())
}

fn sort(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let list = items(budget, args)?.to_vec();
    sorted_by(list.clone(), list)
}

fn reverse(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    Ok(Val::list(items(budget, args)?.iter().rev().cloned().collect()))
}

fn distinct(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let mut found: Vec<Val> = Vec::new();
    for item in items(budget, args)? {
        budget.spend_for_length(found.len())?;
        if !found.iter().any(|known| known.equals(item)) {
            found.push(item.clone());
        }
    }
    Ok(Val::list(found))
}

fn range(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let [Val::Int(end)] = args else { return no_overload() };
    budget.spend(usize::try_from(*end).unwrap_or(0))?;
    Ok(Val::list((0..*end).map(Val::Int).collect()))
}

/// The items in the order of their keys, which have one type that has an order.
pub(crate) fn sorted_by(items: Vec<Val>, keys: Vec<Val>) -> Result<Val> {
    if let Some(first) = keys.first() {
        if first.compare(first).is_none() {
            return failed("list elements must be comparable");
        }
        if keys.iter().any(|key| key.type_name() != first.type_name()) {
            return failed("list elements must have the same type");
        }
    }
    let mut pairs: Vec<(Val, Val)> = keys.into_iter().zip(items).collect();
    pairs.sort_by(|a, b| a.0.compare(&b.0).unwrap_or(Ordering::Equal));
    Ok(Val::list(pairs.into_iter().map(|(_, item)| item).collect()))
}
