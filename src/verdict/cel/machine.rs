//! What is the value of a compiled expression?

use super::error::{EvalError, failed, no_overload};
use super::fold;
use super::node::Node;
use super::operators::{index, select, select_optional};
use super::value::{Key, Val};

/// Steps that one rule may take: twice the cost limit of kube-apiserver for a call, since ours are counted a little
/// differently and an expression that passes there must pass here.
pub(crate) const RULE_BUDGET: u64 = 2_000_000;

/// Steps that all rules of an object may take together: twice the limit of kube-apiserver, likewise.
pub(crate) const OBJECT_BUDGET: u64 = 20_000_000;

/// What a variable of the environment is bound to.
#[derive(Debug, Clone)]
pub(crate) enum Bound {
    /// Not given: no such variable, or no such field for a dotted name.
    Absent,
    /// There is something, and nobody knows what.
    Unknown,
    Value(Val),
    /// What should have computed it failed.
    Failed(EvalError),
}

/// Computes one expression.
pub(crate) struct Machine<'a> {
    slots: &'a [Bound],
    names: &'a [String],
    pub(crate) locals: Vec<Val>,
    remaining_budget: u64,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(names: &'a [String], slots: &'a [Bound], budget: u64) -> Self {
        Self { slots, names, locals: Vec::new(), remaining_budget: budget }
    }

    /// Steps that are left.
    pub(crate) fn remaining_budget(&self) -> u64 {
        self.remaining_budget
    }

    /// Takes steps.
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), EvalError> {
        match self.remaining_budget.checked_sub(u64::try_from(steps).unwrap_or(u64::MAX)) {
            Some(left) => {
                self.remaining_budget = left;
                Ok(())
            }
            None => {
                self.remaining_budget = 0;
                Err(EvalError::Budget)
            }
        }
    }

    /// Takes the steps of walking over a text or the items of a list: one for ten, as kube-apiserver counts it.
    pub(crate) fn spend_for_length(&mut self, length: usize) -> Result<(), EvalError> {
        self.spend(length / 10 + 1)
    }

    pub(crate) fn eval(&mut self, node: &Node) -> Result<Val, EvalError> {
        if let Node::Const(value) = node {
            return Ok(value.clone());
        }
        self.spend(1)?;
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Slot(slot) => self.slot(*slot),
            Node::Local(at) => self.local(*at),
            Node::Select(operand, field) => select(&self.eval(operand)?, field),
            Node::Has(operand, field) => self.has(operand, field),
            Node::HasSlot(slot) => self.has_slot(*slot),
            Node::OptSelect(operand, field) => select_optional(&self.eval(operand)?, field),
            Node::Index(operand, key) => index(&self.eval(operand)?, &self.eval(key)?),
            Node::OptIndex(operand, key) => super::operators::index_optional(&self.eval(operand)?, &self.eval(key)?),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::And(a, b) => self.logic(a, b, false),
            Node::Or(a, b) => self.logic(a, b, true),
            Node::If(parts) => self.conditional(parts),
            Node::Call(function, args) => self.call(*function, args),
            Node::OrElse(target, other, value) => self.or_else(target, other, *value),
            Node::OptMap(target, variable, body, flat) => self.opt_map(target, *variable, body, *flat),
            Node::Comprehension(fold) => fold::eval_comprehension(self, fold),
        }
    }

    fn slot(&self, slot: usize) -> Result<Val, EvalError> {
        let name = || self.names.get(slot).cloned().unwrap_or_default();
        match self.slots.get(slot) {
            Some(Bound::Value(value)) => readable(value.clone()),
            Some(Bound::Failed(error)) => Err(error.clone()),
            Some(Bound::Unknown) => Err(EvalError::Unknown(name())),
            Some(Bound::Absent) | None => failed(format!("no such attribute: {}", name())),
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
            // What cannot be read is neither there nor absent.
            Val::Map(map) => {
                map.field(field).cloned().map(readable).transpose().map(|found| Val::Bool(found.is_some()))
            }
            _ => no_overload(),
        }
    }

    fn has_slot(&self, slot: usize) -> Result<Val, EvalError> {
        match self.slots.get(slot) {
            Some(Bound::Unknown) => self.slot(slot),
            Some(Bound::Value(_) | Bound::Failed(_)) => Ok(Val::Bool(true)),
            Some(Bound::Absent) | None => Ok(Val::Bool(false)),
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

    fn call(&mut self, function: super::node::Function, args: &[Node]) -> Result<Val, EvalError> {
        match args {
            [a] => {
                let a = [self.eval(a)?];
                function(self, &a)
            }
            [a, b] => {
                let both = [self.eval(a)?, self.eval(b)?];
                function(self, &both)
            }
            _ => {
                let values = args.iter().map(|a| self.eval(a)).collect::<Result<Vec<_>, _>>()?;
                function(self, &values)
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

    /// Binds the variable of a macro. Variables are numbered by depth, so the place is the end or one of the last.
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

/// The value, or the error of reading it.
pub(crate) fn readable(value: Val) -> Result<Val, EvalError> {
    match value {
        Val::Invalid(why) => failed(why.as_ref()),
        value => Ok(value),
    }
}
