//! Does an object have the form that its definition asks for?
//!
//! In the order of the API server: metadata is read, unknown fields are noted, nulls go and defaults come
//! ([`store`]), then all checks run over what would be stored, and cross-field rules when none of those stops them.

mod check;
mod compile;
mod describe;
mod embedded;
mod fault;
mod formats;
mod issues;
mod lists;
mod metadata;
mod node;
mod numbers;
mod place;
mod ratchet;
mod scale;
mod store;

#[cfg(test)]
mod tests;

use crate::finding::Issue;
pub use compile::CompileError;
pub(crate) use compile::{Manner, compile};
use fault::Faults;
pub use fault::Reason;
pub(crate) use fault::{Fault, NO_FIELD};
pub(crate) use issues::issues;
use metadata::Owner;
use napkeeper_api::path::Path;
pub(crate) use node::Node;
pub(crate) use place::Place;
use ratchet::Past;
pub(crate) use ratchet::as_read;
pub(crate) use scale::Scale;
use serde_json::Value;

/// The form of a kind.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) schema: Node,
    /// Status is written through its own subresource only.
    pub(crate) has_status: bool,
    pub(crate) scale: Option<Scale>,
}

/// A field that is unknown.
#[derive(Debug)]
pub(crate) struct UnknownField {
    /// As the API server writes it.
    pub(crate) name: String,
    pub(crate) issue: Issue,
}

/// What there is to say about the form of an object.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// As it would be stored.
    pub(crate) stored: Value,
    /// What cannot be read: 400 Bad Request.
    pub(crate) unreadable: Vec<Issue>,
    pub(crate) unknown: Vec<UnknownField>,
    /// What is refused: 422 Unprocessable Entity.
    pub(crate) faults: Vec<Fault>,
}

/// Judges an object that is created.
pub(crate) fn create(value: &Value, form: &Form) -> Judged {
    let mut judged = read(value, form);
    if form.has_status
        && let Some(map) = judged.stored.as_object_mut()
    {
        map.shift_remove("status");
    }
    metadata::generate_name(&mut judged.stored["metadata"]);
    let mut faults = Faults::default();
    metadata::check(&judged.stored["metadata"], Owner::Created, &Place::ROOT.field("metadata"), &mut faults);
    check::check_into(&judged.stored, &form.schema, None, &mut faults);
    others(&judged.stored, form, &mut faults);
    lists::check(&judged.stored, &form.schema, &Place::ROOT, &mut faults);
    judged.faults = faults.into_list();
    judged
}

/// Judges an object that replaces what is stored. What is refused and was there before is forgiven.
pub(crate) fn update(old: &Value, new: &Value, form: &Form) -> (Value, Judged) {
    let mut judged = read(new, form);
    let mut old = read(old, form).stored;
    as_read(&mut old);
    if form.has_status
        && let Some(map) = judged.stored.as_object_mut()
    {
        match old.get("status") {
            Some(status) => drop(map.insert("status".to_owned(), status.clone())),
            None => drop(map.shift_remove("status")),
        }
    }
    let mut faults = Faults::default();
    let meta = Place::ROOT.field("metadata");
    metadata::check(&judged.stored["metadata"], Owner::Updated, &meta, &mut faults);
    metadata::check_deletion(&old["metadata"], &judged.stored["metadata"], &meta, &mut faults);
    let past = Past { value: &old, shape: &form.schema };
    check::check_into(&judged.stored, &form.schema, Some(past), &mut faults);
    others(&judged.stored, form, &mut faults);
    let mut before = Faults::default();
    lists::check(&old, &form.schema, &Place::ROOT, &mut before);
    if before.mark() == 0 {
        lists::check(&judged.stored, &form.schema, &Place::ROOT, &mut faults);
    }
    judged.faults = faults.into_list();
    (old, judged)
}

fn others(value: &Value, form: &Form, faults: &mut Faults) {
    if let Some(scale) = &form.scale {
        scale.check(value, faults);
    }
    embedded::check(value, &form.schema, &Place::ROOT, faults);
}

/// What would be stored, before anything is checked.
fn read(value: &Value, form: &Form) -> Judged {
    let (mut stored, unknown) = store::store(value, &form.schema);
    let mut judged = Judged::default();
    judged.unknown.extend(
        unknown
            .into_iter()
            .map(|unknown| UnknownField { issue: issues::unknown(&unknown.path, unknown.names()), name: unknown.name }),
    );
    let mut meta = metadata::read(&value["metadata"], &Place::ROOT.field("metadata"));
    let mut inner = embedded::Unreadable::default();
    embedded::read(&mut stored, &form.schema, &Place::ROOT, &mut inner);
    judged.unreadable.append(&mut meta.unreadable);
    judged.unreadable.append(&mut inner.issues);
    let unknown = meta.unknown.into_iter().chain(inner.unknown);
    judged.unknown.extend(unknown.map(|(name, issue)| UnknownField { name, issue }));
    if let Some(map) = stored.as_object_mut() {
        map.insert("metadata".to_owned(), meta.meta);
    }
    judged.stored = stored;
    judged
}

/// Judges a value that is no object of Kubernetes, such as `napkeeper.yaml`.
pub(crate) fn plain(value: &Value, schema: &Node) -> Judged {
    let (stored, unknown) = store::store_in(value, schema);
    let unknown = unknown.into_iter().map(|unknown| {
        // The walk began at a made-up field.
        let path = unknown.path.segments().iter().skip(1).fold(Path::root(), |path, s| path.with(s.clone()));
        UnknownField { issue: issues::unknown(&path, unknown.names()), name: path.to_string() }
    });
    let unknown = unknown.collect();
    let mut faults = Faults::default();
    check::check_into(&stored, schema, None, &mut faults);
    lists::check(&stored, schema, &Place::ROOT, &mut faults);
    Judged { stored, unreadable: Vec::new(), unknown, faults: faults.into_list() }
}

/// What is wrong with metadata that stands inside of an object, such as that of a pod's template.
pub(crate) fn label_issues(meta: &Value, at: &Path, found: &mut Vec<Issue>) {
    let mut faults = Faults::default();
    metadata::check(meta, Owner::Embedded, &Place::ROOT, &mut faults);
    let issues = faults.into_list().into_iter().filter_map(|fault| fault.issue);
    found.extend(issues.map(|issue| {
        let path = issue.path.segments().iter().fold(at.clone(), |path, segment| path.with(segment.clone()));
        Issue { path, ..issue }
    }));
}
