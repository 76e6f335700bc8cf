//! Functions of the authorizer. Only the API server knows what a user may do: the names are here so that expressions
//! with them compile, and the variable `authorizer` is always unknown, so nothing of this is ever called.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed};
use crate::cel::library::function::CallStyle::Method;
use crate::cel::library::function::FunctionDef;
use crate::cel::value::Val;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    stub("path", 2),
    stub("group", 2),
    stub("serviceAccount", 3),
    stub("resource", 2),
    stub("subresource", 2),
    stub("namespace", 2),
    stub("name", 2),
    stub("fieldSelector", 2),
    stub("labelSelector", 2),
    stub("check", 2),
    stub("allowed", 1),
    stub("reason", 1),
    stub("errored", 1),
    stub("error", 1),
];

const fn stub(name: &'static str, count: usize) -> FunctionDef {
    FunctionDef(name, Method, [count, count], unsupported)
}

fn unsupported(_: &mut Budget, _: &[Val]) -> Result<Val, EvalError> {
    failed("no such overload")
}
