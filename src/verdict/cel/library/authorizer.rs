//! What may a user do? Only the API server knows: the names are here so that expressions with them compile, and the
//! variable `authorizer` is always unknown, so nothing of this is ever called.

use super::Entry;
use super::Style::Method;
use crate::cel::error::{EvalError, failed};
use crate::cel::machine::Machine;
use crate::cel::value::Val;

pub(super) const FUNCTIONS: &[Entry] = &[
    of("path", 2),
    of("group", 2),
    of("serviceAccount", 3),
    of("resource", 2),
    of("subresource", 2),
    of("namespace", 2),
    of("name", 2),
    of("fieldSelector", 2),
    of("labelSelector", 2),
    of("check", 2),
    of("allowed", 1),
    of("reason", 1),
    of("errored", 1),
    of("error", 1),
];

const fn of(name: &'static str, count: usize) -> Entry {
    Entry(name, Method, [count, count], nobody_knows)
}

fn nobody_knows(_: &mut Machine<'_>, _: &[Val]) -> Result<Val, EvalError> {
    failed("no such overload")
}
