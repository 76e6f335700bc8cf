//! Compiles the JSON of a schema, and rejects what the API server would reject.

use crate::schema::structural::node::formats::Format;
use crate::schema::structural::node::{Additional, Bounds, Contains, Junctors, ListType, Numeric, SchemaNode, Types};
use crate::text::re2::Pattern;
use serde_json::{Map, Value, json};

/// Why a schema is refused, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct CompileError {
    /// The way from the root of the schema, for example `properties[spec].pattern`.
    pub path: String,
    /// The problem, and what is allowed.
    pub reason: String,
}

/// The origin of a schema, which decides the rules for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaOrigin {
    /// It is a structural schema of a definition: schemas that the API server rejects are errors.
    Crd,
    /// It is made from types of this repository.
    OwnType,
}

/// Keywords that are allowed only outside of `allOf`, `anyOf`, `oneOf` and `not`.
const NOT_IN_JUNCTORS: [&str; 8] = [
    "additionalProperties",
    "default",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
];

/// Keywords that no structural schema has.
const FORBIDDEN_KEYWORDS: [&str; 6] =
    ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "deprecated"];

/// Marks the value of a plain schema as a quantity.
const QUANTITY_EXTENSION: &str = "x-napkeeper-quantity";

/// Reads a schema.
pub(crate) fn compile(schema: &Value, origin: SchemaOrigin) -> Result<SchemaNode, CompileError> {
    let mut compiler = Compiler { origin, path: Vec::new(), may_repeat: false };
    compiler.node(schema, false)
}

struct Compiler {
    origin: SchemaOrigin,
    path: Vec<String>,
    /// The first of `allOf` of an int-or-string is being read.
    may_repeat: bool,
}

type Compiled<T> = Result<T, CompileError>;

impl Compiler {
    fn refuse<T>(&self, keyword: &str, reason: impl Into<String>) -> Compiled<T> {
        let mut path = self.path.clone();
        path.push(keyword.to_owned());
        Err(CompileError { path: path.join("."), reason: reason.into() })
    }

    fn is_strict(&self) -> bool {
        self.origin == SchemaOrigin::Crd
    }

    /// A node; `nested` inside of `allOf`, `anyOf`, `oneOf` and `not`.
    fn node(&mut self, schema: &Value, nested: bool) -> Compiled<SchemaNode> {
        let Value::Object(map) = schema else {
            return self.refuse("", "a schema must be a map");
        };
        self.keywords(map, nested)?;
        let flag = |key: &str| map.get(key) == Some(&Value::Bool(true));
        let int_or_string = flag("x-kubernetes-int-or-string");
        let types = self.types(map, int_or_string)?;
        let mut node = SchemaNode {
            types,
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            quantity: flag(QUANTITY_EXTENSION) && !self.is_strict(),
            properties: self.properties(map, nested)?,
            additional: self.additional(map, nested)?,
            required: texts(map.get("required")).map(Into::into).collect(),
            items: self.child(map, "items", nested)?.map(Box::new),
            allowed: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            pattern: self.pattern(map)?,
            format: map.get("format").and_then(Value::as_str).and_then(|name| Format::of(name, types)),
            length: span(map, "minLength", "maxLength"),
            count: span(map, "minItems", "maxItems"),
            entries: span(map, "minProperties", "maxProperties"),
            numeric: numeric(map),
            list: self.list(map)?,
            junctors: self.junctors(map, int_or_string)?,
            ..SchemaNode::default()
        };
        if !nested {
            self.shape(map, &node, int_or_string)?;
        }
        node.deep = deep(&node);
        node.defaulted = (0..node.properties.len())
            .filter(|at| node.properties.get(*at).is_some_and(|(_, child)| child.default.is_some()))
            .collect();
        node.default = self.default(map, &node)?;
        Ok(node)
    }

