//! FNV-1a, stable across versions.

/// FNV-1a, 64 bits (Fowler, Noll and Vo). It spreads, and is not hard to guess.
#[must_use]
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mixed = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, mixed)
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    #[test]
    fn it_is_the_published_function() {
        // From the test vectors of the authors' draft-eastlake-fnv.
        assert_eq!(fnv1a(*b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(*b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
    }
}
