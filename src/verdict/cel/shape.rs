//! How does a rule see the data of a schema: as which type, under which name, or not at all?

use super::json;
use super::library::moment::{self, Moment};
use super::library::{base64, time};
use super::value::{Key, List, ListKind, Map, Val};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a schema makes of data.
#[derive(Debug)]
pub(super) struct Shape {
    nullable: bool,
    kind: Form,
}

#[derive(Debug)]
enum Form {
    Object(BTreeMap<String, Field>),
    Map(Arc<Shape>),
    List(Arc<Shape>, ListKind),
    String(Meaning),
    Int,
    Double,
    Bool,
    IntOrString,
    /// Rules cannot see it.
    Hidden,
}

/// A field of an object.
#[derive(Debug)]
struct Field {
    /// Its name in expressions; nothing when it has none.
    name: Option<Arc<str>>,
    shape: Arc<Shape>,
}

/// What a text stands for, by its format.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    Plain,
    Bytes,
    Date,
    Time,
    Duration,
}

/// Words of the language that a field cannot be called by.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a field in expressions. `None` when it cannot be named.
pub(super) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            escaped.push_str("__underscores__");
            rest = after;
            continue;
        }
        match c {
            '.' => escaped.push_str("__dot__"),
            '-' => escaped.push_str("__dash__"),
            '/' => escaped.push_str("__slash__"),
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => escaped.push(c),
            _ => return None,
        }
        rest = rest.get(c.len_utf8()..)?;
    }
    Some(escaped)
}

impl Shape {
    /// The shape of a schema; `root` for that of a whole object.
    pub(super) fn of(schema: &Value, root: bool) -> Self {
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let whole = root || flag("x-kubernetes-embedded-resource");
        let form = match schema.get("type").and_then(Value::as_str) {
            _ if flag("x-kubernetes-int-or-string") => Form::IntOrString,
            _ if whole => Form::Object(with_metadata(fields(schema))),
            Some("object") => match schema.get("additionalProperties").filter(|s| s.is_object()) {
                Some(values) if schema.get("properties").is_none() => map(Self::of(values, false)),
                _ => Form::Object(fields(schema)),
            },
            Some("array") => list(schema),
            Some("string") => Form::String(match schema.get("format").and_then(Value::as_str) {
                Some("byte") => Meaning::Bytes,
                Some("date") => Meaning::Date,
                Some("date-time") => Meaning::Time,
                Some("duration") => Meaning::Duration,
                _ => Meaning::Plain,
            }),
            Some("integer") => Form::Int,
            Some("number") => Form::Double,
            Some("boolean") => Form::Bool,
            _ => Form::Hidden,
        };
        Self { nullable: flag("nullable"), kind: form }
    }

    fn is_hidden(&self) -> bool {
        matches!(self.kind, Form::Hidden)
    }

    /// The shape of a field, a map's values or a list's items.
    pub(super) fn field(&self, name: &str) -> Option<&Arc<Self>> {
        match &self.kind {
            Form::Object(fields) => fields.get(name).map(|f| &f.shape),
            Form::Map(values) => Some(values),
            _ => None,
        }
    }

    /// The shape of a list's items.
    pub(super) fn items(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            Form::List(items, _) => Some(items),
            _ => None,
        }
    }

    /// The value below a converted one.
    pub(super) fn child(&self, value: &Val, name: &str) -> Option<Val> {
        let Val::Map(map) = value else { return None };
        match &self.kind {
            Form::Object(fields) => map.field(fields.get(name)?.name.as_deref()?).cloned(),
            _ => map.field(name).cloned(),
        }
    }

    /// The data as rules see it. What does not fit becomes an error of whoever reads it.
    pub(super) fn convert(&self, json: &Value) -> Val {
        let bad = |wanted: &str| Val::Invalid(format!("invalid data, expected {wanted}, got {}", kind_of(json)).into());
        match (&self.kind, json) {
            (_, Value::Null) if self.nullable => Val::Null,
            (_, Value::Null) => Val::Invalid("invalid data, got null for schema with nullable=false".into()),
            (Form::Object(fields), Value::Object(map)) => object(fields, map),
            (Form::Map(values), Value::Object(map)) => {
                Val::map(map.iter().map(|(k, v)| (Key::Text(Arc::from(k.as_str())), values.convert(v))).collect())
            }
            (Form::List(items, kind), Value::Array(list)) => Val::List(Arc::new(List {
                items: list.iter().map(|item| items.convert(item)).collect(),
                kind: kind.clone(),
            })),
            (Form::String(meaning), Value::String(text)) => read(*meaning, text),
            (Form::Int, Value::Number(n)) => n.as_i64().map_or_else(|| bad("int"), Val::Int),
            (Form::Double, Value::Number(n)) => n.as_f64().map_or_else(|| bad("float"), Val::Double),
            (Form::Bool, Value::Bool(b)) => Val::Bool(*b),
            (Form::IntOrString, Value::String(text)) => Val::text(text.as_str()),
            (Form::IntOrString, Value::Number(n)) => {
                n.as_i64().map_or_else(|| bad("either a string or integer"), Val::Int)
            }
            (Form::Hidden, json) => json::from_json(json),
            _ => bad(self.name()),
        }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Form::Object(_) | Form::Map(_) => "a map",
            Form::List(..) => "an array",
            Form::String(_) => "string",
            Form::Int => "int",
            Form::Double => "float",
            Form::Bool => "bool",
            Form::IntOrString => "either a string or integer",
            Form::Hidden => "anything",
        }
    }
}

