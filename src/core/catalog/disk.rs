//! Prices of managed disks, and the OS disk of a node.
//!
//! Prices are Azure's list prices in US dollars for most regions (prices.azure.com, products `Premium SSD Managed Disks`,
//! `Standard SSD Managed Disks` and `Standard HDD Managed Disks`, locally redundant, East US, 2026), over the 730 hours
//! that Azure bills as a month. Transactions are not counted: a standard SSD is charged for them, a premium one is not.

use crate::catalog::{EphemeralDiskPlacement, SizeFacts};
use crate::model::amounts::money::HourlyPrice;

/// Hours of a month, as Azure bills them.
const HOURS_PER_MONTH: i64 = 730;
/// Azure bills a disk as the smallest tier that holds it; these are the sizes of the tiers, in GiB.
const TIERS: [u32; 11] = [4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096];
/// Storage types billed by tier, with the price of each of [`TIERS`] in thousandths of a dollar per month.
const TIER_PRICES: [(&str, [i64; TIERS.len()]); 3] = [
    ("premium", [600, 1_200, 2_400, 5_280, 10_210, 19_710, 38_020, 73_220, 135_170, 259_050, 495_570]),
    ("standardssd", [300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 76_800, 153_600, 307_200]),
    ("standard", [1_536, 1_536, 1_536, 1_536, 3_008, 5_888, 11_328, 21_760, 40_960, 77_824, 143_360]),
];
/// Storage types billed by capacity, in nano-USD per GiB and hour, without the throughput that they may be given.
const CAPACITY_PRICES: [(&str, i64); 2] = [("premiumv2", 110_800), ("ultrassd", 164_200)];
/// How a storage type that is not known is priced.
const DEFAULT_STORAGE: &str = "standardssd";

/// Where the OS disk of a node is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OsDiskStorage {
    /// On a local disk of the VM: it costs nothing, is gone with the VM, and is no resource of its own.
    Ephemeral(EphemeralDiskPlacement),
    /// A managed disk, premium SSD.
    Premium,
    /// A managed disk, standard SSD.
    StandardSsd,
}

impl OsDiskStorage {
    /// That of a node of a size, for an `osDiskSizeGB` of `gib`: ephemeral where it fits on the local disk, as
    /// Karpenter's Azure provider (`instancetypes.go`) and the agent pools of AKS have it; else premium where the size
    /// takes it.
    #[must_use]
    pub fn of(facts: &SizeFacts, gib: u32) -> Self {
        match facts.ephemeral {
            Some(local) if local.fits(gib) => Self::Ephemeral(local.placement),
            _ => Self::managed(facts),
        }
    }

    /// That of a managed OS disk of a size.
    #[must_use]
    pub fn managed(facts: &SizeFacts) -> Self {
        if facts.premium_io { Self::Premium } else { Self::StandardSsd }
    }

    /// Of a managed disk, as Azure's `storageAccountType` has it.
    #[must_use]
    pub fn account_type(self) -> Option<&'static str> {
        match self {
            Self::Ephemeral(_) => None,
            Self::Premium => Some("Premium_LRS"),
            Self::StandardSsd => Some("StandardSSD_LRS"),
        }
    }
}

/// The list price of the OS disk of a node of a size, for an `osDiskSizeGB` of `gib`; zero where it is ephemeral.
#[must_use]
pub fn os_disk_price(facts: &SizeFacts, gib: u32) -> HourlyPrice {
    let account_type = OsDiskStorage::of(facts, gib).account_type();
    account_type.map_or(HourlyPrice::ZERO, |account_type| managed_disk_price(account_type, gib))
}

/// The list price of a managed disk, by its storage type (`Premium_LRS`) and size in GiB. Zone-redundant storage costs
/// 50 % more; a type that is not known is priced as a standard SSD. Above 4 TiB the price per GiB of the last tier
/// counts.
#[must_use]
pub fn managed_disk_price(sku: &str, gib: u32) -> HourlyPrice {
    let (storage, redundancy) = sku.split_once('_').unwrap_or((sku, ""));
    let price = by_capacity(storage, gib).or_else(|| by_tier(storage, gib)).or_else(|| by_tier(DEFAULT_STORAGE, gib));
    let price = price.unwrap_or(0);
    HourlyPrice::from_nanos(if redundancy.eq_ignore_ascii_case("zrs") { price / 2 * 3 } else { price })
}

