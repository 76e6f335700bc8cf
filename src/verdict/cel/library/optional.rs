//! Optional values. `or`, `orValue`, `optMap` and `optFlatMap` do not evaluate all of their arguments, so they are
//! parts of the language's evaluation instead.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::value::{Val, readable};

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("optional.of", Global, [1, 1], of),
    FunctionDef("optional.ofNonZeroValue", Global, [1, 1], of_non_zero),
    FunctionDef("optional.none", Global, [0, 0], none),
    FunctionDef("hasValue", Method, [1, 1], has_value),
    FunctionDef("value", Method, [1, 1], value),
    FunctionDef("optional.unwrap", Global, [1, 1], unwrap_all),
    FunctionDef("unwrapOpt", Method, [1, 1], unwrap_all),
    FunctionDef("first", Method, [1, 1], first),
    FunctionDef("last", Method, [1, 1], last),
];

fn of(_: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    args.first().map_or_else(no_overload, |value| Ok(Val::some(value.clone())))
}

fn of_non_zero(_: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    match args {
        [value] if value.is_zero() => Ok(Val::Optional(None)),
        [value] => Ok(Val::some(value.clone())),
        _ => no_overload(),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of all functions")]
fn none(_: &mut Budget, _: &[Val]) -> Result<Val, EvalError> {
    Ok(Val::Optional(None))
}

fn has_value(_: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    match args {
        [Val::Optional(value)] => Ok(Val::Bool(value.is_some())),
        _ => no_overload(),
    }
}

fn value(_: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    match args {
        [Val::Optional(Some(value))] => readable(value.as_ref().clone()),
        [Val::Optional(None)] => failed("optional.none() dereference"),
        _ => no_overload(),
    }
}

fn unwrap_all(budget: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    let [Val::List(list)] = args else { return no_overload() };
    budget.spend(list.items.len())?;
    let mut items = Vec::new();
    for item in &list.items {
        match item {
            Val::Optional(value) => items.extend(value.as_deref().cloned()),
            other => return failed(format!("a value of type {} is not optional", other.type_name())),
        }
    }
    Ok(Val::list(items))
}

fn end(args: &[Val], of: impl Fn(&[Val]) -> Option<&Val>) -> Result<Val, EvalError> {
    match args {
        [Val::List(list)] => of(&list.items).map_or(Ok(Val::Optional(None)), |v| readable(v.clone()).map(Val::some)),
        _ => no_overload(),
    }
}

fn first(_: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    end(args, <[Val]>::first)
}

fn last(_: &mut Budget, args: &[Val]) -> Result<Val, EvalError> {
    end(args, <[Val]>::last)
}
