//! Which functions are there, by name?
//!
//! The functions of kube-apiserver 1.36 for rules and policies: the standard ones, strings (version 2), lists
//! (version 3) and those of Kubernetes. What it does not have is not here either, such as `reverse` of a string.

pub(crate) mod addresses;
mod authorizer;
pub(crate) mod base64;
pub(crate) mod convert;
pub(crate) mod floats;
pub(crate) mod format;
pub(crate) mod formats;
pub(crate) mod lists;
pub(crate) mod moment;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use super::node::Function;
use super::operators as op;

/// How a function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `f(x)`.
    Global,
    /// `x.f()`.
    Method,
}

/// A function: its name, how it is called, how many arguments it takes at least and at most (the receiver counts).
pub(crate) struct Entry(pub(crate) &'static str, pub(crate) Style, pub(crate) [usize; 2], pub(crate) Function);

use Style::Global;

/// Operators, by the names that the parser gives them.
const OPERATORS: &[Entry] = &[
    Entry("!_", Global, [1, 1], op::not),
    Entry("-_", Global, [1, 1], op::negate),
    Entry("_==_", Global, [2, 2], op::equal),
    Entry("_!=_", Global, [2, 2], op::unequal),
    Entry("_<_", Global, [2, 2], op::less),
    Entry("_<=_", Global, [2, 2], op::at_most),
    Entry("_>_", Global, [2, 2], op::greater),
    Entry("_>=_", Global, [2, 2], op::at_least),
    Entry("@in", Global, [2, 2], op::is_in),
    Entry("_+_", Global, [2, 2], op::add),
    Entry("_-_", Global, [2, 2], op::subtract),
    Entry("_*_", Global, [2, 2], op::multiply),
    Entry("_/_", Global, [2, 2], op::divide),
    Entry("_%_", Global, [2, 2], op::remainder),
];

const TABLES: &[&[Entry]] = &[
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
    formats::FUNCTIONS,
    optional::FUNCTIONS,
    authorizer::FUNCTIONS,
];

/// The function of this name for so many arguments.
pub(crate) fn find(name: &str, style: Style, count: usize) -> Option<Function> {
    overloads(name, style).find(|entry| (entry.2[0]..=entry.2[1]).contains(&count)).map(|entry| entry.3)
}

/// Is there a function of this name, for any number of arguments?
pub(crate) fn exists(name: &str, style: Style) -> bool {
    overloads(name, style).next().is_some()
}

fn overloads(name: &str, style: Style) -> impl Iterator<Item = &'static Entry> {
    TABLES.iter().copied().flatten().filter(move |entry| entry.0 == name && entry.1 == style)
}
