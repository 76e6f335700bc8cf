//! Checks the numbers that a CRD's scale subresource reads.

use crate::finding::Issue;
use crate::rules::structure as rules;
use crate::schema::structural::fault::{Fault, Faults, Reason};
use napkeeper_api::field_path::Path;
use serde_json::Value;

/// Where the scale subresource looks, as the definition writes it: `.spec.replicas`.
#[derive(Debug, Default)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) label_selector: Option<String>,
}

impl Scale {
    /// Of `subresources.scale`.
    pub(crate) fn of(scale: &Value) -> Option<Self> {
        scale.as_object()?;
        let text = |key: &str| scale[key].as_str().map(ToOwned::to_owned);
        Some(Self {
            spec_replicas: text("specReplicasPath").unwrap_or_default(),
            status_replicas: text("statusReplicasPath").unwrap_or_default(),
            label_selector: text("labelSelectorPath"),
        })
    }

    pub(crate) fn check(&self, value: &Value, faults: &mut Faults) {
        for path in [&self.spec_replicas, &self.status_replicas] {
            let fits = match lookup(value, path) {
                Ok(None) => true,
                Ok(Some(Value::Number(n))) => n.as_i64().is_some_and(|n| (0..=i64::from(i32::MAX)).contains(&n)),
                Ok(Some(_)) | Err(()) => false,
            };
            if !fits {
                refuse(path, "must be an integer from 0 to 2147483647, for kubectl scale", faults);
            }
        }
        if let Some(path) = &self.label_selector {
            let fits = match lookup(value, path) {
                Ok(found) => found.is_none_or(Value::is_string),
                Err(()) => false,
            };
            if !fits {
                refuse(path, "must be a string, for kubectl scale", faults);
            }
        }
    }
}

fn refuse(path: &str, message: &str, faults: &mut Faults) {
    faults.add(|| {
        let at = Path::from_dotted(path.trim_start_matches('.'));
        let issue = Some(Issue::new(&rules::RANGE, &at, message));
        Fault { field: path.to_owned(), reason: Reason::Invalid, issue, secondary: true }
    });
}

/// The value at a path; an error when something on the way is no map.
fn lookup<'v>(value: &'v Value, path: &str) -> Result<Option<&'v Value>, ()> {
    let mut current = value;
    for name in path.trim_start_matches('.').split('.') {
        let Value::Object(map) = current else { return Err(()) };
        match map.get(name) {
            Some(child) => current = child,
            None => return Ok(None),
        }
    }
    Ok(Some(current))
}
