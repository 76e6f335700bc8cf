//! Declared types: how a rule sees the data of a schema, by type and name.

use crate::cel::library::kubernetes::base64;
use crate::cel::library::time;
use crate::cel::library::time::timestamp::{self, CelTimestamp};
use crate::cel::value::{Key, List, ListKind, Map, Val, json};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The type declared by a schema.
#[derive(Debug)]
pub(crate) struct DeclType {
    nullable: bool,
    kind: DeclKind,
}

#[derive(Debug)]
enum DeclKind {
    Object(BTreeMap<String, Field>),
    Map(Arc<DeclType>),
    List(Arc<DeclType>, ListKind),
    String(StringFormat),
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
    shape: Arc<DeclType>,
}

/// The type of a string, by its format.
#[derive(Debug, Clone, Copy)]
enum StringFormat {
    Plain,
    Bytes,
    Date,
    Time,
    Duration,
}

/// Reserved words, which a field cannot be named by.
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
pub(crate) fn escape(name: &str) -> Option<String> {
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

impl DeclType {
    /// The shape of a schema; `root` for that of a whole object.
    pub(crate) fn of(schema: &Value, root: bool) -> Self {
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let whole = root || flag("x-kubernetes-embedded-resource");
        let form = match schema.get("type").and_then(Value::as_str) {
            _ if flag("x-kubernetes-int-or-string") => DeclKind::IntOrString,
            _ if whole => DeclKind::Object(with_metadata(fields(schema))),
            Some("object") => match schema.get("additionalProperties").filter(|s| s.is_object()) {
                Some(values) if schema.get("properties").is_none() => map(Self::of(values, false)),
                _ => DeclKind::Object(fields(schema)),
            },
            Some("array") => list(schema),
            Some("string") => DeclKind::String(match schema.get("format").and_then(Value::as_str) {
                Some("byte") => StringFormat::Bytes,
                Some("date") => StringFormat::Date,
                Some("date-time") => StringFormat::Time,
                Some("duration") => StringFormat::Duration,
                _ => StringFormat::Plain,
            }),
            Some("integer") => DeclKind::Int,
            Some("number") => DeclKind::Double,
            Some("boolean") => DeclKind::Bool,
            _ => DeclKind::Hidden,
        };
        Self { nullable: flag("nullable"), kind: form }
    }

    fn is_hidden(&self) -> bool {
        matches!(self.kind, DeclKind::Hidden)
    }

    /// The shape of a field, a map's values or a list's items.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::Object(fields) => fields.get(name).map(|f| &f.shape),
            DeclKind::Map(values) => Some(values),
            _ => None,
        }
    }

    /// The shape of a list's items.
    pub(crate) fn items(&self) -> Option<&Arc<Self>> {
        match &self.kind {
            DeclKind::List(items, _) => Some(items),
            _ => None,
        }
    }

    /// The value below a converted one.
    pub(crate) fn child(&self, value: &Val, name: &str) -> Option<Val> {
        let Val::Map(map) = value else { return None };
        match &self.kind {
            DeclKind::Object(fields) => map.field(fields.get(name)?.name.as_deref()?).cloned(),
            _ => map.field(name).cloned(),
        }
    }

    /// The data as rules see it. A value that does not fit its type is an error when it is read.
    pub(crate) fn convert(&self, json: &Value) -> Val {
        let bad = |wanted: &str| Val::Invalid(format!("invalid data, expected {wanted}, got {}", kind_of(json)).into());
        match (&self.kind, json) {
            (_, Value::Null) if self.nullable => Val::Null,
            (_, Value::Null) => Val::Invalid("invalid data, got null for schema with nullable=false".into()),
            (DeclKind::Object(fields), Value::Object(map)) => object(fields, map),
            (DeclKind::Map(values), Value::Object(map)) => {
                Val::map(map.iter().map(|(k, v)| (Key::Text(Arc::from(k.as_str())), values.convert(v))).collect())
            }
            (DeclKind::List(items, kind), Value::Array(list)) => Val::List(Arc::new(List {
                items: list.iter().map(|item| items.convert(item)).collect(),
                kind: kind.clone(),
            })),
            (DeclKind::String(meaning), Value::String(text)) => read(*meaning, text),
            (DeclKind::Int, Value::Number(n)) => n.as_i64().map_or_else(|| bad("int"), Val::Int),
            (DeclKind::Double, Value::Number(n)) => n.as_f64().map_or_else(|| bad("float"), Val::Double),
            (DeclKind::Bool, Value::Bool(b)) => Val::Bool(*b),
            (DeclKind::IntOrString, Value::String(text)) => Val::text(text.as_str()),
            (DeclKind::IntOrString, Value::Number(n)) => {
                n.as_i64().map_or_else(|| bad("either a string or integer"), Val::Int)
            }
            (DeclKind::Hidden, json) => json::from_json(json),
            _ => bad(self.name()),
        }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            DeclKind::Object(_) | DeclKind::Map(_) => "a map",
            DeclKind::List(..) => "an array",
            DeclKind::String(_) => "string",
            DeclKind::Int => "int",
            DeclKind::Double => "float",
            DeclKind::Bool => "bool",
            DeclKind::IntOrString => "either a string or integer",
            DeclKind::Hidden => "anything",
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
    let shape = DeclType::of(schema, false);
    let name = escape(name).filter(|_| !shape.is_hidden()).map(Arc::from);
    Field { name, shape: Arc::new(shape) }
}

/// A whole object has its version, kind, and a name, whether or not the schema declares them.
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

fn map(values: DeclType) -> DeclKind {
    if values.is_hidden() { DeclKind::Hidden } else { DeclKind::Map(Arc::new(values)) }
}

fn list(schema: &Value) -> DeclKind {
    let items = match schema.get("items") {
        Some(items) => DeclType::of(items, false),
        None => return DeclKind::Hidden,
    };
    if items.is_hidden() {
        return DeclKind::Hidden;
    }
    let kind = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Keyed(keys_of(schema).filter_map(|k| escape(k).map(Arc::from)).collect()),
        _ => ListKind::Atomic,
    };
    DeclKind::List(Arc::new(items), kind)
}

/// The keys that identify the items of a list.
fn keys_of(schema: &Value) -> impl Iterator<Item = &str> {
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

fn read(meaning: StringFormat, text: &str) -> Val {
    let bad = |kind: &str| Val::Invalid(format!("Invalid {kind} formatted string {text}").into());
    match meaning {
        StringFormat::Plain => Val::text(text),
        StringFormat::Bytes => base64::decode(text).map_or_else(|| bad("byte"), |bytes| Val::Bytes(bytes.into())),
        StringFormat::Date => {
            timestamp::parse_date(text).and_then(CelTimestamp::midnight).map_or_else(|| bad("date"), Val::Timestamp)
        }
        StringFormat::Time => CelTimestamp::parse_field(text).map_or_else(|| bad("date-time"), Val::Timestamp),
        StringFormat::Duration => time::parse_lenient_duration(text).map_or_else(|| bad("duration"), Val::Duration),
    }
}
