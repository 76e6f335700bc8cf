//! Environment variables that tests read. One that is set to nonsense, or whose name is misspelt, fails the test that
//! asks.

use anyhow::{Context, Result, bail};
use napkeeper_sim::fuzz::seeds;
use std::ffi::OsString;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

const PREFIX: &str = "NAPKEEPER_";
/// All that anything reads, without the prefix.
const KNOWN: [&str; 13] = [
    "BIN",
    "BLESS",
    "CACHE",
    "FUZZ_INPUTS",
    "KILLS",
    "NODES",
    "REVIEWS",
    "SEED",
    "SEEDS",
    "TEST_LOGS",
    "TEST_VICTIM",
    "TIMELINE",
    "WORKLOADS",
];

/// The number that a variable holds, or the usual one where it is not set.
///
/// # Errors
/// When it holds no such number, or a variable of ours is set that nothing reads.
pub fn number<T: FromStr<Err: Display>>(name: &str, usual: T) -> Result<T> {
    let Some(text) = value(name, std::env::vars_os())? else { return Ok(usual) };
    text.parse().map_err(|error| anyhow::anyhow!("{name}={text}: {error}"))
}

/// The seeds that a variable names, as in `300` or `17..18`; where it is not set, so many from 0.
///
/// # Errors
/// When it names none, or a variable of ours is set that nothing reads.
pub fn seed_range(name: &str, usual: u64) -> Result<Range<u64>> {
    let Some(text) = value(name, std::env::vars_os())? else { return Ok(0..usual) };
    seeds(&text).map_err(|error| anyhow::anyhow!("{name}: {error}"))
}

fn value(name: &str, all: impl Iterator<Item = (OsString, OsString)>) -> Result<Option<String>> {
    let mut found = None;
    for (key, value) in all {
        let Some(key) = key.to_str().filter(|key| key.starts_with(PREFIX)) else { continue };
        if !KNOWN.contains(&&key[PREFIX.len()..]) {
            bail!("nothing reads {key}: unset it, or correct its name; there are {PREFIX}{{{}}}", KNOWN.join(","));
        }
        if key == name {
            found = Some(value.into_string().ok().with_context(|| format!("{name} is not text"))?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(all: &[(&str, &str)]) -> Result<Option<String>> {
        value("NAPKEEPER_SEEDS", all.iter().map(|(key, value)| (key.into(), value.into())))
    }

    #[test]
    fn a_variable_that_nothing_reads_is_refused() {
        assert_eq!(given(&[("PATH", "/bin"), ("NAPKEEPER_BLESS", "1")]).unwrap(), None);
        assert_eq!(given(&[("NAPKEEPER_SEEDS", "1..2")]).unwrap().as_deref(), Some("1..2"));
        let refused = given(&[("NAPKEEPER_SEDES", "1..2")]).unwrap_err().to_string();
        assert!(refused.contains("nothing reads NAPKEEPER_SEDES"), "{refused}");
    }
}
