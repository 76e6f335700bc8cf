//! Finds and reads the customer's price sheet.

use crate::config_file;
use anyhow::{Context, bail};
use napkeeper_api::config::{self, Cluster};
use napkeeper_core::catalog::live::{PriceSheet, SheetLine, SheetProblem};
use std::path::Path;

/// The price sheet of a cluster, whose path is relative to the folder of `napkeeper.yaml`; an empty one if it has none.
///
/// # Errors
/// When the file cannot be read, or anything in it is wrong: each problem with file, line and the column's name.
pub fn of_cluster(folder: &Path, cluster: &Cluster) -> anyhow::Result<PriceSheet> {
    let Some(file) = &cluster.price_sheet else { return Ok(PriceSheet::default()) };
    read(&folder.join(file)).with_context(|| format!("priceSheet of cluster {:?}", cluster.name))
}

/// The price sheet of the cluster of this name in `napkeeper.yaml`, or the one that all of its clusters share.
///
/// # Errors
/// As [`of_cluster`]; when there is no such cluster, or clusters have different sheets and none is named.
pub fn of_repository(file: &Path, name: Option<&str>) -> anyhow::Result<PriceSheet> {
    let shown = file.display().to_string();
    let config = config_file::read(file)?;
    let folder = file.parent().unwrap_or_else(|| Path::new("."));
    let cluster = match config.clusters.as_slice() {
        [] => return Ok(PriceSheet::default()),
        [first, others @ ..] if name.is_none() => {
            let other = others.iter().find(|other| other.price_sheet != first.price_sheet);
            if let Some(other) = other {
                bail!(
                    "{shown}: clusters {} and {} have different price sheets; select one with --cluster, or pass a \
                     file with --price-sheet",
                    first.name,
                    other.name
                );
            }
            first
        }
        _ => config_file::select_cluster(&shown, &config, name)?,
    };
    of_cluster(folder, cluster)
}

/// The price sheet of this file, else that of the repository that contains the path. The quick start and the standard
/// input are in none.
///
/// # Errors
/// As [`of_cluster`]; when a cluster is named and there is no `napkeeper.yaml`.
pub fn find(file: Option<&Path>, path: Option<&Path>, cluster: Option<&str>) -> anyhow::Result<PriceSheet> {
    if let Some(file) = file {
        return read(file);
    }
    let path = path.filter(|path| *path != Path::new("-"));
    match (path.and_then(config::find), cluster) {
        (Some(file), cluster) => of_repository(&file, cluster),
        (None, Some(name)) => bail!("--cluster {name}: no {} found in PATH or its parent folders", config::FILE_NAME),
        (None, None) => Ok(PriceSheet::default()),
    }
}

/// A price sheet.
///
/// # Errors
/// As [`of_cluster`].
pub fn read(file: &Path) -> anyhow::Result<PriceSheet> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read the price sheet {shown}"))?;
    parse(&text).or_else(|problems| {
        let lines: Vec<String> = problems.iter().map(|problem| format!("{shown}:{problem}")).collect();
        bail!("{}", lines.join("\n"))
    })
}

fn parse(text: &str) -> Result<PriceSheet, Vec<SheetProblem>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (mut parsed, mut problems) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        match fields(line) {
            Ok(fields) => parsed.push(SheetLine { number, fields }),
            Err(message) => problems.push(SheetProblem { line: number, column: None, message }),
        }
    }
    // Lines that cannot be split do not hide the problems of the others.
    match PriceSheet::of(parsed) {
        Ok(sheet) if problems.is_empty() => Ok(sheet),
        Ok(_) => Err(problems),
        Err(more) => {
            problems.extend(more);
            problems.sort_by_key(|problem| problem.line);
            Err(problems)
        }
    }
}

/// The fields of a line. One line at a time, for two reasons: no field of a sheet has line breaks, so an unclosed
/// quotation mark affects only its own line; and the reader's line numbers leave out comments.
fn fields(line: &str) -> Result<Vec<String>, String> {
    if line.matches('"').count() % 2 == 1 {
        return Err("unclosed quotation mark".to_owned());
    }
    let mut reader = csv::ReaderBuilder::new().has_headers(false).trim(csv::Trim::All).from_reader(line.as_bytes());
    let mut record = csv::StringRecord::new();
    reader.read_record(&mut record).map_err(|error| error.to_string())?;
    Ok(record.iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_the_prices_of_the_cluster_that_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.csv", "region,size,capacityType,discountPercent\n*,*,*,50\n");
        let file = folder.path().join("napkeeper.yaml");
        let read = |text: &str, name| {
            write("napkeeper.yaml", text);
            of_repository(&file, name).map(|sheet| !sheet.is_empty()).map_err(|e| format!("{e:#}"))
        };
        assert_eq!(read("clusters: []\n", None), Ok(false));
        assert_eq!(read("clusters:\n- {name: a, priceSheet: a.csv}\n", None), Ok(true));
        let two = "clusters:\n- {name: a, priceSheet: a.csv}\n- {name: b}\n";
        assert!(read(two, None).unwrap_err().contains("clusters a and b have different price sheets"));
        assert_eq!((read(two, Some("a")), read(two, Some("b"))), (Ok(true), Ok(false)));
        assert!(read(two, Some("c")).unwrap_err().contains("cluster \"c\" not found"));
        let same = "clusters:\n- {name: a, priceSheet: a.csv}\n- {name: b, priceSheet: a.csv}\n";
        assert_eq!(read(same, None), Ok(true));
    }

    #[test]
    fn each_problem_has_file_line_and_the_name_of_the_column() {
        let folder = tempfile::tempdir().unwrap();
        let text = "\u{feff}# from finance\r\nregion,\"size\",capacityType,usdPerHour\n\n*,*, spot \
                    ,x\n*,\"*,spot,1\n*,*,dear,1\n";
        std::fs::write(folder.path().join("prices.csv"), text).unwrap();
        let sheet = |file: Option<&str>| {
            let cluster =
                Cluster { name: "prod".to_owned(), price_sheet: file.map(str::to_owned), ..Cluster::default() };
            of_cluster(folder.path(), &cluster).map_err(|e| format!("{e:#}"))
        };
        assert!(sheet(None).unwrap().is_empty());
        let error = sheet(Some("prices.csv")).unwrap_err();
        for part in [
            "priceSheet of cluster \"prod\"",
            "prices.csv:4: usdPerHour: amount \"x\"",
            "prices.csv:5: unclosed quotation mark",
            "prices.csv:6: capacityType: capacity type",
        ] {
            assert!(error.contains(part), "{error} lacks {part}");
        }
        assert!(sheet(Some("none.csv")).unwrap_err().contains("none.csv"));
    }
}
