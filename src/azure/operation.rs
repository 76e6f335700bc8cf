//! Long-running operations: has it ended, and how?
//!
//! Azure names the URL to look at in `Azure-AsyncOperation`, whose body has a status, or in `Location`, which answers
//! 202 until the end and then the resource.

use crate::error::{of_operation, unavailable, with_correlation};
use crate::wire::WireResponse;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, OperationId};
use napkeeper_core::plan::Reply;
use serde_json::Value;
use std::sync::Arc;

/// What a write has begun, by the headers of its response.
pub(crate) fn begun(status: u16, header: impl Fn(&'static str) -> Option<String>) -> Result<Reply, CloudError> {
    let url = header("azure-asyncoperation").or_else(|| header("location"));
    match (status, url) {
        (200..=202, Some(url)) => Ok(Reply::Accepted(OperationId(Arc::from(url)))),
        (202, None) => Err(unavailable("Azure accepted the request, but returned no URL for its result")),
        _ => Ok(Reply::Done),
    }
}

/// What a delete has begun. 204 is Azure Resource Manager's answer where there is nothing of that name.
pub(crate) fn begun_delete(status: u16, header: impl Fn(&'static str) -> Option<String>) -> Result<Reply, CloudError> {
    match begun(status, header) {
        Ok(Reply::Done) if status == 204 => Ok(Reply::Absent),
        reply => reply,
    }
}

/// What came of a delete: some providers answer 404 where others answer 204.
pub(crate) fn deleted(reply: Result<Reply, CloudError>) -> Result<Reply, CloudError> {
    match reply {
        Err(error) if error.code == CloudErrorCode::NotFound => Ok(Reply::Absent),
        reply => reply,
    }
}

/// What the URL of an operation has answered.
pub(crate) fn outcome(response: &WireResponse) -> Result<Reply, CloudError> {
    if response.status == 204 || (response.status == 200 && response.body.is_empty()) {
        return Ok(Reply::Done);
    }
    let body: Value = match serde_json::from_slice(&response.body) {
        Ok(body) => body,
        Err(_) if response.status == 202 => return Ok(Reply::Running),
        Err(error) => return Err(unavailable(format!("the state of an operation cannot be read: {error}"))),
    };
    let state = body["status"].as_str().or_else(|| body["properties"]["provisioningState"].as_str());
    match state.map(str::to_ascii_lowercase).as_deref() {
        Some("succeeded") => Ok(Reply::Done),
        Some("failed") => Err(ended(&body, CloudErrorCode::Invalid, response)),
        Some("canceled" | "cancelled") => Err(ended(&body, CloudErrorCode::Conflict, response)),
        Some(_) => Ok(Reply::Running),
        None if response.status == 202 => Ok(Reply::Running),
        // `Location` answers the resource itself in the end.
        None if body["id"].is_string() => Ok(Reply::Done),
        None => Err(unavailable("the state of an operation has no status")),
    }
}

/// What an operation that has ended badly came to.
fn ended(body: &Value, otherwise: CloudErrorCode, response: &WireResponse) -> CloudError {
    CloudError { is_operation_result: true, ..with_correlation(of_operation(body, otherwise), response) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome_of(status: u16, body: &str) -> Result<Reply, CloudError> {
        outcome(&WireResponse { status, headers: Vec::new(), body: body.as_bytes().to_vec() })
    }

    #[test]
    fn an_operation_runs_until_it_says_otherwise() {
        for (status, body, reply) in [
            (200, r#"{"status":"InProgress"}"#, Reply::Running),
            (200, r#"{"status":"Updating"}"#, Reply::Running),
            (202, "", Reply::Running),
            (202, "{}", Reply::Running),
            (200, r#"{"status":"Succeeded"}"#, Reply::Done),
            (200, r#"{"id":"/subscriptions/s"}"#, Reply::Done),
            (204, "", Reply::Done),
            (200, "", Reply::Done),
        ] {
            assert_eq!(outcome_of(status, body), Ok(reply), "{status} {body}");
        }
        let code = |body: &str| outcome_of(200, body).unwrap_err().code;
        let failed = r#"{"status":"Failed","error":{"code":"x","details":[{"code":"AllocationFailed"}]}}"#;
        assert_eq!(code(failed), CloudErrorCode::AllocationFailed);
        assert_eq!(code(r#"{"status":"Canceled"}"#), CloudErrorCode::Conflict);
        assert_eq!(code(r#"{"status":"Failed"}"#), CloudErrorCode::Invalid);
        assert!(outcome_of(200, failed).unwrap_err().is_operation_result);
        assert!(!outcome_of(200, "{}").unwrap_err().is_operation_result, "that is the request's");
        assert_eq!(code("<html>"), CloudErrorCode::Unavailable);
        assert_eq!(code("{}"), CloudErrorCode::Unavailable, "that is no success");
    }

    #[test]
    fn a_write_is_done_unless_azure_says_where_to_look() {
        let begun = |status, name: &'static str| begun(status, |n| (n == name).then(|| "u".to_owned()));
        let accepted = Ok(Reply::Accepted(OperationId(Arc::from("u"))));
        assert_eq!(begun(201, "azure-asyncoperation"), accepted);
        assert_eq!(begun(202, "location"), accepted);
        assert_eq!(begun(200, ""), Ok(Reply::Done));
        assert_eq!(begun(204, ""), Ok(Reply::Done));
        let deleted = |status| begun_delete(status, |_| None);
        assert_eq!((deleted(200), deleted(204)), (Ok(Reply::Done), Ok(Reply::Absent)));
        assert_eq!(begun(202, "").unwrap_err().code, CloudErrorCode::Unavailable);
    }
}