    fn keywords(&self, map: &Map<String, Value>, nested: bool) -> Compiled<()> {
        if !self.is_strict() {
            return Ok(());
        }
        if let Some(never) = FORBIDDEN_KEYWORDS.iter().find(|key| map.contains_key(**key)) {
            return self.refuse(never, "must not be used in a structural schema");
        }
        if map.get("uniqueItems") == Some(&Value::Bool(true)) {
            return self.refuse("uniqueItems", "must be false; use x-kubernetes-list-type: set instead");
        }
        let outer = NOT_IN_JUNCTORS.iter().find(|key| map.get(**key).is_some_and(|v| *v != Value::Bool(false)));
        match outer.filter(|_| nested) {
            Some(key) => self.refuse(key, "must not be used inside of allOf, anyOf, oneOf or not"),
            None => Ok(()),
        }
    }

    fn types(&self, map: &Map<String, Value>, int_or_string: bool) -> Compiled<Types> {
        if int_or_string {
            return Ok(Types::INTEGER.or(Types::STRING));
        }
        match map.get("type") {
            None => Ok(Types::ANY),
            Some(Value::String(name)) if name.is_empty() => Ok(Types::ANY),
            Some(Value::String(name)) => match Types::named(name) {
                Some(types) => Ok(types),
                None => self.refuse(
                    "type",
                    format!("{name:?} is not a type: use object, array, string, integer, number or boolean"),
                ),
            },
            Some(_) => self.refuse("type", "must be a single string"),
        }
    }

    fn child(&mut self, map: &Map<String, Value>, key: &str, nested: bool) -> Compiled<Option<SchemaNode>> {
        let Some(schema) = map.get(key) else { return Ok(None) };
        self.path.push(key.to_owned());
        let node = self.node(schema, nested)?;
        self.path.pop();
        Ok(Some(node))
    }

