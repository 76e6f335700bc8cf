//! `napkeeper policies`: prints the ValidatingAdmissionPolicies of `policies/` for `kubectl apply`.
//!
//! A cluster enforces them without any process of napkeeper's.

use super::Outcome;
use super::output::alternatives;
use anyhow::bail;
use clap::ValueEnum;
use std::io::Write;

const EXAMPLES: &str = "\
Examples:
  napkeeper policies export | kubectl apply --server-side -f -
  napkeeper policies export --action deny nodepool-limits nodepool-mistakes
  napkeeper policies export definitions in-use      only the delete guards
  napkeeper policies export approvals               who may permit deletions
  napkeeper policies export --guards off > policies.yaml";

/// The policies.
const POLICIES: &[(&str, &str)] = &[
    ("nodeclass-image-family", include_str!("../../policies/nodeclass-image-family.yaml")),
    ("nodeclass-os-disk", include_str!("../../policies/nodeclass-os-disk.yaml")),
    ("nodepool-budgets", include_str!("../../policies/nodepool-budgets.yaml")),
    ("nodepool-expiry", include_str!("../../policies/nodepool-expiry.yaml")),
    ("nodepool-families", include_str!("../../policies/nodepool-families.yaml")),
    ("nodepool-gpu-taints", include_str!("../../policies/nodepool-gpu-taints.yaml")),
    ("nodepool-grace-period", include_str!("../../policies/nodepool-grace-period.yaml")),
    ("nodepool-limits", include_str!("../../policies/nodepool-limits.yaml")),
    ("nodepool-mistakes", include_str!("../../policies/nodepool-mistakes.yaml")),
    ("nodepool-owner", include_str!("../../policies/nodepool-owner.yaml")),
    ("nodepool-regions", include_str!("../../policies/nodepool-regions.yaml")),
    ("nodepool-spot", include_str!("../../policies/nodepool-spot.yaml")),
    ("workload-do-not-disrupt", include_str!("../../policies/workload-do-not-disrupt.yaml")),
    ("workload-requests", include_str!("../../policies/workload-requests.yaml")),
];
/// Parameters of policies.
const PARAMS: &str = include_str!("../../policies/params.yaml");
/// The delete guards.
const GUARDS: &[(&str, &str)] = &[
    ("definitions", include_str!("../../policies/guards/definitions.yaml")),
    ("in-use", include_str!("../../policies/guards/in-use.yaml")),
];
/// Policies that need rights to be granted first: printed only by name.
const RIGHTS: &[(&str, &str)] = &[
    ("approvals", include_str!("../../policies/rights/approvals.yaml")),
    ("orphan-records", include_str!("../../policies/rights/orphan-records.yaml")),
];

/// ValidatingAdmissionPolicies for clusters.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Export(Export),
}

/// Print the policies and delete guards as YAML for kubectl.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct Export {
    /// Names of policies. Defaults to all but "approvals" and "orphan-records", which need rights to be granted first.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// What policies do with an object that violates them.
    #[arg(long, value_enum, default_value_t = Action::Warn, value_name = "ACTION")]
    action: Action,
    /// What delete guards do if an object in use is deleted.
    #[arg(long, value_enum, default_value_t = Guard::Deny, value_name = "ACTION")]
    guards: Guard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Action {
    /// Allow it with a warning.
    Warn,
    /// Deny it.
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Guard {
    /// Do not print them.
    Off,
    /// Allow it with a warning.
    Warn,
    /// Deny it.
    Deny,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let Command::Export(export) = &args.command;
    let mut out = anstream::stdout().lock();
    for text in selected(export)? {
        write!(out, "---\n{text}")?;
    }
    Ok(Outcome::Fine)
}

/// The selected texts in the order in which they can be applied: parameters before policies that need them.
fn selected(export: &Export) -> anyhow::Result<Vec<String>> {
    let Export { names, action, guards } = export;
    let known = POLICIES.iter().chain(GUARDS).chain(RIGHTS).map(|(name, _)| *name);
    if let Some(wrong) = names.iter().find(|name| known.clone().all(|k| k != **name)) {
        bail!("unknown policy {wrong:?}: {}", alternatives(wrong, known));
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let mut texts = Vec::new();
    let policies: Vec<&str> = POLICIES.iter().filter(|(name, _)| wanted(name)).map(|(_, text)| *text).collect();
    if policies.iter().any(|text| text.contains("paramRef:")) {
        texts.push(PARAMS.to_owned());
    }
    let to = if *action == Action::Deny { "[Deny]" } else { "[Warn]" };
    texts.extend(policies.into_iter().map(|text| text.replace("[Warn]", to)));
    if *guards != Guard::Off {
        let to = if *guards == Guard::Deny { "[Deny]" } else { "[Warn]" };
        texts.extend(GUARDS.iter().filter(|(name, _)| wanted(name)).map(|(_, text)| text.replace("[Deny]", to)));
    }
    let named = RIGHTS.iter().filter(|(name, _)| names.iter().any(|n| n == name));
    texts.extend(named.map(|(_, text)| (*text).to_owned()));
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Names of the policies in a folder.
    fn files(folder: &str) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let yaml = entries.filter(|path| path.extension().is_some_and(|e| e == "yaml"));
        let names = yaml.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
        names.filter(|name| name != "kustomization" && name != "params").collect()
    }

    #[test]
    fn every_file_is_part_of_the_binary() {
        let names = |table: &[(&str, &str)]| table.iter().map(|(name, _)| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(names(POLICIES), files("policies"));
        assert_eq!(names(GUARDS), files("policies/guards"));
        assert_eq!(names(RIGHTS), files("policies/rights"));
    }

    #[test]
    fn the_action_is_that_of_every_binding() {
        let count = |text: &str, pattern: &str| text.matches(pattern).count();
        let all = |action, guards| selected(&Export { names: Vec::new(), action, guards }).unwrap().join("");
        let bindings = count(&all(Action::Warn, Guard::Deny), "kind: ValidatingAdmissionPolicyBinding");
        let guards =
            count(&GUARDS.iter().map(|(_, text)| *text).collect::<String>(), "kind: ValidatingAdmissionPolicyBinding");
        assert_eq!(bindings, POLICIES.len() + guards);
        let says = |text: &str| (count(text, "validationActions: [Warn]"), count(text, "validationActions: [Deny]"));
        assert_eq!(says(&all(Action::Warn, Guard::Deny)), (POLICIES.len(), guards));
        assert_eq!(says(&all(Action::Deny, Guard::Deny)), (0, bindings));
        assert_eq!(says(&all(Action::Deny, Guard::Warn)), (guards, POLICIES.len()));
        assert_eq!(says(&all(Action::Warn, Guard::Off)), (POLICIES.len(), 0));
    }
}
