//! What is right and wrong about a manifest: `(manifest, old, facts) -> findings`.
//!
//! So far the structural part: syntax, kinds and versions, schemas as the API server checks them, and what the domain
//! cannot make sense of. [`rules`] is the table of all rules.

pub mod cel;
mod facts;
mod finding;
mod kinds;
mod patterns;
pub mod policy;
pub mod rules;
mod schemas;
mod semantic;
mod structural;
mod verdict;

pub use facts::Facts;
pub use finding::{Finding, Severity};
pub use schemas::SchemaError;
pub use verdict::{Report, Verdict};
