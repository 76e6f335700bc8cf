//! NK4xxx: does it go well with the tool that applies it?

mod protection;
#[cfg(test)]
mod tests;

use super::{Digest, Identity, Render, Subject};
use crate::facts::Facts;
use crate::finding::Issue;
use crate::rules::gitops as rules;
use napkeeper_api::manifests::Object;
use napkeeper_api::path::Path;
use std::collections::BTreeMap;

/// Annotations that a tool or a controller writes, and what a copy of them in Git does.
const WRITTEN: [(&str, &str); 6] = [
    ("kubectl.kubernetes.io/last-applied-configuration", "kubectl writes it; a copy in Git is always out of date"),
    ("karpenter.sh/nodepool-hash", HASH),
    ("karpenter.sh/nodepool-hash-version", HASH),
    ("karpenter.azure.com/aksnodeclass-hash", HASH),
    ("karpenter.azure.com/aksnodeclass-hash-version", HASH),
    (
        "deployment.kubernetes.io/revision",
        "the Deployment controller writes it, and continues from the value that it finds",
    ),
];
const HASH: &str = "Karpenter writes it, and replaces nodes with another hash: a stale copy makes them drift";

pub(super) fn object(_subject: &Subject<'_>, _facts: &Facts, _found: &mut Vec<Issue>) {
    // An object at admission has all that the API server writes: only files are looked at.
}

pub(super) fn render(render: &Render, _facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    for (i, digest) in render.digests.iter().enumerate() {
        found.extend(server_fields(digest).map(|issue| (i, issue)));
        found.extend(written(digest).map(|issue| (i, issue)));
    }
    twice(render, found);
    protection::pruning(render, found);
    protection::waves(render, found);
}

fn server_fields(digest: &Digest) -> Option<Issue> {
    let first = digest.server_fields.first().filter(|_| !matches!(digest.object, Object::Other { .. }))?;
    let path = if *first == "status" { Path::from_dotted("status") } else { Path::from_dotted("metadata").key(first) };
    let message =
        format!("the API server writes {}: a copy in Git is always out of date", digest.server_fields.join(", "));
    let fix = "remove it, as from any object exported with kubectl get -o yaml".to_owned();
    Some(Issue::new(&rules::SERVER_FIELDS, &path, message).at_key().fix(fix))
}

fn written(digest: &Digest) -> impl Iterator<Item = Issue> {
    let present = |(key, _): &&(&str, &str)| digest.annotations.contains_key(*key);
    let known = !matches!(digest.object, Object::Other { .. });
    WRITTEN.iter().filter(move |_| known).filter(present).map(|(key, why)| {
        let path = Path::from_dotted("metadata.annotations").key(key);
        Issue::new(&rules::WRITTEN_ANNOTATION, &path, *why).at_key().fix("remove it".to_owned())
    })
}

/// Files may be of different clusters, so an object is only looked for in its own.
fn twice(render: &Render, found: &mut Vec<(usize, Issue)>) {
    let mut seen = BTreeMap::new();
    for (i, digest) in render.digests.iter().enumerate() {
        let Some(identity) = Identity::of(&digest.object) else { continue };
        if seen.insert((digest.at.source, identity), i).is_some() {
            let kind = identity.kind;
            let message = format!("duplicate {kind} {identity} in this file: the one applied last wins");
            let fix = "remove or rename one of them".to_owned();
            found.push((i, Issue::new(&rules::TWICE, &Path::from_dotted("metadata.name"), message).fix(fix)));
        }
    }
}
