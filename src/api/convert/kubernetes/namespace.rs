//! Conversion of Namespaces.

use crate::convert::common;
use crate::convert::violations::Violations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use napkeeper_core::model::cluster::pod::Labels;
use napkeeper_core::model::labels;
use napkeeper_core::model::names::Namespace;

/// Reads a Namespace, of which only metadata matter.
///
/// # Errors
/// [`Violations`]: all that is wrong with it.
pub fn namespace(metadata: &ObjectMeta) -> Result<(Namespace, Labels), Violations> {
    let mut found = Violations::default();
    let name = common::name(metadata, &mut found, |n| Namespace::new(n));
    let built = name.map(|name| {
        let mut all = common::labels(metadata.labels.as_ref());
        all.insert(labels::interned(labels::NAMESPACE_NAME), name.text());
        (name, all)
    });
    found.finish(built)
}
