//! The Common Expression Language as kube-apiserver 1.36 evaluates it: rules of definitions, and policies.
//!
//! The crate `cel` parses; everything after that is here, because rules see values by their schema (numbers, sets,
//! list maps), because thousands of objects have to be judged in a moment, and because every evaluation has
//! a bound: `cost_limit::RULE_BUDGET` steps for a rule and `cost_limit::OBJECT_BUDGET` for an object.

mod compile;
mod cost_limit;
mod crd_rules;
mod error;
mod eval;
mod library;
mod program;
#[cfg(test)]
mod tests;
mod value;

pub use crd_rules::check::CelFinding;
pub use crd_rules::{Reason, RuleError, Rules};
pub use error::{CompileError, EvalError};
pub(crate) use library::time::{parse_duration, parse_lenient_duration};
pub use program::{Env, Output, Program, Variables};
