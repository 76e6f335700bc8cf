//! Long-running operations: how a write starts one, and how its URL reports its state.
//!
//! Azure names the URL to poll in `Azure-AsyncOperation`, whose body has a status, or in `Location`, which answers 202
//! until the end and then the resource.

use super::error::{from_operation, unavailable, with_correlation};
use crate::transport::HttpResponse;
use napkeeper_core::model::errors::{CloudError, CloudErrorCode, OperationId};
use napkeeper_core::plan::Reply;
use serde_json::Value;
use std::sync::Arc;

/// A response to a write, ours or one of the ARM crates.
pub(crate) trait WriteResponse {
    /// Its status code.
    fn code(&self) -> u16;
    /// The value of a header, by its name in lower case.
    fn value(&self, header: &'static str) -> Option<String>;
}

impl WriteResponse for HttpResponse {
    fn code(&self) -> u16 {
        self.status
    }

    fn value(&self, header: &'static str) -> Option<String> {
        self.header(header).map(str::to_owned)
    }
}

impl WriteResponse for azure_core::Response {
    fn code(&self) -> u16 {
        self.status().into()
    }

    fn value(&self, header: &'static str) -> Option<String> {
        self.headers().get_optional_string(&header.into())
    }
}

/// The result of a write, or its operation.
pub(crate) fn reply_to_write(response: &impl WriteResponse) -> Result<Reply, CloudError> {
    let url = response.value("azure-asyncoperation").or_else(|| response.value("location"));
    match (response.code(), url) {
        (200..=202, Some(url)) => Ok(Reply::Accepted(OperationId(Arc::from(url)))),
        (202, None) => Err(unavailable("Azure accepted the request, but returned no URL for its result")),
        _ => Ok(Reply::Done),
    }
}

/// The result of a delete, or its operation. 204 is Azure Resource Manager's response if the resource does not exist.
pub(crate) fn reply_to_delete(response: &impl WriteResponse) -> Result<Reply, CloudError> {
    match reply_to_write(response) {
        Ok(Reply::Done) if response.code() == 204 => Ok(Reply::Absent),
        reply => reply,
    }
}

/// The reply to a delete, for providers that answer 404 where others answer 204.
pub(crate) fn absent_if_not_found(reply: Result<Reply, CloudError>) -> Result<Reply, CloudError> {
    match reply {
        Err(error) if error.code == CloudErrorCode::NotFound => Ok(Reply::Absent),
        reply => reply,
    }
}

/// The state of an operation, by what its URL has answered.
pub(crate) fn operation_reply(response: &HttpResponse) -> Result<Reply, CloudError> {
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
        Some("failed") => Err(failure(&body, CloudErrorCode::Invalid, response)),
        Some("canceled" | "cancelled") => Err(failure(&body, CloudErrorCode::Conflict, response)),
        Some(_) => Ok(Reply::Running),
        None if response.status == 202 => Ok(Reply::Running),
        // `Location` finally returns the resource itself.
        None if body["id"].is_string() => Ok(Reply::Done),
        None => Err(unavailable("the state of an operation has no status")),
    }
}

/// The error of an operation that failed or was cancelled.
fn failure(body: &Value, otherwise: CloudErrorCode, response: &HttpResponse) -> CloudError {
    CloudError { is_operation_result: true, ..with_correlation(from_operation(body, otherwise), response) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply_of(status: u16, body: &str) -> Result<Reply, CloudError> {
        operation_reply(&HttpResponse { status, headers: Vec::new(), body: body.as_bytes().to_vec() })
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
            assert_eq!(reply_of(status, body), Ok(reply), "{status} {body}");
        }
        let code = |body: &str| reply_of(200, body).unwrap_err().code;
        let failed = r#"{"status":"Failed","error":{"code":"x","details":[{"code":"AllocationFailed"}]}}"#;
        assert_eq!(code(failed), CloudErrorCode::AllocationFailed);
        assert_eq!(code(r#"{"status":"Canceled"}"#), CloudErrorCode::Conflict);
        assert_eq!(code(r#"{"status":"Failed"}"#), CloudErrorCode::Invalid);
        assert!(reply_of(200, failed).unwrap_err().is_operation_result);
        assert!(!reply_of(200, "{}").unwrap_err().is_operation_result, "that is the request's");
        assert_eq!(code("<html>"), CloudErrorCode::Unavailable);
        assert_eq!(code("{}"), CloudErrorCode::Unavailable, "that is no success");
    }

    #[test]
    fn a_write_is_done_unless_azure_says_where_to_look() {
        let response = |status, name: &str| {
            let headers = (!name.is_empty()).then(|| (name.to_owned(), "u".to_owned())).into_iter().collect();
            HttpResponse { status, headers, body: Vec::new() }
        };
        let written = |status, name| reply_to_write(&response(status, name));
        let accepted = Ok(Reply::Accepted(OperationId(Arc::from("u"))));
        assert_eq!(written(201, "azure-asyncoperation"), accepted);
        assert_eq!(written(202, "location"), accepted);
        assert_eq!(written(200, ""), Ok(Reply::Done));
        assert_eq!(written(204, ""), Ok(Reply::Done));
        let deleted = |status| reply_to_delete(&response(status, ""));
        assert_eq!((deleted(200), deleted(204)), (Ok(Reply::Done), Ok(Reply::Absent)));
        assert_eq!(written(202, "").unwrap_err().code, CloudErrorCode::Unavailable);
    }
}
