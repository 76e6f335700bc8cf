//! The sources of each cluster, with its policies.

use super::super::args::Args;
use super::super::input::{Input, SourceOrigin};
use super::{Target, Targets};
use crate::policy_args::LoadedPolicies;
use napkeeper_api::config;

/// The sources of one target.
pub(in crate::validate) struct TargetSources<'t> {
    pub(in crate::validate) target: &'t Target,
    pub(in crate::validate) policies: LoadedPolicies,
    /// Positions of the sources in the input.
    pub(in crate::validate) sources: Vec<usize>,
}

/// Divides the sources by cluster. What belongs to none is validated by the flags alone, unless one cluster is selected.
pub(in crate::validate) fn divide<'t>(
    args: &Args,
    targets: &'t Targets,
    input: &Input,
) -> anyhow::Result<Vec<TargetSources<'t>>> {
    let by_name = args.facts.cluster.is_some();
    let is_config = |i: usize| input.sources.get(i).is_some_and(config::is_source);
    let mut is_assigned = vec![false; input.sources.len()];
    let mut by_target = Vec::new();
    for target in &targets.clusters {
        let mut sources = Vec::new();
        let paths = target.all_paths(&input.synced);
        for ((i, origin), is_assigned) in input.origins.iter().enumerate().zip(&mut is_assigned) {
            let is_selected = by_name && *origin == SourceOrigin::Stdin;
            if !is_config(i) && (is_selected || targets.owns(&paths, origin)) {
                sources.push(i);
                *is_assigned = true;
            }
        }
        by_target.push(of_target(args, target, sources)?);
    }
    // The settings are validated whichever cluster is selected.
    let all = 0..input.sources.len();
    let unassigned = all.filter(|i| is_assigned.get(*i) == Some(&false) && (!by_name || is_config(*i)));
    by_target.push(of_target(args, &targets.unassigned, unassigned.collect())?);
    by_target.retain(|of_target| !of_target.sources.is_empty());
    Ok(by_target)
}

fn of_target<'t>(args: &Args, target: &'t Target, sources: Vec<usize>) -> anyhow::Result<TargetSources<'t>> {
    Ok(TargetSources { target, policies: args.policies.load(&target.policies)?, sources })
}

/// Adds the repository's `napkeeper.yaml`, wherever above the paths it is. Returns true if it was not among the input.
pub(in crate::validate) fn add_config<'t>(
    targets: &'t Targets,
    input: &mut Input,
    by_target: &mut Vec<TargetSources<'t>>,
) -> bool {
    let given = input.sources.iter().any(config::is_source);
    let Some((source, folder)) = targets.config.as_ref().filter(|_| !given) else { return false };
    let index = input.sources.len();
    input.push(source.clone(), SourceOrigin::File(folder.join(config::FILE_NAME)));
    match by_target.iter_mut().find(|of_target| of_target.target.name.is_none()) {
        Some(of_target) => of_target.sources.push(index),
        None => by_target.push(TargetSources {
            target: &targets.unassigned,
            policies: LoadedPolicies::default(),
            sources: vec![index],
        }),
    }
    true
}
