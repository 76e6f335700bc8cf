//! Evaluates the platform team's policies for a write.
//!
//! They are the plain ValidatingAdmissionPolicies that `napkeeper validate` takes. Each binding chooses the action:
//! Deny, Warn, or Audit for an audit annotation. A policy with an unknown input only warns.

use super::cluster;
use crate::review::Request;
use napkeeper_verdict::Finding;
use napkeeper_verdict::policy::{Action, Inputs, Outcome, Policies, PolicyFinding, User};
use napkeeper_verdict::rules::policies as rules;
use serde_json::{Value, json};

/// The results of all policies for a write.
#[derive(Debug, Default)]
pub(crate) struct PolicyResults {
    /// Why it is refused.
    pub(crate) denials: Vec<Finding>,
    /// Findings that do not deny it.
    pub(crate) warnings: Vec<Finding>,
    /// Audit annotations.
    audit: Vec<Value>,
}

impl PolicyResults {
    /// The audit log's part, as JSON; `None` for nothing.
    pub(crate) fn audit(&self) -> Option<String> {
        (!self.audit.is_empty()).then(|| json!(self.audit).to_string())
    }

    fn record(&mut self, result: &PolicyFinding) {
        let PolicyFinding { policy, binding, outcome, actions, message, path, .. } = result;
        if let Outcome::Noted(key) = outcome {
            self.audit.push(json!({ "key": key, "value": message }));
            return;
        }
        if actions.contains(&Action::Audit) && *outcome == Outcome::Refused {
            self.audit.push(json!({ "policy": policy, "binding": binding, "message": message }));
        }
        let Some(rule) = result.rule() else { return };
        let finding = cluster::finding(rule, &path.to_string(), result.describe(), None);
        let list = if rule.id == rules::DENIED.id { &mut self.denials } else { &mut self.warnings };
        list.push(finding);
    }
}

/// Evaluates all policies. Parameters are the objects in their files: no others exist.
pub(crate) fn evaluate(policies: &Policies, request: &Request) -> PolicyResults {
    if policies.is_empty() {
        return PolicyResults::default();
    }
    let user = User { name: request.user_info.username.clone(), groups: request.user_info.groups.clone() };
    let inputs = Inputs::default().with_user(user).with_all_params([]);
    let old = (request.operation == "UPDATE").then_some(&request.old_object);
    let mut results = PolicyResults::default();
    policies.evaluate(&request.object, old, &inputs).iter().for_each(|result| results.record(result));
    results
}
