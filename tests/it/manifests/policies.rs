//! The policies that ship, with their cases.

use anyhow::{Context, Result};
use napkeeper_tests::manifests::repository;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The cases of all policies: policy, name of the file, file.
pub(crate) fn cases() -> Result<Vec<(String, String, PathBuf)>> {
    let mut cases = Vec::new();
    for folder in fs::read_dir(repository("policies/cases"))? {
        let folder = folder?.path();
        let policy = folder.file_name().context("a folder has a name")?.to_string_lossy().into_owned();
        for file in fs::read_dir(&folder)? {
            let file = file?.path();
            let name = file.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
            cases.push((policy.clone(), name, file));
        }
    }
    cases.sort();
    Ok(cases)
}

#[test]
fn every_policy_has_two_cases_of_each_sort() -> Result<()> {
    let mut expected = BTreeSet::new();
    for entry in fs::read_dir(repository("policies"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_policy = path.extension().is_some_and(|e| e == "yaml") && name != "kustomization" && name != "params";
        if is_policy {
            let text = fs::read_to_string(&path)?;
            assert!(text.starts_with("# "), "{name} does not say why it is there");
            assert!(text.contains(&format!("\n  policyName: {name}\n")), "{name} has no binding of its own");
            expected.insert(name);
        }
    }
    let cases = cases()?;
    for policy in &expected {
        for sort in ["allow-", "deny-"] {
            let n = cases.iter().filter(|(p, name, _)| p == policy && name.starts_with(sort)).count();
            assert!(n >= 2, "{policy} has {n} cases {sort}*");
        }
    }
    let listed = fs::read_to_string(repository("policies/kustomization.yaml"))?;
    assert!(expected.len() >= 10 && expected.iter().all(|p| listed.contains(&format!("  - {p}.yaml\n"))));
    let with_cases: BTreeSet<_> = cases.into_iter().map(|(policy, _, _)| policy).collect();
    assert_eq!(with_cases, expected);
    Ok(())
}
