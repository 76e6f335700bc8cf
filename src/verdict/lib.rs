//! Validates manifests: `(manifest, old, facts) -> findings`.
//!
//! - `schema` rejects what the API server would reject: unknown kinds and fields, types, rules of CRDs ([`cel`]).
//! - `semantic` finds what the API server accepts and Azure, Karpenter or GitOps tools do not.
//! - [`policy`] evaluates ValidatingAdmissionPolicies.
//! - `validator` runs all of them over files; [`migrate`] rewrites manifests of older API versions.
//!
//! [`rules`] is the table of all rules.

pub mod cel;
mod finding;
pub mod migrate;
pub mod policy;
pub mod rules;
mod schema;
mod semantic;
mod text;
mod validator;

pub use finding::{Finding, Severity};
pub use schema::crds::{ApiServerResponse, CrdSchemas, SchemaError, StatusCause};
pub use schema::structural::{CompileError, Reason};
pub use semantic::facts::{Facts, Lazy};
pub use text::re2::PatternError;
pub use validator::{Report, Validator, first_variable};
