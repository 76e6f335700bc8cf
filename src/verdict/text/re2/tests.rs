use super::*;

/// Each pattern with what it finds and what it does not, as Go 1.26 has it.
#[test]
fn patterns_match_as_in_go() {
    for (pattern, finds, misses) in [
        (r"^\d+$", "12", "１２"),
        (r"^[\w-]+$", "a-b_1", "é"),
        (r"^\S+\s\S+$", "a b", "a\u{a0}b"),
        (r"^[^\d]$", "a", "1"),
        (r"^[^\D]$", "1", "a"),
        (r"^{$", "{", ""),
        (r"^a{,5}$", "a{,5}", "aaa"),
        (r"^a{2,3}$", "aaa", "aaaa"),
        (r"^a{02}$", "a{02}", "aa"),
        (r"^\Qa.b{\E$", "a.b{", "axb{"),
        (r"^[\d-x]$", "-", "a"),
        (r"^[a&&b]$", "&", "c"),
        (r"^[a~~b]$", "~", "c"),
        (r"^[[a]$", "[", "b"),
        (r"^[]a]$", "]", "b"),
        (r"^[^]a]$", "b", "]"),
        (r"^[[:alpha:]]$", "b", "1"),
        (r"^[[:^alpha:]]$", "1", "b"),
        (r"^[+--]$", ",", "."),
        (r"^\<a\>$", "<a>", "a"),
        (r"^(?i)ab$", "AB", "ac"),
        (r"^(?P<x>a)(?<y>b)$", "ab", "a"),
        (r"^\x41\x{42}\103$", "ABC", "abc"),
        (r"^\pL\p{Greek}\p{^Greek}$", "aαb", "aαα"),
        (r"^.$", "é", "\n"),
        (r"^a$", "a", "a\n"),
        (r"^a\B", "ab", "aα"),
        (r"(?)a\b", "a", "ab"),
        (r"a b#c", "xa b#cx", "abc"),
        (r"^\Aa*?\z$", "aa", "b"),
        (r"^a(?i:B)c$", "abc", "abC"),
    ] {
        let compiled = Pattern::new(pattern).unwrap();
        assert!(compiled.matches(finds), "{pattern} {finds}");
        assert!(!compiled.matches(misses), "{pattern} {misses}");
    }
}

#[test]
fn patterns_that_go_rejects_are_rejected() {
    for pattern in [
        "a++",
        "a**",
        "*a",
        "(",
        ")",
        "[a",
        "a{1001}",
        "(a{100}){11}",
        "a{3,2}",
        r"\u0041",
        r"\1",
        "[z-a]",
        "[a--]",
        "(?=a)",
        "(?<=a)b",
        "(?!a)",
        "(?x)a",
        "(?P<>a)",
        r"\",
        r"\q",
        r"\Z",
        r"\é",
        r"[\b]",
        "[[:foo:]]",
        r"\p{Foo}",
        r"\p{sc=Greek}",
        r"\x{110000}",
        "(?",
        "a{2}{3}",
        r"[\d-\w]]\",
        "(?i-)a",
    ] {
        assert!(Pattern::new(pattern).is_err(), "{pattern}");
    }
}

#[test]
fn an_error_names_the_pattern() {
    let error = Pattern::new("a++").unwrap_err().to_string();
    assert_eq!(error, "\"a++\" is not a valid RE2 regular expression: two quantifiers in a row");
}

proptest::proptest! {
    #[test]
    fn translating_never_panics(pattern in "[-a-z0-9\\\\\\[\\](){}^$.|?*+:<>QEdwsxpP,é]{0,24}") {
        let _ = translate(&pattern);
    }
}
