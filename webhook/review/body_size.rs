//! Sizes of requests: how much memory and work a body takes.
//!
//! The length says little: a list of digits grows twentyfold when parsed, and each item may cause a finding. So values
//! are counted before parsing.

/// Most values of a review. A real object takes at least some 15 bytes for each, the API server stores 1.5 MiB, and an
/// update holds two: more than this is no review.
pub(crate) const MAX_VALUES: usize = 200_000;
/// A review with more values is large: a pod has some hundred values, with managed fields a thousand.
const LARGE_VALUES: usize = 5_000;
/// A shorter body with few values is processed inline, such as an update of a NodePool.
const SMALL_BYTES: usize = 16 << 10;
const SMALL_VALUES: usize = 1_000;

/// How a body is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestSize {
    /// Inline: it is fast, whatever its content.
    Small,
    /// Without an exclusive slot.
    Medium,
    /// One after the other.
    Large,
    /// Not at all.
    TooLarge,
}

impl RequestSize {
    pub(crate) fn of_body(body: &[u8]) -> Self {
        if body.len() <= SMALL_BYTES && count_separators(body) <= SMALL_VALUES {
            return Self::Small;
        }
        match count_values(body) {
            found if found > MAX_VALUES => Self::TooLarge,
            found if found > LARGE_VALUES => Self::Large,
            found if found <= SMALL_VALUES && body.len() <= SMALL_BYTES => Self::Small,
            _ => Self::Medium,
        }
    }
}

/// As many as [`count_values`] or more, for less: those in strings count too.
fn count_separators(body: &[u8]) -> usize {
    body.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

/// Counts lists, objects and commas outside of strings.
fn count_values(body: &[u8]) -> usize {
    let (mut found, mut inside, mut escaped) = (0, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b',' | b'[' | b'{' if !inside => found += 1,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_text_is_not() {
        assert_eq!(count_values(br#"{"a":[1,2,{"b":"[1,2,3]"}],"c":"\",\"{"}"#), 6);
    }

    #[test]
    fn a_list_of_digits_is_large_and_a_long_text_is_not() {
        let list = |values: usize| format!("[{}0]", "0,".repeat(values));
        assert_eq!(RequestSize::of_body(list(900).as_bytes()), RequestSize::Small);
        assert_eq!(RequestSize::of_body(list(4_000).as_bytes()), RequestSize::Medium);
        assert_eq!(RequestSize::of_body(list(10_000).as_bytes()), RequestSize::Large);
        assert_eq!(RequestSize::of_body(list(200_000).as_bytes()), RequestSize::TooLarge);
        assert_eq!(RequestSize::of_body(format!("{{\"a\":\"{}\"}}", list(300_000)).as_bytes()), RequestSize::Medium);
    }
}
