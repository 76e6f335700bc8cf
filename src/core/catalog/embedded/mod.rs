//! The embedded catalogue: sizes, zones and prices of all regions in the month of the data.
//!
//! `data/catalog.bin` is written by `examples/build_catalog.rs`. It serves where no live listing is at hand. Format:
//! all numbers are LEB128 varints, all texts a length and UTF-8.
//!
//! ```text
//! file     "NKC1" year month  families  gpus  sizes  regions     (each list: a count, then its entries)
//! family   text
//! gpu      manufacturer model count azure_linux(0/1)
//! size     name family(index) vcpus memory(MiB) flags max_data_disks max_nics gpu(0, or index + 1)   sorted by name
//!          flags: 1 arm64, 2 gen 1, 4 gen 2, 8 accelerated networking, 16 premium disks, 32 ephemeral OS disk,
//!                 64 encryption at host, 128 spot
//! region   name, then a list of offers                                                               sorted by name
//! offer    step on_demand spot
//!          step: (sizes skipped since the last offer) << 4 | restricted << 3 | zones, bit n - 1 for zone n of 3
//! price    0 when unknown, else mantissa << 2 | unit; unit 1 is nano-USD, 2 micro-USD, 3 milli-USD, per hour
//! ```

mod reader;

use crate::catalog::embedded::reader::{CatalogReadError, CatalogReader};
use crate::catalog::live::PriceSheet;
use crate::catalog::{
    Arch, EphemeralDisk, EphemeralDiskPlacement, Gpu, OfferedSize, RegionCatalog, SizeFacts, SizeName,
};
use crate::model::amounts::money::HourlyPrice;
use crate::model::names::{Region, VmSize, Zone};
use crate::model::support::spelling::edit_distance;
use std::collections::BTreeMap;
use std::sync::Arc;

static DATA: &[u8] = include_bytes!("../data/catalog.bin");

/// The month of a catalogue's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Month {
    /// For example 2026.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
}

impl std::fmt::Display for Month {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

/// Why data is not a catalogue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("reading the catalogue, {part} at byte {at}: {cause}; rebuild it with the example build_catalog")]
pub struct CatalogError {
    /// What was being read.
    pub part: &'static str,
    /// Where, from the beginning of the file.
    pub at: usize,
    /// What is wrong there.
    pub cause: &'static str,
}

/// A region that the catalogue does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("region {name:?} not found in the catalogue of {as_of}{}", self.suggestion())]
pub struct UnknownRegion {
    /// The name that was looked up.
    pub name: String,
    /// The month of the catalogue's data.
    pub as_of: Month,
    /// The region with the most similar name, if any is similar.
    pub nearest: Option<Region>,
}

impl UnknownRegion {
    fn suggestion(&self) -> String {
        self.nearest.as_ref().map(|region| format!("; did you mean {region}?")).unwrap_or_default()
    }
}

/// All regions and sizes. By default there are none.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    as_of: Month,
    sizes: Vec<Arc<SizeFacts>>,
    regions: BTreeMap<Region, Vec<OfferRow>>,
    /// The customer's own prices.
    sheet: PriceSheet,
}

/// A row of the file, which is decoded when its region is requested.
#[derive(Debug, Clone, Copy)]
struct OfferRow {
    size: usize,
    zones: u8,
    restricted: bool,
    on_demand: Option<HourlyPrice>,
    spot: Option<HourlyPrice>,
}

impl Catalog {
    /// The catalogue that is part of this program.
    ///
    /// # Errors
    /// [`CatalogError`] when the data is broken; a test reads it whole, so a build that ships never does.
    pub fn embedded() -> Result<Self, CatalogError> {
        Self::decode(DATA)
    }

    /// The month of the catalogue that is part of this program, without reading the rest of it.
    ///
    /// # Errors
    /// [`CatalogError`] when the data does not begin as a catalogue does.
    pub fn embedded_as_of() -> Result<Month, CatalogError> {
        let mut reader = CatalogReader::new(DATA);
        read_as_of(&mut reader).map_err(|CatalogReadError(cause)| CatalogError {
            part: reader.part(),
            at: reader.position(),
            cause,
        })
    }

    /// Reads a catalogue in the format of this module.
    ///
    /// # Errors
    /// [`CatalogError`] names the part and the byte that make no sense.
    pub fn decode(data: &[u8]) -> Result<Self, CatalogError> {
        let mut reader = CatalogReader::new(data);
        Self::read(&mut reader).map_err(|CatalogReadError(cause)| CatalogError {
            part: reader.part(),
            at: reader.position(),
            cause,
        })
    }

