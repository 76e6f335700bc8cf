//! Operators of the language.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::time::timestamp::CelTimestamp;
use crate::cel::value::{Key, List, ListKind, Val, readable, same_keys};
use std::cmp::Ordering;
use std::sync::Arc;

type Result<T> = std::result::Result<T, EvalError>;

/// `operand.field`.
pub(crate) fn select(operand: &Val, field: &str) -> Result<Val> {
    match operand {
        Val::Map(map) => match map.field(field) {
            Some(value) => readable(value.clone()),
            None => failed(format!("no such key: {field}")),
        },
        Val::Optional(_) => select_optional(operand, field),
        _ => no_overload(),
    }
}

/// `operand.?field`.
pub(crate) fn select_optional(operand: &Val, field: &str) -> Result<Val> {
    match operand {
        Val::Optional(None) => Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => select_optional(inner, field),
        Val::Map(map) => match map.field(field) {
            Some(value) => readable(value.clone()).map(Val::some),
            None => Ok(Val::Optional(None)),
        },
        _ => no_overload(),
    }
}

/// `operand[key]`.
pub(crate) fn index(operand: &Val, key: &Val) -> Result<Val> {
    match operand {
        Val::Optional(_) => index_optional(operand, key),
        Val::List(list) => match position(key).and_then(|at| list.items.get(at)) {
            Some(item) => readable(item.clone()),
            None if matches!(key, Val::Int(_) | Val::UInt(_) | Val::Double(_)) => {
                failed(format!("index out of bounds: {}", crate::cel::library::convert::display(key)))
            }
            None => failed("unsupported index type"),
        },
        Val::Map(map) => {
            let Some(found) = Key::of(key).map(|key| map.get(&key)) else {
                return if matches!(key, Val::Double(_)) { failed("no such key") } else { no_overload() };
            };
            match found {
                Some(value) => readable(value.clone()),
                None => failed(format!("no such key: {}", crate::cel::library::convert::display(key))),
            }
        }
        _ => no_overload(),
    }
}

fn position(key: &Val) -> Option<usize> {
    match key {
        Val::Int(i) => usize::try_from(*i).ok(),
        Val::UInt(u) => usize::try_from(*u).ok(),
        Val::Double(d) => crate::cel::value::as_whole(*d).and_then(|i| usize::try_from(i).ok()),
        _ => None,
    }
}

/// `operand[?key]`.
pub(crate) fn index_optional(operand: &Val, key: &Val) -> Result<Val> {
    let found = match operand {
        Val::Optional(None) => None,
        Val::Optional(Some(inner)) => return index_optional(inner, key),
        Val::List(list) => match key {
            Val::Int(_) | Val::UInt(_) | Val::Double(_) => position(key).and_then(|at| list.items.get(at)),
            _ => return no_overload(),
        },
        Val::Map(map) => match Key::of(key) {
            Some(key) => map.get(&key),
            None => return no_overload(),
        },
        _ => return no_overload(),
    };
    found.map_or(Ok(Val::Optional(None)), |value| readable(value.clone()).map(Val::some))
}

pub(crate) fn not(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Bool(b)] => Ok(Val::Bool(!b)),
        _ => no_overload(),
    }
}

pub(crate) fn negate(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Int(i)] => i.checked_neg().map_or_else(|| failed("integer overflow"), |i| Ok(Val::Int(i))),
        [Val::Double(d)] => Ok(Val::Double(-d)),
        [Val::Duration(d)] => d.checked_neg().map_or_else(|| failed("integer overflow"), |d| Ok(Val::Duration(d))),
        _ => no_overload(),
    }
}

pub(crate) fn equal(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let [a, b] = args else { return no_overload() };
    budget.spend(comparison_cost(a).min(comparison_cost(b)))?;
    Ok(Val::Bool(a.equals(b)))
}

pub(crate) fn unequal(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let Val::Bool(same) = equal(budget, args)? else { return no_overload() };
    Ok(Val::Bool(!same))
}

/// The cost of a comparison.
fn comparison_cost(value: &Val) -> usize {
    match value {
        Val::Text(t) => t.len() / 10,
        Val::Bytes(b) => b.len() / 10,
        Val::List(list) => {
            let items: usize = list.items.iter().map(|item| 1 + comparison_cost(item)).sum();
            if list.kind == ListKind::Atomic { items } else { items.saturating_mul(list.items.len()) }
        }
        Val::Map(map) => map.entries().iter().map(|(_, v)| 1 + comparison_cost(v)).sum(),
        Val::Optional(Some(value)) => comparison_cost(value),
        _ => 0,
    }
}

fn compare(args: &[Val], holds: impl Fn(Ordering) -> bool) -> Result<Val> {
    let [a, b] = args else { return no_overload() };
    match a.compare(b) {
        Some(order) => Ok(Val::Bool(holds(order))),
        None if is_number(a) && is_number(b) => Ok(Val::Bool(false)),
        None => no_overload(),
    }
}

fn is_number(value: &Val) -> bool {
    matches!(value, Val::Int(_) | Val::UInt(_) | Val::Double(_))
}

pub(crate) fn less(_: &mut Budget, args: &[Val]) -> Result<Val> {
    compare(args, Ordering::is_lt)
}

pub(crate) fn at_most(_: &mut Budget, args: &[Val]) -> Result<Val> {
    compare(args, Ordering::is_le)
}

pub(crate) fn greater(_: &mut Budget, args: &[Val]) -> Result<Val> {
    compare(args, Ordering::is_gt)
}

