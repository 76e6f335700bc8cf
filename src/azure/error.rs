//! The error map: what does an error of Azure Resource Manager mean to the domain?
//!
//! By code first. Text decides only where one code stands for several things, as `OperationNotAllowed` does for every
//! kind of quota. Codes and texts: Azure's documentation of Compute and Network errors, and the handlers of
//! karpenter-provider-azure (`commonerrorhandlers.go`).

use crate::wire::WireResponse;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::ports::{CloudError, CloudErrorCode};
use serde_json::Value;

/// Codes that mean one thing whatever the text says.
const BY_CODE: [(&str, CloudErrorCode); 28] = [
    ("SkuNotAvailable", CloudErrorCode::SkuNotAvailable),
    ("VMSizeNotSupported", CloudErrorCode::SkuNotAvailable),
    ("AllocationFailed", CloudErrorCode::AllocationFailed),
    ("OverconstrainedAllocationRequest", CloudErrorCode::Overconstrained),
    ("ZonalAllocationFailed", CloudErrorCode::ZonalAllocationFailed),
    ("OverconstrainedZonalAllocationRequest", CloudErrorCode::OverconstrainedZonal),
    ("QuotaExceeded", CloudErrorCode::FamilyQuota),
    ("SubnetIsFull", CloudErrorCode::SubnetFull),
    ("InsufficientSubnetSize", CloudErrorCode::SubnetFull),
    ("NicReservedForAnotherVm", CloudErrorCode::NicReserved),
    ("NicInUse", CloudErrorCode::InUse),
    ("ScopeLocked", CloudErrorCode::Locked),
    ("RequestDisallowedByPolicy", CloudErrorCode::Policy),
    ("DenyAssignmentAuthorizationFailed", CloudErrorCode::Lockdown),
    ("AuthorizationFailed", CloudErrorCode::Permission),
    ("LinkedAuthorizationFailed", CloudErrorCode::Permission),
    ("TooManyRequests", CloudErrorCode::Throttled),
    ("SubscriptionRequestsThrottled", CloudErrorCode::Throttled),
    ("ResourceNotFound", CloudErrorCode::NotFound),
    // Without its group nothing can be said of a resource; the bare word says not even what was not found.
    ("ResourceGroupNotFound", CloudErrorCode::Unavailable),
    ("NotFound", CloudErrorCode::Unavailable),
    ("PropertyChangeNotAllowed", CloudErrorCode::Conflict),
    ("Conflict", CloudErrorCode::Conflict),
    ("AnotherOperationInProgress", CloudErrorCode::Conflict),
    ("OperationPreempted", CloudErrorCode::Conflict),
    ("InternalServerError", CloudErrorCode::Unavailable),
    ("ServiceUnavailable", CloudErrorCode::Unavailable),
    ("InternalExecutionError", CloudErrorCode::Unavailable),
];

/// What `OperationNotAllowed` means, by a part of its text.
const NOT_ALLOWED: [(&str, CloudErrorCode); 4] = [
    ("lowprioritycores", CloudErrorCode::SpotQuota),
    ("total regional cores", CloudErrorCode::RegionalQuota),
    ("cores quota", CloudErrorCode::FamilyQuota),
    ("attached to vm", CloudErrorCode::InUse),
];

/// Deepest that `details` within `details` are looked into.
const DEEPEST: usize = 4;
/// Longest wait that is believed.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_hours(1);

/// What an error means, by ARM's `error.code` and `error.message`. Codes compare without case. What is unknown is
/// [`CloudErrorCode::Invalid`]: it would fail again, and nothing is marked unavailable for it.
#[must_use]
pub fn classify(code: &str, message: &str) -> CloudErrorCode {
    meaning(code, message).unwrap_or(CloudErrorCode::Invalid)
}

/// What a code means; `None` where it says nothing to us.
fn meaning(code: &str, message: &str) -> Option<CloudErrorCode> {
    let known = BY_CODE.iter().find(|(known, _)| known.eq_ignore_ascii_case(code));
    if let Some((_, meaning)) = known {
        return Some(*meaning);
    }
    if !code.eq_ignore_ascii_case("OperationNotAllowed") {
        return None;
    }
    let message = message.to_lowercase();
    let meant = NOT_ALLOWED.iter().find(|(part, _)| message.contains(part));
    Some(meant.map_or(CloudErrorCode::Invalid, |(_, meaning)| *meaning))
}

