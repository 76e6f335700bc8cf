//! The rules of a CRD (`x-kubernetes-validations`), compiled once.

pub(crate) mod check;
pub(crate) mod decl_type;

use crate::cel::compile::compile;
use crate::cel::compile::node::Node;
use crate::cel::error::CompileError;
use decl_type::DeclType;
use napkeeper_api::field_path::{Path, Segment};
use serde_json::Value;
use std::sync::Arc;

/// Why a rule of a definition cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {rule:?} of {schema_path} does not compile: {source}")]
pub struct RuleError {
    /// Where in the schema, as a path of the object.
    pub schema_path: String,
    /// The rule.
    pub rule: String,
    /// Why.
    pub source: CompileError,
}

/// The reason reported for a violated rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// The value is wrong.
    #[default]
    Invalid,
    /// It must not be given.
    Forbidden,
    /// It must be given.
    Required,
    /// It already exists.
    Duplicate,
}

/// All rules of a schema. Parts of the schema without rules are left out.
#[derive(Debug)]
pub struct Rules {
    pub(crate) root: Option<RuleNode>,
}

/// A part of a schema with rules in it or below.
#[derive(Debug)]
pub(crate) struct RuleNode {
    pub(crate) shape: Arc<DeclType>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) fields: Vec<(String, RuleNode)>,
    pub(crate) values: Option<Box<RuleNode>>,
    pub(crate) items: Option<Box<RuleNode>>,
    /// Rules inside of `allOf`.
    pub(crate) all_of: Vec<RuleNode>,
}

/// A rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) rule: Node,
    /// It reads the stored value, so it is for updates alone unless that value is an optional one.
    pub(crate) uses_old: bool,
    /// The stored value is an optional one.
    pub(crate) optional_old: bool,
    /// The message, or the rule itself.
    pub(crate) fallback_message: String,
    pub(crate) has_message: bool,
    pub(crate) message: Option<Node>,
    pub(crate) reason: Reason,
    /// Where below its value the rule points at.
    pub(crate) path: Vec<Segment>,
}

impl Rules {
    /// Compiles the rules of the schema of a version (`openAPIV3Schema`).
    ///
    /// # Errors
    /// [`RuleError`] for the first rule, message or path that does not compile.
    pub fn compile(schema: &Value) -> Result<Self, RuleError> {
        let shape = Arc::new(DeclType::of(schema, true));
        let root = compile_node(schema, &shape, &Path::root())?;
        Ok(Self { root })
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }
}

/// The part of a schema that has rules. `validation` may be a branch of `allOf`; `shape` is that of the schema proper.
fn compile_node(validation: &Value, shape: &Arc<DeclType>, path: &Path) -> Result<Option<RuleNode>, RuleError> {
    let mut part = RuleNode {
        shape: shape.clone(),
        rules: Vec::new(),
        fields: Vec::new(),
        values: None,
        items: None,
        all_of: Vec::new(),
    };
    for rule in validation.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
        part.rules.push(compile_rule(rule, path)?);
    }
    for (name, property) in validation.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if let Some(shape) = shape.field(name) {
            let below = self::compile_node(property, shape, &path.key(name))?;
            part.fields.extend(below.map(|below| (name.clone(), below)));
        }
    }
    if let (Some(values), Some(shape)) = (validation.get("additionalProperties"), shape.field("")) {
        part.values = self::compile_node(values, shape, &path.key("*"))?.map(Box::new);
    }
    if let (Some(items), Some(shape)) = (validation.get("items"), shape.items()) {
        part.items = self::compile_node(items, shape, &path.key("*"))?.map(Box::new);
    }
    for branch in validation.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        part.all_of.extend(self::compile_node(branch, shape, path)?);
    }
    let empty = part.rules.is_empty() && part.fields.is_empty() && part.all_of.is_empty();
    Ok((!empty || part.values.is_some() || part.items.is_some()).then_some(part))
}

fn compile_rule(rule: &Value, path: &Path) -> Result<Rule, RuleError> {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let expression = text("rule");
    let broken = |source: CompileError| RuleError {
        schema_path: if path.segments().is_empty() { "the object".to_owned() } else { path.to_string() },
        rule: expression.to_owned(),
        source,
    };
    let names = ["self".to_owned(), "oldSelf".to_owned()];
    // A rule that compiles without the stored value does not read it.
    let (node, uses_old) = match compile(expression, &names[..1]) {
        Ok(node) => (node, false),
        Err(_) => (compile(expression, &names).map_err(broken)?, true),
    };
    let message = match text("messageExpression") {
        "" => None,
        message => Some(compile(message, &names).map_err(broken)?),
    };
    let fixed_message = text("message");
    Ok(Rule {
        rule: node,
        uses_old,
        optional_old: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
        fallback_message: if fixed_message.is_empty() { expression } else { fixed_message }.trim().to_owned(),
        has_message: !fixed_message.is_empty(),
        message,
        reason: match text("reason") {
            "FieldValueForbidden" => Reason::Forbidden,
            "FieldValueRequired" => Reason::Required,
            "FieldValueDuplicate" => Reason::Duplicate,
            _ => Reason::Invalid,
        },
        path: field_path(text("fieldPath")).ok_or_else(|| {
            broken(CompileError(format!("invalid fieldPath {:?}; use for example .spec.name", text("fieldPath"))))
        })?,
    })
}

/// Reads `.a.b['c.d']`.
fn field_path(text: &str) -> Option<Vec<Segment>> {
    let mut path = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            if name.is_empty() {
                return None;
            }
            path.push(Segment::Key(Arc::from(name)));
            rest = after;
        } else {
            let after = rest.strip_prefix("['")?;
            let (name, after) = after.split_once("']")?;
            path.push(Segment::Key(Arc::from(name.replace("\\'", "'").replace("\\\\", "\\"))));
            rest = after;
        }
    }
    Some(path)
}
