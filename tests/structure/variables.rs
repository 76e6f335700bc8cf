//! Environment variables of the tests: what a page or a script sets is read, and what is read is known.

use crate::tree::{files, root};
use std::collections::BTreeSet;
use std::{fs, io};

const PREFIX: &str = "NAPKEEPER_";
/// Where a variable that is set is refused unless it is listed.
const LIST: &str = "tests/support/options.rs";
/// A test sets it for a process that it starts; nobody else does.
const INTERNAL: &str = "NAPKEEPER_TEST_VICTIM";

/// The variables that a text names.
fn named(text: &str) -> BTreeSet<String> {
    let rest = text.split(PREFIX).skip(1);
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect::<String>();
    rest.map(name).filter(|name| !name.is_empty()).map(|name| format!("{PREFIX}{name}")).collect()
}

/// What the texts of some pages and scripts name.
fn named_by(paths: &[&str]) -> io::Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for path in paths {
        all.extend(named(&fs::read_to_string(root().join(path))?));
    }
    Ok(all)
}

#[test]
fn each_variable_is_read_and_listed_and_described() -> io::Result<()> {
    let code = files(&["src", "webhook", "tests"], &["rs"])?;
    let own = code.iter().filter(|source| !source.path.starts_with("tests/structure") && !source.path.ends_with(LIST));
    let read: BTreeSet<String> = own
        .flat_map(|source| source.text.lines().filter(|line| !line.trim_start().starts_with("//")))
        .flat_map(named)
        .collect();
    assert!(read.len() > 8, "{read:?}");

    let list = fs::read_to_string(root().join(LIST))?;
    let list = list.split("const KNOWN").nth(1).and_then(|rest| rest.split("];").next()).unwrap_or_default();
    let listed: BTreeSet<String> = list.split('"').skip(1).step_by(2).map(|name| format!("{PREFIX}{name}")).collect();
    assert_eq!(read, listed, "what is read (left) and what {LIST} lists (right)");

    let contributing = named_by(&["CONTRIBUTING.md"])?;
    let missing: Vec<_> = read.difference(&contributing).filter(|name| *name != INTERNAL).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md does not describe {missing:?}");
    let set = named_by(&["CONTRIBUTING.md", "README.md", "docs/architecture.md", ".ci/run", ".ci/nightly"])?;
    let unread: Vec<_> = set.difference(&read).collect();
    assert!(unread.is_empty(), "nothing reads {unread:?}");
    Ok(())
}

#[test]
fn variables_are_found_in_a_text() {
    let text = "NAPKEEPER_SEEDS=0..2 NAPKEEPER_BIN, and NAPKEEPER_ alone";
    assert_eq!(named(text), ["NAPKEEPER_BIN", "NAPKEEPER_SEEDS"].map(str::to_owned).into());
}