    fn properties(&mut self, map: &Map<String, Value>, nested: bool) -> Compiled<Vec<(Box<str>, SchemaNode)>> {
        let mut properties = Vec::new();
        for (name, schema) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.path.push(format!("properties[{name}]"));
            properties.push((name.as_str().into(), self.node(schema, nested)?));
            self.path.pop();
        }
        properties.sort_by(|(a, _): &(Box<str>, SchemaNode), (b, _)| a.cmp(b));
        Ok(properties)
    }

    fn additional(&mut self, map: &Map<String, Value>, nested: bool) -> Compiled<Additional> {
        let strict = self.is_strict();
        match map.get("additionalProperties") {
            None => Ok(Additional::None),
            Some(Value::Bool(false)) if strict => {
                self.refuse("additionalProperties", "must not be false: unlisted fields are unknown anyway")
            }
            Some(Value::Bool(false)) => Ok(Additional::None),
            Some(_) if strict && map.contains_key("properties") => {
                self.refuse("additionalProperties", "must not be combined with properties")
            }
            Some(_) if strict && self.path.is_empty() => {
                self.refuse("additionalProperties", "must not be used at the root")
            }
            Some(Value::Bool(true)) => Ok(Additional::Any),
            Some(_) => {
                let node = self.child(map, "additionalProperties", nested)?;
                Ok(node.map_or(Additional::None, |node| Additional::Schema(Box::new(node))))
            }
        }
    }

    fn pattern(&self, map: &Map<String, Value>) -> Compiled<Option<Pattern>> {
        match map.get("pattern").and_then(Value::as_str).filter(|pattern| !pattern.is_empty()) {
            None => Ok(None),
            Some(pattern) => match Pattern::new(pattern) {
                Ok(pattern) => Ok(Some(pattern)),
                Err(error) => self.refuse("pattern", error.to_string()),
            },
        }
    }

    fn list(&self, map: &Map<String, Value>) -> Compiled<ListType> {
        let keys: Vec<String> = texts(map.get("x-kubernetes-list-map-keys")).map(ToOwned::to_owned).collect();
        match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("map") if keys.is_empty() => {
                self.refuse("x-kubernetes-list-map-keys", "must name the keys of a list of type map")
            }
            Some("map") => Ok(ListType::Map(keys)),
            Some("set") => Ok(ListType::Set),
            None | Some("atomic") => Ok(ListType::Atomic),
            Some(other) => {
                self.refuse("x-kubernetes-list-type", format!("{other:?} is not a list type: use atomic, set or map"))
            }
        }
    }

    fn junctors(&mut self, map: &Map<String, Value>, int_or_string: bool) -> Compiled<Option<Box<Junctors>>> {
        let either = json!([{ "type": "integer" }, { "type": "string" }]);
        // An int-or-string may repeat its types: here, or in the first schema of allOf.
        let repeats = (int_or_string || self.may_repeat) && map.get("anyOf") == Some(&either);
        let first = map.get("allOf").and_then(|all| all.get(0)).and_then(|first| first.get("anyOf"));
        let repeats_below = int_or_string && first == Some(&either);
        let all_of = self.branches(map, "allOf", false, repeats_below)?;
        let any_of = self.branches(map, "anyOf", repeats, false)?;
        let one_of = self.branches(map, "oneOf", false, false)?;
        let not = match map.get("not") {
            None => None,
            Some(schema) => {
                self.path.push("not".to_owned());
                let node = self.branch(schema, false)?;
                self.path.pop();
                Some(node)
            }
        };
        if all_of.is_empty() && any_of.is_empty() && one_of.is_empty() && not.is_none() {
            return Ok(None);
        }
        Ok(Some(Box::new(Junctors { all_of, any_of, one_of, not, int_or_string: repeats })))
    }

    fn branches(
        &mut self,
        map: &Map<String, Value>,
        key: &str,
        types: bool,
        repeats_below: bool,
    ) -> Compiled<Vec<SchemaNode>> {
        let list = map.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut nodes = Vec::with_capacity(list.len());
        for (i, schema) in list.iter().enumerate() {
            self.path.push(format!("{key}[{i}]"));
            let before = std::mem::replace(&mut self.may_repeat, repeats_below && i == 0);
            nodes.push(self.branch(schema, types)?);
            self.may_repeat = before;
            self.path.pop();
        }
        Ok(nodes)
    }

    /// A schema of a combination; it may name types only for an int-or-string.
    fn branch(&mut self, schema: &Value, types: bool) -> Compiled<SchemaNode> {
        if self.is_strict() && !types && schema.get("type").is_some() {
            return self.refuse("type", "must not be used inside of allOf, anyOf, oneOf or not");
        }
        self.node(schema, true)
    }

    /// The keywords that a structural schema must have.
    fn shape(&self, map: &Map<String, Value>, node: &SchemaNode, int_or_string: bool) -> Compiled<()> {
        if !self.is_strict() {
            return Ok(());
        }
        if node.types == Types::ANY && !node.preserve {
            return self.refuse("type", "is required");
        }
        if self.path.is_empty() && node.types != Types::OBJECT {
            return self.refuse("type", "must be object at the root");
        }
        if node.types == Types::ARRAY && node.items.is_none() {
            return self.refuse("items", "is required for an array");
        }
        if node.embedded && node.types != Types::OBJECT {
            return self.refuse("type", "must be object when x-kubernetes-embedded-resource is true");
        }
        if int_or_string && node.preserve {
            return self.refuse("x-kubernetes-preserve-unknown-fields", "must be false for an int-or-string");
        }
        if node.list != ListType::Atomic && node.types != Types::ARRAY {
            return self.refuse("x-kubernetes-list-type", "is only allowed on an array");
        }
        if let ListType::Map(keys) = &node.list {
            let item = node.items.as_deref();
            let known = |key: &&String| item.is_some_and(|item| item.property(key).is_some());
            if let Some(key) = keys.iter().find(|key| !known(key)) {
                return self.refuse("x-kubernetes-list-map-keys", format!("{key:?} is not a field of the items"));
            }
        }
        match map.get("default") {
            Some(_) if self.path.is_empty() => self.refuse("default", "must not be used at the root"),
            _ => Ok(()),
        }
    }

    /// The default, including the defaults of its fields.
    fn default(&self, map: &Map<String, Value>, node: &SchemaNode) -> Compiled<Option<Value>> {
        let Some(default) = map.get("default").filter(|default| !default.is_null() || node.nullable) else {
            return Ok(None);
        };
        let (stored, unknown) = crate::schema::structural::pruning::prune_value(default, node);
        if self.is_strict() {
            if let Some(unknown) = unknown.first() {
                return self.refuse("default", format!("has an unknown field {}", unknown.name));
            }
            // As written: required fields must be set without further defaults.
            if let Some(fault) = crate::schema::structural::checks::check(default, node).first() {
                let message = fault.issue.as_ref().map_or_else(|| fault.reason.to_string(), |i| i.message.clone());
                return self.refuse("default", format!("does not match its own schema: {message} ({})", fault.field));
            }
        }
        Ok(Some(stored))
    }
}

