//! Evaluates macros over lists and maps, such as `all`, `filter` and `map`.

use crate::cel::compile::node::{Comprehension, ComprehensionKind};
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::eval::Evaluator;
use crate::cel::library::lists::sorted_by;
use crate::cel::value::{Key, Val, readable};

/// The result so far.
#[derive(Default)]
struct Accumulator {
    items: Vec<Val>,
    keys: Vec<Val>,
    entries: Vec<(Key, Val)>,
    count: usize,
    error: Option<EvalError>,
}

/// Iterates over the range of a macro.
pub(crate) fn eval_comprehension(
    evaluator: &mut Evaluator<'_>,
    comprehension: &Comprehension,
) -> Result<Val, EvalError> {
    let mut gathered = Accumulator::default();
    let mut done = None;
    match evaluator.eval(&comprehension.range)? {
        Val::List(list) => {
            for (i, item) in list.items.iter().enumerate() {
                let first = comprehension
                    .second
                    .map_or_else(|| item.clone(), |_| Val::Int(i64::try_from(i).unwrap_or(i64::MAX)));
                done = step(evaluator, comprehension, first, item, &mut gathered)?;
                if done.is_some() {
                    break;
                }
            }
        }
        Val::Map(map) => {
            for (key, value) in map.entries() {
                done = step(evaluator, comprehension, key.to_val(), value, &mut gathered)?;
                if done.is_some() {
                    break;
                }
            }
        }
        _ => return no_overload(),
    }
    evaluator.locals.truncate(comprehension.first);
    match done {
        Some(result) => Ok(result),
        None => finish(comprehension.kind, gathered),
    }
}

/// One item or entry. The result when it decides.
fn step(
    evaluator: &mut Evaluator<'_>,
    comprehension: &Comprehension,
    first: Val,
    second: &Val,
    accumulator: &mut Accumulator,
) -> Result<Option<Val>, EvalError> {
    evaluator.budget.spend(1)?;
    let key = first.clone();
    evaluator.bind(comprehension.first, readable(first)?);
    if let Some(variable) = comprehension.second {
        evaluator.bind(variable, readable(second.clone())?);
    }
    if let Some(filter) = &comprehension.filter {
        match evaluator.eval(filter)? {
            Val::Bool(true) => {}
            Val::Bool(false) => return Ok(None),
            _ => return no_overload(),
        }
    }
    let value = evaluator.eval(&comprehension.body);
    match comprehension.kind {
        ComprehensionKind::All => return decide(value, false, accumulator),
        ComprehensionKind::Exists => return decide(value, true, accumulator),
        ComprehensionKind::ExistsOne => match value? {
            Val::Bool(yes) => accumulator.count += usize::from(yes),
            _ => return no_overload(),
        },
        ComprehensionKind::Filter => match value? {
            Val::Bool(true) => accumulator.items.push(key),
            Val::Bool(false) => {}
            _ => return no_overload(),
        },
        ComprehensionKind::Collect => accumulator.items.push(value?),
        ComprehensionKind::SortBy => {
            accumulator.keys.push(value?);
            accumulator.items.push(key);
        }
        ComprehensionKind::TransformMap => accumulator.entries.push((as_key(&key)?, value?)),
        ComprehensionKind::TransformMapEntry => {
            let Val::Map(map) = value? else { return no_overload() };
            for (k, v) in map.entries() {
                if accumulator.entries.iter().any(|(known, _)| known == k) {
                    return failed("insert failed: key already exists");
                }
                evaluator.budget.spend(accumulator.entries.len() / 10 + 1)?;
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
fn decide(
    value: Result<Val, EvalError>,
    decides: bool,
    accumulator: &mut Accumulator,
) -> Result<Option<Val>, EvalError> {
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

fn finish(kind: ComprehensionKind, accumulator: Accumulator) -> Result<Val, EvalError> {
    match (kind, accumulator.error) {
        (_, Some(error)) => Err(error),
        (ComprehensionKind::All, None) => Ok(Val::Bool(true)),
        (ComprehensionKind::Exists, None) => Ok(Val::Bool(false)),
        (ComprehensionKind::ExistsOne, None) => Ok(Val::Bool(accumulator.count == 1)),
        (ComprehensionKind::Filter | ComprehensionKind::Collect, None) => Ok(Val::list(accumulator.items)),
        (ComprehensionKind::TransformMap | ComprehensionKind::TransformMapEntry, None) => {
            Ok(Val::map(accumulator.entries))
        }
        (ComprehensionKind::SortBy, None) => sorted_by(accumulator.items, accumulator.keys),
    }
}
