//! Checks a value, as it would be stored, against its schema.
//!
//! A wrong type does not stop the other keywords: the API server reports everything. A check returns how many parts
//! matched; if all alternatives fail, the best match is explained.

pub(crate) mod embedded;
pub(crate) mod lists;
pub(crate) mod numbers;
pub(crate) mod scale;

use crate::finding::Issue;
use crate::schema::structural::describe;
use crate::schema::structural::fault::{Fault, Faults, NO_FIELD, Reason};
use crate::schema::structural::field_path::FieldPath;
use crate::schema::structural::node::{Additional, FieldSchema, Junctors, SchemaNode, Types};
use napkeeper_core::model::amounts::quantity::Quantity;
use numbers::Num;
use serde_json::{Map, Value};

/// All that is wrong with a value.
pub(crate) fn check(value: &Value, node: &SchemaNode) -> Vec<Fault> {
    let mut faults = Faults::default();
    check_into(value, node, &mut faults);
    faults.into_list()
}

/// The same, adding to the faults.
pub(crate) fn check_into(value: &Value, node: &SchemaNode, faults: &mut Faults) {
    let mut check = Check { faults: std::mem::take(faults) };
    check.keywords(value, node, &FieldPath::ROOT);
    *faults = check.faults;
}

struct Check {
    faults: Faults,
}

impl Check {
    fn refuse(&mut self, path: &FieldPath<'_>, reason: Reason, issue: impl FnOnce() -> Option<Issue>) {
        self.faults.add(|| {
            let field = if path.is_root() { NO_FIELD.to_owned() } else { path.dotted() };
            Fault { field, reason, issue: issue(), secondary: false }
        });
    }

    /// Refuses without naming a field, as the API server does for ranges and combined schemas.
    fn refuse_somewhere(&mut self, issue: impl FnOnce() -> Issue) {
        self.faults.add(|| {
            let issue = Some(issue());
            Fault { field: NO_FIELD.to_owned(), reason: Reason::Invalid, issue, secondary: true }
        });
    }

    fn keywords(&mut self, value: &Value, node: &SchemaNode, path: &FieldPath<'_>) -> usize {
        let mut fitted = 0;
        if node.types != Types::ANY || node.format.is_some() {
            let fits = has_type(value, node);
            fitted += 2 * usize::from(fits) + usize::from(!fits);
            if !fits {
                self.refuse(path, Reason::TypeInvalid, || Some(describe::wrong_type(value, node, path)));
            }
        }
        if node.quantity && !is_quantity(value) {
            self.refuse(path, Reason::Invalid, || Some(describe::no_quantity(value, path)));
        }
        if value.is_null() {
            self.one_of(value, node, path);
            return fitted.saturating_sub(1);
        }
        if let Some(junctors) = &node.junctors {
            fitted += self.junctors(value, junctors, path);
        }
        // The combined schemas count twice though there are none: once as a keyword, once as what fitted.
        fitted += 2;
        match value {
            Value::String(text) => fitted += self.text(text, node, path),
            Value::Number(number) => {
                self.number(Num::of(number), value, node, path);
                fitted += 2;
            }
            Value::Array(items) => fitted += 2 + self.list(items, node, path),
            Value::Object(_) | Value::Bool(_) | Value::Null => {}
        }
        self.one_of(value, node, path);
        fitted += 1;
        if let Value::Object(map) = value {
            fitted += 1 + self.object(map, node, path);
        }
        fitted + 1
    }

    fn one_of(&mut self, value: &Value, node: &SchemaNode, path: &FieldPath<'_>) {
        if !node.allowed.is_empty() && !node.allowed.iter().any(|allowed| is_allowed(value, allowed)) {
            self.refuse(path, Reason::NotSupported, || Some(describe::not_one_of(value, node, path)));
        }
    }

