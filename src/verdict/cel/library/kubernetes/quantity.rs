//! Quantities: `500m`, `2Gi`, `1e3`.
//!
//! Not the quantity of the domain, which rejects what Kubernetes caps: a rule must see what the API server sees,
//! including whether a quantity is an integer, which depends on how it was written.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::value::Val;
use crate::cel::value::opaque::Opaque;
use std::cmp::Ordering;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("quantity", Global, [1, 1], quantity),
    FunctionDef("isQuantity", Global, [1, 1], is_quantity),
    FunctionDef("sign", Global, [1, 1], |_, args| with_quantity(args, |a| Ok(Val::Int(a.digits.signum() as i64)))),
    FunctionDef("isInteger", Method, [1, 1], |_, args| with_quantity(args, |a| Ok(Val::Bool(a.as_int64().is_some())))),
    FunctionDef("asInteger", Method, [1, 1], as_integer),
    FunctionDef("asApproximateFloat", Method, [1, 1], |_, args| with_quantity(args, |a| Ok(Val::Double(a.as_f64())))),
    FunctionDef("add", Method, [2, 2], |_, args| sum(args, 1)),
    FunctionDef("sub", Method, [2, 2], |_, args| sum(args, -1)),
];

/// An amount: digits × 10^power. `small`: Kubernetes holds it in 64 bits, and only then knows whether it is an integer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    digits: i128,
    power: i32,
    fits_int64: bool,
}

/// The finest that a quantity can be: billionths.
const NANO_EXPONENT: i32 = -9;

impl Amount {
    fn from_int64(digits: i64, power: i32) -> Self {
        Self { digits: digits.into(), power, fits_int64: true }
    }

    fn as_int64(&self) -> Option<i64> {
        match self.power {
            0 if self.fits_int64 => i64::try_from(self.digits).ok(),
            power if self.fits_int64 && power > 0 => i64::try_from(scaled(self.digits, power)?).ok(),
            _ => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "approximate, as its name says")]
    fn as_f64(&self) -> f64 {
        if self.power < 0 {
            self.digits as f64 / 10_f64.powi(-self.power)
        } else {
            self.digits as f64 * 10_f64.powi(self.power)
        }
    }

    /// Which of two amounts is larger?
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        match self.aligned(other) {
            Some((a, b, _)) => a.cmp(&b),
            // Too far apart for 38 digits, so the difference of their sizes decides.
            None => self.as_f64().partial_cmp(&other.as_f64()).unwrap_or(Ordering::Equal),
        }
    }

    fn aligned(&self, other: &Self) -> Option<(i128, i128, i32)> {
        let power = self.power.min(other.power);
        Some((scaled(self.digits, self.power - power)?, scaled(other.digits, other.power - power)?, power))
    }

    fn checked_add(&self, other: &Self) -> Option<Self> {
        if self.fits_int64 && other.fits_int64 {
            if other.digits == 0 {
                return Some(*self);
            }
            if self.digits == 0 {
                return Some(*other);
            }
        }
        let (a, b, power) = self.aligned(other)?;
        let digits = a.checked_add(b)?;
        let fits = [a, b, digits].iter().all(|n| i64::try_from(*n).is_ok());
        Some(Self { digits, power, fits_int64: self.fits_int64 && other.fits_int64 && fits })
    }

    /// Reads an amount as Kubernetes does, which takes a suffix without a number for nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let (negative, body) = match text.as_bytes().first()? {
            b'-' => (true, text.get(1..)?),
            b'+' => (false, text.get(1..)?),
            _ => (false, text),
        };
        let end = body.find(|c: char| !c.is_ascii_digit()).unwrap_or(body.len());
        let (whole, rest) = body.split_at(end);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())),
            None => ("", rest),
        };
        let (two, ten) = scale(suffix)?;
        let number = Number { negative, whole: whole.trim_start_matches('0'), fraction };
        // Without any digit only the fast way finds a number.
        number
            .parse_int64(two, ten)
            .or_else(|| if end == 0 && fraction.is_empty() { None } else { number.parse_big(two, ten) })
    }
}

