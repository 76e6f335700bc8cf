//! Doubles as Go reads and writes them.

/// Reads a double: decimal or hexadecimal, with underscores between digits, infinities and NaN.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let lower = body.to_ascii_lowercase();
    let magnitude = match lower.as_str() {
        "inf" | "infinity" => f64::INFINITY,
        "nan" if text.len() == 3 => f64::NAN,
        _ => {
            if lower.contains('_') && !underscores_are_fine(&lower) {
                return None;
            }
            let digits = lower.replace('_', "");
            match digits.strip_prefix("0x") {
                Some(hex) => hexadecimal(hex)?,
                None => decimal(&digits)?,
            }
        }
    };
    Some(if negative { -magnitude } else { magnitude })
}

/// Underscores are allowed between digits only, or after the prefix of a base.
fn underscores_are_fine(lower: &str) -> bool {
    let hex = lower.starts_with("0x");
    let mut before = if hex { '0' } else { '^' };
    for c in lower.chars().skip(if hex { 2 } else { 0 }) {
        let digit = c.is_ascii_digit() || (hex && c.is_ascii_hexdigit());
        match (digit, c) {
            (true, _) => before = '0',
            (false, '_') if before != '0' => return false,
            (false, '_') => before = '_',
            (false, _) if before == '_' => return false,
            (false, _) => before = '!',
        }
    }
    before != '_'
}

fn decimal(digits: &str) -> Option<f64> {
    if !digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'+' | b'-')) {
        return None;
    }
    digits.parse::<f64>().ok().filter(|d| d.is_finite())
}

/// `hex` is what follows `0x`: digits, perhaps a point, and a required exponent of two.
fn hexadecimal(hex: &str) -> Option<f64> {
    let (mantissa, exponent) = hex.split_once('p')?;
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // An exponent with more digits than fit is out of range anyway.
    let beyond: i64 = if exponent.starts_with('-') { -100_000 } else { 100_000 };
    let exponent = exponent.parse().unwrap_or(beyond);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0.0_f64;
    for digit in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let fraction_digits = i64::try_from(fraction.len()).ok()?;
    let two = i32::try_from((exponent - 4 * fraction_digits).clamp(-2000, 2000)).ok()?;
    // In two steps, since 2^-1074 itself is the smallest.
    let value = value * 2_f64.powi(two / 2) * 2_f64.powi(two - two / 2);
    value.is_finite().then_some(value)
}

/// The shortest text that reads back as the same double; with an exponent below -4 and from 6 on, as Go's `%g`.
pub(crate) fn shortest(d: f64) -> String {
    if d.is_nan() {
        return "NaN".to_owned();
    }
    if d.is_infinite() {
        return if d > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{d:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(power) = exponent.parse::<i32>() else { return scientific };
    if d == 0.0 || (-4..6).contains(&power) {
        return format!("{d}");
    }
    format!("{mantissa}{}", exponent_of(power))
}

/// With this many digits after the point and an exponent of at least two digits.
pub(crate) fn scientific(d: f64, digits: usize) -> String {
    let text = format!("{d:.digits$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    exponent.parse::<i32>().map_or_else(|_| text.clone(), |power| format!("{mantissa}{}", exponent_of(power)))
}

fn exponent_of(power: i32) -> String {
    format!("e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
}
