//! NodeOverlays: price and capacity overrides.
//!
//! A NodeOverlay changes prices and capacity for decisions, never what Azure bills or what a VM has. The arithmetic is
//! Karpenter's, in integers: an adjusted price is rounded to the nearest nano-USD, and none is below zero.

use crate::model::amounts::money::HourlyPrice;
use crate::model::cluster::status::Conditions;
use crate::model::names::{ObjectName, Uid};
use crate::model::requirements::Requirements;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A NodeOverlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// Name.
    pub name: ObjectName,
    /// UID.
    pub uid: Uid,
    /// `metadata.generation`.
    pub generation: i64,
    /// The one of the greatest weight decides; absent is 0.
    pub weight: i32,
    /// Which offerings it applies to, by the labels of their nodes.
    pub requirements: Requirements,
    /// The change of their price.
    pub price: Option<PriceAdjustment>,
    /// Resources that it adds to their nodes.
    pub capacity: BTreeMap<Arc<str>, i64>,
    /// Its conditions.
    pub conditions: Conditions,
}

/// A change of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceAdjustment {
    /// It is this.
    Fixed(HourlyPrice),
    /// So much more, or less.
    Add(HourlyPrice),
    /// So many billionths of a percent more, or less.
    Percent(i64),
}

/// Why a text is no change of a price.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: must be {expected}, with at most 9 decimal places")]
pub struct PriceAdjustmentError {
    text: String,
    expected: &'static str,
}

/// Billionths of a percent in the whole.
const HUNDRED_PERCENT: i128 = 100 * 1_000_000_000;

impl PriceAdjustment {
    /// Reads `spec.price`: USD per hour, such as `0.192`.
    ///
    /// # Errors
    /// [`PriceAdjustmentError`] when the text is no such price.
    pub fn parse_price(text: &str) -> Result<Self, PriceAdjustmentError> {
        let refused = |_| PriceAdjustmentError { text: text.to_owned(), expected: "USD per hour, such as 0.192" };
        HourlyPrice::parse_usd(text).map(Self::Fixed).map_err(refused)
    }

    /// Reads `spec.priceAdjustment`: a sign and USD per hour or a percentage, such as `-0.05` or `+10%`.
    ///
    /// # Errors
    /// [`PriceAdjustmentError`] when the text is no such change, or reduces a price by more than 100 %.
    pub fn parse_adjustment(text: &str) -> Result<Self, PriceAdjustmentError> {
        let expected = "a sign with USD per hour or a percentage, such as -0.05, +10% or -100%";
        let refused = || PriceAdjustmentError { text: text.to_owned(), expected };
        let (sign, rest) = match text.split_at_checked(1) {
            Some(("+", rest)) => (1, rest),
            Some(("-", rest)) => (-1, rest),
            _ => return Err(refused()),
        };
        let (number, percent) = rest.strip_suffix('%').map_or((rest, false), |number| (number, true));
        // Upstream allows omitting the zero before the point.
        let leading = if number.starts_with('.') { "0" } else { "" };
        let amount = HourlyPrice::parse_usd(&format!("{leading}{number}")).map_err(|_| refused())?;
        if number.is_empty()
            || number.ends_with('.')
            || percent && sign < 0 && i128::from(amount.nanos()) > HUNDRED_PERCENT
        {
            return Err(refused());
        }
        let change = amount.nanos() * sign;
        Ok(if percent { Self::Percent(change) } else { Self::Add(HourlyPrice::from_nanos(change)) })
    }

    /// The adjusted price.
    #[must_use]
    pub fn apply(self, price: HourlyPrice) -> HourlyPrice {
        let price = i128::from(price.nanos());
        let changed = match self {
            Self::Fixed(fixed) => i128::from(fixed.nanos()),
            Self::Add(more) => price + i128::from(more.nanos()),
            // Halves are rounded up.
            Self::Percent(percent) => {
                (price * (HUNDRED_PERCENT + i128::from(percent)) + HUNDRED_PERCENT / 2).div_euclid(HUNDRED_PERCENT)
            }
        };
        HourlyPrice::from_nanos(i64::try_from(changed.max(0)).unwrap_or(i64::MAX))
    }
}

