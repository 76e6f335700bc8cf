//! Policy flags: policies, their parameters, namespaces, and the user of requests.

use crate::output::path_list;
use anyhow::bail;
use napkeeper_api::manifests::{self, Source, describe, items};
use napkeeper_verdict::policy::{Inputs, Policies, User};
use napkeeper_verdict::rules::policies as rules;
use napkeeper_verdict::{Finding, Severity};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Policies, and the objects that they may refer to.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Policies")]
pub(super) struct PolicyArgs {
    /// File or directory with ValidatingAdmissionPolicies and their bindings. Overrides napkeeper.yaml. Repeatable.
    #[arg(long, value_name = "PATH")]
    policies: Vec<PathBuf>,
    /// User for policies that read request.userInfo: a name, followed by groups, separated by commas.
    #[arg(long = "as", value_name = "USER[,GROUP...]", value_parser = user)]
    user: Option<User>,
    /// File with the Namespace of objects without one, or with several Namespaces. Repeatable.
    #[arg(long, value_name = "FILE")]
    namespace_object: Vec<PathBuf>,
    /// File or directory with all parameter objects: any other is treated as missing. Repeatable.
    #[arg(long, value_name = "PATH")]
    params: Vec<PathBuf>,
    /// Report policies that cannot be evaluated as errors.
    #[arg(long)]
    fail_on_undecided: bool,
}

/// Policies with their inputs.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadedPolicies {
    /// The policies.
    pub(super) policies: Arc<Policies>,
    /// Inputs of the policies; the manifests are still to be added, with [`Inputs::with_render`].
    pub(super) inputs: Inputs,
    /// The files that the policies are in.
    pub(super) sources: Vec<Source>,
}

impl PolicyArgs {
    /// Loads the policies of `--policies`, or else those of the cluster.
    ///
    /// # Errors
    /// When a path cannot be read, or there is no policy in them.
    pub(super) fn load(&self, of_cluster: &[PathBuf]) -> anyhow::Result<LoadedPolicies> {
        let paths = if self.policies.is_empty() { of_cluster } else { &self.policies };
        if paths.is_empty() {
            return Ok(LoadedPolicies::default());
        }
        let sources = read(paths)?;
        let policies = Policies::read(&sources);
        if policies.is_empty() && policies.problems().is_empty() {
            bail!("no ValidatingAdmissionPolicy found in {}", path_list(paths));
        }
        let mut inputs = Inputs::default().with_namespaces(objects(&self.namespace_object)?);
        if !self.params.is_empty() {
            inputs = inputs.with_all_params(objects(&self.params)?);
        }
        if let Some(user) = &self.user {
            inputs = inputs.with_user(user.clone());
        }
        Ok(LoadedPolicies { policies: Arc::new(policies), inputs, sources })
    }

    /// Turns undecided policies into errors with `--fail-on-undecided`.
    pub(super) fn weigh(&self, finding: &mut Finding) {
        if self.fail_on_undecided && finding.rule == rules::UNDECIDED.id {
            finding.severity = Severity::Error;
        }
    }
}

impl LoadedPolicies {
    /// The files with problems in policies, except those among the manifests, which are validated anyway.
    pub(super) fn problems(&self, manifests: &[Source]) -> Vec<(Source, Vec<Finding>)> {
        let others = self.sources.iter().filter(|s| !manifests.iter().any(|m| m.file == s.file));
        let wrong = |source: &Source| {
            let findings = self.policies.problems().iter().filter(|f| *f.file == *source.file);
            (source.clone(), findings.cloned().collect())
        };
        others.map(wrong).filter(|(_, findings): &(_, Vec<Finding>)| !findings.is_empty()).collect()
    }
}

/// The policies of a webhook. Every problem in them is an error.
///
/// # Errors
/// When a path cannot be read, there is no policy in them, or the API server would not take one.
pub(super) fn for_admission(paths: &[PathBuf]) -> anyhow::Result<Arc<Policies>> {
    let args = PolicyArgs { policies: paths.to_vec(), ..PolicyArgs::default() };
    let policies = args.load(&[])?.policies;
    let wrong: Vec<String> = (policies.problems().iter())
        .map(|Finding { file, line, column, message, .. }| format!("{file}:{line}:{column}: {message}"))
        .collect();
    match wrong.as_slice() {
        [] => Ok(policies),
        wrong => bail!("--policies: fix the policies, or omit them: {}", wrong.join("; ")),
    }
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    let loaded = manifests::load(paths);
    if let Some(problem) = loaded.unreadable.first() {
        bail!("{problem}");
    }
    // A policy that is left out would permit what it forbids.
    match describe(&loaded.others) {
        Some(others) => bail!("{}: cannot read {others}: render them first", path_list(paths)),
        None => Ok(loaded.files),
    }
}

/// The objects of some files, all of which must be readable.
fn objects(paths: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for source in read(paths)? {
        let reading = source.parsed();
        if let Some(problem) = reading.problems.first() {
            bail!("{}:{}: {}", source.file, problem.position, problem.message);
        }
        let items = reading.documents.iter().flat_map(items);
        objects.extend(items.map(|(_, object)| object.clone()));
    }
    Ok(objects)
}

fn user(text: &str) -> Result<User, String> {
    let mut parts = text.split(',').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let groups: Vec<String> = parts.map(str::to_owned).collect();
    if name.is_empty() || groups.iter().any(String::is_empty) {
        return Err("must be a name, optionally followed by groups, separated by commas".to_owned());
    }
    Ok(User { name: name.to_owned(), groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_name_and_groups() {
        let ann = User { name: "ann".into(), groups: vec!["ops".into(), "dev".into()] };
        assert_eq!(user("ann,ops, dev"), Ok(ann));
        assert!(user("").is_err() && user("ann,").is_err());
    }

    #[test]
    fn no_policies_are_loaded_without_paths_and_a_wrong_path_is_an_error() {
        let loaded = PolicyArgs::default().load(&[]).unwrap();
        assert!(loaded.policies.is_empty());
        assert!(PolicyArgs::default().load(&["no/such/folder".into()]).is_err());
    }
}