fn kind_of(json: &Value) -> &'static str {
    match json {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "map",
    }
}

fn fields(schema: &Value) -> BTreeMap<String, Field> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, property)| (name.clone(), field(name, property))).collect()
}

fn field(name: &str, schema: &Value) -> Field {
    let shape = Shape::of(schema, false);
    let name = escape(name).filter(|_| !shape.is_hidden()).map(Arc::from);
    Field { name, shape: Arc::new(shape) }
}

/// A whole object has its version, kind, and a name, whatever the schema says.
fn with_metadata(mut fields: BTreeMap<String, Field>) -> BTreeMap<String, Field> {
    let text = serde_json::json!({ "type": "string" });
    let metadata = serde_json::json!({ "type": "object", "properties": { "name": text, "generateName": text } });
    for (name, schema) in [("apiVersion", &text), ("kind", &text), ("metadata", &metadata)] {
        let lacks = |field: Option<&Field>| match field {
            Some(field) => name == "metadata" && field.shape.field("name").is_none(),
            None => true,
        };
        if lacks(fields.get(name)) {
            fields.insert(name.to_owned(), field(name, schema));
        }
    }
    fields
}

fn map(values: Shape) -> Form {
    if values.is_hidden() { Form::Hidden } else { Form::Map(Arc::new(values)) }
}

fn list(schema: &Value) -> Form {
    let items = match schema.get("items") {
        Some(items) => Shape::of(items, false),
        None => return Form::Hidden,
    };
    if items.is_hidden() {
        return Form::Hidden;
    }
    let kind = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Keyed(keys_of(schema).filter_map(|k| escape(k).map(Arc::from)).collect()),
        _ => ListKind::Atomic,
    };
    Form::List(Arc::new(items), kind)
}

/// The keys that tell the items of a list apart.
pub(super) fn keys_of(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn object(fields: &BTreeMap<String, Field>, map: &serde_json::Map<String, Value>) -> Val {
    let mut entries = Vec::with_capacity(map.len());
    let mut hidden = Vec::new();
    for (key, value) in map {
        match fields.get(key) {
            Some(Field { name: Some(_), .. }) if value.is_null() => {}
            Some(Field { name: Some(name), shape }) => entries.push((Key::Text(name.clone()), shape.convert(value))),
            _ => hidden.push((Key::Text(Arc::from(key.as_str())), json::from_json(value))),
        }
    }
    Val::Map(Arc::new(Map::object(entries, hidden, map.len())))
}

fn read(meaning: Meaning, text: &str) -> Val {
    let bad = |what: &str| Val::Invalid(format!("Invalid {what} formatted string {text}").into());
    match meaning {
        Meaning::Plain => Val::text(text),
        Meaning::Bytes => base64::decode(text).map_or_else(|| bad("byte"), |bytes| Val::Bytes(bytes.into())),
        Meaning::Date => {
            moment::parse_date(text).and_then(Moment::midnight).map_or_else(|| bad("date"), Val::Timestamp)
        }
        Meaning::Time => Moment::parse_field(text).map_or_else(|| bad("date-time"), Val::Timestamp),
        Meaning::Duration => time::parse_lenient_duration(text).map_or_else(|| bad("duration"), Val::Duration),
    }
}
