//! The [`CloudError`] of a response that is no success.
//!
//! The first code that is known decides ([`super::error_codes`]), outer before inner: Compute wraps the cause in
//! `details`, and sometimes as JSON in the text of a message.

use super::error_codes::{known_code, quota};
use crate::auth::CredentialError;
use crate::recording::NOT_SAVED;
use crate::transport::HttpResponse;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, FailureCause};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

/// Deepest nesting of `details` that is searched.
const MAX_DEPTH: usize = 4;
/// Longest `Retry-After` that is obeyed.
const MAX_RETRY_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// The error of a response that is no success.
pub(crate) fn from_response(response: &HttpResponse) -> CloudError {
    let by_status = by_status(response.status);
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let stated = stated_error(&body).unwrap_or_else(|| {
        let message = format!("status {} without an Azure Resource Manager error", response.status);
        CloudError::new(by_status, message)
    });
    let code = match stated.code {
        // Callers forget an absent resource for good, so only an explicit statement counts.
        CloudErrorCode::NotFound if !is_resource_not_found(response.status, &body) => by_status,
        // Compute throttles with codes that mean something else under other statuses.
        _ if by_status == CloudErrorCode::Throttled => by_status,
        CloudErrorCode::Invalid if !has_known_code(&body) => by_status,
        code => code,
    };
    let cause = match (response.status, code) {
        (401, _) => FailureCause::Unauthenticated,
        (404, CloudErrorCode::Unavailable) => FailureCause::NotFound,
        _ if outer_code_of(&body) == NOT_SAVED => FailureCause::NotSaved,
        _ => code.cause(),
    };
    let mut message = stated.message.to_string();
    if (response.status, code) == (404, CloudErrorCode::Unavailable) {
        message = format!("cannot tell whether the resource exists: {message}");
    }
    with_correlation(
        CloudError { code, message: message.into(), retry_after: retry_after(response), cause, ..stated },
        response,
    )
}

/// The error, with what Microsoft's support finds it by.
pub(crate) fn with_correlation(error: CloudError, response: &HttpResponse) -> CloudError {
    match correlation(response) {
        Some(id) => CloudError { message: format!("{} (correlation id {id})", error.message).into(), ..error },
        None => error,
    }
}

/// By which Microsoft's support finds a request.
pub(crate) fn correlation(response: &HttpResponse) -> Option<&str> {
    response.header("x-ms-correlation-request-id").or_else(|| response.header("x-ms-request-id"))
}

/// The error of an operation's URL. Azure deletes operations after a while, so a 404 does not mean that the resource is
/// absent.
pub(crate) fn from_operation_url(response: &HttpResponse) -> CloudError {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let is_forgotten = response.status == 404 && outer_code_of(&body).eq_ignore_ascii_case("NotFound");
    let error = from_response(response);
    if is_forgotten { CloudError { code: CloudErrorCode::NotFound, ..error } } else { error }
}

/// True if Azure Resource Manager itself reports that the resource does not exist.
fn is_resource_not_found(status: u16, body: &Value) -> bool {
    status == 404 && outer_code_of(body).eq_ignore_ascii_case("ResourceNotFound")
}

fn outer_code_of(body: &Value) -> &str {
    body.get("error").unwrap_or(body)["code"].as_str().unwrap_or_default()
}

/// The outer code of a response, as Azure has it.
pub(crate) fn outer_code(response: &HttpResponse) -> String {
    outer_code_of(&serde_json::from_slice(&response.body).unwrap_or_default()).to_owned()
}

/// The error of an operation that has ended badly, from the body that its URL answers.
pub(crate) fn from_operation(body: &Value, otherwise: CloudErrorCode) -> CloudError {
    match stated_error(body) {
        Some(error) if error.code == CloudErrorCode::Invalid && !has_known_code(body) => {
            CloudError { code: otherwise, ..error }
        }
        Some(error) => error,
        None => CloudError::new(otherwise, "the operation failed without an error message"),
    }
}

/// A failure that is not Azure's own: it could not be reached, or its response cannot be read.
pub(crate) fn unavailable(message: impl Into<String>) -> CloudError {
    CloudError::new(CloudErrorCode::Unavailable, message.into())
}

/// The response does not match the schema of its type.
pub(crate) fn unreadable(message: impl Into<String>) -> CloudError {
    CloudError { cause: FailureCause::Unreadable, ..unavailable(message) }
}

/// A response of an unexpected type.
pub(crate) fn unreadable_response(reason: impl Display) -> CloudError {
    unreadable(format!("Azure's response cannot be read: {reason}"))
}

/// There is no token to send a request with.
pub(crate) fn unauthenticated(error: &CredentialError) -> CloudError {
    CloudError { cause: FailureCause::Unauthenticated, ..unavailable(error.to_string()) }
}

/// A request that is wrong and is not sent.
pub(crate) fn invalid(message: impl Into<String>) -> CloudError {
    CloudError::new(CloudErrorCode::Invalid, message.into())
}

