//! Writes the embedded catalogue from tables of Azure's VM sizes and prices. The same tables give the same bytes.
//!
//! ```text
//! cargo run --example build_catalog -- <tables folder> <year>-<month> src/core/catalog/data/catalog.bin
//! ```
//!
//! The folder holds `sizes.csv`, `offers.csv`, `gpus.csv` (GPU model and count by size), `gpus.json` (the GPU sizes
//! that AKS drives, and on which systems) and `location-zones.json` (the zones of each region).
//!
//! Two things in the tables are corrected. A price of zero is a gap in Azure's price list, so it becomes "unknown".
//! Where every size of a region is restricted, the subscription of the listing has no access to the region, which does
//! not concern its sizes, so none is marked.

use napkeeper_core::model::amounts::money::HourlyPrice;
use napkeeper_core::model::amounts::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;
type Row = BTreeMap<String, String>;

#[expect(clippy::disallowed_methods, reason = "a program's arguments; nothing of this is in the library")]
fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tables, month, output] = arguments.as_slice() else {
        return Err("usage: build_catalog <tables folder> <year>-<month> <output>".into());
    };
    fs::write(output, encode(Path::new(tables), month)?)?;
    Ok(())
}

fn encode(tables: &Path, month: &str) -> Outcome<Vec<u8>> {
    let (year, month) = month.split_once('-').ok_or("month: must be like 2026-08")?;
    let mut out = b"NKC1".to_vec();
    number(&mut out, year.parse()?);
    number(&mut out, month.parse()?);

    let mut sizes = rows(&tables.join("sizes.csv"))?;
    sizes.sort_by(|a, b| a.get("name").cmp(&b.get("name")));
    let mut families: Vec<&str> = sizes.iter().map(|s| cell(s, "family")).collect::<Outcome<_>>()?;
    families.sort_unstable();
    families.dedup();
    number(&mut out, families.len() as u64);
    families.iter().for_each(|family| text(&mut out, family));

    let gpus = gpus(tables)?;
    let mut kinds: Vec<&Vec<u8>> = gpus.values().collect();
    kinds.sort_unstable();
    kinds.dedup();
    number(&mut out, kinds.len() as u64);
    kinds.iter().for_each(|gpu| out.extend_from_slice(gpu));

    number(&mut out, sizes.len() as u64);
    for row in &sizes {
        let gpu = gpus.get(cell(row, "name")?);
        let gpu = gpu.map(|g| position(&kinds, &g)).transpose()?;
        size(&mut out, row, &families)?;
        number(&mut out, gpu.map_or(0, |i| i + 1));
    }
    let names: Vec<&str> = sizes.iter().map(|s| cell(s, "name")).collect::<Outcome<_>>()?;
    regions(&mut out, tables, &names)?;
    Ok(out)
}

/// The encoded GPU of each size whose GPU AKS supports and whose count is known.
fn gpus(tables: &Path) -> Outcome<BTreeMap<String, Vec<u8>>> {
    let driven: Value = serde_json::from_str(&fs::read_to_string(tables.join("gpus.json"))?)?;
    let mut gpus = BTreeMap::new();
    for row in rows(&tables.join("gpus.csv"))? {
        let name = cell(&row, "size")?;
        let Some(systems) = driven.get(name.to_lowercase()).and_then(|gpu| gpu.get("os")?.as_array()) else {
            continue;
        };
        if !systems.contains(&Value::from("ubuntu")) {
            return Err(format!("gpus.json, {name}: the format takes for granted that Ubuntu has the driver").into());
        }
        let azure_linux = systems.iter().any(|s| s == "azurelinux" || s == "azurelinux3");
        let mut gpu = Vec::new();
        text(&mut gpu, cell(&row, "manufacturer")?);
        text(&mut gpu, cell(&row, "model")?);
        number(&mut gpu, cell(&row, "count")?.parse()?);
        number(&mut gpu, u64::from(azure_linux));
        gpus.insert(name.to_owned(), gpu);
    }
    Ok(gpus)
}

