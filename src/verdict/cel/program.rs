//! Expressions of policies: any variables, any result, and inputs that may be unknown.

use crate::cel::compile::compile;
use crate::cel::compile::node::Node;
use crate::cel::cost_limit::RULE_BUDGET;
use crate::cel::error::{CompileError, EvalError};
use crate::cel::eval::{Binding, Evaluator};
use crate::cel::value::{Val, json};

/// The variables that expressions may name, such as `object`, `request.userInfo` or `variables.team`.
///
/// A dotted name is a separate variable, and takes precedence over the field of a shorter one: `request.userInfo` can
/// be unknown while the rest of `request` is not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env(Vec<String>);

impl Env {
    /// An environment of these variables.
    pub fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        let mut env = Self::default();
        for name in names {
            env.declare(name);
        }
        env
    }

    /// Adds a variable. Programs compiled before remain valid: they do not use it.
    pub fn declare(&mut self, name: impl Into<String>) {
        let name = name.into();
        if !self.0.contains(&name) {
            self.0.push(name);
        }
    }

    /// Nothing bound yet.
    #[must_use]
    pub fn variables(&self) -> Variables {
        Variables { names: self.0.clone(), slots: vec![Binding::Absent; self.0.len()] }
    }
}

/// The bindings of the variables of an [`Env`]. A variable that is not bound does not exist: reading it fails, and
/// `has()` on a name with dots is false.
#[derive(Debug, Clone)]
pub struct Variables {
    names: Vec<String>,
    slots: Vec<Binding>,
}

impl Variables {
    /// Binds a variable to JSON. Names that are not declared are ignored.
    pub fn set(&mut self, name: &str, value: &serde_json::Value) {
        self.bind(name, Binding::Value(json::from_json(value)));
    }

    /// Binds a variable to the result of another expression: a failure is one only for those who read it.
    pub fn set_result(&mut self, name: &str, result: Result<Output, EvalError>) {
        self.bind(name, result.map_or_else(Binding::Failed, |output| Binding::Value(output.0)));
    }

    /// Declares the value of a variable unknown. Results that depend on it are [`EvalError::Unknown`].
    pub fn set_unknown(&mut self, name: &str) {
        self.bind(name, Binding::Unknown);
    }

    fn bind(&mut self, name: &str, bound: Binding) {
        let slot = self.names.iter().position(|n| n == name);
        if let Some(binding) = slot.and_then(|slot| self.slots.get_mut(slot)) {
            *binding = bound;
        }
    }
}

/// The result of an expression.
#[derive(Debug, Clone)]
pub struct Output(Val);

impl Output {
    /// The truth value, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self.0 {
            Val::Bool(b) => Some(b),
            _ => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.0 {
            Val::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value as JSON, if JSON has a form for it.
    #[must_use]
    pub fn to_json(&self) -> Option<serde_json::Value> {
        json::to_json(&self.0)
    }

    /// The name of its type in the language, such as `list` or `kubernetes.Quantity`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        self.0.type_name()
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    node: Node,
    names: Vec<String>,
}

impl Program {
    /// Compiles an expression.
    ///
    /// # Errors
    /// [`CompileError`] for a syntax error, a name that is neither a variable nor a function, and a pattern, duration
    /// or timestamp literal that is invalid. Types are not checked.
    pub fn compile(text: &str, env: &Env) -> Result<Self, CompileError> {
        Ok(Self { node: compile(text, &env.0)?, names: env.0.clone() })
    }

    /// Evaluates it.
    ///
    /// # Errors
    /// [`EvalError::Failed`] where the API server has a run-time error, [`EvalError::Unknown`] when the result depends
    /// on an input that is unknown, [`EvalError::Budget`] when it takes too many steps.
    pub fn eval(&self, variables: &Variables) -> Result<Output, EvalError> {
        Evaluator::new(&self.names, &variables.slots, RULE_BUDGET).eval(&self.node).map(Output)
    }
}
