//! Garbage collection of orphaned Azure resources in the node resource group.
//!
//! The deletion rules are [`DeletionRules`](crate::model::settings::DeletionRules); every rule that refuses is a [`DeletionRefusal`](crate::model::orphans::finding::DeletionRefusal). Where each rule is applied:
//!
//! | rule | where | masked by |
//! |---|---|---|
//! | `GroupManagedByUs` | `ownership::group` | |
//! | `LiveNodeInGroup` | `ownership::group` | `Breaker` |
//! | `OwnedByTag`, `VolumeRecord`, `RetainKeeps` | `ownership::ownership` | |
//! | `NoClaim`, `NoNode`, `NoVolume` | [`ReferenceGraph::sign_of_life`] | each other; `RecheckOwners` for what it reads by name |
//! | `NoVm`, `NicServesNothing`, `DiskUnattached` | [`ReferenceGraph::sign_of_life`] | `RecheckResource`; Azure's in-use refusal |
//! | `NoAksMachine`, `NoScaleSetInstance`, `NoSnapshot` | [`ReferenceGraph::sign_of_life`] | |
//! | `AksManaged` | [`ReferenceGraph::sign_of_life`] | `RecheckResource` |
//! | `TakesAlong` | `AttachedResourceFinder::of` for each NIC and disk of a VM, and `SweepContext::undeletable_attached` for exclusions | `Approval` of VMs, where a person has looked |
//! | `SeenTwice` | `SweepContext::resource_refusals` | `OldEnough`, which no age passes in less than 10 min |
//! | `OldEnough`, `CompanionVm`, `Approval`, `Exclusion` | `SweepContext::resource_refusals` | |
//! | `ApprovalExact` | `SweepContext::approves` | |
//! | `CompleteListings` | `SweepContext::is_complete`, and `SweepContext::general_refusals` for age | `RecheckOwners` for what it reads by name |
//! | `Breaker` | `SweepContext::general_refusals` | `LiveNodeInGroup` when no Node is left |
//! | `Mode` | `SweepContext::general_refusals` | |
//! | `Pause` | `SweepContext::general_refusals` | the executor's check at the write |
//! | `Cap` | [`DeletionBudget::reserve`] | |
//! | `RecheckResource`, `RecheckOwners`, `RecordFirst` | [`SweepDeleteScript::new`] | |

pub mod breaker;

mod approvals;
mod assessment;
mod attached;
mod audit;
mod back_references;
mod deletion_budget;
mod deletion_order;
mod denial;
mod discrepancies;
mod evidence;
mod in_use;
mod index;
mod mark;
mod ownership;
mod price;
mod rate_limiter;
mod recording;
mod reference_graph;
mod report_only;
mod summary;
mod sweep;
mod sweep_delete;
mod sweep_pass;

pub use approvals::approval_statuses as look_at_approvals;
pub use assessment::{Assessment, SweepContext, findings_for};
pub use attached::AttachedResources;
pub use audit::{AuditFinding, AuditStatus, audit};
pub use deletion_budget::DeletionBudget;
pub use discrepancies::find_discrepancies;
pub use mark::MarkScript;
pub use price::VmPrices;
pub use rate_limiter::{DELETES_PER_MINUTE, MAX_CONCURRENT, TAGS_PER_MINUTE};
pub use recording::apply;
pub use reference_graph::{ReferenceGraph, SignOfLife};
pub use report_only::report_only_findings;
pub use sweep::{SweepMemory, sweep};
pub use sweep_delete::{SweepDeleteScript, final_check};
pub use sweep_pass::MAX_REPORTED_FINDINGS;

#[cfg(test)]
mod tests;