/// The error of a response that is no success.
pub(crate) fn of_response(response: &WireResponse) -> CloudError {
    let by_status = by_status(response.status);
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let (code, message) = match told(&body) {
        // Whoever hears that a resource is absent lets go of it for ever: only the plain statement counts.
        Some((Some(CloudErrorCode::NotFound), message)) if !says_absent(response.status, &body) => (by_status, message),
        // Compute throttles with codes that mean something else under other statuses.
        Some((_, message)) if by_status == CloudErrorCode::Throttled => (by_status, message),
        Some((code, message)) => (code.unwrap_or(by_status), message),
        None => {
            (by_status, format!("status {} without an error that Azure Resource Manager would send", response.status))
        }
    };
    let message = match (response.status, code) {
        (404, CloudErrorCode::Unavailable) => format!("whether the resource is absent is not known: {message}"),
        _ => message,
    };
    CloudError { code, message: message.into(), retry_after: retry_after(response) }
}

/// The error of an operation's URL. Azure forgets operations and then answers 404, which says nothing of the resource.
pub(crate) fn of_operation_url(response: &WireResponse) -> CloudError {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let is_forgotten = response.status == 404 && outer_code(&body).eq_ignore_ascii_case("NotFound");
    let error = of_response(response);
    if is_forgotten { CloudError { code: CloudErrorCode::NotFound, ..error } } else { error }
}

/// True where Azure Resource Manager itself says that there is no such resource.
fn says_absent(status: u16, body: &Value) -> bool {
    status == 404 && outer_code(body).eq_ignore_ascii_case("ResourceNotFound")
}

fn outer_code(body: &Value) -> &str {
    body.get("error").unwrap_or(body)["code"].as_str().unwrap_or_default()
}

/// The error of an operation that has ended badly, from the body that its URL answers.
pub(crate) fn of_operation(body: &Value, otherwise: CloudErrorCode) -> CloudError {
    let (code, message) = told(body).unwrap_or_else(|| (None, "the operation failed without saying why".to_owned()));
    CloudError { code: code.unwrap_or(otherwise), message: message.into(), retry_after: None }
}

/// A failure that Azure has not put into words: it could not be reached, or cannot be understood.
pub(crate) fn unavailable(message: impl Into<String>) -> CloudError {
    CloudError { code: CloudErrorCode::Unavailable, message: message.into().into(), retry_after: None }
}

/// A request that is wrong and is not sent.
pub(crate) fn invalid(message: impl Into<String>) -> CloudError {
    CloudError { code: CloudErrorCode::Invalid, message: message.into().into(), retry_after: None }
}

/// What an error body says: the first code, outer before inner, that means something, with its message; else the
/// outer message. `None` where there is no error in it.
fn told(body: &Value) -> Option<(Option<CloudErrorCode>, String)> {
    let error = body.get("error").unwrap_or(body);
    error.get("code")?.as_str()?;
    let text = |error: &Value| error["message"].as_str().unwrap_or_default().to_owned();
    Some(match known(error, DEEPEST) {
        Some((code, inner)) => (Some(code), text(inner)),
        None => (None, text(error)),
    })
}

/// The first error, outer before inner, whose code means something.
fn known(error: &Value, depth: usize) -> Option<(CloudErrorCode, &Value)> {
    let word = |key: &str| error[key].as_str().unwrap_or_default();
    let outer = meaning(word("code"), word("message"));
    if let Some(code) = outer.filter(|code| *code != CloudErrorCode::Invalid) {
        return Some((code, error));
    }
    let details = error["details"].as_array().filter(|_| depth > 0);
    let inner = details.into_iter().flatten().find_map(|detail| known(detail, depth - 1));
    inner.or_else(|| outer.map(|code| (code, error)))
}

fn by_status(status: u16) -> CloudErrorCode {
    match status {
        401 | 403 => CloudErrorCode::Permission,
        409 | 412 => CloudErrorCode::Conflict,
        429 => CloudErrorCode::Throttled,
        300..=399 | 404 | 408 | 500.. => CloudErrorCode::Unavailable,
        _ => CloudErrorCode::Invalid,
    }
}

/// `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3). A date is counted from the response's own `Date`, so
/// that no clock has to agree with Azure's.
fn retry_after(response: &WireResponse) -> Option<SignedDuration> {
    let text = response.header("retry-after")?.trim();
    let wait = match text.parse() {
        Ok(seconds) => SignedDuration::from_secs(seconds),
        Err(_) => date(text)?.duration_since(date(response.header("date")?)?),
    };
    Some(wait.clamp(SignedDuration::ZERO, LONGEST_WAIT))
}

