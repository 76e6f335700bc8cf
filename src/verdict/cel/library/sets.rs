//! Sets: lists without order and repetition.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, no_overload};
use crate::cel::library::function::CallStyle::Global;
use crate::cel::library::function::FunctionDef;
use crate::cel::value::Val;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("sets.contains", Global, [2, 2], contains),
    FunctionDef("sets.equivalent", Global, [2, 2], equivalent),
    FunctionDef("sets.intersects", Global, [2, 2], intersects),
];

fn both<'v>(budget: &mut Budget, args: &'v [Val]) -> Result<(&'v [Val], &'v [Val]), EvalError> {
    match args {
        [Val::List(a), Val::List(b)] => {
            budget.spend(a.items.len().saturating_mul(b.items.len()))?;
            Ok((&a.items, &b.items))
        }
        _ => no_overload(),
    }
}

fn contains_item(list: &[Val], item: &Val) -> bool {
    list.iter().any(|i| i.equals(item))
}

fn contains(budget: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    let (list, part) = both(budget, args)?;
    Ok(Val::Bool(part.iter().all(|item| contains_item(list, item))))
}

fn equivalent(budget: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    let (a, b) = both(budget, args)?;
    Ok(Val::Bool(a.iter().all(|item| contains_item(b, item)) && b.iter().all(|item| contains_item(a, item))))
}

fn intersects(budget: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    let (a, b) = both(budget, args)?;
    Ok(Val::Bool(a.iter().any(|item| contains_item(b, item))))
}
