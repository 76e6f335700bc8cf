//! What is right and wrong about a manifest: `(manifest, old, facts) -> findings`.
//!
//! So far the structural part: syntax, kinds and versions, schemas as the API server checks them, and what the domain
//! cannot make sense of. [`rules`] is the table of all rules.

pub mod cel;
mod definitions;
mod facts;
mod finding;
mod judge;
mod kinds;
pub mod migrate;
mod names;
mod natives;
mod patterns;
pub mod policy;
mod remarks;
pub mod rules;
mod semantic;
mod structural;
mod verdict;
mod written;

pub use definitions::{Cause, Definitions, SchemaError, ServerVerdict};
pub use facts::{Facts, Lazy};
pub use finding::{Finding, Severity};
pub use patterns::PatternError;
pub use structural::{CompileError, Reason};
pub use verdict::{Report, Verdict};
