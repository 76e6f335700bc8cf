//! Garbage collection of orphaned Azure resources in the node resource group.
//!
//! The deletion rules are [`DeletionRules`](crate::model::settings::DeletionRules); every rule that refuses is a
//! [`DeletionRefusal`](crate::model::orphans::finding::DeletionRefusal). Where each rule is applied:
//!
//! | rule | where | masked by |
//! |---|---|---|
//! | `GroupManagedByUs` | `ownership::group_state` | |
//! | `LiveNodeInGroup` | `ownership::group_state` | |
//! | `NodeWithoutClaim` | `ownership::group_state` | |
//! | `OwnedByTag`, `VolumeRecord`, `VolumeIncarnation`, `RetainKeeps` | `ownership::ownership` | |
//! | `NoClaim`, `NoNode`, `NoVolume` | [`ReferenceGraph::sign_of_life`] | each other; `RecheckOwners` for objects read by name |
//! | `NoVm`, `NicServesNothing`, `DiskUnattached` | [`ReferenceGraph::sign_of_life`] | `RecheckResource`; Azure's in-use refusal |
//! | `NoAksMachine`, `NoScaleSetInstance`, `NoSnapshot` | [`ReferenceGraph::sign_of_life`] | |
//! | `AksManaged` | [`ReferenceGraph::sign_of_life`] | `RecheckResource` |
//! | `TakesAlong` | `AttachedResourceFinder::of` for each NIC and disk of a VM, and `SweepContext::undeletable_attached` for exclusions | `Approval` of VMs, where a person has looked |
//! | `SeenTwice` | `SweepContext::resource_refusals` | `OldEnough`, which no age passes in less than 10 min |
//! | `OldEnough`, `CompanionVm`, `Approval`, `Exclusion` | `SweepContext::resource_refusals` | |
//! | `ApprovalExact` | `SweepContext::approves` | |
//! | `CompleteListings` | `SweepContext::is_complete`, and `SweepContext::general_refusals` for age | `RecheckOwners` for objects read by name |
//! | `Breaker` | `SweepContext::general_refusals` | |
//! | `ReadableSweeps` | `SweepContext::general_refusals` | the executor's check at the write, which has it too |
//! | `Mode` | `SweepContext::general_refusals` | |
//! | `Pause` | `SweepContext::general_refusals` | the executor's check at the write |
//! | `Cap` | [`DeletionCap::reserve`] | |
//! | `RecheckResource`, `RecheckOwners`, `RecordFirst` | [`SweepDeleteScript::new`] | |

mod assessment;
mod audit;
pub mod breaker;
mod deletion_cap;
mod records;
mod references;
mod report;
mod sweep;

pub use assessment::attached::AttachedResources;
pub use assessment::price::VmPrices;
pub use assessment::{Assessment, SweepContext, findings_for};
pub use audit::{AuditFinding, AuditStatus, audit};
pub use deletion_cap::DeletionCap;
pub use records::apply;
pub use references::{ReferenceGraph, SignOfLife};
pub use report::discrepancies::find_discrepancies;
pub use report::ip_addresses::report_only_findings;
pub use sweep::approvals::approval_statuses as look_at_approvals;
pub use sweep::delete::{SweepDeleteScript, final_check};
pub use sweep::mark::MarkScript;
pub use sweep::pass::MAX_REPORTED_FINDINGS;
pub use sweep::rate_limiter::{DELETES_PER_MINUTE, MAX_CONCURRENT, TAGS_PER_MINUTE};
pub use sweep::{SweepMemory, sweep};

#[cfg(test)]
mod tests;
