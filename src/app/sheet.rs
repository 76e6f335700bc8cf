//! The customer's price sheet: which file is it, and what is wrong with it?

use anyhow::{Context, bail};
use napkeeper_api::config::Cluster;
use napkeeper_core::facts::PriceSheet;
use std::path::Path;

/// The price sheet of a cluster, whose file is named from the folder of `napkeeper.yaml`; one that changes nothing where
/// the cluster has none.
///
/// # Errors
/// When the file cannot be read, or anything in it is wrong: each problem with file, line and column.
pub(crate) fn of_cluster(folder: &Path, cluster: &Cluster) -> anyhow::Result<PriceSheet> {
    let Some(file) = &cluster.price_sheet else { return Ok(PriceSheet::default()) };
    read(&folder.join(file)).with_context(|| format!("priceSheet of cluster {:?}", cluster.name))
}

/// A price sheet.
///
/// # Errors
/// As [`of_cluster`].
pub(crate) fn read(file: &Path) -> anyhow::Result<PriceSheet> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {shown}"))?;
    PriceSheet::parse(&text).or_else(|problems| {
        let lines: Vec<String> = problems.iter().map(|problem| format!("{shown}:{problem}")).collect();
        bail!("{}", lines.join("\n"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_has_file_line_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let text = "region,size,capacityType,usdPerHour\n*,*,spot,x\n*,*,dear,1\n";
        std::fs::write(folder.path().join("prices.csv"), text).unwrap();
        let sheet = |file: Option<&str>| {
            let cluster =
                Cluster { name: "prod".to_owned(), price_sheet: file.map(str::to_owned), ..Cluster::default() };
            of_cluster(folder.path(), &cluster).map_err(|e| format!("{e:#}"))
        };
        assert!(sheet(None).unwrap().is_empty());
        let error = sheet(Some("prices.csv")).unwrap_err();
        for part in ["priceSheet of cluster \"prod\"", "prices.csv:2:10: amount \"x\"", "prices.csv:3:5: capacity type"]
        {
            assert!(error.contains(part), "{error} lacks {part}");
        }
        assert!(sheet(Some("none.csv")).unwrap_err().contains("none.csv"));
    }
}
