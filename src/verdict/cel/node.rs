//! What does a compiled expression look like?

use super::error::EvalError;
use super::machine::Machine;
use super::value::Val;
use std::sync::Arc;

/// A function of the language: arguments in, the receiver of a method first, one value out.
pub(crate) type Function = fn(&mut Machine<'_>, &[Val]) -> Result<Val, EvalError>;

/// A part of an expression.
#[derive(Debug)]
pub(crate) enum Node {
    Const(Val),
    /// A variable of the environment.
    Slot(usize),
    /// A variable of a macro.
    Local(usize),
    Select(Box<Node>, Arc<str>),
    Has(Box<Node>, Arc<str>),
    /// `has()` on a dotted name that is a variable of its own.
    HasSlot(usize),
    OptSelect(Box<Node>, Arc<str>),
    Index(Box<Node>, Box<Node>),
    OptIndex(Box<Node>, Box<Node>),
    /// Items; the optional ones are true.
    List(Vec<(Node, bool)>),
    /// Keys, values; the optional ones are true.
    Map(Vec<(Node, Node, bool)>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    If(Box<[Node; 3]>),
    Call(Function, Vec<Node>),
    /// `or` and, when true, `orValue`.
    OrElse(Box<Node>, Box<Node>, bool),
    /// `optMap` and, when true, `optFlatMap`: target, the variable, body.
    OptMap(Box<Node>, usize, Box<Node>, bool),
    Comprehension(Box<Fold>),
}

/// A macro over the items of a list or the entries of a map.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) kind: FoldKind,
    pub(crate) range: Node,
    /// Where the variables are: the item or key, and with two variables the value.
    pub(crate) first: usize,
    pub(crate) second: Option<usize>,
    /// What items have to be like to take part.
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    /// `map` and `transformList`.
    Collect,
    TransformMap,
    TransformMapEntry,
    SortBy,
}
