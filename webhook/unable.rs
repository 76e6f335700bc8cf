//! What is answered to a review that cannot be evaluated: it is allowed with a warning, or refused.

use crate::review::{AdmissionResponse, Denial};
use std::collections::BTreeSet;

/// What is answered to a review of `/validate` that cannot be evaluated. Pods are always admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenUnable {
    /// It is allowed, with a warning: no cluster is held up.
    #[default]
    Allow,
    /// It is refused: nothing gets in unchecked. This includes reviews while the cluster is not known.
    Refuse,
}

/// Why a request is not evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnableReason {
    /// Too many requests are being processed.
    Overload,
    /// It took too long.
    Deadline,
    /// The API server would reject the patch.
    InvalidPatch,
    /// A bug in napkeeper.
    Internal,
    /// What runs in the cluster is not known. Only a reason if such reviews are refused.
    UnknownCluster,
}

impl UnableReason {
    /// The label value of metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::Deadline => "deadline",
            Self::InvalidPatch => "patch",
            Self::Internal => "internal",
            Self::UnknownCluster => "cluster",
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Overload => "too many concurrent requests",
            Self::Deadline => "timed out",
            Self::InvalidPatch => "the patch would have been rejected",
            Self::Internal => "internal error",
            Self::UnknownCluster => "the cluster is not known",
        }
    }
}

/// The warning of a pod that is admitted as it is, or without a hint.
pub(crate) fn pod_warning(reason: UnableReason) -> String {
    let outcome = match reason {
        UnableReason::InvalidPatch => "this pod gets neither defaults nor a placement hint",
        _ => "this pod has no placement hint",
    };
    format!("napkeeper: {outcome}: {}", reason.describe())
}

/// The answer to an object that was not checked. The detail, such as what prevents a view of the cluster, may be empty.
pub(crate) fn object_answer(when: WhenUnable, reason: UnableReason, detail: &str) -> AdmissionResponse {
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    let why = format!("{}{detail}", reason.describe());
    match when {
        WhenUnable::Allow => AdmissionResponse {
            warnings: vec![format!("napkeeper: this object was not checked: {why}")],
            ..AdmissionResponse::allow()
        },
        WhenUnable::Refuse => {
            let remedy = match reason {
                UnableReason::Overload | UnableReason::Deadline => "try again; if it persists, add replicas or CPU",
                UnableReason::UnknownCluster => "see /readyz?verbose and the log of the webhook",
                UnableReason::InvalidPatch | UnableReason::Internal => "see the log of the webhook",
            };
            let message = format!(
                "napkeeper could not check this object, and is configured to refuse then (--when-unable refuse): {why}; \
                 {remedy}\nMore: docs/webhook.md, Fail closed"
            );
            let denial = Denial { message, rules: BTreeSet::new(), unable: true };
            AdmissionResponse { denial: Some(denial), ..AdmissionResponse::allow() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_a_refusal_where_it_was_asked_for() {
        for reason in [
            UnableReason::Overload,
            UnableReason::Deadline,
            UnableReason::Internal,
            UnableReason::UnknownCluster,
            UnableReason::InvalidPatch,
        ] {
            let refused = object_answer(WhenUnable::Refuse, reason, "some detail").to_review("a");
            let response = &refused["response"];
            assert_eq!((&response["allowed"], &response["status"]["code"]), (&false.into(), &503.into()), "{refused}");
            let message = response["status"]["message"].as_str().unwrap();
            assert!(message.contains(&format!("{}: some detail; ", reason.describe())), "{message}");
            let allowed = object_answer(WhenUnable::Allow, reason, "").to_review("a");
            assert_eq!(allowed["response"]["allowed"], true, "{allowed}");
        }
    }
}
