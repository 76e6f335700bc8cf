//! Orphans: what in the node resource group belongs to nobody, how is that proven, and may it be deleted?
//!
//! The law of deleting is [`Law`]; every clause that refuses is a [`Refusal`].

mod finding;
mod law;

pub use finding::{Finding, Refusal, Standing};
pub use law::{Clause, Law};
