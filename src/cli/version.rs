//! `napkeeper version`: which build is this, and how old is what it knows of Azure?

use super::Outcome;
use super::output::Format;
use anyhow::Context;
use napkeeper_core::catalog::Catalog;
use serde::Serialize;
use std::io::Write;

/// Print the version, and the date of the embedded VM size catalogue.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
    catalogue: CatalogueVersion,
}

/// What is embedded of Azure's catalogue.
#[derive(Debug, Serialize)]
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
    let mut out = anstream::stdout();
    match args.output {
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&version)?)?,
        Format::Text => {
            let CatalogueVersion { as_of, regions, sizes } = &version.catalogue;
            writeln!(out, "napkeeper {}", version.version)?;
            writeln!(out, "catalogue of {as_of}: {sizes} VM sizes in {regions} regions")?;
        }
    }
    Ok(Outcome::Fine)
}
