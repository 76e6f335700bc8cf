//! Policies: what do the platform team's own rules say of a write, and what follows from it?
//!
//! They are the plain ValidatingAdmissionPolicies that `napkeeper validate` takes. What follows is for each binding to say:
//! Deny refuses, Warn warns, Audit leaves a note in the audit log. What a policy needs and nobody here knows refuses
//! nothing: that is said.

use crate::cluster::finding;
use crate::review::Request;
use napkeeper_verdict::Finding;
use napkeeper_verdict::policy::{Action, Inputs, Outcome, Policies, PolicyFinding, User};
use napkeeper_verdict::rules::policies as rules;
use serde_json::{Value, json};

/// What all policies say of a write.
#[derive(Debug, Default)]
pub(crate) struct Opinion {
    /// Why it is refused.
    pub(crate) denials: Vec<Finding>,
    /// What is said of it all the same.
    pub(crate) warnings: Vec<Finding>,
    /// What the audit log is to have.
    audit: Vec<Value>,
}

impl Opinion {
    /// The audit log's part, as JSON; `None` for nothing.
    pub(crate) fn audit(&self) -> Option<String> {
        (!self.audit.is_empty()).then(|| json!(self.audit).to_string())
    }

    fn record(&mut self, said: &PolicyFinding) {
        let PolicyFinding { policy, binding, outcome, actions, message, path, .. } = said;
        if let Outcome::Noted(key) = outcome {
            self.audit.push(json!({ "key": key, "value": message }));
            return;
        }
        if actions.contains(&Action::Audit) && *outcome == Outcome::Refused {
            self.audit.push(json!({ "policy": policy, "binding": binding, "message": message }));
        }
        let Some(rule) = said.rule() else { return };
        let shown = match outcome {
            Outcome::Undecided => format!("policy {policy} cannot be evaluated: it needs {message}"),
            _ => format!("policy {policy}: {message}"),
        };
        let finding = finding(rule, &path.to_string(), shown, None);
        let list = if rule.id == rules::DENIED.id { &mut self.denials } else { &mut self.warnings };
        list.push(finding);
    }
}

/// Asks all policies. The parameters are those that stand beside them: others do not exist.
pub(crate) fn evaluate(policies: &Policies, request: &Request) -> Opinion {
    if policies.is_empty() {
        return Opinion::default();
    }
    let user = User { name: request.user_info.username.clone(), groups: request.user_info.groups.clone() };
    let inputs = Inputs::default().with_user(user).with_all_params([]);
    let old = (request.operation == "UPDATE").then_some(&request.old_object);
    let mut opinion = Opinion::default();
    policies.evaluate(&request.object, old, &inputs).iter().for_each(|said| opinion.record(said));
    opinion
}
