//! Tests of the webhook that need no API server.

mod agreement;
pub(crate) mod alerts;
pub(crate) mod rule_lists;
