//! NK7xxx: policies among the manifests that are invalid.
//!
//! Policies are evaluated in [`crate::policy`].

use crate::finding::Issue;
use crate::policy;
use crate::semantic::facts::Facts;
use crate::semantic::{ManifestSet, ValidObject};

pub(crate) fn check_object(manifest: &ValidObject<'_>, _: &Facts, found: &mut Vec<Issue>) {
    found.extend(policy::problems(manifest.value));
}

pub(crate) fn check_set(set: &ManifestSet, _: &Facts, found: &mut Vec<(usize, Issue)>) {
    let named = |(i, retained): (usize, &super::RetainedObject)| {
        let (kind, name) = policy::names_policy(retained.raw.as_deref()?)?;
        Some((i, kind, name.to_owned()))
    };
    let all: Vec<_> = set.objects.iter().enumerate().filter_map(named).collect();
    found.extend(policy::unpaired(&all));
}