fn date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn response(status: u16, headers: &[(&str, &str)], body: &Value) -> WireResponse {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        WireResponse { status, headers, body: serde_json::to_vec(body).unwrap() }
    }

    fn code(status: u16, body: &Value) -> CloudErrorCode {
        of_response(&response(status, &[], body)).code
    }

    #[test]
    fn an_inner_code_speaks_where_the_outer_one_says_nothing() {
        let body = json!({ "error": { "code": "DeploymentFailed", "message": "outer", "details": [
            { "code": "Whatever", "message": "?", "details": [ { "code": "ZonalAllocationFailed", "message": "no room" } ] },
        ] } });
        let error = of_response(&response(409, &[], &body));
        assert_eq!((error.code, &*error.message), (CloudErrorCode::ZonalAllocationFailed, "no room"));
        let failed = of_operation(&body, CloudErrorCode::Invalid);
        assert_eq!((failed.code, &*failed.message), (CloudErrorCode::ZonalAllocationFailed, "no room"));
    }

    #[test]
    fn the_status_speaks_where_no_code_does() {
        let unknown = json!({ "error": { "code": "Strange", "message": "?" } });
        for (status, meant) in [
            (400, CloudErrorCode::Invalid),
            (401, CloudErrorCode::Permission),
            (403, CloudErrorCode::Permission),
            (404, CloudErrorCode::Unavailable),
            (409, CloudErrorCode::Conflict),
            (429, CloudErrorCode::Throttled),
            (302, CloudErrorCode::Unavailable),
            (503, CloudErrorCode::Unavailable),
        ] {
            assert_eq!(code(status, &unknown), meant, "{status}");
            assert_eq!(code(status, &Value::Null), meant, "{status} without a body");
        }
        let unclear = json!({ "error": { "code": "OperationNotAllowed", "message": "not now" } });
        assert_eq!(code(409, &unclear), CloudErrorCode::Invalid, "a known code is not overruled");
        assert_eq!(code(429, &unclear), CloudErrorCode::Throttled, "but throttling is throttling");
    }

    #[test]
    fn absent_is_only_what_azure_calls_so() {
        let says = |code: &str| json!({ "error": { "code": code, "message": "m" } });
        let within = json!({ "error": { "code": "x", "details": [{ "code": "ResourceNotFound" }] } });
        for (status, body, meant) in [
            (404, says("ResourceNotFound"), CloudErrorCode::NotFound),
            (404, says("ResourceGroupNotFound"), CloudErrorCode::Unavailable),
            (404, says("SubscriptionNotFound"), CloudErrorCode::Unavailable),
            (404, says("NotFound"), CloudErrorCode::Unavailable),
            (404, says("AuthorizationFailed"), CloudErrorCode::Permission),
            (404, within, CloudErrorCode::Unavailable),
            (404, json!("gone"), CloudErrorCode::Unavailable),
            (400, says("ResourceNotFound"), CloudErrorCode::Invalid),
            (503, says("ResourceNotFound"), CloudErrorCode::Unavailable),
        ] {
            assert_eq!(code(status, &body), meant, "{status} {body}");
        }
        let page = WireResponse { status: 404, headers: Vec::new(), body: b"<html>ResourceNotFound</html>".to_vec() };
        assert_eq!(of_response(&page).code, CloudErrorCode::Unavailable);
        let forgotten = |body: &Value| of_operation_url(&response(404, &[], body)).code;
        assert_eq!(forgotten(&says("NotFound")), CloudErrorCode::NotFound);
        assert_eq!(forgotten(&says("ResourceGroupNotFound")), CloudErrorCode::Unavailable);
        assert_eq!(of_operation_url(&page).code, CloudErrorCode::Unavailable);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let wait = |headers: &[(&str, &str)]| retry_after(&response(429, headers, &Value::Null));
        let seconds = |n| Some(SignedDuration::from_secs(n));
        assert_eq!(wait(&[("retry-after", "17")]), seconds(17));
        assert_eq!(wait(&[("retry-after", "-3")]), seconds(0));
        assert_eq!(wait(&[("retry-after", "99999999")]), seconds(3600));
        let date = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(wait(&[date, ("retry-after", "Wed, 21 Oct 2026 07:29:30 GMT")]), seconds(90));
        assert_eq!(wait(&[("retry-after", "Wed, 21 Oct 2026 07:29:30 GMT")]), None, "from when?");
        assert_eq!(wait(&[("retry-after", "soon")]), None);
    }
}
