//! The values of the domain: names, amounts, requirements, settings, errors, and what Kubernetes, Azure and OrphanSweeps
//! say.

pub mod amounts;
pub mod azure;
pub mod cluster;
pub mod cron;
pub mod errors;
pub mod labels;
pub mod names;
pub mod orphans;
pub mod requirements;
pub mod settings;
pub mod support;
