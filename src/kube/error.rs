//! Sends requests to the API server with a deadline, and maps its errors to the domain's few.
//!
//! The server's message is logged.

use crate::list::recording::NOT_SAVED;
use kube::client::AuthError;
use kube::core::Status;
use napkeeper_core::model::errors::{ClusterError, FailureCause};
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

/// Longest that a request may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// The cause that distinguishes a PodDisruptionBudget from overload in a 429 response.
const BUDGET_CAUSE: &str = "DisruptionBudget";
/// Seconds after which an overloaded API server may be asked again, unless it says so in the body: the header Retry-After
/// of API Priority and Fairness, mostly of 1 second, is not part of the client's error.
const OVERLOADED_FOR: u32 = 1;
/// The kind of what a 403 response of the eviction API is about, where it is no lack of a right.
const BUDGET_KIND: &str = "poddisruptionbudget";
/// What ValidatingAdmissionPolicies and admission webhooks begin their denials with, whatever the status code
/// (apiserver `pkg/admission/plugin/{policy/validating,webhook/errors}`).
const DENIALS: [&str; 2] = ["denied request:", "denied the request"];

/// A request, as the log names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiRequest<'a> {
    /// Verb of Kubernetes.
    pub(crate) verb: &'static str,
    /// Kind of the object.
    pub(crate) kind: &'static str,
    /// Name of the object, with its namespace where it has one.
    pub(crate) name: &'a str,
}

/// Waits for a request, no longer than [`DEADLINE`]. A failure is logged with the server's message.
///
/// # Errors
/// [`ClusterError`]; `Unavailable` when the deadline has passed.
pub(crate) async fn call<T>(
    request: ApiRequest<'_>,
    response: impl Future<Output = kube::Result<T>>,
) -> Result<T, ClusterError> {
    let ApiRequest { verb, kind, name } = request;
    match tokio::time::timeout(DEADLINE, response).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let meaning = cluster_error(&error);
            log(request, &error, meaning);
            Err(meaning)
        }
        Err(_) => {
            tracing::warn!(verb, kind, name, seconds = DEADLINE.as_secs(), "the API server timed out");
            Err(ClusterError::Unavailable)
        }
    }
}

/// Refused evictions are normal during a drain, and conflicts are retried; everything else is a warning.
fn log(request: ApiRequest<'_>, error: &kube::Error, meaning: ClusterError) {
    let ApiRequest { verb, kind, name } = request;
    let (status, message) = match error {
        kube::Error::Api(status) => (status.code, status.message.clone()),
        other => (0, describe(other)),
    };
    if meaning.is_budget() || meaning == ClusterError::Conflict {
        tracing::debug!(verb, kind, name, status, message, "the API server rejected the request");
    } else {
        tracing::warn!(verb, kind, name, status, message, "the API server rejected the request");
    }
}

/// The domain's error for an error of the client.
pub(crate) fn cluster_error(error: &kube::Error) -> ClusterError {
    let kube::Error::Api(status) = error else { return ClusterError::Unavailable };
    let retry_after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    match status.code {
        404 => ClusterError::NotFound,
        409 => ClusterError::Conflict,
        // 403 while the budget's list of disrupted pods is full.
        403 | 429 if is_budget(status) => ClusterError::Budget { retry_after },
        429 => ClusterError::Overloaded { retry_after: retry_after.max(OVERLOADED_FOR) },
        // The API server's text when more than one budget selects the pod (registry/core/pod/storage/eviction.go); it
        // gives neither a reason nor a cause.
        500 if status.message.contains("more than one PodDisruptionBudget") => ClusterError::SeveralBudgets,
        400..500 if DENIALS.iter().any(|text| status.message.contains(text)) => ClusterError::Denied,
        401 | 403 => ClusterError::Forbidden,
        _ => ClusterError::Unavailable,
    }
}

/// Why a read failed.
pub(crate) fn failure_cause(error: &kube::Error) -> FailureCause {
    match error {
        kube::Error::Api(status) if status.reason == NOT_SAVED => FailureCause::NotSaved,
        kube::Error::Api(status) => match status.code {
            401 => FailureCause::Unauthenticated,
            403 => FailureCause::Forbidden,
            404 => FailureCause::NotFound,
            _ => FailureCause::Other,
        },
        kube::Error::Auth(_) => FailureCause::Unauthenticated,
        kube::Error::Service(error) if error.is::<AuthError>() => FailureCause::Unauthenticated,
        kube::Error::Service(_) | kube::Error::HyperError(_) => FailureCause::Unreachable,
        kube::Error::SerdeError(_) => FailureCause::Unreadable,
        _ => FailureCause::Other,
    }
}

