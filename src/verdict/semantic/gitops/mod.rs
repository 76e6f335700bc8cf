//! NK4xxx: do Argo CD and Flux keep it safe?

use super::{Render, Subject};
use crate::facts::Facts;
use crate::finding::Issue;

pub(super) fn object(_subject: &Subject<'_>, _facts: &Facts, _found: &mut Vec<Issue>) {}

pub(super) fn render(_render: &Render, _facts: &Facts, _found: &mut Vec<(usize, Issue)>) {}
