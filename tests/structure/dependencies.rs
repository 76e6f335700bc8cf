//! Licences, sources and bans of dependencies, as `deny.toml` has them for cargo-deny. This needs no network.

use crate::tree::root;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// The only registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The strings of a list in `deny.toml`.
fn listed(key: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text.split_once(&format!("\n{key} = [")).unwrap_or_else(|| panic!("deny.toml has no {key}")).1;
    let list = list.split_once("\n]").unwrap().0;
    list.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(quoted).collect()
}

fn quoted(line: &str) -> Option<String> {
    line.split('"').nth(1).map(str::to_owned)
}

/// All packages of this platform, our own included.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let Value::Array(packages) = metadata["packages"].take() else { panic!("no packages") };
    packages
}

/// True if a licence expression of SPDX can be met with these licences. Old manifests write `/` for `OR`.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest, allowed) && rest.is_empty()
}

fn any(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = all(rest, allowed);
    while let ["OR", after @ ..] = *rest {
        *rest = after;
        met |= all(rest, allowed);
    }
    met
}

fn all(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut met = one(rest, allowed);
    while let ["AND", after @ ..] = *rest {
        *rest = after;
        met &= one(rest, allowed);
    }
    met
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match *rest {
        ["(", after @ ..] => {
            *rest = after;
            let met = any(rest, allowed);
            let [")", after @ ..] = *rest else { return false };
            *rest = after;
            met
        }
        [name, "WITH", exception, after @ ..] => {
            *rest = after;
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        [name, after @ ..] => {
            *rest = after;
            allowed.contains(*name)
        }
        [] => false,
    }
}

#[test]
fn licence_expressions_are_read() {
    let allowed: BTreeSet<String> = ["MIT", "ISC", "A WITH B"].map(str::to_owned).into();
    for expression in ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "(GPL-3.0 OR ISC) AND MIT", "MIT AND A WITH B"] {
        assert!(is_met(expression, &allowed), "{expression}");
    }
    for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "A", "(MIT", "MIT ISC"] {
        assert!(!is_met(expression, &allowed), "{expression}");
    }
}

#[test]
fn dependencies_are_as_deny_toml_says() {
    let (allowed, banned) = (listed("allow"), listed("deny"));
    assert!(allowed.contains("Apache-2.0 WITH LLVM-exception") && banned.contains("openssl-sys"), "{banned:?}");
    let packages = packages();
    assert!(packages.len() > 300, "{} packages", packages.len());
    let mut wrong = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_met(licence, &allowed) {
            wrong.push(format!("{name}: licence {licence:?} is not allowed"));
        }
        if !package["source"].is_null() && package["source"] != REGISTRY {
            wrong.push(format!("{name}: comes from {}", package["source"]));
        }
        if banned.contains(name) {
            wrong.push(format!("{name}: is banned"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