    fn text(&mut self, text: &str, node: &SchemaNode, path: &FieldPath<'_>) -> usize {
        // Only the first that fails is reported.
        let length = || text.chars().count() as u64;
        let most = node.length.most.filter(|most| text.len() as u64 > *most && length() > *most);
        let least = node.length.least.filter(|least| length() < *least);
        if let Some(most) = most {
            self.refuse(path, Reason::TooLong, || Some(describe::most(most, length(), " characters", path)));
        } else if let Some(least) = least {
            self.refuse(path, Reason::Invalid, || Some(describe::least(least, length(), " characters", path)));
        } else if let Some(pattern) = node.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
            self.refuse(path, Reason::Invalid, || Some(describe::pattern(text, pattern, path)));
        }
        match node.format.filter(|format| format.is_of_text()) {
            Some(format) if !format.matches(text) => {
                self.refuse(path, Reason::TypeInvalid, || Some(describe::format(text, format, path)));
                2
            }
            Some(_) => 2,
            None => 1,
        }
    }

    fn number(&mut self, n: Num, value: &Value, node: &SchemaNode, path: &FieldPath<'_>) {
        numbers::check(n, node, |wrong| match wrong {
            numbers::NumberError::Range => self.refuse_somewhere(|| describe::out_of_range(value, node, path)),
            other => self.refuse(path, Reason::Invalid, || Some(describe::number(value, other, path))),
        });
    }

    fn list(&mut self, items: &[Value], node: &SchemaNode, path: &FieldPath<'_>) -> usize {
        let mut fitted = 0;
        if let Some(schema) = &node.items {
            for (i, item) in items.iter().enumerate() {
                fitted += self.keywords(item, schema, &path.index(i));
            }
        }
        let count = items.len() as u64;
        if let Some(least) = node.count.least.filter(|least| count < *least) {
            self.refuse(path, Reason::Invalid, || Some(describe::least(least, count, " items", path)));
        }
        if let Some(most) = node.count.most.filter(|most| count > *most) {
            self.refuse(path, Reason::TooMany, || Some(describe::most(most, count, " items", path)));
        }
        fitted
    }

    fn object(&mut self, map: &Map<String, Value>, node: &SchemaNode, path: &FieldPath<'_>) -> usize {
        let count = map.len() as u64;
        if let Some(least) = node.entries.least.filter(|least| count < *least) {
            self.refuse(path, Reason::Invalid, || Some(describe::least(least, count, " entries", path)));
        }
        if let Some(most) = node.entries.most.filter(|most| count > *most) {
            self.refuse(path, Reason::TooMany, || Some(describe::most(most, count, " entries", path)));
        }
        let mut fitted = 0;
        if !node.properties.is_empty() || matches!(node.additional, Additional::Schema(_)) {
            for (key, child) in map {
                let (schema, at) = match node.find(key) {
                    FieldSchema::Property(schema) => (schema, path.field(key)),
                    FieldSchema::Additional(schema) => (schema, path.key(key)),
                    FieldSchema::Anything | FieldSchema::Nothing => continue,
                };
                fitted += self.keywords(child, schema, &at);
            }
        }
        for name in &node.required {
            if !map.contains_key(&**name) {
                let at = path.field(name);
                self.refuse(&at, Reason::Required, || Some(describe::missing(name, path)));
            }
        }
        fitted
    }

    fn junctors(&mut self, value: &Value, j: &Junctors, path: &FieldPath<'_>) -> usize {
        let mut fitted = 0;
        let obvious = j.int_or_string
            && match value {
                Value::String(_) => true,
                Value::Number(n) => Num::of(n).is_integer() && n.is_i64(),
                _ => false,
            };
        if !j.any_of.is_empty() && !obvious {
            fitted += self.any_of(value, &j.any_of, path);
        }
        if !j.one_of.is_empty() {
            fitted += self.exactly_one_of(value, &j.one_of, path);
        }
        let mut failed = false;
        for schema in &j.all_of {
            let mark = self.faults.mark();
            fitted += self.keywords(value, schema, path);
            failed |= self.faults.mark() > mark;
        }
        if failed {
            self.refuse_somewhere(|| describe::combined(path, "does not match all schemas of allOf"));
        }
        if let Some(schema) = &j.not
            && self.try_one(value, schema, path).0
        {
            self.refuse_somewhere(|| describe::combined(path, "matches the schema of not, which the CRD forbids"));
        }
        fitted
    }

    /// Whether a schema accepts the value, and how many parts matched.
    fn try_one(&mut self, value: &Value, node: &SchemaNode, path: &FieldPath<'_>) -> (bool, usize) {
        let mark = self.faults.mark();
        self.faults.start_trial();
        let fitted = self.keywords(value, node, path);
        let fits = self.faults.mark() == mark;
        self.faults.forget(mark);
        self.faults.end_trial();
        (fits, fitted)
    }

    fn any_of(&mut self, value: &Value, nodes: &[SchemaNode], path: &FieldPath<'_>) -> usize {
        let mut best: Option<(&SchemaNode, usize)> = None;
        for node in nodes {
            let (fits, fitted) = self.try_one(value, node, path);
            if fits {
                return fitted;
            }
            if best.is_none_or(|(_, most)| fitted > most) {
                best = Some((node, fitted));
            }
        }
        let many = nodes.len();
        self.refuse_somewhere(|| {
            describe::combined(path, &format!("matches none of the {many} alternatives in the CRD schema"))
        });
        best.map_or(0, |(node, _)| self.keywords(value, node, path))
    }

    fn exactly_one_of(&mut self, value: &Value, nodes: &[SchemaNode], path: &FieldPath<'_>) -> usize {
        let mut best: Option<(&SchemaNode, usize)> = None;
        let mut fitting = 0;
        let mut first = 0;
        for node in nodes {
            let (fits, fitted) = self.try_one(value, node, path);
            if fits {
                first = if fitting == 0 { fitted } else { first };
                fitting += 1;
            } else if fitting == 0 && best.is_none_or(|(_, most)| fitted > most) {
                best = Some((node, fitted));
            }
        }
        if fitting == 1 {
            return first;
        }
        self.refuse_somewhere(|| {
            let many = nodes.len();
            let message = format!("matches {fitting} of the {many} alternatives in the CRD schema, not exactly one");
            describe::combined(path, &message)
        });
        best.filter(|_| fitting == 0).map_or(0, |(node, _)| self.keywords(value, node, path))
    }
}

