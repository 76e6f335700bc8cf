//! Text formats that Kubernetes and Go define: object names and regular expressions.

pub(crate) mod names;
pub(crate) mod re2;
