//! Tests of the webhook that need no API server.

mod agreement;
mod alerts;
pub(crate) mod rule_lists;
