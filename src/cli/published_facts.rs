//! The file of the ConfigMap `napkeeper-facts`.

use anyhow::{Context, bail};
use napkeeper_api::azure_facts::PublishedFacts;
use napkeeper_api::yaml::{self, Document};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads the file of `--facts`, with its document for positions.
///
/// # Errors
/// When the file cannot be read or parsed, or is not a ConfigMap with data.
pub(crate) fn read(file: &Path) -> anyhow::Result<(PublishedFacts, Document)> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("--facts: cannot read {shown}"))?;
    let document = yaml::read(&shown, &text).documents.into_iter().next();
    let data = document.as_ref().map(|document| &document.value["data"]);
    let data = data.and_then(|data| BTreeMap::<String, String>::deserialize(data).ok());
    let (data, document) =
        data.zip(document).with_context(|| format!("--facts: {shown} is not a ConfigMap with data"))?;
    let published = PublishedFacts::read(&data).with_context(|| format!("--facts: {shown}"))?;
    match published.unreadable.first() {
        Some(broken) => bail!("--facts: {shown}: {broken}"),
        None => Ok((published, document)),
    }
}
