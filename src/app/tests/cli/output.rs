//! The output of a program, and its comparison with golden files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Output;

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Compares with the committed file, which must exist; `NAPKEEPER_BLESS=1` writes it instead.
pub(crate) fn assert_golden(path: &Path, actual: &str) {
    if std::env::var_os("NAPKEEPER_BLESS").is_some_and(|value| value == "1") {
        fs::write(path, actual).unwrap();
    }
    assert_same(path, actual);
}

fn assert_same(path: &Path, actual: &str) {
    let file = path.display();
    let expected = fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{file}: {error}; run the test with NAPKEEPER_BLESS=1 to create it"));
    assert_eq!(actual, expected, "{file} differs; if that is intended, run the test with NAPKEEPER_BLESS=1");
}

#[test]
fn a_missing_golden_file_is_not_an_empty_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("missing.txt");
    assert!(std::panic::catch_unwind(|| assert_same(&path, "")).is_err());
    fs::write(&path, "").unwrap();
    assert_same(&path, "");
}
