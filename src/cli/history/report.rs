//! What is shown of removed nodes.

use super::input::Input;
use super::reconstruct::{Launched, Reconstruction, reconstruct};
use crate::output::nearest_object;
use anyhow::bail;
use jiff::Timestamp;
use napkeeper_core::model::cluster::node_record::{NodeRemoval, RecordedNode};
use napkeeper_core::model::names::{NodePoolName, Uid};
use napkeeper_core::snapshot::Snapshot;
use napkeeper_kube::list::GitSource;
use std::collections::BTreeSet;

/// Removed nodes, and what they were replaced by.
pub(super) struct Report {
    /// The newest first.
    pub(super) removals: Vec<Shown>,
    /// NodeClaims that were created to replace others, the newest first; empty where the removals name them.
    pub(super) launched: Vec<Launched>,
    /// What applies the NodePools of the removals.
    pub(super) git: Vec<GitSource>,
    /// Some of it nobody has recorded.
    pub(super) is_reconstructed: bool,
    pub(super) since: Timestamp,
}

/// A removal, and how far it is.
pub(super) struct Shown {
    pub(super) removal: NodeRemoval,
    /// Its NodeClaim does not exist any more.
    pub(super) is_gone: bool,
    /// The Git revision from which its NodePool was applied then.
    pub(super) git_revision: Option<String>,
    /// Nobody has recorded it.
    pub(super) is_reconstructed: bool,
}

impl Report {
    /// What is shown of a NodePool, a Node or a NodeClaim, or of all.
    ///
    /// # Errors
    /// When nothing has this name.
    pub(super) fn new(input: Input, name: Option<&str>, since: Timestamp) -> anyhow::Result<Self> {
        let Input { snapshot, removals, events, mut git, from } = input;
        let mut removals = removals.unwrap_or_default();
        let recorded: BTreeSet<Uid> = removals.iter().map(|one| one.uid.clone()).collect();
        let Reconstruction { removals: reconstructed, mut launched } = reconstruct(&snapshot, &events);
        // What a record tells was seen by who did it.
        removals.extend(reconstructed.into_iter().filter(|one| !recorded.contains(&one.uid)));
        removals.sort_by(|a, b| (a.started, &a.uid).cmp(&(b.started, &b.uid)));
        if let Some(name) = name {
            check_name(name, &snapshot, (&removals, &launched), &from)?;
            removals
                .retain(|one| is_of(name, one.pool.as_ref(), std::iter::once(&one.removed).chain(&one.replacements)));
            launched.retain(|one| is_of(name, one.pool.as_ref(), std::iter::once(&one.node)));
        }
        removals.retain(|one| one.started >= since);
        launched.retain(|one| one.at >= since);
        launched.reverse();
        let is_gone = |removal: &NodeRemoval| {
            let claim = snapshot.claims().get(&removal.removed.claim);
            claim.is_none_or(|claim| claim.uid != removal.uid)
        };
        let of_pool = |source: &&GitSource, removal: &NodeRemoval| {
            removal.pool.as_ref().is_some_and(|pool| pool.as_str() == source.pool)
        };
        git.retain(|source| removals.iter().any(|removal| of_pool(&source, removal)));
        let revision = |removal: &NodeRemoval| {
            let source = git.iter().find(|source| of_pool(source, removal))?;
            source.revision_at(removal.started).map(ToOwned::to_owned)
        };
        let shown = |removal: NodeRemoval| Shown {
            is_gone: is_gone(&removal),
            git_revision: revision(&removal),
            is_reconstructed: !recorded.contains(&removal.uid),
            removal,
        };
        let removals: Vec<Shown> = removals.into_iter().rev().map(shown).collect();
        let is_reconstructed = recorded.is_empty() || removals.iter().any(|one| one.is_reconstructed);
        Ok(Self { removals, launched, git, is_reconstructed, since })
    }
}

fn is_of<'a>(name: &str, pool: Option<&NodePoolName>, nodes: impl IntoIterator<Item = &'a RecordedNode>) -> bool {
    let mut nodes = nodes.into_iter();
    pool.is_some_and(|pool| pool.as_str() == name)
        || nodes.any(|one| one.claim.as_str() == name || one.node.as_ref().is_some_and(|node| node.as_str() == name))
}

/// Checks that something has or had this name.
fn check_name(
    name: &str,
    snapshot: &Snapshot,
    (removals, launched): (&[NodeRemoval], &[Launched]),
    from: &str,
) -> anyhow::Result<()> {
    let mut names: BTreeSet<&str> = snapshot.pools().iter().map(|(pool, _)| pool.as_str()).collect();
    names.extend(snapshot.claims().iter().map(|(claim, _)| claim.as_str()));
    names.extend(snapshot.nodes().iter().map(|(node, _)| node.as_str()));
    names.extend(removals.iter().filter_map(|one| Some(one.pool.as_ref()?.as_str())));
    let removed = removals.iter().flat_map(|one| std::iter::once(&one.removed).chain(&one.replacements));
    for node in removed.chain(launched.iter().map(|one| &one.node)) {
        names.insert(node.claim.as_str());
        names.extend(node.node.as_ref().map(|node| node.as_str()));
    }
    if names.contains(name) {
        return Ok(());
    }
    let names: Vec<&str> = names.into_iter().collect();
    bail!("{from}: no NodePool, Node or NodeClaim {name} is known; {}", nearest_object(name, &names))
}
