//! Errors of Kubernetes: which answer do they call for, and what do they say?

use kube::Error;
use napkeeper_core::ports::ClusterError;
use std::error::Error as _;

/// The answer that an error calls for.
pub(crate) fn cluster_error(error: &Error) -> ClusterError {
    let Error::Api(status) = error else {
        return ClusterError::Unavailable;
    };
    let causes = status.details.iter().flat_map(|d| &d.causes);
    match status.code {
        401 | 403 => ClusterError::Forbidden,
        404 => ClusterError::NotFound,
        // A patch whose test does not hold is refused as invalid.
        409 | 412 | 422 => ClusterError::Conflict,
        429 if causes.into_iter().any(|c| c.reason == "DisruptionBudget") => ClusterError::Budget,
        _ => ClusterError::Unavailable,
    }
}

/// What an error says, for people: the server's message, or the whole chain of causes.
pub(crate) fn describe(error: &Error) -> String {
    match error {
        Error::Api(status) if status.message.is_empty() => format!("HTTP {} {}", status.code, status.reason),
        Error::Api(status) => status.message.clone(),
        // A credential plugin's output may hold the credential.
        Error::Auth(_) => {
            "the credentials of the kubeconfig or the service account cannot be read or renewed".to_owned()
        }
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

/// True when the server says that there is no such object. A kind that is not served answers 404 as well, but says
/// nothing about the object.
pub(crate) fn says_absent(error: &Error, name: &str) -> bool {
    let Error::Api(status) = error else { return false };
    status.code == 404 && status.details.as_ref().is_some_and(|d| d.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(code: u16, details: &serde_json::Value) -> Error {
        Error::Api(serde_json::from_value(json!({ "code": code, "message": "m", "details": details })).unwrap())
    }

    #[test]
    fn each_refusal_calls_for_its_own_answer() {
        let budget = json!({ "causes": [{ "reason": "DisruptionBudget", "message": "x" }] });
        for (code, details, answer) in [
            (401, json!({}), ClusterError::Forbidden),
            (403, json!({}), ClusterError::Forbidden),
            (404, json!({}), ClusterError::NotFound),
            (409, json!({}), ClusterError::Conflict),
            (422, json!({}), ClusterError::Conflict),
            (429, budget, ClusterError::Budget),
            (429, json!({}), ClusterError::Unavailable),
            (500, json!({}), ClusterError::Unavailable),
        ] {
            assert_eq!(cluster_error(&refusal(code, &details)), answer, "{code} {details}");
        }
    }

    #[test]
    fn a_kind_that_is_not_served_says_nothing_about_an_object() {
        assert!(says_absent(&refusal(404, &json!({ "name": "a", "kind": "nodeclaims" })), "a"));
        assert!(!says_absent(&refusal(404, &json!({})), "a"));
        assert!(!says_absent(&refusal(404, &serde_json::Value::Null), "a"));
        assert!(!says_absent(&refusal(403, &json!({ "name": "a" })), "a"));
    }
}
