//! Orphans: what in the node resource group belongs to nobody, how is that proven, and may it be deleted?
//!
//! The law of deleting is [`Law`]; every clause that refuses is a [`Refusal`]. Where each clause decides:
//!
//! | clause | where | masked by |
//! |---|---|---|
//! | `GroupManagedByUs` | `ownership::group` | |
//! | `LiveNodeInGroup` | `ownership::group` | `Breaker` |
//! | `OwnedByTag`, `VolumeRecord`, `RetainKeeps` | `ownership::ownership` | |
//! | `NoClaim`, `NoNode`, `NoVolume` | [`Links::life`] | each other; `RecheckOwners` for what it reads by name |
//! | `NoVm`, `NicServesNothing`, `DiskUnattached` | [`Links::life`] | `RecheckResource`; Azure's in-use refusal |
//! | `NoMachine`, `NoInstance`, `NoSnapshot` | [`Links::life`] | |
//! | `AksManaged` | [`Links::life`] | `RecheckResource` |
//! | `TakesAlong` | `Looker::of` for each NIC and disk of a VM, and `Case::kept_part` for exclusions | `Approval` of VMs, where a person has looked |
//! | `SeenTwice` | `Case::particular` | `OldEnough`, which no age passes in less than 10 min |
//! | `OldEnough`, `CompanionVm`, `Approval`, `Exclusion` | `Case::particular` | |
//! | `ApprovalExact` | `Case::approves` | |
//! | `WholeListings` | `Case::is_whole`, and `Case::general` for age | `RecheckOwners` for what it reads by name |
//! | `Breaker` | `Case::general` | `LiveNodeInGroup` when no Node is left |
//! | `Mode` | `Case::general` | |
//! | `Pause` | `Case::general` | the executor's check at the write |
//! | `Cap` | [`Allowance::take`] | |
//! | `RecheckResource`, `RecheckOwners`, `RecordFirst` | [`CollectScript::new`] | |

pub mod breaker;

mod allowance;
mod approvals;
mod collect;
mod denial;
mod evidence;
mod index;
mod links;
mod mark;
mod order;
mod outlook;
mod ownership;
mod pace;
mod parts;
mod pass;
mod pointers;
mod price;
mod recording;
mod report_only;
mod reserved;
mod reverse;
mod sweep;
mod verdict;

pub use allowance::Allowance;
pub use approvals::look as look_at_approvals;
pub use collect::{CollectScript, final_check};
pub use links::{Links, SignOfLife};
pub use mark::MarkScript;
pub use pace::{AT_ONCE, DELETES_PER_MINUTE, TAGS_PER_MINUTE};
pub use parts::Parts;
pub use pass::REPORTED;
pub use price::Prices;
pub use recording::apply;
pub use report_only::report_only;
pub use reverse::reverse;
pub use sweep::{SweepMemory, sweep};
pub use verdict::{Assessed, Case, judge};

#[cfg(test)]
mod tests;
