//! Output: what has a program said, and is it what was committed?

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Output;

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Compares with the committed file; `NAPKEEPER_BLESS=1` writes it anew.
pub(crate) fn assert_golden(path: &Path, actual: &str) {
    if std::env::var_os("NAPKEEPER_BLESS").is_some() {
        fs::write(path, actual).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    let file = path.display();
    assert_eq!(actual, expected, "{file} differs; if that is meant, run the test with NAPKEEPER_BLESS=1");
}
