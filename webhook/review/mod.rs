//! AdmissionReviews of `admission.k8s.io/v1`: requests read, responses written.
//!
//! The API server rejects a response with a wrong uid, and a patch that does not apply fails the request whatever the
//! failure policy is, so both are made here.

mod body_size;
mod denial_log;
mod object;

pub(crate) use body_size::{MAX_VALUES, RequestSize};
pub(crate) use denial_log::DenialLog;
pub(crate) use object::{RawObject, ReviewObject, without_managed_fields};

use crate::text::truncate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const API_VERSION: &str = "admission.k8s.io/v1";

/// Largest uid; the API server's own have 36 characters.
const MAX_UID_LENGTH: usize = 256;

/// Why a body cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReviewError {
    /// It is not JSON, or not of the form of a review.
    #[error("the request body is not an AdmissionReview: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It is of another version or kind.
    #[error("the request body is {api_version} {kind}; only {API_VERSION} AdmissionReview is supported")]
    WrongKind {
        /// Its `apiVersion`.
        api_version: String,
        /// Its `kind`.
        kind: String,
    },
    /// It has no request.
    #[error("the AdmissionReview has no request with a uid")]
    NoRequest,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "O: ReviewObject"))]
struct AdmissionReview<O> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request<O>>,
}

/// The request of a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "O: ReviewObject"))]
pub(crate) struct Request<O = Value> {
    /// Ties the answer to the question.
    #[serde(default)]
    pub(crate) uid: String,
    /// The kind of the object.
    pub(crate) kind: GroupVersionKind,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub(crate) operation: String,
    /// For example `status`.
    #[serde(default)]
    pub(crate) sub_resource: Option<String>,
    /// The object's name; none where the API server will make one.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The requesting user.
    #[serde(default)]
    pub(crate) user_info: UserInfo,
    /// The namespace, if the kind has one.
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    /// True when nothing will be written.
    #[serde(default)]
    pub(crate) dry_run: Option<bool>,
    /// The object as it would be; null when it is deleted.
    #[serde(default, deserialize_with = "O::read")]
    pub(crate) object: O,
    /// The stored object; null for a create.
    #[serde(default, deserialize_with = "O::read")]
    pub(crate) old_object: O,
}

#[derive(Debug, Deserialize, Default)]
pub(crate) struct UserInfo {
    #[serde(default)]
    pub(crate) username: String,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
}

/// User, operation and object name, for the log; nothing else of the object.
#[derive(Debug, Clone)]
pub(crate) struct RequestSummary {
    pub(crate) uid: String,
    user: String,
    operation: String,
    kind: String,
    name: String,
}

impl RequestSummary {
    pub(crate) fn from_request<O>(request: &Request<O>) -> Self {
        let short = |text: &str| truncate(text, MAX_UID_LENGTH);
        Self {
            uid: request.uid.clone(),
            user: short(&request.user_info.username),
            operation: short(&request.operation),
            kind: short(&request.kind.kind),
            name: short(request.name.as_deref().unwrap_or_default()),
        }
    }

    fn log_denial(&self, rules: &BTreeSet<&str>) {
        let Self { uid, user, operation, kind, name } = self;
        tracing::info!(
            user,
            operation,
            kind,
            name,
            rules = rules.iter().copied().collect::<Vec<_>>().join(","),
            uid,
            "write denied"
        );
    }
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct GroupVersionKind {
    #[serde(default)]
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

impl<O: ReviewObject> Request<O> {
    /// Reads a body.
    pub(crate) fn from_body(body: &[u8]) -> Result<Self, ReviewError> {
        let AdmissionReview { api_version, kind, request } = serde_json::from_slice::<AdmissionReview<O>>(body)?;
        if api_version != API_VERSION || kind != "AdmissionReview" {
            let short = |text: String| truncate(&text, 100);
            return Err(ReviewError::WrongKind { api_version: short(api_version), kind: short(kind) });
        }
        request.filter(|r| !r.uid.is_empty() && r.uid.len() <= MAX_UID_LENGTH).ok_or(ReviewError::NoRequest)
    }
}

impl<O> Request<O> {
    /// True for writes of the object itself.
    pub(crate) fn is_write(&self) -> bool {
        matches!(&*self.operation, "CREATE" | "UPDATE") && self.is_main_resource()
    }

    /// True for the delete of the object itself.
    pub(crate) fn is_delete(&self) -> bool {
        self.operation == "DELETE" && self.is_main_resource()
    }

    fn is_main_resource(&self) -> bool {
        self.sub_resource.as_deref().unwrap_or_default().is_empty()
    }
}

/// Why something is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    /// The message for the client.
    pub(crate) message: String,
    /// The rules that the message names, each once.
    pub(crate) rules: BTreeSet<&'static str>,
    /// The object was not checked: it may be right, and the client may try again.
    pub(crate) unable: bool,
}

/// The response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AdmissionResponse {
    /// Why it is refused; `None` when it is allowed.
    pub(crate) denial: Option<Denial>,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
    /// The Azure facts used, for the audit log.
    pub(crate) facts: Option<String>,
    /// Policy results for the audit log only, as JSON.
    pub(crate) policies: Option<String>,
    /// Operations of a JSON patch; empty for none.
    pub(crate) patch: Vec<Value>,
}

impl AdmissionResponse {
    /// Allowed without warnings.
    pub(crate) fn allow() -> Self {
        Self::default()
    }

    /// The review that carries this answer to the question with this uid.
    pub(crate) fn to_review(&self, uid: &str) -> Value {
        let mut response = json!({ "uid": uid, "allowed": self.denial.is_none() });
        if let Some(Denial { message, unable, .. }) = &self.denial {
            let (code, reason) = if *unable { (503, "ServiceUnavailable") } else { (422, "Invalid") };
            response["status"] = json!({ "code": code, "reason": reason, "message": message });
        }
        for (key, value) in [("facts", &self.facts), ("policies", &self.policies)] {
            if let Some(value) = value {
                response["auditAnnotations"][key] = json!(value);
            }
        }
        if !self.warnings.is_empty() {
            response["warnings"] = json!(self.warnings);
        }
        if !self.patch.is_empty() {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(json!(self.patch).to_string()));
        }
        json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response })
    }
}