fn size(out: &mut Vec<u8>, row: &Row, families: &[&str]) -> Outcome<()> {
    let generations = cell(row, "hyperv_generations")?;
    let mut flags = u64::from(cell(row, "arch")? == "Arm64");
    flags |= u64::from(generations.contains("V1")) << 1 | u64::from(generations.contains("V2")) << 2;
    let columns = ["accelerated_networking", "premium_io", "ephemeral_os_disk", "encryption_at_host", "spot_eligible"];
    for (bit, column) in (3..).zip(columns) {
        flags |= u64::from(cell(row, column)? == "1") << bit;
    }
    let memory = Quantity::parse(&format!("{}Gi", cell(row, "memory_gib")?))?.ceil();
    let mib = u64::try_from(memory)? >> 20;
    text(out, cell(row, "name")?);
    number(out, position(families, &cell(row, "family")?)?);
    number(out, cell(row, "vcpus")?.parse()?);
    number(out, mib);
    number(out, flags);
    number(out, cell(row, "max_data_disks")?.parse()?);
    number(out, cell(row, "max_nics")?.parse()?);
    Ok(())
}

fn regions(out: &mut Vec<u8>, tables: &Path, sizes: &[&str]) -> Outcome<()> {
    let zoned: Value = serde_json::from_str(&fs::read_to_string(tables.join("location-zones.json"))?)?;
    let offers = rows(&tables.join("offers.csv"))?;
    let mut regions: BTreeMap<&str, BTreeMap<u64, &Row>> = BTreeMap::new();
    for offer in &offers {
        let at = position(sizes, &cell(offer, "size")?)?;
        regions.entry(cell(offer, "region")?).or_default().insert(at, offer);
    }
    number(out, regions.len() as u64);
    for (region, offers) in regions {
        text(out, region);
        number(out, offers.len() as u64);
        let restricted = |offer: &Row| cell(offer, "restrictions").map(|r| !r.is_empty());
        let accessible = offers.values().map(|o| restricted(o)).collect::<Outcome<Vec<_>>>()?.contains(&false);
        let mut next = 0;
        for (at, offer) in offers {
            let zones = zone_bits(offer, zoned.get(region)).map_err(|e| format!("offers.csv, {region}: {e}"))?;
            let restricted = u64::from(accessible && restricted(offer)?);
            number(out, (at - next) << 4 | restricted << 3 | zones);
            number(out, price(cell(offer, "linux_usd_per_hour")?)?);
            number(out, price(cell(offer, "spot_usd_per_hour")?)?);
            next = at + 1;
        }
    }
    Ok(())
}

/// Bit n - 1 for zone n, each of which the region must have, if the region is listed at all.
fn zone_bits(offer: &Row, listed: Option<&Value>) -> Outcome<u64> {
    let mut bits = 0;
    for zone in cell(offer, "zones")?.split(';').filter(|z| !z.is_empty()) {
        let known = listed.is_none_or(|zones| zones.get(zone).is_some());
        let n: u64 = zone.parse()?;
        if !known || !(1..=3).contains(&n) {
            return Err(format!("zone {zone} of {} is none of the region's", cell(offer, "size")?).into());
        }
        bits |= 1 << (n - 1);
    }
    Ok(bits)
}

fn price(usd: &str) -> Outcome<u64> {
    if usd.is_empty() {
        return Ok(0);
    }
    let nanos = u64::try_from(HourlyPrice::parse_usd(usd)?.nanos())?;
    Ok(match nanos {
        0 => 0,
        n if n % 1_000_000 == 0 => (n / 1_000_000) << 2 | 3,
        n if n % 1_000 == 0 => (n / 1_000) << 2 | 2,
        n => n << 2 | 1,
    })
}

/// The rows of a table without quoting, by column name.
fn rows(path: &Path) -> Outcome<Vec<Row>> {
    let table = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().ok_or("empty table")?.split(',').collect();
    let row = |line: &str| -> Outcome<Row> {
        let cells: Vec<&str> = line.split(',').collect();
        if cells.len() != columns.len() || line.contains('"') {
            return Err(format!("{}: {line}: must have {} plain cells", path.display(), columns.len()).into());
        }
        Ok(columns.iter().zip(cells).map(|(k, v)| ((*k).to_owned(), v.to_owned())).collect())
    };
    lines.map(row).collect()
}

fn cell<'a>(row: &'a Row, column: &str) -> Outcome<&'a str> {
    Ok(row.get(column).ok_or_else(|| format!("no column {column}"))?)
}

fn position<T: Ord + std::fmt::Debug>(sorted: &[T], item: &T) -> Outcome<u64> {
    let at = sorted.binary_search(item).map_err(|_| format!("{item:?} is in no table"))?;
    Ok(at as u64)
}

fn number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}
