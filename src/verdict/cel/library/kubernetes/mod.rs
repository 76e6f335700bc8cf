//! Functions that Kubernetes adds to the language: addresses, named formats, quantities, versions, URLs.

pub(crate) mod addresses;
pub(crate) mod authorizer;
pub(crate) mod base64;
pub(crate) mod named_formats;
pub(crate) mod quantity;
pub(crate) mod semver;
pub(crate) mod url;