    fn read(reader: &mut CatalogReader<'_>) -> Result<Self, CatalogReadError> {
        let as_of = read_as_of(reader)?;
        reader.enter("families");
        let families = reader.list(|r| r.text().map(Arc::<str>::from))?;
        reader.enter("GPUs");
        let gpus = reader.list(read_gpu)?;
        reader.enter("sizes");
        let sizes = reader.list(|r| read_size(r, &families, &gpus).map(Arc::new))?;
        if !sizes.is_sorted_by(|a, b| a.name < b.name) {
            return Err(CatalogReadError("names are not in order"));
        }
        reader.enter("regions");
        let regions = reader.list(|r| read_region(r, sizes.len()))?.into_iter().collect();
        reader.enter("the end");
        reader.finish()?;
        Ok(Self { as_of, sizes, regions, sheet: PriceSheet::default() })
    }

    /// The same catalogue at the customer's own prices.
    #[must_use]
    pub fn priced_by(self, sheet: PriceSheet) -> Self {
        Self { sheet, ..self }
    }

    /// The month of the data.
    #[must_use]
    pub fn as_of(&self) -> Month {
        self.as_of
    }

    /// All sizes, sorted by name.
    #[must_use]
    pub fn sizes(&self) -> &[Arc<SizeFacts>] {
        &self.sizes
    }

    /// Facts of a size.
    #[must_use]
    pub fn size(&self, name: &VmSize) -> Option<&Arc<SizeFacts>> {
        let at = self.sizes.binary_search_by(|s| s.name.cmp(name)).ok()?;
        self.sizes.get(at)
    }

    /// All regions, sorted by name.
    pub fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.keys()
    }

    /// All regions, those with most sizes first.
    #[must_use]
    pub fn by_number_of_sizes(&self) -> Vec<Region> {
        let mut regions: Vec<(usize, &Region)> = self.regions.iter().map(|(r, offers)| (offers.len(), r)).collect();
        regions.sort_by_key(|(sizes, region)| (std::cmp::Reverse(*sizes), *region));
        regions.into_iter().map(|(_, region)| region.clone()).collect()
    }

    /// What a region offers; `None` for a region that is not in the data, see [`Catalog::nearest_region`].
    #[must_use]
    pub fn region(&self, region: &Region) -> Option<RegionCatalog> {
        let offers = self.regions.get(region)?;
        let zones: Vec<Zone> = (1..=3).map(|n| Zone::of(region, n)).collect();
        let offered = |offer: &OfferRow| {
            let in_zone = |(i, _): &(usize, &Zone)| offer.zones & (1 << i) != 0;
            Some(OfferedSize {
                facts: Arc::clone(self.sizes.get(offer.size)?),
                zones: zones.iter().enumerate().filter(in_zone).map(|(_, z)| z.clone()).collect(),
                restricted: offer.restricted,
                on_demand: offer.on_demand,
                spot: offer.spot,
            })
        };
        let sizes = offers.iter().filter_map(offered).collect();
        Some(self.sheet.applied(RegionCatalog { region: region.clone(), sizes }))
    }

    /// The region of this name.
    ///
    /// # Errors
    /// When the catalogue does not have it, with the most similar name that it has.
    pub fn find_region(&self, name: &str) -> Result<Region, UnknownRegion> {
        let found = Region::new(name).ok().filter(|region| self.regions.contains_key(region));
        found.ok_or_else(|| UnknownRegion {
            name: name.to_owned(),
            as_of: self.as_of,
            nearest: self.nearest_region(name).cloned(),
        })
    }

    /// The known region that is spelled most like `text`: `westeurope` for `West Europe` or `westeuope`.
    #[must_use]
    pub fn nearest_region(&self, text: &str) -> Option<&Region> {
        const FARTHEST: usize = 3;
        let letter = |c: &char| c.is_ascii_alphanumeric();
        let meant: String = text.chars().filter(letter).collect::<String>().to_lowercase();
        self.regions()
            .map(|region| (edit_distance(&meant, region.as_str()), region))
            .filter(|(distance, _)| *distance <= FARTHEST)
            .min()
            .map(|(_, region)| region)
    }
}

