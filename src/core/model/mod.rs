//! The domain model: names, amounts, requirements, settings, errors, Kubernetes and Azure objects, and OrphanSweeps.

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
