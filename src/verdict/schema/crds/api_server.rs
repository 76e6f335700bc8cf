//! The response of the API server to a write.

use crate::schema::crds::{CrdSchemas, CrdVersion};
use crate::schema::structural::{NO_FIELD, Reason, ValidationResult};
use serde_json::Value;

/// Why the API server refuses a field: `causes[]` of its answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusCause {
    /// The field as the API server writes it, for example `spec.template.spec.requirements[0].key`; `<nil>` for none.
    pub field: String,
    /// Why.
    pub reason: Reason,
}

/// The response of the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiServerResponse {
    /// HTTP status: 201 when it would be taken, 400 or 422 when not.
    pub code: u16,
    /// Why it is refused with 422; each once.
    pub causes: Vec<StatusCause>,
    /// Fields that are unknown, as strict validation names them with 400.
    pub unknown_fields: Vec<String>,
}

impl ApiServerResponse {
    const fn bare(code: u16) -> Self {
        Self { code, causes: Vec::new(), unknown_fields: Vec::new() }
    }

    fn one(field: &str, reason: Reason) -> Self {
        Self { causes: vec![StatusCause { field: field.to_owned(), reason }], ..Self::bare(422) }
    }

    fn of(result: &ValidationResult, version: &CrdVersion) -> Self {
        if !result.unreadable.is_empty() {
            return Self::bare(400);
        }
        if !result.unknown.is_empty() {
            let mut unknown_fields: Vec<String> = result.unknown.iter().map(|field| field.name.clone()).collect();
            unknown_fields.sort();
            return Self { unknown_fields, ..Self::bare(400) };
        }
        let faults = result.faults.iter().map(|fault| StatusCause { field: fault.field.clone(), reason: fault.reason });
        let mut causes: Vec<StatusCause> = faults.collect();
        if !version.rules.is_empty() && result.faults.iter().any(|fault| fault.reason.blocks()) {
            causes.push(StatusCause { field: NO_FIELD.to_owned(), reason: Reason::Invalid });
        }
        causes.sort();
        causes.dedup();
        Self { code: if causes.is_empty() { 201 } else { 422 }, causes, unknown_fields: Vec::new() }
    }
}

impl CrdSchemas {
    /// The response of the API server to a new object.
    #[must_use]
    pub fn create(&self, value: &Value) -> ApiServerResponse {
        let version = match self.addressed(value) {
            Ok(found) => found,
            Err(refused) => return refused,
        };
        ApiServerResponse::of(&version.create(value), version)
    }

    /// The version that an object names, or the response when there is none.
    fn addressed(&self, value: &Value) -> Result<&CrdVersion, ApiServerResponse> {
        let text = |key: &str| value[key].as_str().filter(|text| !text.is_empty());
        let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            return Err(ApiServerResponse::bare(400));
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if let Some((_, found)) = self.version(group, kind, version) {
            return Ok(found);
        }
        let kinds = self.group(group);
        let served = kinds.iter().any(|kind| kind.versions.iter().any(|v| v.name == version));
        if let Some(latest) = kinds.iter().find(|k| k.name == kind).and_then(|kind| kind.versions.last()) {
            return Err(unserved(latest, value, true));
        }
        // The URL of the request names an existing kind, so only the object is wrong.
        match self.kinds.iter().find_map(|kind| kind.versions.last()) {
            Some(any) if !served => Err(unserved(any, value, false)),
            _ => Err(ApiServerResponse::one("kind", Reason::Invalid)),
        }
    }
}

/// The response to an object of an unknown version: only the fields of every object are known, and `others` are checked
/// only if the kind has another version.
fn unserved(other: &CrdVersion, value: &Value, others: bool) -> ApiServerResponse {
    let result = other.create(value);
    if !result.unreadable.is_empty() {
        return ApiServerResponse::bare(400);
    }
    let of_metadata = result.unknown.into_iter().map(|field| field.name).filter(|name| name.starts_with("metadata."));
    let of_all = |key: &&String| ["apiVersion", "kind", "metadata"].contains(&key.as_str());
    let fields = value.as_object().into_iter().flatten().map(|(key, _)| key);
    let of_kind = fields.filter(|key| others && !of_all(key)).cloned();
    let mut unknown_fields: Vec<String> = of_metadata.chain(of_kind).collect();
    unknown_fields.sort();
    ApiServerResponse { unknown_fields, ..ApiServerResponse::bare(400) }
}
