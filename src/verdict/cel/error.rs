//! Errors of compiling and evaluating expressions.

use std::fmt;

/// Why an expression has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvalError {
    /// It fails, as it would fail on the API server: an index out of range, an invalid number, an overflow.
    Failed(String),
    /// It reads this input, which is unknown here.
    Unknown(String),
    /// It needs more steps than it may take; the API server has such a limit too.
    Budget,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(message) => f.write_str(message),
            Self::Unknown(name) => write!(f, "{name} is not available here"),
            Self::Budget => f.write_str("exceeds the cost limit of an expression; use shorter lists or strings"),
        }
    }
}

impl std::error::Error for EvalError {}

/// Why an expression cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(pub(crate) String);

pub(crate) fn failed<T>(message: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError::Failed(message.into()))
}

/// The error of a function, operator or macro on values that it does not take.
pub(crate) fn no_overload<T>() -> Result<T, EvalError> {
    failed("no such overload")
}
