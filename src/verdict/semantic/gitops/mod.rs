//! NK4xxx: conflicts with the tool that applies the manifests.

mod protection;
#[cfg(test)]
mod tests;

use crate::finding::Issue;
use crate::rules::gitops as rules;
use crate::semantic::facts::Facts;
use crate::semantic::{ManifestSet, ObjectIdentity, RetainedObject, ValidObject};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use std::collections::BTreeMap;

/// Annotations that a tool or a controller writes, and the effect of a copy in Git.
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

pub(super) fn check_object(_subject: &ValidObject<'_>, _facts: &Facts, _found: &mut Vec<Issue>) {
    // Objects at admission have all server-set fields: only files are checked.
}

pub(super) fn check_set(set: &ManifestSet, _facts: &Facts, found: &mut Vec<(usize, Issue)>) {
    for (i, retained) in set.objects.iter().enumerate() {
        found.extend(server_fields(retained).map(|issue| (i, issue)));
        found.extend(written(retained).map(|issue| (i, issue)));
    }
    duplicates(set, found);
    repeated(set, found);
    protection::pruning(set, found);
    protection::waves(set, found);
}

fn server_fields(retained: &RetainedObject) -> Option<Issue> {
    let first = retained.server_fields.first().filter(|_| !matches!(retained.object, Object::Other { .. }))?;
    let path = if *first == "status" { Path::from_dotted("status") } else { Path::from_dotted("metadata").key(first) };
    let message =
        format!("the API server writes {}: a copy in Git is always out of date", retained.server_fields.join(", "));
    let fix = "remove it, as from any object exported with kubectl get -o yaml".to_owned();
    Some(Issue::new(&rules::SERVER_FIELDS, &path, message).at_key().fix(fix))
}

fn written(retained: &RetainedObject) -> impl Iterator<Item = Issue> {
    let present = |(key, _): &&(&str, &str)| retained.annotations.contains_key(*key);
    let known = !matches!(retained.object, Object::Other { .. });
    WRITTEN.iter().filter(move |_| known).filter(present).map(|(key, message)| {
        let path = Path::from_dotted("metadata.annotations").key(key);
        Issue::new(&rules::WRITTEN_ANNOTATION, &path, *message).at_key().fix("remove it".to_owned())
    })
}

/// An object that another file of its folder has too: who applies the folder applies both.
fn repeated(set: &ManifestSet, found: &mut Vec<(usize, Issue)>) {
    if set.repeated().is_empty() {
        return;
    }
    let mut first: BTreeMap<_, &RetainedObject> = BTreeMap::new();
    for (i, retained) in set.objects.iter().enumerate() {
        let Some(identity) = ObjectIdentity::of(&retained.object) else { continue };
        let other = *first.entry((set.cluster_folder(i), identity)).or_insert(retained);
        if other.at.source == retained.at.source {
            continue;
        }
        let message = format!("{} {identity} is in {} too: the one applied last wins", identity.kind, set.file(other));
        let fix = "remove one of them, or give the files of each cluster a folder of their own".to_owned();
        found.push((i, Issue::new(&rules::REPEATED, &Path::from_dotted("metadata.name"), message).fix(fix)));
    }
}

/// Files may be of different clusters, so an object is only looked for in its own.
fn duplicates(set: &ManifestSet, found: &mut Vec<(usize, Issue)>) {
    let mut seen = BTreeMap::new();
    for (i, retained) in set.objects.iter().enumerate() {
        let Some(identity) = ObjectIdentity::of(&retained.object) else { continue };
        if seen.insert((retained.at.source, identity), i).is_some() {
            let kind = identity.kind;
            let message = format!("duplicate {kind} {identity} in this file: the one applied last wins");
            let fix = "remove or rename one of them".to_owned();
            found.push((i, Issue::new(&rules::DUPLICATE, &Path::from_dotted("metadata.name"), message).fix(fix)));
        }
    }
}