/// As written, with the sign.
impl fmt::Display for PriceAdjustment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimal = |nanos: i64| {
            let (whole, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
            let text = format!("{whole}.{rest:09}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        let signed = |nanos: i64| format!("{}{}", if nanos < 0 { '-' } else { '+' }, decimal(nanos));
        match self {
            Self::Fixed(price) => f.write_str(&decimal(price.nanos())),
            Self::Add(more) => f.write_str(&signed(more.nanos())),
            Self::Percent(percent) => write!(f, "{}%", signed(*percent)),
        }
    }
}

impl Overlay {
    /// True if both differ in nothing but their conditions: nothing is decided anew then.
    #[must_use]
    pub fn has_spec_of(&self, other: &Self) -> bool {
        let spec = |overlay: &Self| Self { conditions: Conditions::default(), ..overlay.clone() };
        spec(self) == spec(other)
    }

    /// The order in which overlays are heard: by weight, and of equals the last by name, as in Karpenter.
    #[must_use]
    pub fn precedence(&self) -> (Reverse<i32>, Reverse<ObjectName>) {
        (Reverse(self.weight), Reverse(self.name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn usd(text: &str) -> HourlyPrice {
        HourlyPrice::parse_usd(text).unwrap()
    }

    #[test]
    fn changes_are_read_and_made_as_in_karpenter() {
        for (change, from, to) in [
            ("+10%", "0.2", "0.22"),
            ("-10%", "0.2", "0.18"),
            ("-100%", "0.2", "0"),
            ("+.5%", "0.2", "0.201"),
            ("+250%", "0.2", "0.7"),
            ("-12.5%", "0.192", "0.168"),
            ("+0.05", "0.2", "0.25"),
            ("-.05", "0.2", "0.15"),
            ("-5", "0.2", "0"),
            ("+0%", "0.123456789", "0.123456789"),
            // A third of a nano-USD is none, half of one is one.
            ("-50%", "0.000000001", "0.000000001"),
            ("-70%", "0.000000001", "0"),
        ] {
            assert_eq!(
                PriceAdjustment::parse_adjustment(change).unwrap().apply(usd(from)),
                usd(to),
                "{change} of {from}"
            );
        }
        assert_eq!(PriceAdjustment::parse_price("0.5").unwrap().apply(usd("0.2")), usd("0.5"));
    }

    #[test]
    fn invalid_adjustments_are_refused() {
        for text in ["", "10%", "0.05", "+", "-", "+%", "--5", "+ 5", "-101%", "-100.1%", "+5%%", "+1e3", "+5.", "+."] {
            let error = PriceAdjustment::parse_adjustment(text).unwrap_err().to_string();
            assert!(error.contains("a sign with USD per hour"), "{text}: {error}");
        }
        for text in ["", "-1", "+1", "1e3", ".5", "5%", "0.0000000001"] {
            assert!(PriceAdjustment::parse_price(text).is_err(), "{text}");
        }
    }

    fn adjustment() -> impl Strategy<Value = PriceAdjustment> {
        let amount = 0..5_000_000_000_i64;
        prop_oneof![
            amount.clone().prop_map(|n| PriceAdjustment::Fixed(HourlyPrice::from_nanos(n))),
            (-5_000_000_000..5_000_000_000_i64).prop_map(|n| PriceAdjustment::Add(HourlyPrice::from_nanos(n))),
            (-100_000_000_000..500_000_000_000_i64).prop_map(PriceAdjustment::Percent),
        ]
    }

    proptest! {
        #[test]
        fn no_price_is_below_zero_and_the_order_of_prices_is_preserved(
            change in adjustment(),
            a in 0..100_000_000_000_i64,
            b in 0..100_000_000_000_i64,
        ) {
            let [a, b] = [a.min(b), a.max(b)].map(|n| change.apply(HourlyPrice::from_nanos(n)));
            prop_assert!(a >= HourlyPrice::ZERO);
            prop_assert!(a <= b, "{change} turns the order of prices");
        }

        #[test]
        fn a_change_is_read_as_it_is_written(change in adjustment()) {
            let text = change.to_string();
            let read = match change {
                PriceAdjustment::Fixed(_) => PriceAdjustment::parse_price(&text),
                PriceAdjustment::Add(_) | PriceAdjustment::Percent(_) => PriceAdjustment::parse_adjustment(&text),
            };
            prop_assert_eq!(read, Ok(change), "{}", text);
        }

        #[test]
        fn percentages_are_those_of_arithmetic(percent in -100_i64..400, price in 0..1_000_000_000_i64) {
            // In whole cents the result is exact.
            let price = price * 100;
            let changed = PriceAdjustment::Percent(percent * 1_000_000_000).apply(HourlyPrice::from_nanos(price));
            prop_assert_eq!(changed.nanos(), price / 100 * (100 + percent));
        }
    }
}
