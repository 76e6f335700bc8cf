//! Files keep to the sizes and the constructs that are allowed.
//!
//! Clippy checks functions; these rules are about files, and about what no lint looks for.

use crate::tree::{Source, files, product, root};
use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

/// Most lines of a file before its tests.
const LONGEST_FILE: usize = 400;

/// Tests of core take the generator of large clusters from its example, which cannot see what is compiled for tests.
const SHARED_GENERATOR: &str = "src/core/orphans/tests/scale.rs";

/// Where the deletion rules can be switched off for tests.
const DELETION_RULES: &str = "src/core/model/settings/deletion_rules.rs";

/// Words that are not written, where, and why.
const BANNED: &[(&str, &str, &str)] = &[
    ("todo!", "", "a stub is not done"),
    ("unimplemented!", "", "a stub is not done"),
    ("HashMap", "src/core", "its order differs between runs: use BTreeMap"),
    ("HashSet", "src/core", "its order differs between runs: use BTreeSet"),
    ("request.await", "src/azure", "awaiting a builder of the ARM crates repeats its PUT at each look: use .send()"),
];

/// A sentence for each file that is too long.
fn too_long(sources: &[Source]) -> Vec<String> {
    product(sources)
        .into_iter()
        .map(|source| (source.path.display(), source.before_tests().lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(path, lines)| {
            format!("{path} has {lines} lines before its tests, more than {LONGEST_FILE}: split it by what it does")
        })
        .collect()
}

/// A sentence for each product file that switches deletion rules off.
fn weakens_rules(sources: &[Source]) -> Vec<String> {
    let weakens = |source: &&&Source| {
        source.before_tests().contains("without_in_tests") && source.path != Path::new(DELETION_RULES)
    };
    let wrong = |source: &Source| format!("{}: only tests may switch deletion rules off", source.path.display());
    product(sources).iter().filter(weakens).map(|source| wrong(source)).collect()
}

/// A sentence for each module whose place is not the usual one.
fn misplaced(sources: &[Source]) -> Vec<String> {
    let paths: BTreeSet<_> = sources.iter().map(|source| source.path.clone()).collect();
    let mut wrong = Vec::new();
    for Source { path, text } in sources {
        let folder = path.with_extension("");
        if paths.iter().any(|other| other.starts_with(&folder) && other != path) {
            wrong.push(format!("{}: a module with files of its own is {}/mod.rs", path.display(), folder.display()));
        }
        if folder.file_name().is_some_and(|name| name.to_string_lossy().ends_with("_tests")) {
            wrong.push(format!("{}: tests of a module are in tests.rs or tests/ of its folder", path.display()));
        }
        if text.lines().any(|line| line.trim_start().starts_with("#[path")) && path != Path::new(SHARED_GENERATOR) {
            wrong.push(format!("{}: a module is where its name says, without #[path]", path.display()));
        }
    }
    wrong
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

/// Every Rust file of the crates that ship, with its tests.
fn sources() -> io::Result<Vec<Source>> {
    files(&["src", "webhook"], &["rs"])
}

/// A page that says by which tests something holds must not outlive them.
#[test]
fn tests_that_a_decision_names_exist() -> io::Result<()> {
    let page = fs::read_to_string(root().join("docs/decisions/0042-how-webhooks-hurt.md"))?;
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what happened"));
    let cells: Vec<&str> = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next()).collect();
    assert!(cells.len() > 12, "{} rows", cells.len());
    let all = files(&["src", "webhook", "tests"], &["rs"])?;
    let lines = all.iter().flat_map(|source| source.text.lines()).filter(|line| line.contains("fn "));
    let functions: String = lines.map(|line| format!("{line}\n")).collect();
    let named: BTreeSet<&str> = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let missing: Vec<_> = named.iter().filter(|name| !functions.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no test is called {missing:?}");
    assert!(cells.iter().all(|cell| cell.contains('`')), "a row names no test");
    Ok(())
}

/// Cargo gives it to every test that it runs; without it, each run of the properties would have cases of its own.
#[test]
fn the_seed_of_properties_is_fixed() {
    let seed = std::env::var("PROPTEST_RNG_SEED").unwrap_or_default();
    assert!(seed.parse::<u64>().is_ok(), "PROPTEST_RNG_SEED is {seed:?}: .cargo/config.toml sets it");
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
fn only_tests_switch_deletion_rules_off() -> io::Result<()> {
    let wrong = weakens_rules(&sources()?);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_product_file_that_switches_rules_off_is_named() {
    let text = "fn rules() -> Law { Law::without_in_tests(&[]) }\n";
    let sources = [
        Source::new("src/app/cli/audit.rs", text),
        Source::new("src/app/cli/mod.rs", "#[cfg(test)]\nmod tests;\n"),
        Source::new("src/app/cli/tests.rs", text),
        Source::new(DELETION_RULES, text),
    ];
    let wrong = weakens_rules(&sources);
    assert!(matches!(&wrong[..], [one] if one.starts_with("src/app/cli/audit.rs")), "{wrong:?}");
}

#[test]
fn modules_are_where_their_names_say() -> io::Result<()> {
    let wrong = misplaced(&files(&["src", "webhook", "tests"], &["rs"])?);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_module_elsewhere_is_named() {
    let wrong = misplaced(&[
        Source::new("src/core/plan.rs", "mod step;\n"),
        Source::new("src/core/plan/step.rs", "#[path = \"x.rs\"]\nmod x;\n"),
        Source::new("src/core/step_tests.rs", ""),
        Source::new("src/core/model/mod.rs", "mod pod;\n"),
        Source::new("src/core/model/pod.rs", ""),
    ]);
    assert!(
        matches!(&wrong[..], [a, b, c] if a.contains("src/core/plan/mod.rs") && b.contains("#[path]") && c.contains("tests.rs")),
        "{wrong:?}"
    );
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
