//! VM sizes from rows of Azure's Resource SKUs listing.

use crate::catalog::{Arch, EphemeralDisk, EphemeralDiskPlacement, Gpu, OfferedSize, SizeFacts};
use crate::model::names::{Region, VmSize, Zone};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A row of the listing, of one VM size in one region, as Azure returns it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SkuRow {
    /// Name, for example `Standard_D4s_v5`.
    pub name: String,
    /// Quota family, exactly as Azure spells it.
    pub family: String,
    /// Values of capabilities, by name.
    pub capabilities: BTreeMap<String, String>,
    /// Zones of the region that have it, as `1`.
    pub zones: BTreeSet<String>,
    /// Zones that the subscription may not use it in (restrictions of type `Zone`).
    pub restricted_zones: BTreeSet<String>,
    /// The subscription may not launch it in the region at all (a restriction of type `Location`).
    pub restricted: bool,
}

/// Why a row cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkuError {
    /// It has no name.
    #[error("a size has no name")]
    NoName,
    /// A capability that every size has is missing.
    #[error("{size}: missing capability {capability}")]
    Missing {
        /// The size.
        size: String,
        /// The capability.
        capability: &'static str,
    },
    /// A capability is no number.
    #[error("{size}: capability {capability} is not a number: {value:?}")]
    Number {
        /// The size.
        size: String,
        /// The capability.
        capability: &'static str,
        /// Its value.
        value: String,
    },
}

impl SkuRow {
    /// The size of the row, without prices. `gpus` names the GPUs that AKS supports: the listing has only their number.
    ///
    /// A size whose zones are all restricted has no zones: it can still be launched as regional.
    ///
    /// # Errors
    /// [`SkuError`] where a capability that counts is missing or unreadable.
    pub fn read(&self, region: &Region, gpus: impl Fn(&VmSize) -> Option<Gpu>) -> Result<OfferedSize, SkuError> {
        let name = VmSize::new(&self.name).map_err(|_| SkuError::NoName)?;
        let gpu = gpus(&name).map(|known| self.counted(known));
        let zones = self.zones.difference(&self.restricted_zones);
        let zones = zones.filter_map(|zone| zone.parse().ok()).map(|n: u8| Zone::of(region, n)).collect();
        let facts = SizeFacts {
            family: Arc::from(self.family.as_str()),
            vcpus: self.number("vCPUs")?,
            memory_mib: self.memory_mib()?,
            arch: if self.text("CpuArchitectureType").eq_ignore_ascii_case("arm64") {
                Arch::Arm64
            } else {
                Arch::Amd64
            },
            hyperv_v1: self.generation("V1"),
            hyperv_v2: self.generation("V2"),
            max_data_disks: self.number_or("MaxDataDiskCount", 0)?,
            max_nics: self.number_or("MaxNetworkInterfaces", 1)?,
            accelerated_networking: self.flag("AcceleratedNetworkingEnabled"),
            premium_io: self.flag("PremiumIO"),
            ephemeral: self.ephemeral(),
            encryption_at_host: self.flag("EncryptionAtHostSupported"),
            spot_eligible: self.flag("LowPriorityCapable"),
            gpu,
            name,
        };
        Ok(OfferedSize { facts: Arc::new(facts), zones, restricted: self.restricted, on_demand: None, spot: None })
    }

    fn text(&self, capability: &str) -> &str {
        self.capabilities.get(capability).map_or("", String::as_str)
    }

    fn flag(&self, capability: &str) -> bool {
        self.text(capability).eq_ignore_ascii_case("true")
    }

    /// Sizes that name no generation are old ones, which boot the first.
    fn generation(&self, which: &str) -> bool {
        match self.text("HyperVGenerations") {
            "" => which == "V1",
            all => all.split([',', ';']).any(|g| g.trim().eq_ignore_ascii_case(which)),
        }
    }

    fn number(&self, capability: &'static str) -> Result<u32, SkuError> {
        match self.text(capability) {
            "" => Err(SkuError::Missing { size: self.name.clone(), capability }),
            value => value.parse().map_err(|_| self.no_number(capability)),
        }
    }

    fn number_or(&self, capability: &'static str, otherwise: u32) -> Result<u32, SkuError> {
        if self.capabilities.contains_key(capability) { self.number(capability) } else { Ok(otherwise) }
    }

    fn no_number(&self, capability: &'static str) -> SkuError {
        SkuError::Number { size: self.name.clone(), capability, value: self.text(capability).to_owned() }
    }

