//! Loads the shipped scenarios.

use napkeeper_api::manifests;
use napkeeper_core::catalog::Catalog;
use napkeeper_sim::scenario::{self, Manifests, Scenario, is_scenario};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// The scenario of a folder of `manifests`, and its manifests: all of them are simulated, and every step names
/// something.
///
/// # Errors
/// When the folder cannot be read, or is not a valid scenario.
pub fn shipped(folder: &str, catalog: &Catalog) -> Result<(Scenario, Manifests), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(folder);
    let loaded = manifests::load(&[path]);
    let documents: Vec<_> = loaded.files.iter().flat_map(|s| &s.parsed().documents).collect();
    let file = documents.iter().find(|d| is_scenario(d)).ok_or("there is no scenario")?;
    let scenario = scenario::read(file).map_err(|problems| format!("{problems:?}"))?;
    let others = documents.iter().copied().filter(|d| !is_scenario(d));
    let manifests = Manifests::collect(others).map_err(|problems| format!("{problems:?}"))?;
    let problems = scenario::check(&scenario, file, &manifests, catalog);
    if loaded.unreadable.is_empty() && manifests.skipped == BTreeMap::new() && problems.is_empty() {
        return Ok((scenario, manifests));
    }
    Err(format!("{folder}: {:?}, ignored {:?}, {problems:?}", loaded.unreadable, manifests.skipped).into())
}