/// True when a value has a type that the schema takes.
fn has_type(value: &Value, node: &SchemaNode) -> bool {
    let SchemaNode { types, format, .. } = node;
    let numeric = types.has(Types::INTEGER) || types.has(Types::NUMBER);
    match value {
        Value::Null => *types == Types::ANY || node.nullable,
        // A string with a format, or a list, may be a JSON string.
        Value::String(_) | Value::Array(_) if format.is_some() && !numeric => true,
        Value::String(_) => types.has(Types::STRING),
        Value::Array(_) => types.has(Types::ARRAY),
        Value::Object(_) => types.has(Types::OBJECT),
        Value::Bool(_) => types.has(Types::BOOLEAN),
        Value::Number(n) => types.has(Types::NUMBER) || types.has(Types::INTEGER) && Num::of(n).is_integer(),
    }
}

/// True when a value is one of an `enum`: 1 and 1.0 are the same.
fn is_allowed(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (Value::Null, _) => false,
        (Value::Number(n), Value::Number(allowed)) => Num::of(n).equals(Num::of(allowed)),
        (value, allowed) => value == allowed,
    }
}

fn is_quantity(value: &Value) -> bool {
    match value {
        Value::String(text) => text.parse::<Quantity>().is_ok(),
        Value::Number(number) => number.to_string().parse::<Quantity>().is_ok(),
        _ => false,
    }
}
