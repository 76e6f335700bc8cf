//! Kubernetes quantities such as `1500m`, `0.5Gi` or `1e3`.
//!
//! Syntax and canonical form are those of Kubernetes' `resource.Quantity` (k8s.io/apimachinery), in integers only.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

const NANOS: i128 = 1_000_000_000;
const LARGEST: i128 = i64::MAX as i128 * NANOS;

/// The kind of suffix that a quantity is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `n u m k M G T P E` or none: powers of 1000.
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`: powers of 1024.
    BinarySi,
    /// `e3`, `E-6`: powers of 10.
    DecimalExponent,
}

/// Decimal suffixes from the least, each 1000 times the one before.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes from 1, each 1024 times the one before.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// The power of ten of the first of [`DECIMAL`].
const LEAST_EXPONENT: i32 = -9;

/// An amount of a resource: a whole number of billionths, and the kind of suffix that it prints with.
///
/// Quantities of the same amount are equal, however they were written.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No number at the beginning, or none at all.
    #[error("quantity {0:?}: must start with a number, for example 2, 0.5, 500m or 2Gi")]
    NoNumber(String),
    /// The suffix is unknown.
    #[error(
        "quantity {text:?}: unknown suffix {suffix:?}; use one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an \
         exponent such as e3"
    )]
    Suffix {
        /// The text as given.
        text: String,
        /// What follows the number.
        suffix: String,
    },
    /// More than can be held.
    #[error("quantity {0:?}: too large or too long; at most 2^63-1 whole units and about 25 digits are supported")]
    TooLarge(String),
}

/// The factor of a suffix: 2^two × 10^ten.
struct Scale {
    two: i32,
    ten: i32,
}

impl Quantity {
    /// Parses a quantity. What is finer than a billionth is rounded away from zero, as Kubernetes does.
    ///
    /// # Errors
    /// [`QuantityError`] when the text is no quantity, or is beyond 2^63-1 whole units, which Kubernetes would
    /// silently cap.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let end = unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::NoNumber(text.to_owned()));
        }
        let (scale, format) = scale_of(suffix)
            .ok_or_else(|| QuantityError::Suffix { text: text.to_owned(), suffix: suffix.to_owned() })?;
        let nanos = nanos_of(whole, fraction, &scale)
            .filter(|nanos| *nanos <= LARGEST)
            .ok_or_else(|| QuantityError::TooLarge(text.to_owned()))?;
        let nanos = if text.starts_with('-') { -nanos } else { nanos };
        Ok(Self { nanos, format })
    }

    /// The amount in thousandths, rounded up; `i64::MAX` or `i64::MIN` when that does not fit.
    #[must_use]
    pub fn milli_ceil(&self) -> i64 {
        saturated(ceil_div(self.nanos, NANOS / 1000))
    }

    /// The amount in whole units, rounded up.
    #[must_use]
    pub fn ceil(&self) -> i64 {
        saturated(ceil_div(self.nanos, NANOS))
    }
}

fn scale_of(suffix: &str) -> Option<(Scale, Format)> {
    let index_of = |table: &[&str]| table.iter().position(|s| *s == suffix).and_then(|i| i32::try_from(i).ok());
    if let Some(i) = index_of(&DECIMAL) {
        let ten = LEAST_EXPONENT + 3 * i;
        return Some((Scale { two: 0, ten }, Format::DecimalSi));
    }
    if let Some(i) = index_of(&BINARY) {
        return Some((Scale { two: 10 * i, ten: 0 }, Format::BinarySi));
    }
    let ten: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some((Scale { two: 0, ten }, Format::DecimalExponent))
}

/// The number `whole.fraction` at a scale, in billionths, rounded up. `None` when it does not fit.
fn nanos_of(whole: &str, fraction: &str, scale: &Scale) -> Option<i128> {
    let fraction = fraction.trim_end_matches('0');
    let mut digits: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        digits = digits.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    if digits == 0 {
        return Some(0);
    }
    // digits × 2^two × 10^ten / 10^decimals × 10^9, as powers of 2 and 5: those that cancel out cannot overflow.
    let decimals = i32::try_from(fraction.len()).ok()?;
    let fives = scale.ten.checked_sub(decimals)?.checked_add(9)?;
    let twos = scale.two.checked_add(fives)?;
    let power = |base: i128, exponent: i32| base.checked_pow(u32::try_from(exponent.max(0)).ok()?);
    let above = digits.checked_mul(power(2, twos)?)?.checked_mul(power(5, fives)?)?;
    let below = power(2, twos.checked_neg()?).and_then(|p| p.checked_mul(power(5, fives.checked_neg()?)?));
    // A divisor that does not fit is greater than any dividend, so a trace remains.
    Some(below.map_or(1, |below| ceil_div(above, below)))
}

fn ceil_div(amount: i128, by: i128) -> i128 {
    amount.div_euclid(by) + i128::from(amount.rem_euclid(by) != 0)
}

fn saturated(amount: i128) -> i64 {
    let bound = if amount < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(amount).unwrap_or(bound)
}

/// Divides by the base while nothing is lost; the quotient and how often.
fn reduced(mut amount: i128, base: i128) -> (i128, usize) {
    let mut times = 0;
    while amount != 0 && amount % base == 0 {
        amount /= base;
        times += 1;
    }
    (amount, times)
}

impl fmt::Display for Quantity {
    /// The canonical form: the greatest suffix of its kind that leaves a whole number. An amount that is below 1024
    /// or not whole has no binary suffix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.pad("0");
        }
        let whole = self.nanos % NANOS == 0;
        let binary = self.format == Format::BinarySi && whole && self.nanos.abs() >= 1024 * NANOS;
        if binary {
            let (number, power) = reduced(self.nanos / NANOS, 1024);
            return f.pad(&format!("{number}{}", BINARY.get(power).unwrap_or(&"")));
        }
        let (number, power) = reduced(self.nanos, 1000);
        let suffix = DECIMAL.get(power).unwrap_or(&"");
        match i32::try_from(power).map(|p| LEAST_EXPONENT + 3 * p) {
            Ok(exponent) if self.format == Format::DecimalExponent && exponent != 0 => {
                f.pad(&format!("{number}e{exponent}"))
            }
            _ => f.pad(&format!("{number}{suffix}")),
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn quantities_print_as_kubernetes_prints_them() {
        for (text, canonical) in [
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1024Ki", "1Mi"),
            ("0.5Gi", "512Mi"),
            ("0", "0"),
            ("0Ki", "0"),
            ("-0", "0"),
            ("1000", "1k"),
            ("1000m", "1"),
            ("+2", "2"),
            ("-1500m", "-1500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("007", "7"),
            ("1024", "1024"),
            ("0.5Ki", "512"),
            ("1.1Ki", "1126400m"),
            ("1025Ki", "1025Ki"),
            ("1Ki", "1Ki"),
            ("0.9765625Ki", "1k"),
            ("1Ei", "1Ei"),
            ("7Ei", "7Ei"),
            ("9E", "9E"),
            ("9223372036854775807", "9223372036854775807"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1E", "1E"),
            ("1.5e3", "1500"),
            ("12e4", "120e3"),
            ("1e-3", "1e-3"),
            ("100e-3", "100e-3"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("-0.1n", "-1n"),
            ("1.0000000001", "1000000001n"),
            ("1e-400", "1e-9"),
            ("1e-2147483648", "1e-9"),
            ("0.00000000000000000000000000000000000000000000000001", "1n"),
            ("0.333333333333333333333Ki", "341333333334n"),
        ] {
            assert_eq!(quantity(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn amounts_are_rounded_up() {
        for (text, milli, whole) in [
            ("1500m", 1500, 2),
            ("1n", 1, 1),
            ("-1500m", -1500, -1),
            ("-1n", 0, 0),
            ("1Mi", 1_048_576_000, 1_048_576),
            ("7Ei", i64::MAX, 7 << 60),
            ("-7Ei", i64::MIN, -(7 << 60)),
        ] {
            let q = quantity(text);
            assert_eq!((q.milli_ceil(), q.ceil()), (milli, whole), "{text}");
        }
    }

    #[test]
    fn garbage_is_refused_with_its_cause() {
        for (text, cause) in [
            ("", "must start with a number"),
            (".", "must start with a number"),
            ("-", "must start with a number"),
            ("--1", "must start with a number"),
            ("1.2.3", "must start with a number"),
            (" 1", "must start with a number"),
            ("Gi", "must start with a number"),
            ("1 Gi", "unknown suffix \" Gi\""),
            ("1K", "unknown suffix \"K\""),
            ("1GiB", "unknown suffix \"GiB\""),
            ("1e", "unknown suffix \"e\""),
            ("1e3m", "unknown suffix \"e3m\""),
            ("1mi", "unknown suffix \"mi\""),
            ("８", "must start with a number"),
            ("8Ei", "too large"),
            ("10E", "too large"),
            ("9223372036854775808", "too large"),
            ("1e400", "too large"),
            ("1e2147483647", "too large"),
            ("99999999999999999999999999999999999999999", "too large"),
        ] {
            let error = Quantity::parse(text).unwrap_err().to_string();
            assert!(error.contains(cause), "{text:?}: {error}");
        }
    }

    prop_compose! {
        fn text()(
            sign in prop::sample::select(vec!["", "-", "+"]),
            whole in 0_u64..8_000_000,
            fraction in prop::option::of("[0-9]{0,12}"),
            suffix in prop::sample::select(vec![
                "n", "u", "m", "", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e0", "e3", "E-7", "e+5", "e-12",
            ]),
        ) -> String {
            let fraction = fraction.map(|f| format!(".{f}")).unwrap_or_default();
            format!("{sign}{whole}{fraction}{suffix}")
        }
    }

    proptest! {
        #[test]
        fn a_printed_quantity_reads_back(text in text()) {
            let q = quantity(&text);
            let printed = q.to_string();
            prop_assert_eq!(quantity(&printed), q);
            prop_assert_eq!(quantity(&printed).to_string(), printed);
        }

        #[test]
        fn parsing_agrees_with_long_division(
            digits in 0_i128..8_000_000, decimals in 0_u32..10, binary in 0_u32..5,
        ) {
            let scale = 10_i128.pow(decimals);
            let suffix = BINARY[binary as usize];
            let text = format!("{}.{:0width$}{suffix}", digits / scale, digits % scale, width = decimals as usize);
            let exact = digits * 1024_i128.pow(binary) * NANOS;
            prop_assert_eq!(quantity(&text).nanos, (exact + scale - 1) / scale);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,12}") {
            if let Ok(q) = Quantity::parse(&text) {
                prop_assert!(q.nanos.abs() <= LARGEST);
            }
        }
    }
}
