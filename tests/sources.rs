//! Sources: does every file keep to the sizes and the words that the house allows?
//!
//! Clippy checks functions; these rules are about files, and about words that may hide where no lint looks.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Most lines of a file before its tests.
const LONGEST_FILE: usize = 400;

/// Words that are not written, where, and why.
const BANNED: &[(&str, &str, &str)] = &[
    ("todo!", "", "a stub is not done"),
    ("unimplemented!", "", "a stub is not done"),
    ("HashMap", "src/core", "its order differs between runs: use BTreeMap"),
    ("HashSet", "src/core", "its order differs between runs: use BTreeSet"),
    ("request.await", "src/azure", "awaiting a builder of the ARM crates repeats its PUT at each look: use .send()"),
];

/// A source file: its path below the root of the repository, and its text.
struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.to_owned() }
    }

    /// Lines before the tests: before the first `#[cfg(test)]` that opens a module in place.
    fn lines_before_tests(&self) -> usize {
        let lines: Vec<_> = self.text.lines().map(str::trim).collect();
        lines
            .windows(2)
            .position(|pair| is_test_attribute(pair[0]) && pair[1].starts_with("mod ") && pair[1].ends_with('{'))
            .unwrap_or(lines.len())
    }

    /// Files, without `.rs`, whose modules this one declares for tests alone.
    fn test_modules(&self) -> Vec<PathBuf> {
        let folder = match self.path.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib" | "main") | None => self.path.with_file_name(""),
            Some(_) => self.path.with_extension(""),
        };
        let lines: Vec<_> = self.text.lines().map(str::trim).collect();
        lines
            .windows(2)
            .filter(|pair| is_test_attribute(pair[0]))
            .filter_map(|pair| pair[1].strip_prefix("mod ")?.strip_suffix(';'))
            .map(|module| folder.join(module))
            .collect()
    }
}

fn is_test_attribute(line: &str) -> bool {
    line.starts_with("#[cfg(") && line.contains("test")
}

/// A sentence for each file that is too long.
fn too_long(sources: &[Source]) -> Vec<String> {
    let tests: BTreeSet<_> = sources.iter().flat_map(Source::test_modules).collect();
    let is_test = |source: &Source| {
        let module = source.path.with_extension("");
        module.ancestors().any(|above| tests.contains(above))
    };
    sources
        .iter()
        .filter(|source| !is_test(source))
        .map(|source| (source.path.display(), source.lines_before_tests()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(path, lines)| {
            format!(
                "{path} has {lines} lines before its tests, more than {LONGEST_FILE}: split it by question answered"
            )
        })
        .collect()
}

/// A sentence for each banned word outside comments.
fn banned_words(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Source { path, text } in sources {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for (word, folder, why) in BANNED {
                if path.starts_with(folder) && code.contains(word) {
                    wrong.push(format!("{}:{}: `{word}`: {why}", path.display(), number + 1));
                }
            }
        }
    }
    wrong
}

/// Every Rust file that ships.
fn sources() -> io::Result<Vec<Source>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("src"), PathBuf::from("webhook")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(entry.path())?;
                found.push(Source { path, text });
            }
        }
    }
    Ok(found)
}

/// A page that says by which tests something holds must not outlive them.
#[test]
fn tests_that_a_decision_names_exist() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("docs/decisions/0042-how-webhooks-hurt.md"))?;
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what happened"));
    let cells: Vec<&str> = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next()).collect();
    assert!(cells.len() > 12, "{} rows", cells.len());
    let mut functions = String::new();
    let mut folders = ["src", "webhook", "tests"].map(|folder| root.join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(path)?;
                functions.extend(text.lines().filter(|line| line.contains("fn ")).map(|line| format!("{line}\n")));
            }
        }
    }
    let named: BTreeSet<&str> = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let missing: Vec<_> = named.iter().filter(|name| !functions.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no test is called {missing:?}");
    assert!(cells.iter().all(|cell| cell.contains('`')), "a row names no test");
    Ok(())
}

#[test]
fn no_file_is_too_long() -> io::Result<()> {
    let sources = sources()?;
    assert!(sources.len() > 30, "only {} files were read", sources.len());
    let wrong = too_long(&sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn no_file_holds_a_banned_word() -> io::Result<()> {
    let wrong = banned_words(&sources()?);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_long_file_is_named_and_its_tests_do_not_count() {
    let lines = |count: usize| "let x = 1;\n".repeat(count);
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(500));
    let sources = [
        Source::new("src/a/long.rs", &lines(401)),
        Source::new("src/a/fits.rs", &(lines(400) + &tests)),
        Source::new("src/a/grew.rs", &(lines(401) + &tests)),
        Source::new("src/a/mod.rs", "#[cfg(test)]\nmod golden;\nmod long;\n"),
        Source::new("src/a/golden.rs", &lines(401)),
        Source::new("src/a/golden/table.rs", &lines(401)),
        Source::new("src/a/outer.rs", "#[cfg(all(test, feature = \"x\"))]\nmod tests;\n"),
        Source::new("src/a/outer/tests.rs", &lines(401)),
    ];
    let wrong = too_long(&sources);
    assert!(
        matches!(&wrong[..], [a, b] if a.starts_with("src/a/long.rs has 401") && b.starts_with("src/a/grew.rs has 401")),
        "{wrong:?}"
    );
}

#[test]
fn a_banned_word_is_named_with_its_line() {
    let wrong = banned_words(&[
        Source::new("src/core/a.rs", "// A HashMap would not do.\nuse std::collections::HashMap;\n"),
        Source::new("src/app/a.rs", "use std::collections::HashMap;\nfn f() { todo!() }\n"),
    ]);
    assert!(
        matches!(&wrong[..], [a, b] if a.starts_with("src/core/a.rs:2: `HashMap`") && b.starts_with("src/app/a.rs:2: `todo!`")),
        "{wrong:?}"
    );
}
