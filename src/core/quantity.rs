//! Quantities: how much is `1500m`, `4Gi` or `2e3`?

use std::fmt;

/// A quantity in the syntax of Kubernetes, exact to a billionth; what is finer is rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Quantity(i128);

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("quantity {0:?}: must be a number with a suffix of Kubernetes, such as 500m, 2 or 4Gi")]
pub struct QuantityError(pub String);

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// [`QuantityError`] when the text is not one or does not fit.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        Self::read(text).ok_or_else(|| QuantityError(text.to_owned()))
    }

    fn read(text: &str) -> Option<Self> {
        let end = text
            .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-'))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let negative = number.starts_with('-');
        let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) {
            return None;
        }
        let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let places = u32::try_from(fraction.len()).ok()?;
        let (numerator, denominator) = scale(suffix)?;
        let denominator = denominator.checked_mul(10i128.checked_pow(places)?)?;
        let nanos = mantissa.checked_mul(numerator)?.checked_mul(NANOS)?;
        let nanos = div_ceil(if negative { -nanos } else { nanos }, denominator);
        Some(Self(nanos))
    }

    /// Thousandths, rounded up.
    #[must_use]
    pub fn milli_ceil(self) -> i64 {
        saturate(div_ceil(self.0, 1_000_000))
    }

    /// Whole units, rounded up.
    #[must_use]
    pub fn ceil(self) -> i64 {
        saturate(div_ceil(self.0, NANOS))
    }
}

fn scale(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1i128 << (10 * power), 1));
    let decimal = |power: u32| Some((10i128.pow(power), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs())?;
            Some(if exponent < 0 { (1, power) } else { (power, 1) })
        }
    }
}

fn div_ceil(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 % NANOS, self.0 % 1_000_000) {
            (0, _) => write!(f, "{}", self.0 / NANOS),
            (_, 0) => write!(f, "{}m", self.0 / 1_000_000),
            _ => write!(f, "{}n", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_scale_and_what_is_finer_is_rounded_up() {
        let milli = |t| Quantity::parse(t).unwrap().milli_ceil();
        assert_eq!(
            [
                milli("1500m"),
                milli("2"),
                milli(".5"),
                milli("1.0001"),
                milli("1e3")
            ],
            [1500, 2000, 500, 1001, 1_000_000]
        );
        assert_eq!(Quantity::parse("1.5Gi").unwrap().ceil(), 3 << 29);
        for bad in ["", "m", "1.2.3", "1 Gi", "1gi", "--1", "1e"] {
            assert!(Quantity::parse(bad).is_err(), "{bad:?}");
        }
    }
}
