//! OrphanSweeps, OrphanRecords and findings.

pub mod attempt;
pub mod finding;
pub mod record;
pub mod report;
pub mod sweep;
