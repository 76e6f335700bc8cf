//! Checks an object against the rules of its CRD.

use crate::cel::cost_limit::{OBJECT_BUDGET, RULE_BUDGET};
use crate::cel::crd_rules::{Reason, Rule, RuleError, RuleNode, Rules};
use crate::cel::error::EvalError;
use crate::cel::eval::{Binding, Evaluator};
use crate::cel::value::Val;
use crate::finding::Issue;
use crate::rules::structure;
use napkeeper_api::field_path::Path;
use serde_json::Value;

/// A rule that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CelFinding {
    /// The value that the rule belongs to, or the `fieldPath` of the rule.
    pub path: Path,
    /// The reason to report.
    pub reason: Reason,
    /// The message of the rule, or how its evaluation failed.
    pub message: String,
}

impl CelFinding {
    pub(crate) fn into_issue(self) -> Issue {
        Issue::new(&structure::RULE, &self.path, self.message)
    }
}

impl RuleError {
    /// As a finding about a CRD, at this path.
    pub(crate) fn into_issue(self, path: &Path) -> Issue {
        let fix = "correct the expression; the API server rejects CRDs with it";
        Issue::new(&structure::BROKEN_RULE, path, self.to_string()).fix(fix.to_owned())
    }
}

/// Longest message that an expression may make, in bytes, as on the API server.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// Names of the variables of rules, by slot.
fn names() -> [String; 2] {
    ["self".to_owned(), "oldSelf".to_owned()]
}

impl Rules {
    /// Checks a new object as it would be stored: after defaulting and pruning, and only if the schema finds no fault
    /// that keeps the API server from evaluating rules.
    #[must_use]
    pub fn check(&self, value: &Value) -> Vec<CelFinding> {
        let Some(root) = &self.root else { return Vec::new() };
        let mut walker = Walker { names: names(), found: Vec::new(), left: OBJECT_BUDGET, path: Path::root() };
        walker.part(root, RuleInput::of(value));
        walker.found
    }
}

/// Data, and its lazily converted form for rules.
#[derive(Clone)]
struct RuleInput<'v> {
    json: &'v Value,
    value: Option<Val>,
}

impl<'v> RuleInput<'v> {
    fn of(json: &'v Value) -> Self {
        Self { json, value: None }
    }

    fn value(&mut self, part: &RuleNode) -> Val {
        self.value.get_or_insert_with(|| part.shape.convert(self.json)).clone()
    }

    fn key(&self, part: &RuleNode, name: &str) -> Option<Self> {
        let value = self.value.as_ref().and_then(|value| part.shape.child(value, name));
        self.json.get(name).filter(|json| !json.is_null()).map(|json| Self { json, value })
    }

    fn index(&self, at: usize) -> Option<Self> {
        let value = match &self.value {
            Some(Val::List(list)) => list.items.get(at).cloned(),
            _ => None,
        };
        self.json.get(at).filter(|json| !json.is_null()).map(|json| Self { json, value })
    }
}

struct Walker {
    names: [String; 2],
    found: Vec<CelFinding>,
    left: u64,
    path: Path,
}

impl Walker {
    fn part(&mut self, part: &RuleNode, mut value: RuleInput<'_>) {
        if value.json.is_null() {
            return;
        }
        if !part.rules.is_empty() {
            let bound = Binding::Value(value.value(part));
            part.rules.iter().for_each(|rule| self.rule(rule, &bound));
        }
        for branch in &part.all_of {
            self.part(branch, value.clone());
        }
        for (name, below) in &part.fields {
            self.below(below, value.key(part, name), |path| path.key(name));
        }
        if let (Some(below), Value::Object(map)) = (&part.values, value.json) {
            for name in map.keys() {
                self.below(below, value.key(part, name), |path| path.key(name));
            }
        }
        if let (Some(below), Value::Array(items)) = (&part.items, value.json) {
            for at in 0..items.len() {
                self.below(below, value.index(at), |path| path.index(at));
            }
        }
    }

    fn below(&mut self, below: &RuleNode, value: Option<RuleInput<'_>>, path_of: impl FnOnce(&Path) -> Path) {
        let Some(value) = value else { return };
        let inner = path_of(&self.path);
        let path = std::mem::replace(&mut self.path, inner);
        self.part(below, value);
        self.path = path;
    }

    fn rule(&mut self, rule: &Rule, value: &Binding) {
        if self.left == 0 || (rule.uses_old && !rule.optional_old) {
            return;
        }
        let plain = [value.clone(), Binding::Absent];
        let result = if rule.optional_old {
            self.eval(&rule.rule, &[value.clone(), Binding::Value(Val::Optional(None))])
        } else {
            self.eval(&rule.rule, &plain)
        };
        match result {
            Ok(Val::Bool(true)) => {}
            Ok(_) => {
                let message = rule.message.as_ref().and_then(|message| self.message(message, &plain));
                let message = message.unwrap_or_else(|| match rule.has_message {
                    true => rule.fallback_message.clone(),
                    false => format!("failed rule: {}", rule.fallback_message),
                });
                let path = self.path.join(&rule.path);
                self.found.push(CelFinding { path, reason: rule.reason, message });
            }
            Err(error) => {
                let message = format!("{error} evaluating rule: {}", rule.fallback_message);
                self.found.push(CelFinding { path: self.path.clone(), reason: Reason::Invalid, message });
                if error == EvalError::Budget {
                    self.left = 0;
                }
            }
        }
    }

    fn eval(&mut self, node: &crate::cel::compile::node::Node, slots: &[Binding; 2]) -> Result<Val, EvalError> {
        let budget = self.left.min(RULE_BUDGET);
        let mut evaluator = Evaluator::new(&self.names, slots, budget);
        let result = evaluator.eval(node);
        self.left -= budget - evaluator.budget.remaining();
        result
    }

    /// The result of a message expression, if it is valid as a message.
    fn message(&mut self, node: &crate::cel::compile::node::Node, slots: &[Binding; 2]) -> Option<String> {
        match self.eval(node, slots) {
            Ok(Val::Text(text)) => {
                let text = text.trim();
                let fit = !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE_BYTES;
                fit.then(|| text.to_owned())
            }
            _ => None,
        }
    }
}
