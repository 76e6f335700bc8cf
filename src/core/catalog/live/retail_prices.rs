//! Selection of the retail price meter of a VM size.
//!
//! The price list has several meters for one size: Linux and Windows, spot and low priority, Cloud Services, dedicated
//! hosts, promotions, old and new. The choice hangs on the meters alone, never on their order.

use crate::model::amounts::money::HourlyPrice;
use crate::model::names::VmSize;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A row of the price list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meter {
    /// `armSkuName`: the VM size.
    pub size: String,
    /// `skuName`: the size with words such as `Spot`.
    pub sku: String,
    /// `meterName`.
    pub meter: String,
    /// `meterId`.
    pub id: String,
    /// `productName`.
    pub product: String,
    /// `type`: Consumption, Reservation or DevTestConsumption.
    pub kind: String,
    /// `currencyCode`.
    pub currency: String,
    /// `unitOfMeasure`.
    pub unit: String,
    /// `retailPrice`; `None` where it is no price.
    pub price: Option<HourlyPrice>,
    /// `isPrimaryMeterRegion`.
    pub primary: bool,
    /// `effectiveStartDate`.
    pub from: Option<Timestamp>,
}

/// What a size costs in a region, on Linux. `None` is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizePrices {
    /// At full price.
    pub on_demand: Option<HourlyPrice>,
    /// As spot.
    pub spot: Option<HourlyPrice>,
}

/// Prices of a region by size.
pub type PriceList = BTreeMap<VmSize, SizePrices>;

/// Words in names of product, SKU or meter that stand for something other than a Linux VM at its usual price.
const EXCLUDED_PRODUCT_WORDS: [&str; 6] =
    ["windows", "low priority", "cloud services", "cloudservices", "dedicated", "promo"];

/// The prices of some meters at a time.
#[must_use]
pub fn price_list<'a>(meters: impl IntoIterator<Item = &'a Meter>, now: Timestamp) -> PriceList {
    let mut chosen: BTreeMap<(VmSize, bool), &Meter> = BTreeMap::new();
    for meter in meters.into_iter().filter(|meter| meter.is_linux_hourly(now)) {
        let Ok(size) = VmSize::new(&meter.size) else { continue };
        let best = chosen.entry((size, meter.is_spot())).or_insert(meter);
        if meter.rank() < best.rank() {
            *best = meter;
        }
    }
    let mut list = PriceList::new();
    for ((size, spot), meter) in chosen {
        let prices = list.entry(size).or_default();
        *(if spot { &mut prices.spot } else { &mut prices.on_demand }) = meter.price;
    }
    list
}

impl Meter {
    fn is_spot(&self) -> bool {
        self.sku.to_lowercase().ends_with(" spot")
    }

    /// True for a current hourly Linux price in USD. Zero is unknown.
    fn is_linux_hourly(&self, now: Timestamp) -> bool {
        let names = [&self.product, &self.sku, &self.meter].map(|name| name.to_lowercase());
        self.kind == "Consumption"
            && self.currency == "USD"
            && self.unit == "1 Hour"
            && self.price.is_some_and(|price| price > HourlyPrice::ZERO)
            && self.from.is_none_or(|from| from <= now)
            && !EXCLUDED_PRODUCT_WORDS.iter().any(|word| names.iter().any(|name| name.contains(word)))
    }

    /// Less is better: the region's primary meter, then the newest, then the most expensive (so that prices are
    /// never underestimated), then any fixed order.
    fn rank(&self) -> (bool, Reverse<Option<Timestamp>>, Reverse<Option<HourlyPrice>>, &str) {
        (!self.primary, Reverse(self.from), Reverse(self.price), &self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::start;
    use jiff::SignedDuration;
    use proptest::prelude::*;

    fn meter(sku: &str, product: &str, usd: &str) -> Meter {
        Meter {
            size: "Standard_D4s_v5".to_owned(),
            sku: sku.to_owned(),
            meter: sku.to_owned(),
            id: format!("{sku}/{product}/{usd}"),
            product: product.to_owned(),
            kind: "Consumption".to_owned(),
            currency: "USD".to_owned(),
            unit: "1 Hour".to_owned(),
            price: HourlyPrice::parse_usd(usd).ok(),
            primary: true,
            from: Some(start()),
        }
    }

    const LINUX: &str = "Virtual Machines Dsv5 Series";

    fn all() -> Vec<Meter> {
        let hour = SignedDuration::from_hours(1);
        vec![
            meter("D4s v5", LINUX, "0.192"),
            meter("D4s v5", LINUX, "0.180"),
            Meter { from: Some(start() - hour), ..meter("D4s v5", LINUX, "0.5") },
            Meter { from: Some(start() + hour), ..meter("D4s v5", LINUX, "0.1") },
            Meter { primary: false, ..meter("D4s v5", LINUX, "0.6") },
            Meter { kind: "Reservation".to_owned(), ..meter("D4s v5", LINUX, "900") },
            Meter { kind: "DevTestConsumption".to_owned(), ..meter("D4s v5", LINUX, "0.01") },
            Meter { currency: "EUR".to_owned(), ..meter("D4s v5", LINUX, "0.02") },
            Meter { unit: "1/Month".to_owned(), ..meter("D4s v5", LINUX, "140") },
            Meter { price: None, ..meter("D4s v5", LINUX, "1") },
            meter("D4s v5", LINUX, "0"),
            meter("D4s v5", "Virtual Machines Dsv5 Series Windows", "0.376"),
            meter("D4s v5", "Dsv5 Series Cloud Services", "0.7"),
            meter("D4s v5", "Virtual Machines Dsv5 Series Dedicated Host", "0.8"),
            meter("D4s v5 Promo", LINUX, "0.05"),
            meter("D4s v5 Low Priority", LINUX, "0.04"),
            meter("D4s v5 Spot", LINUX, "0.0384"),
            meter("D4s v5 Spot", "Virtual Machines Dsv5 Series Windows", "0.09"),
        ]
    }

    #[test]
    fn of_all_meters_the_one_of_linux_in_force_counts() {
        let meters = all();
        let list = price_list(&meters, start());
        let prices = list.values().next().unwrap();
        assert_eq!(list.len(), 1);
        assert_eq!(prices.on_demand, HourlyPrice::parse_usd("0.192").ok());
        assert_eq!(prices.spot, HourlyPrice::parse_usd("0.0384").ok());
    }

    #[test]
    fn nothing_costs_nothing() {
        let meters = [meter("D4s v5", LINUX, "0"), meter("D4s v5 Spot", LINUX, "0")];
        assert!(price_list(&meters, start()).is_empty());
    }

    proptest! {
        #[test]
        fn the_order_of_meters_does_not_matter(meters in Just(all()).prop_shuffle()) {
            prop_assert_eq!(price_list(&meters, start()), price_list(&all(), start()));
        }
    }
}
