//! What do the macros over lists and maps make?

use super::error::{EvalError, failed, no_overload};
use super::machine::{Machine, readable};
use super::node::{Fold, FoldKind};
use super::value::{Key, Val};
use std::cmp::Ordering;

/// What has been gathered so far.
#[derive(Default)]
struct Gathered {
    items: Vec<Val>,
    keys: Vec<Val>,
    entries: Vec<(Key, Val)>,
    count: usize,
    error: Option<EvalError>,
}

/// Goes over the range of a macro.
pub(super) fn eval_comprehension(machine: &mut Machine<'_>, fold: &Fold) -> Result<Val, EvalError> {
    let mut gathered = Gathered::default();
    let mut done = None;
    match machine.eval(&fold.range)? {
        Val::List(list) => {
            for (i, item) in list.items.iter().enumerate() {
                let first =
                    fold.second.map_or_else(|| item.clone(), |_| Val::Int(i64::try_from(i).unwrap_or(i64::MAX)));
                done = step(machine, fold, (first, item), &mut gathered)?;
                if done.is_some() {
                    break;
                }
            }
        }
        Val::Map(map) => {
            for (key, value) in map.entries() {
                done = step(machine, fold, (key.to_val(), value), &mut gathered)?;
                if done.is_some() {
                    break;
                }
            }
        }
        _ => return no_overload(),
    }
    machine.locals.truncate(fold.first);
    match done {
        Some(result) => Ok(result),
        None => finish(fold.kind, gathered),
    }
}

/// One item or entry. The result when it decides.
fn step(
    machine: &mut Machine<'_>,
    fold: &Fold,
    (first, second): (Val, &Val),
    accumulator: &mut Gathered,
) -> Result<Option<Val>, EvalError> {
    machine.spend(1)?;
    let key = first.clone();
    machine.bind(fold.first, readable(first)?);
    if let Some(variable) = fold.second {
        machine.bind(variable, readable(second.clone())?);
    }
    if let Some(filter) = &fold.filter {
        match machine.eval(filter)? {
            Val::Bool(true) => {}
            Val::Bool(false) => return Ok(None),
            _ => return no_overload(),
        }
    }
    let value = machine.eval(&fold.body);
    match fold.kind {
        FoldKind::All => return decide(value, false, accumulator),
        FoldKind::Exists => return decide(value, true, accumulator),
        FoldKind::ExistsOne => match value? {
            Val::Bool(yes) => accumulator.count += usize::from(yes),
            _ => return no_overload(),
        },
        FoldKind::Filter => match value? {
            Val::Bool(true) => accumulator.items.push(key),
            Val::Bool(false) => {}
            _ => return no_overload(),
        },
        FoldKind::Collect => accumulator.items.push(value?),
        FoldKind::SortBy => {
            accumulator.keys.push(value?);
            accumulator.items.push(key);
        }
        FoldKind::TransformMap => accumulator.entries.push((as_key(&key)?, value?)),
        FoldKind::TransformMapEntry => {
            let Val::Map(map) = value? else { return no_overload() };
            for (k, v) in map.entries() {
                if accumulator.entries.iter().any(|(known, _)| known == k) {
                    return failed("insert failed: key already exists");
                }
                machine.spend(accumulator.entries.len() / 10 + 1)?;
                accumulator.entries.push((k.clone(), v.clone()));
            }
        }
    }
    Ok(None)
}

fn as_key(value: &Val) -> Result<Key, EvalError> {
    Key::of(value).map_or_else(|| failed("unsupported key type"), Ok)
}

/// `all` ends at the first false, `exists` at the first true; errors count only when nothing decides.
fn decide(value: Result<Val, EvalError>, decides: bool, accumulator: &mut Gathered) -> Result<Option<Val>, EvalError> {
    match value {
        Ok(Val::Bool(value)) if value == decides => return Ok(Some(Val::Bool(decides))),
        Ok(Val::Bool(_)) => {}
        Ok(_) => {
            if accumulator.error.is_none() {
                accumulator.error = no_overload::<Val>().err();
            }
        }
        Err(EvalError::Budget) => return Err(EvalError::Budget),
        Err(error) => {
            let unknown = matches!(error, EvalError::Unknown(_));
            if unknown || accumulator.error.is_none() {
                accumulator.error = Some(error);
            }
        }
    }
    Ok(None)
}

fn finish(kind: FoldKind, accumulator: Gathered) -> Result<Val, EvalError> {
    match (kind, accumulator.error) {
        (_, Some(error)) => Err(error),
        (FoldKind::All, None) => Ok(Val::Bool(true)),
        (FoldKind::Exists, None) => Ok(Val::Bool(false)),
        (FoldKind::ExistsOne, None) => Ok(Val::Bool(accumulator.count == 1)),
        (FoldKind::Filter | FoldKind::Collect, None) => Ok(Val::list(accumulator.items)),
        (FoldKind::TransformMap | FoldKind::TransformMapEntry, None) => Ok(Val::map(accumulator.entries)),
        (FoldKind::SortBy, None) => sorted_by(accumulator.items, accumulator.keys),
    }
}

/// The items in the order of their keys, which have one type that has an order.
pub(super) fn sorted_by(items: Vec<Val>, keys: Vec<Val>) -> Result<Val, EvalError> {
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
