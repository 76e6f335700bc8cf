//! Reports of a sweep besides its findings.

pub(in crate::orphans) mod discrepancies;
pub(in crate::orphans) mod ip_addresses;
pub(in crate::orphans) mod refused_orphans;
