//! Bytes that are written as text: the standard alphabet, padded.

/// The bytes, if the text is such a writing.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.as_bytes().chunks(4) {
        let mut bits: u32 = 0;
        for position in 0..4 {
            bits = bits << 6 | group.get(position).map_or(Some(0), |digit| value(*digit))?;
        }
        let [_, whole @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(whole.get(..group.len().checked_sub(1)?)?);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    Some(match digit {
        b'A'..=b'Z' => u32::from(digit - b'A'),
        b'a'..=b'z' => u32::from(digit - b'a') + 26,
        b'0'..=b'9' => u32::from(digit - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}
