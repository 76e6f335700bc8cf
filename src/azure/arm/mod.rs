//! Requests to Azure Resource Manager: authentication, API versions, rate limits, pages, long-running operations, errors.

pub(crate) mod client;
pub(crate) mod error;
pub(crate) mod error_codes;
pub(crate) mod operation;
pub(crate) mod pages;
pub(crate) mod rate_limit;
pub(crate) mod resource_id;
pub(crate) mod write_scope;
