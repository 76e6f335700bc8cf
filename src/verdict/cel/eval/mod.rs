//! Evaluates compiled expressions.

pub(crate) mod comprehension;
pub(crate) mod operators;

use crate::cel::compile::node::Node;
use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::value::{Key, Val, readable};
use operators::{index, select, select_optional};

/// The binding of a variable of the environment.
#[derive(Debug, Clone)]
pub(crate) enum Binding {
    /// Not given: no such variable, or no such field for a dotted name.
    Absent,
    /// It has a value that is not known.
    Unknown,
    Value(Val),
    /// What should have computed it failed.
    Failed(EvalError),
}

/// Computes one expression.
pub(crate) struct Evaluator<'a> {
    slots: &'a [Binding],
    names: &'a [String],
    pub(crate) locals: Vec<Val>,
    pub(crate) budget: Budget,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(names: &'a [String], slots: &'a [Binding], budget: u64) -> Self {
        Self { slots, names, locals: Vec::new(), budget: Budget::new(budget) }
    }

    pub(crate) fn eval(&mut self, node: &Node) -> Result<Val, EvalError> {
        if let Node::Const(value) = node {
            return Ok(value.clone());
        }
        self.budget.spend(1)?;
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Slot(slot) => self.slot(*slot),
            Node::Local(at) => self.local(*at),
            Node::Select(operand, field) => select(&self.eval(operand)?, field),
            Node::Has(operand, field) => self.has(operand, field),
            Node::HasSlot(slot) => self.has_slot(*slot),
            Node::OptSelect(operand, field) => select_optional(&self.eval(operand)?, field),
            Node::Index(operand, key) => index(&self.eval(operand)?, &self.eval(key)?),
            Node::OptIndex(operand, key) => operators::index_optional(&self.eval(operand)?, &self.eval(key)?),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::And(a, b) => self.logic(a, b, false),
            Node::Or(a, b) => self.logic(a, b, true),
            Node::If(parts) => self.conditional(parts),
            Node::Call(function, args) => self.call(*function, args),
            Node::OrElse(target, other, value) => self.or_else(target, other, *value),
            Node::OptMap(target, variable, body, flat) => self.opt_map(target, *variable, body, *flat),
            Node::Comprehension(node) => comprehension::eval_comprehension(self, node),
        }
    }

    fn slot(&self, slot: usize) -> Result<Val, EvalError> {
        let name = || self.names.get(slot).cloned().unwrap_or_default();
        match self.slots.get(slot) {
            Some(Binding::Value(value)) => readable(value.clone()),
            Some(Binding::Failed(error)) => Err(error.clone()),
            Some(Binding::Unknown) => Err(EvalError::Unknown(name())),
            Some(Binding::Absent) | None => failed(format!("no such attribute: {}", name())),
        }
    }

    fn local(&self, at: usize) -> Result<Val, EvalError> {
        self.locals.get(at).cloned().map_or_else(|| failed("no such variable"), readable)
    }

    fn has(&mut self, operand: &Node, field: &str) -> Result<Val, EvalError> {
        let operand = match self.eval(operand)? {
            Val::Optional(None) => return Ok(Val::Bool(false)),
            Val::Optional(Some(value)) => value.as_ref().clone(),
            value => value,
        };
        match operand {
            // Whether an unreadable field is set is unknown.
            Val::Map(map) => {
                map.field(field).cloned().map(readable).transpose().map(|found| Val::Bool(found.is_some()))
            }
            _ => no_overload(),
        }
    }

    fn has_slot(&self, slot: usize) -> Result<Val, EvalError> {
        match self.slots.get(slot) {
            Some(Binding::Unknown) => self.slot(slot),
            Some(Binding::Value(_) | Binding::Failed(_)) => Ok(Val::Bool(true)),
            Some(Binding::Absent) | None => Ok(Val::Bool(false)),
        }
    }

    fn list(&mut self, items: &[(Node, bool)]) -> Result<Val, EvalError> {
        let mut list = Vec::with_capacity(items.len());
        for (node, optional) in items {
            match (self.eval(node)?, optional) {
                (Val::Optional(value), true) => list.extend(value.map(|v| v.as_ref().clone())),
                (_, true) => return no_overload(),
                (value, false) => list.push(value),
            }
        }
        Ok(Val::list(list))
    }

    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Result<Val, EvalError> {
        let mut map: Vec<(Key, Val)> = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let key = self.eval(key)?;
            let Some(key) = key_of_literal(&key) else { return failed("unsupported key type") };
            match (self.eval(value)?, optional) {
                (Val::Optional(value), true) => map.extend(value.map(|v| (key, v.as_ref().clone()))),
                (_, true) => return no_overload(),
                (value, false) => map.push((key, value)),
            }
        }
        Ok(Val::map(map))
    }

    /// `&&` and `||`: the side that decides wins over an error on the other.
    fn logic(&mut self, a: &Node, b: &Node, decides: bool) -> Result<Val, EvalError> {
        let left = match self.eval(a) {
            Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
            Err(EvalError::Budget) => return Err(EvalError::Budget),
            left => left,
        };
        let right = match self.eval(b) {
            Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
            right => right,
        };
        match (left, right) {
            (Ok(Val::Bool(_)), Ok(Val::Bool(_))) => Ok(Val::Bool(!decides)),
            (_, Err(error @ (EvalError::Budget | EvalError::Unknown(_)))) | (Err(error), _) | (_, Err(error)) => {
                Err(error)
            }
            _ => no_overload(),
        }
    }

    fn conditional(&mut self, parts: &[Node; 3]) -> Result<Val, EvalError> {
        let [condition, yes, no] = parts;
        match self.eval(condition)? {
            Val::Bool(true) => self.eval(yes),
            Val::Bool(false) => self.eval(no),
            _ => no_overload(),
        }
    }

    fn call(&mut self, function: crate::cel::library::function::Function, args: &[Node]) -> Result<Val, EvalError> {
        match args {
            [a] => {
                let a = [self.eval(a)?];
                function(&mut self.budget, &a)
            }
            [a, b] => {
                let both = [self.eval(a)?, self.eval(b)?];
                function(&mut self.budget, &both)
            }
            _ => {
                let values = args.iter().map(|a| self.eval(a)).collect::<Result<Vec<_>, _>>()?;
                function(&mut self.budget, &values)
            }
        }
    }

    fn or_else(&mut self, target: &Node, other: &Node, value: bool) -> Result<Val, EvalError> {
        match self.eval(target)? {
            Val::Optional(Some(inner)) if value => readable(inner.as_ref().clone()),
            found @ Val::Optional(Some(_)) => Ok(found),
            Val::Optional(None) => match self.eval(other)? {
                found if value || matches!(found, Val::Optional(_)) => Ok(found),
                _ => no_overload(),
            },
            _ => no_overload(),
        }
    }

    fn opt_map(&mut self, target: &Node, variable: usize, body: &Node, flat: bool) -> Result<Val, EvalError> {
        let value = match self.eval(target)? {
            Val::Optional(Some(value)) => value.as_ref().clone(),
            Val::Optional(None) => return Ok(Val::Optional(None)),
            _ => return no_overload(),
        };
        self.bind(variable, value);
        let result = self.eval(body);
        self.locals.truncate(variable);
        match result? {
            value if !flat => Ok(Val::some(value)),
            value @ Val::Optional(_) => Ok(value),
            _ => no_overload(),
        }
    }

    /// Binds the variable of a macro. Variables are numbered by depth, so the index is at or near the end.
    pub(crate) fn bind(&mut self, variable: usize, value: Val) {
        self.locals.truncate(variable);
        self.locals.push(value);
    }
}

fn key_of_literal(value: &Val) -> Option<Key> {
    match value {
        Val::Double(_) => None,
        value => Key::of(value),
    }
}
