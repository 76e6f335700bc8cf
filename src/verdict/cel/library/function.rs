//! How a function of the language is declared.

use crate::cel::cost_limit::Budget;
use crate::cel::error::EvalError;
use crate::cel::value::Val;

/// A function of the language: arguments in, the receiver of a method first, one value out.
pub(crate) type Function = fn(&mut Budget, &[Val]) -> Result<Val, EvalError>;

/// How a function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStyle {
    /// `f(x)`.
    Global,
    /// `x.f()`.
    Method,
}

/// A function: its name, how it is called, how many arguments it takes at least and at most (the receiver counts).
pub(crate) struct FunctionDef(
    pub(crate) &'static str,
    pub(crate) CallStyle,
    pub(crate) [usize; 2],
    pub(crate) Function,
);
