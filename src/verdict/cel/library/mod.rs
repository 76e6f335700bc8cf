//! The functions of the language, by name.
//!
//! The functions of kube-apiserver 1.36 for rules and policies: the standard ones, strings (version 2), lists (version
//! 3) and those of Kubernetes. Functions that it lacks are missing here too, such as `reverse` of a string.

pub(crate) mod convert;
pub(crate) mod function;
pub(crate) mod kubernetes;
pub(crate) mod lists;
pub(crate) mod optional;
pub(crate) mod sets;
pub(crate) mod strings;
pub(crate) mod time;

use crate::cel::eval::operators as op;
use function::CallStyle::Global;
use function::{CallStyle, Function, FunctionDef};
use kubernetes::{addresses, authorizer, named_formats, quantity, semver, url};
use strings::{format, regex};

/// Operators, by the names that the parser gives them.
const OPERATORS: &[FunctionDef] = &[
    FunctionDef("!_", Global, [1, 1], op::not),
    FunctionDef("-_", Global, [1, 1], op::negate),
    FunctionDef("_==_", Global, [2, 2], op::equal),
    FunctionDef("_!=_", Global, [2, 2], op::unequal),
    FunctionDef("_<_", Global, [2, 2], op::less),
    FunctionDef("_<=_", Global, [2, 2], op::at_most),
    FunctionDef("_>_", Global, [2, 2], op::greater),
    FunctionDef("_>=_", Global, [2, 2], op::at_least),
    FunctionDef("@in", Global, [2, 2], op::is_in),
    FunctionDef("_+_", Global, [2, 2], op::add),
    FunctionDef("_-_", Global, [2, 2], op::subtract),
    FunctionDef("_*_", Global, [2, 2], op::multiply),
    FunctionDef("_/_", Global, [2, 2], op::divide),
    FunctionDef("_%_", Global, [2, 2], op::remainder),
];

const TABLES: &[&[FunctionDef]] = &[
    OPERATORS,
    convert::FUNCTIONS,
    time::FUNCTIONS,
    strings::FUNCTIONS,
    format::FUNCTIONS,
    lists::FUNCTIONS,
    sets::FUNCTIONS,
    regex::FUNCTIONS,
    quantity::FUNCTIONS,
    url::FUNCTIONS,
    addresses::FUNCTIONS,
    semver::FUNCTIONS,
    named_formats::FUNCTIONS,
    optional::FUNCTIONS,
    authorizer::FUNCTIONS,
];

/// The function of this name for this many arguments.
pub(crate) fn find(name: &str, style: CallStyle, count: usize) -> Option<Function> {
    overloads(name, style).find(|entry| (entry.2[0]..=entry.2[1]).contains(&count)).map(|entry| entry.3)
}

/// Whether a function of this name exists, for any number of arguments.
pub(crate) fn exists(name: &str, style: CallStyle) -> bool {
    overloads(name, style).next().is_some()
}

fn overloads(name: &str, style: CallStyle) -> impl Iterator<Item = &'static FunctionDef> {
    TABLES.iter().copied().flatten().filter(move |entry| entry.0 == name && entry.1 == style)
}
