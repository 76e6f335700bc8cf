//! Nodes of a compiled expression.

use crate::cel::library::function::Function;
use crate::cel::value::Val;
use std::sync::Arc;

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
    Comprehension(Box<Comprehension>),
}

/// A macro over the items of a list or the entries of a map.
#[derive(Debug)]
pub(crate) struct Comprehension {
    pub(crate) kind: ComprehensionKind,
    pub(crate) range: Node,
    /// Where the variables are: the item or key, and with two variables the value.
    pub(crate) first: usize,
    pub(crate) second: Option<usize>,
    /// What items have to be like to take part.
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComprehensionKind {
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
