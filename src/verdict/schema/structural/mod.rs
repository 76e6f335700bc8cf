//! Validates objects by structural schemas.
//!
//! In the order of the API server: metadata is decoded, unknown fields are noted, nulls dropped and defaults added
//! ([`pruning`]), then all checks run over the result, and finally cross-field rules, unless an error prevents them.

mod checks;
mod describe;
mod fault;
mod field_path;
mod issues;
mod metadata;
mod node;
mod pruning;
mod suggest;

#[cfg(test)]
mod tests;

use crate::finding::Issue;
pub(crate) use checks::scale::Scale;
use checks::{embedded, lists};
use fault::Faults;
pub use fault::Reason;
pub(crate) use fault::{Fault, MAX_KEPT, NO_FIELD};
pub(crate) use field_path::FieldPath;
pub(crate) use issues::issues;
use metadata::MetadataOwner;
use napkeeper_api::field_path::Path;
pub(crate) use node::SchemaNode;
pub use node::compile::CompileError;
pub(crate) use node::compile::{SchemaOrigin, compile};
use serde_json::Value;

/// For so many unknown fields of an object the whole schema is searched for one of that name.
const MAX_SEARCHED: usize = 100;

/// The schema of a kind.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    pub(crate) schema: SchemaNode,
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

/// The result of validating an object against its schema.
#[derive(Debug, Default)]
pub(crate) struct ValidationResult {
    /// As it would be stored.
    pub(crate) stored: Value,
    /// Fields that cannot be decoded: 400 Bad Request.
    pub(crate) unreadable: Vec<Issue>,
    pub(crate) unknown: Vec<UnknownField>,
    /// Violations: 422 Unprocessable Entity.
    pub(crate) faults: Vec<Fault>,
}

/// Judges an object that is created.
pub(crate) fn create(value: &Value, form: &ObjectSchema) -> ValidationResult {
    let mut result = read(value, form);
    if form.has_status
        && let Some(map) = result.stored.as_object_mut()
    {
        map.shift_remove("status");
    }
    metadata::generate_name(&mut result.stored["metadata"]);
    let mut faults = Faults::default();
    metadata::check(&result.stored["metadata"], MetadataOwner::Object, &FieldPath::ROOT.field("metadata"), &mut faults);
    checks::check_into(&result.stored, &form.schema, &mut faults);
    others(&result.stored, form, &mut faults);
    lists::check(&result.stored, &form.schema, &FieldPath::ROOT, &mut faults);
    result.faults = faults.into_list();
    result
}

fn others(value: &Value, form: &ObjectSchema, faults: &mut Faults) {
    if let Some(scale) = &form.scale {
        scale.check(value, faults);
    }
    embedded::check(value, &form.schema, &FieldPath::ROOT, faults);
}

/// What would be stored, before anything is checked.
fn read(value: &Value, form: &ObjectSchema) -> ValidationResult {
    let (mut stored, unknown) = pruning::prune(value, &form.schema);
    let mut result = ValidationResult::default();
    result.unknown.extend(unknown.into_iter().enumerate().map(|(nth, unknown)| {
        let mut issue = issues::unknown(&unknown.path, unknown.names());
        // An object may have thousands of them, of which nobody reads so many.
        if issue.fix.is_none() && nth < MAX_SEARCHED {
            let place = issue.path.last_key().and_then(|key| form.schema.only_place_of(key));
            issue.fix = place.map(|place| format!("did you mean {place}?"));
        }
        UnknownField { issue, name: unknown.name }
    }));
    let mut meta = metadata::read(&value["metadata"], &FieldPath::ROOT.field("metadata"));
    let mut inner = embedded::EmbeddedProblems::default();
    embedded::read(&mut stored, &form.schema, &FieldPath::ROOT, &mut inner);
    result.unreadable.append(&mut meta.unreadable);
    result.unreadable.append(&mut inner.issues);
    let unknown = meta.unknown.into_iter().chain(inner.unknown);
    result.unknown.extend(unknown.map(|(name, issue)| UnknownField { name, issue }));
    if let Some(map) = stored.as_object_mut() {
        map.insert("metadata".to_owned(), meta.meta);
    }
    result.stored = stored;
    result
}

/// Judges a value that is no object of Kubernetes, such as `napkeeper.yaml`.
pub(crate) fn check_value(value: &Value, schema: &SchemaNode) -> ValidationResult {
    let (stored, unknown) = pruning::prune_value(value, schema);
    let unknown = unknown.into_iter().map(|unknown| {
        // The walk began at a made-up field.
        let path = Path::root().join(unknown.path.segments().get(1..).unwrap_or_default());
        UnknownField { issue: issues::unknown(&path, unknown.names()), name: path.to_string() }
    });
    let unknown = unknown.collect();
    let mut faults = Faults::default();
    checks::check_into(&stored, schema, &mut faults);
    lists::check(&stored, schema, &FieldPath::ROOT, &mut faults);
    ValidationResult { stored, unreadable: Vec::new(), unknown, faults: faults.into_list() }
}

/// Problems of metadata inside an object, such as that of a pod template.
pub(crate) fn label_issues(meta: &Value, at: &Path, found: &mut Vec<Issue>) {
    let mut faults = Faults::default();
    metadata::check(meta, MetadataOwner::Embedded, &FieldPath::ROOT, &mut faults);
    let issues = faults.into_list().into_iter().filter_map(|fault| fault.issue);
    found.extend(issues.map(|issue| Issue { path: at.join(issue.path.segments()), ..issue }));
}
