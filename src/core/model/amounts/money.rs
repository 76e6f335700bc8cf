//! Money: integers of a billionth of a US dollar (nano-USD), so sums are exact.

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};

const NANOS_PER_USD: i128 = 1_000_000_000;
const NANOSECONDS_PER_HOUR: i128 = 3_600_000_000_000;

/// An amount of money, in nano-USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(i128);

/// A price, in nano-USD per hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HourlyPrice(i64);

/// Why a text is not an amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("amount {0:?}: must be a decimal number of USD with at most 9 decimal places, for example 0.192")]
pub struct MoneyError(pub String);

impl Money {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// An amount of nano-USD.
    #[must_use]
    pub const fn from_nanos(nanos: i128) -> Self {
        Self(nanos)
    }

    /// The amount in nano-USD.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.0
    }
}

impl HourlyPrice {
    /// Free of charge.
    pub const ZERO: Self = Self(0);

    /// A price in nano-USD per hour.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The price in nano-USD per hour.
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Parses USD per hour, for example `0.192`.
    ///
    /// # Errors
    /// [`MoneyError`] when the text is not a plain decimal, has more than 9 decimal places, or does not fit.
    pub fn parse_usd(text: &str) -> Result<Self, MoneyError> {
        let refused = || MoneyError(text.to_owned());
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || fraction.len() > 9 || !digits(whole) || !digits(fraction) {
            return Err(refused());
        }
        let whole: i64 = whole.parse().map_err(|_| refused())?;
        let fraction: i64 = format!("{fraction:0<9}").parse().map_err(|_| refused())?;
        whole.checked_mul(1_000_000_000).and_then(|n| n.checked_add(fraction)).map(Self).ok_or_else(refused)
    }

    /// The cost at this price over a time, rounded down to a nano-USD.
    #[must_use]
    pub fn over(self, time: SignedDuration) -> Money {
        Money(i128::from(self.0) * time.as_nanos() / NANOSECONDS_PER_HOUR)
    }
}

impl Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl Sub for Money {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}
impl Add for HourlyPrice {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
impl Sub for HourlyPrice {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
impl Mul<i64> for HourlyPrice {
    type Output = Self;
    fn mul(self, times: i64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}
impl Sum for HourlyPrice {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// Writes nano-USD with `decimals` decimals, rounded half away from zero.
fn write_usd(f: &mut fmt::Formatter<'_>, nanos: i128, decimals: u32) -> fmt::Result {
    let unit = 10_i128.pow(9 - decimals);
    let rounded = (nanos.abs() + unit / 2) / unit;
    let per_usd = NANOS_PER_USD / unit;
    let sign = if nanos < 0 && rounded != 0 { "-" } else { "" };
    let (whole, fraction) = (rounded / per_usd, rounded % per_usd);
    f.pad(&format!("{sign}${whole}.{fraction:0width$}", width = decimals as usize))
}

impl fmt::Display for Money {
    /// Dollars and cents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_usd(f, self.0, 2)
    }
}

impl fmt::Display for HourlyPrice {
    /// Dollars per hour with four decimals; the unit `/h` is the caller's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_usd(f, i128::from(self.0), 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_exact() {
        assert_eq!(HourlyPrice::parse_usd("0.192").unwrap().nanos(), 192_000_000);
        assert_eq!(HourlyPrice::parse_usd("0.000000001").unwrap().nanos(), 1);
        assert_eq!(HourlyPrice::parse_usd("12").unwrap().to_string(), "$12.0000");
        for bad in ["", ".5", "1.0000000001", "-1", "1e3", "99999999999999"] {
            assert!(HourlyPrice::parse_usd(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cost_over_time() {
        let price = HourlyPrice::parse_usd("0.3").unwrap();
        assert_eq!(price.over(SignedDuration::from_mins(20)).nanos(), 100_000_000);
        assert_eq!(Money::from_nanos(-1_005_000_000).to_string(), "-$1.01");
    }
}