fn by_capacity(storage: &str, gib: u32) -> Option<i64> {
    let (_, price) = CAPACITY_PRICES.iter().find(|(name, _)| name.eq_ignore_ascii_case(storage))?;
    Some(price * i64::from(gib))
}

fn by_tier(storage: &str, gib: u32) -> Option<i64> {
    let (_, prices) = TIER_PRICES.iter().find(|(name, _)| name.eq_ignore_ascii_case(storage))?;
    let nanos = |per_month: i64| per_month * 1_000_000 / HOURS_PER_MONTH;
    let mut tiers = TIERS.iter().zip(prices);
    let (largest, most) = (TIERS.last()?, prices.last()?);
    Some(match tiers.find(|(tier, _)| **tier >= gib) {
        Some((_, price)) => nanos(*price),
        None => nanos(*most) / i64::from(*largest) * i64::from(gib),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, EphemeralDisk};
    use jiff::SignedDuration;

    fn per_month(price: HourlyPrice) -> String {
        price.over(SignedDuration::from_hours(HOURS_PER_MONTH)).to_string()
    }

    #[test]
    fn a_managed_disk_is_billed_as_the_smallest_tier_that_holds_it() {
        for (sku, gib, usd) in [
            ("Premium_LRS", 30, "$5.28"),
            ("Premium_LRS", 32, "$5.28"),
            ("Premium_LRS", 33, "$10.21"),
            ("Premium_LRS", 128, "$19.71"),
            ("premium_ZRS", 128, "$29.57"),
            ("Premium_LRS", 2_048, "$259.05"),
            ("Premium_LRS", 8_192, "$991.14"),
            ("StandardSSD_LRS", 128, "$9.60"),
            ("Standard_LRS", 128, "$5.89"),
            ("PremiumV2_LRS", 100, "$8.09"),
            ("Brand_new", 128, "$9.60"),
        ] {
            assert_eq!(per_month(managed_disk_price(sku, gib)), usd, "{sku} {gib}");
        }
    }

    #[test]
    fn larger_disks_never_cost_less() {
        for (storage, _) in TIER_PRICES {
            let prices: Vec<_> = (1..10_000).map(|gib| managed_disk_price(storage, gib)).collect();
            assert!(prices.is_sorted(), "{storage}");
        }
    }

    #[test]
    fn an_os_disk_that_is_ephemeral_costs_nothing() {
        let catalog = Catalog::embedded().unwrap();
        let facts = |name: &str| catalog.sizes().iter().find(|size| size.name.as_str() == name).unwrap().clone();
        let price = |facts: &SizeFacts, gib| per_month(os_disk_price(facts, gib));
        // 37.5 GiB for each vCPU, see `embedded`.
        for (name, gib, usd) in [
            ("Standard_D4s_v5", 128, "$19.71"),
            ("Standard_D4ds_v5", 128, "$0.00"),
            ("Standard_D2ds_v5", 128, "$19.71"),
            ("Standard_D2ds_v5", 75, "$0.00"),
            ("Standard_D2ds_v5", 76, "$19.71"),
        ] {
            assert_eq!(price(&facts(name), gib), usd, "{name} {gib}");
        }
        let live = EphemeralDisk { gb: 137, placement: EphemeralDiskPlacement::Nvme };
        let live = SizeFacts { ephemeral: Some(live), ..SizeFacts::clone(&facts("Standard_D8ds_v5")) };
        assert_eq!((&*price(&live, 128), &*price(&live, 129)), ("$0.00", "$38.02"), "137 GB are 127.6 GiB");
        let standard = SizeFacts { premium_io: false, ..live };
        assert_eq!(price(&standard, 129), "$19.20");
    }
}