/// The error of a body: the first code, outer before inner, that is known, with its message; else the outer message
/// under [`CloudErrorCode::Invalid`]. `None` where there is no error in it.
fn stated_error(body: &Value) -> Option<CloudError> {
    let error = body.get("error").unwrap_or(body);
    error.get("code")?.as_str()?;
    let (code, inner) = first_known(error, MAX_DEPTH).unwrap_or((CloudErrorCode::Invalid, Cow::Borrowed(error)));
    // Compute serialises the details of throttling into the message of the inner error; the outer one is readable.
    let texts = [&inner["message"], &error["message"]].into_iter().filter_map(Value::as_str);
    let message =
        texts.clone().find(|text| !text.starts_with('{')).or_else(|| texts.clone().next()).unwrap_or_default();
    let is_quota =
        matches!(code, CloudErrorCode::FamilyQuota | CloudErrorCode::RegionalQuota | CloudErrorCode::SpotQuota);
    let policy = (code == CloudErrorCode::Policy).then(|| policy_name(&inner)).flatten();
    let quota = is_quota.then(|| quota(message)).flatten();
    let message = match &policy {
        Some(name) if !message.contains(&**name) => format!("denied by Azure Policy {name:?}: {message}"),
        _ => message.to_owned(),
    };
    Some(CloudError { policy, quota, ..CloudError::new(code, message) })
}

/// True where some code in the body is known.
fn has_known_code(body: &Value) -> bool {
    first_known(body.get("error").unwrap_or(body), MAX_DEPTH).is_some()
}

/// The first error, outer before inner, whose code is known.
fn first_known(error: &Value, depth: usize) -> Option<(CloudErrorCode, Cow<'_, Value>)> {
    let word = |key: &str| error[key].as_str().unwrap_or_default();
    let outer = known_code(word("code"), word("message"));
    if let Some(code) = outer.filter(|code| *code != CloudErrorCode::Invalid) {
        return Some((code, Cow::Borrowed(error)));
    }
    let details = error["details"].as_array().filter(|_| depth > 0);
    let inner = details.into_iter().flatten().find_map(|detail| first_known(detail, depth - 1));
    let inner = inner.or_else(|| error_in_message(word("message"), depth));
    inner.or_else(|| outer.map(|code| (code, Cow::Borrowed(error))))
}

/// The error in a message that is itself an error body.
fn error_in_message(message: &str, depth: usize) -> Option<(CloudErrorCode, Cow<'static, Value>)> {
    let body: Value =
        (depth > 0 && message.trim_start().starts_with('{')).then(|| serde_json::from_str(message).ok())??;
    let (code, error) = first_known(body.get("error").unwrap_or(&body), depth - 1)?;
    Some((code, Cow::Owned(error.into_owned())))
}

