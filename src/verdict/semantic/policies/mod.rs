//! NK7xxx: are the policies among the manifests themselves in order?
//!
//! What policies say of other objects is [`crate::policy`].

use super::{Render, Subject};
use crate::facts::Facts;
use crate::finding::Issue;
use crate::policy;

pub(crate) fn object(subject: &Subject<'_>, _: &Facts, found: &mut Vec<Issue>) {
    found.extend(policy::problems(subject.value));
}

pub(crate) fn render(render: &Render, _: &Facts, found: &mut Vec<(usize, Issue)>) {
    let named = |(i, digest): (usize, &super::Digest)| {
        let (kind, name) = policy::names_policy(digest.raw.as_deref()?)?;
        Some((i, kind, name.to_owned()))
    };
    let all: Vec<_> = render.digests.iter().enumerate().filter_map(named).collect();
    found.extend(policy::unpaired(&all));
}
