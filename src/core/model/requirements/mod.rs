//! Requirements on node labels, as in Karpenter.
//!
//! A [`Requirement`] is the set of states that one label may be in: absent, or one of a set of values.
//! [`Requirements`] holds one per key. The algebra is exact: an intersection allows just what both sides allow.

mod operator;
mod requirement;
mod set;
#[cfg(test)]
mod tests;
mod value_set;

pub use operator::{Operator, OperatorError};
pub use requirement::{Requirement, RequirementError};
pub use set::{Incompatible, Requirements};
pub use value_set::ValueSet;
