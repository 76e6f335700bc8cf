//! Names, label keys and label values that Kubernetes allows.

/// Lower-case letters, digits and `-`, at most 63; begins and ends with a letter or a digit.
#[must_use]
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_label_of_any_length(text)
}

/// The same, however long.
#[must_use]
pub fn is_label_of_any_length(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| plain(*b))
        && bytes.last().is_some_and(|b| plain(*b))
        && bytes.iter().all(|b| plain(*b) || *b == b'-')
}

/// Labels with dots between them, at most 253 characters.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label_of_any_length)
}

/// Letters, digits, `-`, `_` and `.`, at most 63; begins and ends with a letter or a digit.
fn is_name_part(text: &str) -> bool {
    text.len() <= 63 && is_name_part_of_any_length(text)
}

/// The same, however long.
#[must_use]
pub fn is_name_part_of_any_length(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// A key of a label: a name, or a domain and a name.
#[must_use]
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => !domain.is_empty() && is_subdomain(domain) && is_name_part(name),
        None => is_name_part(text),
    }
}

/// A value of a label: nothing, or like a name.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

/// A `generateName` prefix for validation: a trailing dash is masked, since a suffix follows, as on the API server.
#[must_use]
pub fn masked(prefix: &str) -> String {
    let mut text = prefix.to_owned();
    if prefix.len() > 1 && prefix.ends_with('-') {
        text.pop();
        text.pop();
        text.push('a');
    }
    text
}

/// A part of a URL's path.
#[must_use]
pub fn is_path_segment(text: &str) -> bool {
    !matches!(text, "." | "..") && !text.contains(['/', '%'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_kubernetes() {
        assert!(is_subdomain("a.b-c.1") && !is_subdomain("a..b") && !is_subdomain("A") && !is_subdomain(""));
        assert!(is_subdomain(&"a".repeat(253)) && !is_subdomain(&"a".repeat(254)));
        assert!(is_qualified_name("example.com/A_b.c") && is_qualified_name("a"));
        assert!(!is_qualified_name("/a") && !is_qualified_name("a/") && !is_qualified_name("a/b/c"));
        assert!(!is_qualified_name("Example.com/a") && !is_qualified_name(&"a".repeat(64)));
        assert_eq!(["a-", "ab-", "é-", "-", "a"].map(masked), ["a", "aa", "a", "-", "a"]);
        assert!(is_label_value("") && is_label_value("A.b_c-1") && !is_label_value("-a") && !is_label_value("a b"));
    }
}