/// The name of the policy that forbids a request: as its assignment is shown, else as its definition is, else as the
/// text has it.
fn policy_name(error: &Value) -> Option<Arc<str>> {
    let infos = error["additionalInfo"].as_array().into_iter().flatten().map(|more| &more["info"]);
    let keys =
        ["policyAssignmentDisplayName", "policyDefinitionDisplayName", "policyAssignmentName", "policyDefinitionName"];
    let named = |info: &Value| keys.iter().find_map(|key| info[*key].as_str().filter(|n| !n.is_empty()).map(Arc::from));
    infos.into_iter().find_map(named).or_else(|| {
        let message = error["message"].as_str()?;
        let (_, rest) = message.split_once(r#""policyAssignment":{"name":""#)?;
        rest.split('"').next().filter(|name| !name.is_empty()).map(Arc::from)
    })
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
pub(crate) fn retry_after(response: &HttpResponse) -> Option<SignedDuration> {
    let text = response.header("retry-after")?.trim();
    let wait = match text.parse() {
        Ok(seconds) => SignedDuration::from_secs(seconds),
        Err(_) => date(text)?.duration_since(date(response.header("date")?)?),
    };
    Some(wait.clamp(SignedDuration::ZERO, MAX_RETRY_AFTER))
}

fn date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn response(status: u16, headers: &[(&str, &str)], body: &Value) -> HttpResponse {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        HttpResponse { status, headers, body: serde_json::to_vec(body).unwrap() }
    }

    fn code(status: u16, body: &Value) -> CloudErrorCode {
        from_response(&response(status, &[], body)).code
    }

    #[test]
    fn an_inner_code_counts_if_the_outer_one_is_generic() {
        let body = json!({ "error": { "code": "DeploymentFailed", "message": "outer", "details": [
            { "code": "Whatever", "message": "?", "details": [ { "code": "ZonalAllocationFailed", "message": "no room" } ] },
        ] } });
        let error = from_response(&response(409, &[], &body));
        assert_eq!((error.code, &*error.message), (CloudErrorCode::ZonalAllocationFailed, "no room"));
        let failed = from_operation(&body, CloudErrorCode::Invalid);
        assert_eq!((failed.code, &*failed.message), (CloudErrorCode::ZonalAllocationFailed, "no room"));
    }

    #[test]
    fn the_status_speaks_where_no_code_does() {
        let unknown = json!({ "error": { "code": "Strange", "message": "?" } });
        for (status, expected) in [
            (400, CloudErrorCode::Invalid),
            (401, CloudErrorCode::Permission),
            (403, CloudErrorCode::Permission),
            (404, CloudErrorCode::Unavailable),
            (409, CloudErrorCode::Conflict),
            (429, CloudErrorCode::Throttled),
            (302, CloudErrorCode::Unavailable),
            (503, CloudErrorCode::Unavailable),
        ] {
            assert_eq!(code(status, &unknown), expected, "{status}");
            assert_eq!(code(status, &Value::Null), expected, "{status} without a body");
        }
        let unclear = json!({ "error": { "code": "OperationNotAllowed", "message": "not now" } });
        assert_eq!(code(409, &unclear), CloudErrorCode::Invalid, "a known code is not overruled");
        assert_eq!(code(429, &unclear), CloudErrorCode::Throttled, "but throttling is throttling");
    }

    #[test]
    fn a_failed_read_has_the_cause_that_a_person_has_to_remove() {
        let says = |code: &str| json!({ "error": { "code": code, "message": "403, forbidden, no connection" } });
        for (status, code, cause) in [
            (401, "ExpiredAuthenticationToken", FailureCause::Unauthenticated),
            (401, "Strange", FailureCause::Unauthenticated),
            (403, "AuthorizationFailed", FailureCause::Forbidden),
            (404, "AuthorizationFailed", FailureCause::Forbidden),
            (403, "DenyAssignmentAuthorizationFailed", FailureCause::Forbidden),
            (404, "ResourceNotFound", FailureCause::NotFound),
            (404, "ResourceGroupNotFound", FailureCause::NotFound),
            (400, NOT_SAVED, FailureCause::NotSaved),
            (429, "TooManyRequests", FailureCause::Other),
            (503, "ServiceUnavailable", FailureCause::Other),
        ] {
            assert_eq!(from_response(&response(status, &[], &says(code))).cause, cause, "{status} {code}");
        }
        assert_eq!(unreadable("a field is missing").cause, FailureCause::Unreadable);
    }

    #[test]
    fn only_azures_not_found_codes_mean_absent() {
        let says = |code: &str| json!({ "error": { "code": code, "message": "m" } });
        let within = json!({ "error": { "code": "x", "details": [{ "code": "ResourceNotFound" }] } });
        for (status, body, expected) in [
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
            assert_eq!(code(status, &body), expected, "{status} {body}");
        }
        let page = HttpResponse { status: 404, headers: Vec::new(), body: b"<html>ResourceNotFound</html>".to_vec() };
        assert_eq!(from_response(&page).code, CloudErrorCode::Unavailable);
        let forgotten = |body: &Value| from_operation_url(&response(404, &[], body)).code;
        assert_eq!(forgotten(&says("NotFound")), CloudErrorCode::NotFound);
        assert_eq!(forgotten(&says("ResourceGroupNotFound")), CloudErrorCode::Unavailable);
        assert_eq!(from_operation_url(&page).code, CloudErrorCode::Unavailable);
    }

    /// Bodies with Azure's wording and placeholders for names; each with the page that documents its family.
    #[test]
    fn documented_errors_are_classified_as_documented() {
        let table: Vec<Value> = serde_json::from_str(include_str!("../fixtures/errors.json")).unwrap();
        assert!(table.len() > 30);
        for row in &table {
            let text = |key: &str| row[key].as_str();
            assert!(text("page").unwrap().starts_with("https://learn.microsoft.com/"), "{row}");
            let status = row["status"].as_u64().and_then(|s| u16::try_from(s).ok()).unwrap();
            let headers = row["headers"].as_object().into_iter().flatten();
            let headers: Vec<_> = headers.map(|(k, v)| (k.as_str(), v.as_str().unwrap())).collect();
            let error = if row["operation"] == json!(true) {
                from_operation(&row["body"], CloudErrorCode::Invalid)
            } else {
                from_response(&response(status, &headers, &row["body"]))
            };
            assert_eq!(Some(error.code.category()), text("means"), "{row}");
            assert_eq!(error.policy.as_deref(), text("policy"), "{row}");
            let limit = error.quota.map(|q| u64::from(q.limit));
            assert_eq!(limit, row["limit"].as_u64(), "{row}");
            let wait = error.retry_after.map(|w| w.as_secs());
            assert_eq!(wait, row["wait"].as_i64(), "{row}");
            assert_eq!(format!("{:?}", error.code.retry()), text("then").unwrap(), "{row}");
            assert!(!error.message.is_empty() && !error.message.starts_with('{'), "{error}");
        }
    }

    #[test]
    fn an_error_has_the_request_id() {
        let body = json!({ "error": { "code": "SkuNotAvailable", "message": "no" } });
        let headers = [("x-ms-request-id", "r"), ("x-ms-correlation-request-id", "c")];
        assert_eq!(&*from_response(&response(409, &headers, &body)).message, "no (correlation id c)");
        assert_eq!(&*from_response(&response(409, &headers[..1], &body)).message, "no (correlation id r)");
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
