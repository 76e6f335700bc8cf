//! What OrphanSweeps and OrphanRecords say, and what a sweep finds.

pub mod attempt;
pub mod finding;
pub mod record;
pub mod report;
pub mod sweep;
