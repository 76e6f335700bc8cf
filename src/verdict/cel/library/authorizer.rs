//! What may a user do? Only the API server knows: the names are here so that expressions with them compile, and the
//! variable `authorizer` is always unknown, so nothing of this is ever called.

use super::Entry;
use super::Style::Method;
use crate::cel::error::{EvalError, failed};
use crate::cel::machine::Machine;
use crate::cel::value::Val;

pub(super) const FUNCTIONS: &[Entry] = &[
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

const fn stub(name: &'static str, count: usize) -> Entry {
    Entry(name, Method, [count, count], unsupported)
}

fn unsupported(_: &mut Machine<'_>, _: &[Val]) -> Result<Val, EvalError> {
    failed("no such overload")
}