pub(crate) fn at_least(_: &mut Budget, args: &[Val]) -> Result<Val> {
    compare(args, Ordering::is_ge)
}

/// `item in list`, `key in map`.
pub(crate) fn is_in(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [item, Val::List(list)] => {
            budget.spend_for_length(list.items.len() + comparison_cost(item))?;
            Ok(Val::Bool(list.items.iter().any(|i| i.equals(item))))
        }
        [key, Val::Map(map)] => match Key::of(key) {
            Some(key) => Ok(Val::Bool(map.get(&key).is_some())),
            None if matches!(key, Val::Double(_)) => Ok(Val::Bool(false)),
            None => no_overload(),
        },
        _ => no_overload(),
    }
}

pub(crate) fn add(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let overflow = || failed("integer overflow");
    match args {
        [Val::Int(a), Val::Int(b)] => a.checked_add(*b).map_or_else(overflow, |n| Ok(Val::Int(n))),
        [Val::UInt(a), Val::UInt(b)] => a.checked_add(*b).map_or_else(overflow, |n| Ok(Val::UInt(n))),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a + b)),
        [Val::Text(a), Val::Text(b)] => {
            budget.spend_for_length(a.len() + b.len())?;
            Ok(Val::text([a.as_ref(), b.as_ref()].concat()))
        }
        [Val::Bytes(a), Val::Bytes(b)] => {
            budget.spend_for_length(a.len() + b.len())?;
            Ok(Val::Bytes([a.as_ref(), b.as_ref()].concat().into()))
        }
        [Val::List(a), Val::List(b)] => {
            budget.spend(a.items.len() + b.items.len())?;
            if a.kind != ListKind::Atomic {
                budget.spend(a.items.len().saturating_mul(b.items.len()))?;
            }
            Ok(concat_lists(a, b))
        }
        [Val::Duration(a), Val::Duration(b)] => a.checked_add(*b).map_or_else(overflow, |n| Ok(Val::Duration(n))),
        [Val::Timestamp(t), Val::Duration(d)] | [Val::Duration(d), Val::Timestamp(t)] => {
            timestamp(t.checked_add_nanos(*d))
        }
        _ => no_overload(),
    }
}

fn timestamp(at: Option<CelTimestamp>) -> Result<Val> {
    at.map_or_else(|| failed("timestamp overflow"), |at| Ok(Val::Timestamp(at)))
}

/// Concatenates two lists. A set adds missing items; a list with keys replaces items with equal keys.
fn concat_lists(a: &Arc<List>, b: &Arc<List>) -> Val {
    let mut items = a.items.clone();
    for item in &b.items {
        let known = match &a.kind {
            ListKind::Atomic => None,
            ListKind::Set => items.iter().position(|i| i.equals(item)),
            ListKind::Keyed(keys) => items.iter().position(|i| same_keys(keys, i, item)),
        };
        match known.and_then(|at| items.get_mut(at)) {
            Some(existing) => *existing = item.clone(),
            None => items.push(item.clone()),
        }
    }
    Val::List(Arc::new(List { items, kind: a.kind.clone() }))
}

pub(crate) fn subtract(_: &mut Budget, args: &[Val]) -> Result<Val> {
    let overflow = || failed("integer overflow");
    match args {
        [Val::Int(a), Val::Int(b)] => a.checked_sub(*b).map_or_else(overflow, |n| Ok(Val::Int(n))),
        [Val::UInt(a), Val::UInt(b)] => a.checked_sub(*b).map_or_else(overflow, |n| Ok(Val::UInt(n))),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a - b)),
        [Val::Duration(a), Val::Duration(b)] => a.checked_sub(*b).map_or_else(overflow, |n| Ok(Val::Duration(n))),
        [Val::Timestamp(t), Val::Duration(d)] => timestamp(d.checked_neg().and_then(|d| t.checked_add_nanos(d))),
        [Val::Timestamp(a), Val::Timestamp(b)] => a.nanos_since(b).map_or_else(overflow, |d| Ok(Val::Duration(d))),
        _ => no_overload(),
    }
}

pub(crate) fn multiply(_: &mut Budget, args: &[Val]) -> Result<Val> {
    let overflow = || failed("integer overflow");
    match args {
        [Val::Int(a), Val::Int(b)] => a.checked_mul(*b).map_or_else(overflow, |n| Ok(Val::Int(n))),
        [Val::UInt(a), Val::UInt(b)] => a.checked_mul(*b).map_or_else(overflow, |n| Ok(Val::UInt(n))),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a * b)),
        _ => no_overload(),
    }
}

pub(crate) fn divide(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::UInt(_), Val::UInt(0)] => failed("division by zero"),
        [Val::Int(a), Val::Int(b)] => a.checked_div(*b).map_or_else(|| failed("integer overflow"), |n| Ok(Val::Int(n))),
        [Val::UInt(a), Val::UInt(b)] => Ok(Val::UInt(a / b)),
        [Val::Double(a), Val::Double(b)] => Ok(Val::Double(a / b)),
        _ => no_overload(),
    }
}

pub(crate) fn remainder(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Int(_), Val::Int(0)] | [Val::UInt(_), Val::UInt(0)] => failed("modulus by zero"),
        [Val::Int(a), Val::Int(b)] => a.checked_rem(*b).map_or_else(|| failed("integer overflow"), |n| Ok(Val::Int(n))),
        [Val::UInt(a), Val::UInt(b)] => Ok(Val::UInt(a % b)),
        _ => no_overload(),
    }
}
