//! `napkeeper version`: prints the version, and the date of the embedded catalogue.

use super::Outcome;
use super::output::{self, OutputFormat, TextAndJson};
use anyhow::Context;
use napkeeper_core::catalog::Catalog;
use serde::Serialize;
use serde_json::Value;
use std::io::Write;

/// Print the version, and the date of the embedded VM size catalogue.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
}

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    catalogue: CatalogueVersion,
}

/// The embedded catalogue.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CatalogueVersion {
    as_of: String,
    regions: usize,
    sizes: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let catalog = Catalog::embedded().context("cannot read the embedded catalogue")?;
    let catalogue = CatalogueVersion {
        as_of: catalog.as_of().to_string(),
        regions: catalog.regions().count(),
        sizes: catalog.sizes().len(),
    };
    let version = Version { version: env!("CARGO_PKG_VERSION"), catalogue };
    output::print(args.output, &version)?;
    Ok(Outcome::Fine)
}

impl TextAndJson for Version {
    fn write_text(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let CatalogueVersion { as_of, regions, sizes } = &self.catalogue;
        writeln!(out, "napkeeper {}", self.version)?;
        Ok(writeln!(out, "catalogue of {as_of}: {sizes} VM sizes in {regions} regions")?)
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        Ok(serde_json::to_value(self)?)
    }
}
