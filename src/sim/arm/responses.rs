//! Status, headers and error codes of ARM's responses.

use super::Response;
use crate::cloud::Refusal;
use jiff::SignedDuration;
use napkeeper_core::model::names::ArmId;
use napkeeper_core::plan::Reply;
use serde_json::{Value, json};

pub(super) fn ok(body: Value) -> Response {
    Response { status: 200, headers: Vec::new(), body: Some(body) }
}

/// Where an operation can be polled, and how often.
#[derive(Debug, Clone)]
pub(super) struct OperationPoll {
    /// URL of the operation's status.
    pub(super) url: String,
    /// Seconds to wait between two polls.
    pub(super) every: i64,
}

impl OperationPoll {
    /// The headers of a response that begins an operation. `location` answers with the operation's own result,
    /// `azure-asyncoperation` with a status.
    pub(super) fn headers(&self) -> Vec<(&'static str, String)> {
        vec![
            ("azure-asyncoperation", self.url.clone()),
            ("location", format!("{}&monitor=true", self.url)),
            ("retry-after", self.every.to_string()),
        ]
    }
}

pub(super) fn accepted(poll: &OperationPoll) -> Response {
    Response { status: 202, headers: poll.headers(), body: None }
}

/// The answer to a request without a token, or with another one than was agreed on.
#[must_use]
pub fn unauthorized(has_token: bool) -> Response {
    let (code, message) = if has_token {
        ("InvalidAuthenticationToken", "The access token is invalid.")
    } else {
        ("AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
    };
    let mut response = error_response(401, code, message);
    response
        .headers
        .push(("www-authenticate", format!("Bearer error=\"invalid_token\", error_description=\"{message}\"")));
    response
}

/// An error in ARM's shape.
#[must_use]
pub fn failure(status: u16, code: &str, message: &str) -> Response {
    error_response(status, code, message)
}

pub(super) fn no_content() -> Response {
    Response { status: 204, headers: Vec::new(), body: None }
}

/// A request that ARM itself turns away.
pub(super) fn error_response(status: u16, code: &str, message: &str) -> Response {
    Response { status, headers: Vec::new(), body: Some(error(code, message)) }
}

/// The same, with the property concerned.
pub(super) fn failed_in(status: u16, code: &str, message: &str, target: &str) -> Response {
    let mut body = error(code, message);
    body["error"]["target"] = target.into();
    Response { status, headers: Vec::new(), body: Some(body) }
}

/// The response if a bucket is empty. Azure Resource Manager and Compute have different ones.
pub(super) fn throttled(bucket: &str, is_compute: bool, wait: SignedDuration) -> Response {
    let secs = (wait + SignedDuration::from_millis(999)).as_secs().max(1);
    let mut response = if is_compute {
        let message =
            "The server rejected the request because too many requests have been received for this subscription.";
        let mut response = error_response(429, "OperationNotAllowed", message);
        if let Some(body) = &mut response.body {
            let message =
                format!("The request is being throttled. Operation group: {bucket}. Retry after {secs} seconds.");
            body["error"]["details"] = json!([{ "code": "TooManyRequests", "target": bucket, "message": message }]);
        }
        response
    } else {
        let message =
            format!("Number of requests exceeded the limit of '{bucket}'. Please try again after '{secs}' seconds.");
        error_response(429, "SubscriptionRequestsThrottled", &message)
    };
    response.headers.push(("retry-after", secs.to_string()));
    response
}

/// The answer to a request that the cloud refuses: ARM's status, error code and message, and `Retry-After`.
#[must_use]
pub fn refused(refusal: &Refusal) -> Response {
    let (status, code) = code_of(refusal);
    let mut response = error_response(status, code, &refusal.to_string());
    if let (Refusal::Policy { resource, group, assignment, effect }, Some(body)) = (refusal, &mut response.body) {
        body["error"]["target"] = resource.name().into();
        body["error"]["additionalInfo"] = violation(group, assignment, effect);
    }
    if let Some(wait) = refusal.retry_after() {
        response.headers.push(("retry-after", wait.as_secs().to_string()));
    }
    response
}

/// What `azure-asyncoperation` answers. The operation's own failure is part of a 200.
pub(super) fn status(polled: Result<Reply, Refusal>, every: i64) -> Response {
    match polled {
        Ok(Reply::Running) => {
            let mut response = ok(json!({ "status": "InProgress" }));
            response.headers.push(("retry-after", every.to_string()));
            response
        }
        Ok(_) => ok(json!({ "status": "Succeeded" })),
        Err(refusal @ (Refusal::OperationNotFound(_) | Refusal::Throttled { .. })) => refused(&refusal),
        Err(refusal) => {
            let mut body = error(code_of(&refusal).1, &refusal.to_string());
            body["status"] = Value::from("Failed");
            ok(body)
        }
    }
}

/// What `location` answers: 202 until the operation has ended, then its result.
pub(super) fn result(polled: Result<Reply, Refusal>, poll: &OperationPoll) -> Response {
    match polled {
        Ok(Reply::Running) => accepted(poll),
        Ok(_) => no_content(),
        Err(refusal) => refused(&refusal),
    }
}

/// `additionalInfo` of `RequestDisallowedByPolicy`, as Azure Policy documents it.
fn violation(group: &ArmId, assignment: &str, effect: &str) -> Value {
    json!([{
        "type": "PolicyViolation",
        "info": {
            "evaluationDetails": {},
            "policyDefinitionId": format!("/providers/Microsoft.Authorization/policyDefinitions/{assignment}"),
            "policyDefinitionName": assignment,
            "policyDefinitionDisplayName": assignment,
            "policyDefinitionEffect": effect,
            "policyAssignmentId": format!("{group}/providers/Microsoft.Authorization/policyAssignments/{assignment}"),
            "policyAssignmentName": assignment,
            "policyAssignmentDisplayName": assignment,
            "policyAssignmentScope": group.as_str(),
            "policyAssignmentParameters": {},
            "policyExemptionIds": [],
        },
    }])
}

fn error(code: &str, message: &str) -> Value {
    json!({ "error": { "code": code, "message": message } })
}

/// Status and code that the provider sends for a refusal.
fn code_of(refusal: &Refusal) -> (u16, &'static str) {
    match refusal {
        Refusal::Quota { .. } | Refusal::DiskInUse { .. } | Refusal::Unreserved { .. } => (409, "OperationNotAllowed"),
        Refusal::SkuNotAvailable { .. } => (409, "SkuNotAvailable"),
        Refusal::Allocation => (409, "AllocationFailed"),
        Refusal::ZonalAllocation => (409, "ZonalAllocationFailed"),
        Refusal::SubnetFull { .. } => (400, "SubnetIsFull"),
        Refusal::NicReserved { .. } => (400, "NicReservedForAnotherVm"),
        Refusal::NicInUse { .. } => (400, "NicInUse"),
        Refusal::Locked(_) => (409, "ScopeLocked"),
        Refusal::Throttled { .. } => (429, "TooManyRequests"),
        Refusal::NotFound(_) => (404, "ResourceNotFound"),
        Refusal::OperationNotFound(_) => (404, "NotFound"),
        Refusal::PropertyChange { .. } => (409, "PropertyChangeNotAllowed"),
        Refusal::Taken(_) => (409, "Conflict"),
        Refusal::Busy(_) => (409, "AnotherOperationInProgress"),
        Refusal::Preempted => (409, "OperationPreempted"),
        Refusal::Unavailable => (500, "InternalServerError"),
        Refusal::ListForbidden | Refusal::NoPermission { .. } => (403, "AuthorizationFailed"),
        Refusal::Denied { .. } => (403, "DenyAssignmentAuthorizationFailed"),
        Refusal::Policy { .. } => (403, "RequestDisallowedByPolicy"),
        Refusal::Precondition { .. } => (412, "PreconditionFailed"),
        Refusal::FailedLate => (500, "InternalExecutionError"),
        Refusal::Invalid(_) | Refusal::DiskUnfit { .. } => (400, "InvalidParameter"),
        Refusal::LocalDiskUnfit { .. } => (409, "NotSupported"),
    }
}
