//! Sets: lists without order and repetition.

use super::Entry;
use super::Style::Global;
use crate::cel::error::{EvalError, no_overload};
use crate::cel::machine::Machine;
use crate::cel::value::Val;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry("sets.contains", Global, [2, 2], contains),
    Entry("sets.equivalent", Global, [2, 2], equivalent),
    Entry("sets.intersects", Global, [2, 2], intersects),
];

fn both<'v>(machine: &mut Machine<'_>, args: &'v [Val]) -> Result<(&'v [Val], &'v [Val]), EvalError> {
    match args {
        [Val::List(a), Val::List(b)] => {
            machine.spend(a.items.len().saturating_mul(b.items.len()))?;
            Ok((&a.items, &b.items))
        }
        _ => no_overload(),
    }
}

fn contains_item(list: &[Val], item: &Val) -> bool {
    list.iter().any(|i| i.equals(item))
}

fn contains(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val, EvalError> {
    let (list, part) = both(machine, args)?;
    Ok(Val::Bool(part.iter().all(|item| contains_item(list, item))))
}

fn equivalent(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val, EvalError> {
    let (a, b) = both(machine, args)?;
    Ok(Val::Bool(a.iter().all(|item| contains_item(b, item)) && b.iter().all(|item| contains_item(a, item))))
}

fn intersects(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val, EvalError> {
    let (a, b) = both(machine, args)?;
    Ok(Val::Bool(a.iter().any(|item| contains_item(b, item))))
}
