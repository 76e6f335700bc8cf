//! Conversion of OrphanSweeps and OrphanRecords.

pub(crate) mod orphan_record;
pub(crate) mod orphan_sweep;
pub(crate) mod sweep_status;