fn is_budget(status: &Status) -> bool {
    let Some(details) = &status.details else { return false };
    details.kind == BUDGET_KIND || details.causes.iter().any(|cause| cause.reason == BUDGET_CAUSE)
}

/// The message of an error: the server's, or the whole chain of causes.
pub(crate) fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => format!("HTTP {} {}", status.code, status.reason),
        kube::Error::Api(status) => status.message.clone(),
        // A credential plugin's output may hold the credential.
        kube::Error::Auth(_) => "cannot read or renew the credentials of the kubeconfig or service account".to_owned(),
        other => {
            let mut text = other.to_string();
            let mut source = other.source();
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            text
        }
    }
}

/// True if the server reports that the object does not exist. A kind that is not served is a 404 too, but says nothing
/// about the object.
pub(crate) fn is_not_found(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_some_and(|d| d.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn errors_that_need_different_handling_are_distinguished() {
        let causes = || json!([{ "reason": "DisruptionBudget", "message": "needs 2 healthy pods" }]);
        let budget = json!({ "causes": causes() });
        let uncounted = json!({ "causes": causes(), "retryAfterSeconds": 10 });
        let full = json!({ "name": "web", "group": "policy", "kind": "poddisruptionbudget" });
        let policy = "pods \"web-0\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        let webhook = "admission webhook \"w.example\" denied the request: no";
        let several =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        for (code, message, details, meaning) in [
            (404, "", json!(null), ClusterError::NotFound),
            (409, "", json!(null), ClusterError::Conflict),
            (401, "", json!(null), ClusterError::Forbidden),
            (403, "", json!(null), ClusterError::Forbidden),
            (429, "Cannot evict pod", budget.clone(), ClusterError::Budget { retry_after: 0 }),
            (429, "Cannot evict pod", uncounted, ClusterError::Budget { retry_after: 10 }),
            (403, "Cannot evict pod", budget, ClusterError::Budget { retry_after: 0 }),
            (403, "DisruptedPods map too big", full, ClusterError::Budget { retry_after: 0 }),
            (403, policy, json!(null), ClusterError::Denied),
            (422, policy, json!(null), ClusterError::Denied),
            (400, webhook, json!(null), ClusterError::Denied),
            (429, "Too many requests", json!({ "retryAfterSeconds": 3 }), ClusterError::Overloaded { retry_after: 3 }),
            (429, "Too many requests", json!(null), ClusterError::Overloaded { retry_after: 1 }),
            (500, several, json!(null), ClusterError::SeveralBudgets),
            (500, "etcdserver: leader changed", json!(null), ClusterError::Unavailable),
            (422, "spec.taints is invalid", json!(null), ClusterError::Unavailable),
        ] {
            let status = json!({ "status": "Failure", "code": code, "message": message, "details": details });
            let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
            assert_eq!(cluster_error(&error), meaning, "{code} {message}");
        }
        assert_eq!(cluster_error(&kube::Error::TlsRequired), ClusterError::Unavailable);
    }

    #[test]
    fn a_failed_read_has_the_cause_that_a_person_has_to_remove() {
        let api = |code: u16, reason: &str| {
            let status = json!({ "code": code, "message": "forbidden, 401", "reason": reason });
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        let not_json = serde_json::from_str::<()>("x").unwrap_err();
        for (error, cause) in [
            (api(401, "Unauthorized"), FailureCause::Unauthenticated),
            (api(403, "Forbidden"), FailureCause::Forbidden),
            (api(404, "NotFound"), FailureCause::NotFound),
            (api(400, NOT_SAVED), FailureCause::NotSaved),
            (api(429, "TooManyRequests"), FailureCause::Other),
            (kube::Error::Service("dns error".into()), FailureCause::Unreachable),
            (kube::Error::Service(AuthError::AuthExec("exit code 1".into()).into()), FailureCause::Unauthenticated),
            (kube::Error::SerdeError(not_json), FailureCause::Unreadable),
        ] {
            assert_eq!(failure_cause(&error), cause, "{error}");
        }
    }

    fn refusal(code: u16, details: &serde_json::Value) -> kube::Error {
        let status = json!({ "code": code, "message": "m", "details": details });
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn a_kind_that_is_not_served_says_nothing_about_an_object() {
        assert!(is_not_found(&refusal(404, &json!({ "name": "a", "kind": "nodeclaims" })), "a"));
        assert!(!is_not_found(&refusal(404, &json!({})), "a"));
        assert!(!is_not_found(&refusal(404, &serde_json::Value::Null), "a"));
        assert!(!is_not_found(&refusal(403, &json!({ "name": "a" })), "a"));
    }
}