fn texts(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn span(map: &Map<String, Value>, least: &str, most: &str) -> Bounds {
    let bound = |key: &str| map.get(key).and_then(|v| v.as_u64().or_else(|| whole(v.as_f64()?)));
    Bounds { least: bound(least), most: bound(most) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and small")]
fn whole(n: f64) -> Option<u64> {
    (n.fract() == 0.0 && (0.0..1e15).contains(&n)).then_some(n as u64)
}

fn numeric(map: &Map<String, Value>) -> Option<Numeric> {
    let number = |key: &str| map.get(key).and_then(Value::as_f64);
    let flag = |key: &str| map.get(key) == Some(&Value::Bool(true));
    let numeric = Numeric {
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: number("multipleOf"),
    };
    let says = numeric.minimum.or(numeric.maximum).or(numeric.multiple_of);
    says.map(|_| numeric)
}

fn deep(node: &SchemaNode) -> Contains {
    let additional = match &node.additional {
        Additional::Schema(node) => Some(&**node),
        Additional::Any | Additional::None => None,
    };
    let below = node.properties.iter().map(|(_, child)| child).chain(node.items.as_deref()).chain(additional);
    let own = Contains { lists: node.list != ListType::Atomic, embedded: node.embedded };
    below.fold(own, |deep, child| Contains {
        lists: deep.lists || child.deep.lists,
        embedded: deep.embedded || child.deep.embedded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(schema: &Value) -> String {
        compile(schema, SchemaOrigin::Crd).unwrap_err().to_string()
    }

    fn field(schema: &Value) -> Value {
        json!({ "type": "object", "properties": { "a": schema } })
    }

    #[test]
    fn schemas_that_the_api_server_rejects_are_errors_with_a_path() {
        for (schema, message) in [
            (json!({}), "properties[a].type"),
            (json!({ "type": "text" }), "properties[a].type"),
            (json!({ "type": "array" }), "properties[a].items"),
            (json!({ "type": "string", "pattern": "a++" }), "properties[a].pattern"),
            (
                json!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true }),
                "properties[a].uniqueItems",
            ),
            (json!({ "type": "object", "additionalProperties": false }), "properties[a].additionalProperties"),
            (json!({ "type": "integer", "anyOf": [{ "type": "integer" }] }), "properties[a].anyOf[0].type"),
            (json!({ "type": "integer", "allOf": [{ "default": 1 }] }), "properties[a].allOf[0].default"),
            (json!({ "type": "integer", "default": "1" }), "properties[a].default"),
            (json!({ "type": "object", "properties": {}, "default": { "b": 1 } }), "properties[a].default"),
            (
                json!({ "type": "array", "items": { "type": "object" }, "x-kubernetes-list-type": "map" }),
                "properties[a].x-kubernetes-list-map-keys",
            ),
            (json!({ "$ref": "#/a" }), "properties[a].$ref"),
        ] {
            let error = refused(&field(&schema));
            assert!(error.starts_with(&format!("{message}: ")), "{schema}: {error}");
        }
        assert!(refused(&json!({ "type": "string" })).starts_with("type: "));
    }

    #[test]
    fn a_default_holds_the_defaults_of_its_fields() {
        let schema = field(&json!({ "type": "object", "default": {}, "properties": {
            "b": { "type": "array", "default": [{}], "items": { "type": "object", "properties": {
                "c": { "type": "integer", "default": 1 } } } } } }));
        let node = compile(&schema, SchemaOrigin::Crd).unwrap();
        assert_eq!(node.property("a").unwrap().default, Some(json!({ "b": [{ "c": 1 }] })));
    }
}
