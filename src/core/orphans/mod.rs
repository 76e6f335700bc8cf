//! Orphans: what in the node resource group belongs to nobody, how is that proven, and may it be deleted?
//!
//! The law of deleting is [`Law`]; every clause that refuses is a [`Refusal`]. Where each clause decides:
//!
//! | clause | where |
//! |---|---|
//! | 0, 1 | `ownership` |
//! | 2 | [`Links`], one table of links |
//! | 3, 4, 7 | [`judge`], [`Allowance`] |
//! | 5 | [`judge`] and [`breaker`] |
//! | 6 | [`CollectScript`], [`final_check`] |

pub mod breaker;

mod allowance;
mod collect;
mod finding;
mod law;
mod links;
mod ownership;
mod price;
mod recording;
mod sweep;
mod verdict;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod fixtures;

pub use allowance::Allowance;
pub use collect::{CollectScript, final_check, mark};
pub use finding::{Finding, Refusal, Standing};
pub use law::{Clause, Law};
pub use links::{Links, SignOfLife};
pub use price::Prices;
pub use recording::apply;
pub use sweep::{REPORTED, SweepMemory, sweep};
pub use verdict::{Assessed, Case, judge};
