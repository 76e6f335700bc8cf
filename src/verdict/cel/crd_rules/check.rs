//! Checks an object against the rules of its CRD.

use crate::cel::cost_limit::{OBJECT_BUDGET, RULE_BUDGET};
use crate::cel::crd_rules::correlation::{OldAndNew, correlated_item};
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
    /// What is wrong: the value that the rule belongs to, or what the rule points at.
    pub path: Path,
    /// What it is reported as.
    pub reason: Reason,
    /// What the rule says about it, or how its evaluation failed.
    pub message: String,
}

impl CelFinding {
    pub(crate) fn into_issue(self) -> Issue {
        Issue::new(&structure::RULE, &self.path, self.message)
    }
}

impl RuleError {
    /// As a finding about a definition, at this place of it.
    pub(crate) fn into_issue(self, path: &Path) -> Issue {
        let fix = "correct the expression; the API server rejects CRDs with it";
        Issue::new(&structure::BROKEN_RULE, path, self.to_string()).fix(fix.to_owned())
    }
}

/// Longest message that an expression may make, in bytes, as on the API server.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;

/// The names of what rules read, by slot.
fn names() -> [String; 2] {
    ["self".to_owned(), "oldSelf".to_owned()]
}

impl Rules {
    /// Checks an object as it would be stored: after defaulting and pruning, and only if the schema finds no fault that
    /// keeps the API server from evaluating rules. With `old`, the object is an update of it.
    #[must_use]
    pub fn check(&self, value: &Value, old: Option<&Value>) -> Vec<CelFinding> {
        let Some(root) = &self.root else { return Vec::new() };
        let mut walker = Walker { names: names(), found: Vec::new(), left: OBJECT_BUDGET, path: Path::root() };
        let pair = old.map(|old| OldAndNew::new(&self.schema, value, old));
        let place = WalkState {
            schema: &self.schema,
            new: RuleInput::of(value),
            old: old.map(RuleInput::of),
            same: Correlation(pair, None),
        };
        walker.part(root, place);
        walker.found
    }
}

/// Data, and how rules see it once somebody asked.
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

/// The value with its stored one for forgiving, and that of the nearest value around which has one.
#[derive(Clone, Copy)]
struct Correlation<'v>(Option<OldAndNew<'v>>, Option<OldAndNew<'v>>);

impl<'v> Correlation<'v> {
    fn child(self, pair: Option<OldAndNew<'v>>) -> Self {
        if self.0.is_some() { Self(pair, self.0) } else { self }
    }

    fn is_unchanged(self) -> bool {
        self.0.or(self.1).is_some_and(|pair| pair.is_unchanged())
    }
}

/// Where the walk is.
#[derive(Clone)]
struct WalkState<'v> {
    schema: &'v Value,
    new: RuleInput<'v>,
    old: Option<RuleInput<'v>>,
    same: Correlation<'v>,
}

struct Walker {
    names: [String; 2],
    found: Vec<CelFinding>,
    left: u64,
    path: Path,
}

impl Walker {
    fn part(&mut self, part: &RuleNode, mut place: WalkState<'_>) {
        if place.new.json.is_null() {
            return;
        }
        if !part.rules.is_empty() {
            let new = Binding::Value(place.new.value(part));
            let old = place.old.as_mut().map(|old| old.value(part));
            for rule in &part.rules {
                self.rule(rule, &new, old.as_ref(), place.same);
            }
        }
        for branch in &part.all_of {
            self.part(branch, WalkState { same: Correlation(None, place.same.1), ..place.clone() });
        }
        for (name, below) in &part.fields {
            self.below(part, below, &place, name);
        }
        if let (Some(below), Value::Object(map)) = (&part.values, place.new.json) {
            for name in map.keys() {
                self.below(part, below, &place, name);
            }
        }
        if let (Some(below), Value::Array(items)) = (&part.items, place.new.json) {
            for at in 0..items.len() {
                self.item(below, &place, at);
            }
        }
    }

    fn below(&mut self, part: &RuleNode, below: &RuleNode, place: &WalkState<'_>, name: &str) {
        let Some(new) = place.new.key(part, name) else { return };
        let schema = super::correlation::child_schema(place.schema, name).unwrap_or(&Value::Null);
        let old = place.old.as_ref().and_then(|old| old.key(part, name));
        let same = place.same.child(place.same.0.and_then(|pair| pair.key(name)));
        let path = std::mem::replace(&mut self.path, Path::root());
        self.path = path.key(name);
        self.part(below, WalkState { schema, new, old, same });
        self.path = path;
    }

    fn item(&mut self, below: &RuleNode, place: &WalkState<'_>, at: usize) {
        let Some(new) = place.new.index(at) else { return };
        let old =
            place.old.as_ref().and_then(|old| correlated_item(place.schema, old.json, new.json)).map(RuleInput::of);
        let same = place.same.child(place.same.0.and_then(|pair| pair.index(at)));
        let schema = place.schema.get("items").unwrap_or(&Value::Null);
        let path = std::mem::replace(&mut self.path, Path::root());
        self.path = path.index(at);
        self.part(below, WalkState { schema, new, old, same });
        self.path = path;
    }

    fn rule(&mut self, rule: &Rule, new: &Binding, old: Option<&Val>, same: Correlation<'_>) {
        if self.left == 0 || (rule.uses_old && old.is_none() && !rule.optional_old) {
            return;
        }
        let plain = [new.clone(), old.map_or(Binding::Absent, |old| Binding::Value(old.clone()))];
        let optional = Binding::Value(old.map_or(Val::Optional(None), |old| Val::some(old.clone())));
        let result = if rule.optional_old {
            self.eval(&rule.rule, &[new.clone(), optional])
        } else {
            self.eval(&rule.rule, &plain)
        };
        match result {
            Ok(Val::Bool(true)) => {}
            Ok(_) if !rule.uses_old && same.is_unchanged() => {}
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

    /// What a message expression says, if it says something fit to print.
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
