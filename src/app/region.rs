//! Which region is meant, and does the catalogue have it?

use napkeeper_core::catalog::Catalog;
use napkeeper_core::model::names::Region;

/// A region that the catalogue has.
///
/// # Errors
/// When it does not, with the nearest name that it has.
pub(crate) fn known(text: &str, catalog: &Catalog) -> anyhow::Result<Region> {
    let known = Region::new(text).ok().filter(|region| catalog.regions().any(|r| r == region));
    known.ok_or_else(|| {
        let near = catalog.nearest_region(text).map(|r| format!("; did you mean {r}?")).unwrap_or_default();
        anyhow::anyhow!("unknown region {text:?} (catalogue of {}){near}", catalog.as_of())
    })
}