    /// `MemoryGB` is in GiB, with a fraction of some sizes (`218.75`).
    fn memory_mib(&self) -> Result<u64, SkuError> {
        const CAPABILITY: &str = "MemoryGB";
        let text = self.text(CAPABILITY);
        if text.is_empty() {
            return Err(SkuError::Missing { size: self.name.clone(), capability: CAPABILITY });
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let thousandths = format!("{:0<3}", fraction.get(..fraction.len().min(3)).unwrap_or_default());
        let parsed = whole.parse::<u64>().ok().zip(thousandths.parse::<u64>().ok());
        let mib = parsed.and_then(|(w, t)| w.checked_mul(1024)?.checked_add(t * 1024 / 1000));
        mib.ok_or_else(|| self.no_number(CAPABILITY))
    }

    /// The GPU with the number that Azure lists, if any.
    fn counted(&self, known: Gpu) -> Gpu {
        let count = self.text("GPUs").parse().ok().filter(|n| *n > 0);
        Gpu { count: count.unwrap_or(known.count), ..known }
    }

    /// The local disk for an ephemeral OS disk: NVMe before cache before temporary disk, whichever is there first,
    /// however small (karpenter-provider-azure, `instancetypes.go`).
    fn ephemeral(&self) -> Option<EphemeralDisk> {
        let amount = |capability: &str| self.text(capability).parse::<u64>().ok().filter(|n| *n > 0);
        let mib = |capability: &str| amount(capability).and_then(|n| n.checked_mul(1 << 20));
        let placements = self.text("SupportedEphemeralOSDiskPlacements");
        let on_nvme = || placements.split(',').any(|p| p.trim().eq_ignore_ascii_case("NvmeDisk"));
        let nvme = || mib("NvmeDiskSizeInMiB").filter(|_| on_nvme()).map(|b| (EphemeralDiskPlacement::Nvme, b));
        let cache = || amount("CachedDiskBytes").map(|b| (EphemeralDiskPlacement::Cache, b));
        let resource = || mib("MaxResourceVolumeMB").map(|b| (EphemeralDiskPlacement::Resource, b));
        let (placement, bytes) =
            nvme().or_else(cache).or_else(resource).filter(|_| self.flag("EphemeralOSDiskSupported"))?;
        Some(EphemeralDisk { gb: bytes / 1_000_000_000, placement })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(capabilities: &[(&str, &str)]) -> SkuRow {
        let own = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        SkuRow {
            name: "Standard_D4s_v5".to_owned(),
            family: "standardDSv5Family".to_owned(),
            capabilities: capabilities.iter().map(own).collect(),
            zones: ["1", "2", "3"].map(str::to_owned).into(),
            ..SkuRow::default()
        }
    }

    fn read(row: &SkuRow) -> Result<OfferedSize, SkuError> {
        row.read(&Region::new("westeurope").unwrap(), |_| None)
    }

    #[test]
    fn errors_name_size_and_capability() {
        let error = |caps: &[(&str, &str)]| read(&row(caps)).unwrap_err().to_string();
        assert_eq!(error(&[("MemoryGB", "16")]), "Standard_D4s_v5: missing capability vCPUs");
        assert_eq!(
            error(&[("vCPUs", "4"), ("MemoryGB", "lots")]),
            "Standard_D4s_v5: capability MemoryGB is not a number: \"lots\""
        );
        assert!(error(&[("vCPUs", "-4"), ("MemoryGB", "16")]).contains("\"-4\""));
    }

    #[test]
    fn fractions_of_memory_are_exact_and_flags_compare_without_case() {
        let size = read(&row(&[("vCPUs", "8"), ("MemoryGB", "218.75"), ("LowPriorityCapable", "TRUE")])).unwrap();
        assert_eq!((size.facts.memory_mib, size.facts.spot_eligible), (224_000, true));
        assert!(size.facts.hyperv_v1 && !size.facts.hyperv_v2, "a size without generations is an old one");
    }

    #[test]
    fn restricted_zones_are_left_out_and_all_of_them_leave_none() {
        let mut row = row(&[("vCPUs", "4"), ("MemoryGB", "16")]);
        row.restricted_zones = ["1".to_owned()].into();
        let zones = |row: &SkuRow| read(row).unwrap().zones.iter().map(|z| z.to_string()).collect::<Vec<_>>();
        assert_eq!(zones(&row), ["westeurope-2", "westeurope-3"]);
        row.restricted_zones = row.zones.clone();
        assert!(zones(&row).is_empty());
        assert!(!read(&row).unwrap().restricted, "it can be launched as regional");
    }
}
