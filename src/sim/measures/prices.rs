//! The price of all running VMs over time.

use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::amounts::money::HourlyPrice;

/// A step function: the price per hour of all running VMs, from each instant at which it changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriceSeries {
    steps: Vec<(Timestamp, HourlyPrice)>,
}

impl PriceSeries {
    /// From this instant on, all running VMs together have this price. Instants must not decrease.
    pub fn record(&mut self, at: Timestamp, price: HourlyPrice) {
        if self.steps.last().is_some_and(|(_, last)| *last == price) {
            return;
        }
        if self.steps.last().is_some_and(|(last, _)| *last == at) {
            self.steps.pop();
        }
        self.steps.push((at, price));
    }

    /// The instants at which the price changed, and the price from then on.
    #[must_use]
    pub fn steps(&self) -> &[(Timestamp, HourlyPrice)] {
        &self.steps
    }

    /// The price at an instant; zero before the first one.
    #[must_use]
    pub fn at(&self, instant: Timestamp) -> HourlyPrice {
        let after = self.steps.partition_point(|(at, _)| *at <= instant);
        after.checked_sub(1).map_or(HourlyPrice::ZERO, |last| self.steps[last].1)
    }

    /// How long the price takes to settle after a drop of load: the time from `drop` until it stays within 5 % of its
    /// value at `end`, where the constant stretch of load ends.
    #[must_use]
    pub fn settling_time(&self, drop: Timestamp, end: Timestamp) -> SignedDuration {
        let settled = i128::from(self.at(end).nanos());
        let is_off = |price: HourlyPrice| (i128::from(price.nanos()) - settled).abs() * 20 > settled;
        let within = self.steps.iter().filter(|(at, _)| *at > drop && *at <= end);
        let mut off = is_off(self.at(drop));
        let mut settled_at = drop;
        for (at, price) in within {
            if off && !is_off(*price) {
                settled_at = *at;
            }
            off = is_off(*price);
        }
        settled_at.duration_since(drop)
    }
}