fn read_as_of(reader: &mut CatalogReader<'_>) -> Result<Month, CatalogReadError> {
    reader.enter("the header");
    if reader.take(4)? != b"NKC1" {
        return Err(CatalogReadError("it does not start with NKC1"));
    }
    Ok(Month { year: reader.number()?, month: reader.number()? })
}

fn read_gpu(reader: &mut CatalogReader<'_>) -> Result<Gpu, CatalogReadError> {
    Ok(Gpu {
        manufacturer: Arc::from(reader.text()?),
        model: Arc::from(reader.text()?),
        count: reader.number()?,
        azure_linux: reader.number::<u8>()? != 0,
    })
}

fn read_size(
    reader: &mut CatalogReader<'_>,
    families: &[Arc<str>],
    gpus: &[Gpu],
) -> Result<SizeFacts, CatalogReadError> {
    let name = VmSize::new(reader.text()?).map_err(|_| CatalogReadError("a size has no name"))?;
    let family = reader.number::<usize>()?;
    let family = families.get(family).ok_or(CatalogReadError("a size has an unknown family"))?;
    let (vcpus, memory_mib) = (reader.number()?, reader.number()?);
    let flags: u8 = reader.number()?;
    let flag = |bit: u8| flags & (1 << bit) != 0;
    let ephemeral = SizeName::parse(name.as_str()).ok().filter(|_| flag(5)).and_then(|name| local_disk(&name, vcpus));
    Ok(SizeFacts {
        name,
        family: Arc::clone(family),
        vcpus,
        memory_mib,
        arch: if flag(0) { Arch::Arm64 } else { Arch::Amd64 },
        hyperv_v1: flag(1),
        hyperv_v2: flag(2),
        accelerated_networking: flag(3),
        premium_io: flag(4),
        ephemeral,
        encryption_at_host: flag(6),
        spot_eligible: flag(7),
        max_data_disks: reader.number()?,
        max_nics: reader.number()?,
        gpu: match reader.number::<usize>()?.checked_sub(1) {
            None => None,
            Some(i) => Some(gpus.get(i).cloned().ok_or(CatalogReadError("a size has an unknown GPU"))?),
        },
    })
}

/// The local disk of a size that supports ephemeral OS disks, which the data do not have: 37.5 GiB per vCPU are what
/// those with a local disk (letter `d`) have at least, on NVMe from version 6 on. The caches of the others are not
/// counted on.
fn local_disk(name: &SizeName<'_>, vcpus: u32) -> Option<EphemeralDisk> {
    const BYTES_PER_VCPU: u64 = 75 << 29;
    let nvme = name.version().parse::<u32>().is_ok_and(|version| version >= 6);
    let placement = if nvme { EphemeralDiskPlacement::Nvme } else { EphemeralDiskPlacement::Resource };
    name.has_local_disk().then(|| EphemeralDisk { gb: u64::from(vcpus) * BYTES_PER_VCPU / 1_000_000_000, placement })
}

fn read_region(reader: &mut CatalogReader<'_>, sizes: usize) -> Result<(Region, Vec<OfferRow>), CatalogReadError> {
    let name = Region::new(reader.text()?).map_err(|_| CatalogReadError("a region's name is malformed"))?;
    let mut next = 0_usize;
    let offers = reader.list(|reader| {
        let step: usize = reader.number()?;
        let size = next.checked_add(step >> 4).filter(|at| *at < sizes);
        let size = size.ok_or(CatalogReadError("an offering refers to an unknown size"))?;
        next = size + 1;
        Ok(OfferRow {
            size,
            zones: (step & 7) as u8,
            restricted: step & 8 != 0,
            on_demand: read_price(reader)?,
            spot: read_price(reader)?,
        })
    })?;
    Ok((name, offers))
}

fn read_price(reader: &mut CatalogReader<'_>) -> Result<Option<HourlyPrice>, CatalogReadError> {
    let price: u64 = reader.number()?;
    let unit = match price & 3 {
        0 if price == 0 => return Ok(None),
        1 => 1,
        2 => 1_000,
        3 => 1_000_000,
        _ => return Err(CatalogReadError("a price has no unit")),
    };
    let nanos = i64::try_from(price >> 2).ok().and_then(|m| m.checked_mul(unit));
    nanos.map(|n| Some(HourlyPrice::from_nanos(n))).ok_or(CatalogReadError("a price is too high"))
}

#[cfg(test)]
mod tests;
