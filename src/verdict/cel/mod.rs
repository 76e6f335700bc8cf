//! The Common Expression Language as kube-apiserver 1.36 evaluates it: rules of definitions, and policies.
//!
//! The crate `cel` parses; everything after that is here, because rules see values by their schema (numbers, sets,
//! optional old values), because thousands of objects have to be judged in a moment, and because every evaluation has
//! a bound: `machine::RULE_BUDGET` steps for a rule and `machine::OBJECT_BUDGET` for an object.

mod compile;
mod error;
mod fold;
mod json;
mod library;
mod machine;
mod macros;
mod node;
mod opaque;
mod operators;
mod program;
mod rules;
mod same;
mod shape;
#[cfg(test)]
mod tests;
mod value;
mod walker;

pub use error::{CompileError, EvalError};
pub(crate) use library::time::{parse_duration, parse_lenient_duration};
pub use program::{Env, Output, Program, Variables};
pub use rules::{Reason, RuleError, Rules};
pub use same::Pair;
pub use walker::CelFinding;