/// The digits of a quantity.
struct Number<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl Number<'_> {
    /// In 64 bits, if the number is short enough.
    fn parse_int64(&self, two: Option<u32>, ten: i32) -> Option<Amount> {
        let whole = if self.whole.is_empty() { "0" } else { self.whole };
        let length = i32::try_from(whole.len() + self.fraction.len()).ok()?;
        let room = match two {
            Some(_) if !self.fraction.is_empty() => return None,
            #[expect(clippy::cast_possible_truncation, reason = "an exponent of at most 60")]
            Some(two) => 15 - length - (f64::from(two) * 0.3) as i32 - 1,
            None => 18 - length,
        };
        let power = ten.checked_sub(i32::try_from(self.fraction.len()).ok()?)?;
        if room < 0 || power < NANO_EXPONENT {
            return None;
        }
        let digits: i64 = format!("{whole}{}", self.fraction).parse().ok()?;
        let digits = digits.checked_mul(1_i64.checked_shl(two.unwrap_or(0))?)?;
        Some(Amount::from_int64(if self.negative { -digits } else { digits }, power))
    }

    /// In 128 bits: rounded up to billionths, and capped if the suffix is a power of 1024.
    fn parse_big(&self, two: Option<u32>, ten: i32) -> Option<Amount> {
        let text = format!("{}{}", self.whole, self.fraction);
        let digits: i128 = if text.is_empty() { 0 } else { text.parse().ok()? };
        let mut digits = digits.checked_mul(1_i128.checked_shl(two.unwrap_or(0))?)?;
        let mut power = ten.checked_sub(i32::try_from(self.fraction.len()).ok()?)?;
        if digits != 0 && power < NANO_EXPONENT {
            let divisor = 10_i128.checked_pow(u32::try_from(NANO_EXPONENT.checked_sub(power)?).ok()?);
            digits = divisor.map_or(1, |by| digits / by + i128::from(digits % by != 0));
            power = NANO_EXPONENT;
        }
        let largest = Amount { digits: i64::MAX.into(), power: 0, fits_int64: false };
        let amount = Amount { digits, power, fits_int64: false };
        let amount = if two.is_some() && amount.compare(&largest).is_gt() { largest } else { amount };
        Some(Amount { digits: if self.negative { -amount.digits } else { amount.digits }, ..amount })
    }
}

/// The multiplier of a suffix: a power of two, or of ten.
fn scale(suffix: &str) -> Option<(Option<u32>, i32)> {
    Some(match suffix {
        "n" => (None, -9),
        "u" => (None, -6),
        "m" => (None, -3),
        "" => (None, 0),
        "k" => (None, 3),
        "M" => (None, 6),
        "G" => (None, 9),
        "T" => (None, 12),
        "P" => (None, 15),
        "E" => (None, 18),
        "Ki" => (Some(10), 0),
        "Mi" => (Some(20), 0),
        "Gi" => (Some(30), 0),
        "Ti" => (Some(40), 0),
        "Pi" => (Some(50), 0),
        "Ei" => (Some(60), 0),
        other => {
            let exponent = other.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            (None, exponent.parse::<i32>().ok().filter(|_| plain)?)
        }
    })
}

/// `digits` × 10^`power`.
fn scaled(digits: i128, power: i32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    digits.checked_mul(10_i128.checked_pow(u32::try_from(power).ok()?)?)
}

fn read(args: &[Val]) -> Result<Option<Amount>> {
    match args {
        [Val::Text(text)] => Ok(Amount::parse(text)),
        _ => no_overload(),
    }
}

fn quantity(_: &mut Budget, args: &[Val]) -> Result<Val> {
    let refused =
        || failed("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
    read(args)?.map_or_else(refused, |amount| Ok(Val::opaque(Opaque::Quantity(amount))))
}

fn is_quantity(_: &mut Budget, args: &[Val]) -> Result<Val> {
    Ok(Val::Bool(read(args)?.is_some()))
}

fn quantity_arg(value: Option<&Val>) -> Result<Amount> {
    match value {
        Some(Val::Opaque(opaque)) => match opaque.as_ref() {
            Opaque::Quantity(amount) => Ok(*amount),
            _ => no_overload(),
        },
        Some(Val::Int(whole)) => Ok(Amount::from_int64(*whole, 0)),
        _ => no_overload(),
    }
}

fn with_quantity(args: &[Val], of: impl Fn(&Amount) -> Result<Val>) -> Result<Val> {
    match args {
        [value @ Val::Opaque(_)] => of(&quantity_arg(Some(value))?),
        _ => no_overload(),
    }
}

fn as_integer(_: &mut Budget, args: &[Val]) -> Result<Val> {
    with_quantity(args, |a| a.as_int64().map_or_else(|| failed("cannot convert value to integer"), |i| Ok(Val::Int(i))))
}

fn sum(args: &[Val], sign: i128) -> Result<Val> {
    let [a @ Val::Opaque(_), b] = args else { return no_overload() };
    let (a, b) = (quantity_arg(Some(a))?, quantity_arg(Some(b))?);
    let b = Amount { digits: b.digits * sign, ..b };
    a.checked_add(&b).map_or_else(|| failed("quantity overflow"), |sum| Ok(Val::opaque(Opaque::Quantity(sum))))
}
