//! Parses and checks an object's metadata.
//!
//! The API server decodes metadata as a type, not by the CRD: errors are 400 Bad Request.

use crate::finding::{Issue, NotAString};
use crate::rules::structure as rules;
use crate::schema::structural::describe::describe;
use crate::schema::structural::fault::{Fault, Faults, MAX_KEPT, Reason};
use crate::schema::structural::field_path::FieldPath;
use napkeeper_core::model::support::name_syntax::{
    is_label, is_label_value, is_path_segment, is_qualified_name, is_subdomain, masked,
};
use serde_json::{Map, Value};

/// The type of a field of metadata.
#[derive(Clone, Copy)]
enum FieldType {
    Text,
    Integer,
    Bool,
    Time,
    Texts,
    TextMap,
    Items(&'static [(&'static str, FieldType)]),
    Anything,
}

const METADATA_FIELDS: &[(&str, FieldType)] = &[
    ("annotations", FieldType::TextMap),
    ("creationTimestamp", FieldType::Time),
    ("deletionGracePeriodSeconds", FieldType::Integer),
    ("deletionTimestamp", FieldType::Time),
    ("finalizers", FieldType::Texts),
    ("generateName", FieldType::Text),
    ("generation", FieldType::Integer),
    ("labels", FieldType::TextMap),
    ("managedFields", FieldType::Items(MANAGED_FIELDS_FIELDS)),
    ("name", FieldType::Text),
    ("namespace", FieldType::Text),
    ("ownerReferences", FieldType::Items(OWNER_REFERENCE_FIELDS)),
    ("resourceVersion", FieldType::Text),
    ("selfLink", FieldType::Text),
    ("uid", FieldType::Text),
];

const OWNER_REFERENCE_FIELDS: &[(&str, FieldType)] = &[
    ("apiVersion", FieldType::Text),
    ("blockOwnerDeletion", FieldType::Bool),
    ("controller", FieldType::Bool),
    ("kind", FieldType::Text),
    ("name", FieldType::Text),
    ("uid", FieldType::Text),
];

const MANAGED_FIELDS_FIELDS: &[(&str, FieldType)] = &[
    ("apiVersion", FieldType::Text),
    ("fieldsType", FieldType::Text),
    ("fieldsV1", FieldType::Anything),
    ("manager", FieldType::Text),
    ("operation", FieldType::Text),
    ("subresource", FieldType::Text),
    ("time", FieldType::Time),
];

/// The result of reading metadata.
#[derive(Debug, Default)]
pub(crate) struct ParsedMetadata {
    /// Known fields that are set.
    pub(crate) meta: Value,
    /// Fields that cannot be decoded.
    pub(crate) unreadable: Vec<Issue>,
    /// Fields that are unknown, as the API server writes them, with the issue to report.
    pub(crate) unknown: Vec<(String, Issue)>,
}

/// Reads metadata at a path.
pub(crate) fn read(meta: &Value, path: &FieldPath<'_>) -> ParsedMetadata {
    let mut reading = ParsedMetadata::default();
    let fields = match meta {
        Value::Object(map) => reading.fields(map, METADATA_FIELDS, path),
        Value::Null => Map::new(),
        other => {
            reading.unreadable.push(wrong_type("a map", other, path));
            Map::new()
        }
    };
    reading.meta = Value::Object(fields);
    reading
}

fn wrong_type(expected: &str, value: &Value, path: &FieldPath<'_>) -> Issue {
    Issue::new(&rules::TYPE, &path.to_path(), format!("must be {expected}, got {}", describe(value)))
}

fn not_a_string(value: &Value, path: &FieldPath<'_>) -> Issue {
    match NotAString::of(value) {
        Some(scalar) => Issue::not_a_string(&rules::UNQUOTED, &path.to_path(), scalar),
        None => wrong_type("a string", value, path),
    }
}

impl ParsedMetadata {
    fn add_unreadable(&mut self, issue: Issue) {
        if self.unreadable.len() < MAX_KEPT {
            self.unreadable.push(issue);
        }
    }

    fn fields(
        &mut self,
        map: &Map<String, Value>,
        kinds: &'static [(&'static str, FieldType)],
        path: &FieldPath<'_>,
    ) -> Map<String, Value> {
        let mut known = Map::new();
        for (key, value) in map {
            let at = path.field(key);
            let Some((_, kind)) = kinds.iter().find(|(name, _)| name == key) else {
                let issue = super::issues::unknown(&at.to_path(), kinds.iter().map(|(name, _)| *name));
                if self.unknown.len() < MAX_KEPT {
                    self.unknown.push((at.bracketed(), issue));
                }
                continue;
            };
            if let Some(value) = self.field(value, *kind, &at) {
                known.insert(key.clone(), value);
            }
        }
        known
    }

    fn field(&mut self, value: &Value, kind: FieldType, path: &FieldPath<'_>) -> Option<Value> {
        let expected = match (value, kind) {
            (Value::Null, _) => return None,
            (_, FieldType::Anything) | (Value::Bool(_), FieldType::Bool) => return Some(value.clone()),
            (Value::String(text), FieldType::Text) => return (!text.is_empty()).then(|| value.clone()),
            (Value::Number(n), FieldType::Integer) if n.is_i64() || n.as_f64().is_some_and(is_64_bits) => {
                return Some(value.clone());
            }
            (Value::String(text), FieldType::Time) if is_time(text) => return Some(value.clone()),
            (Value::Array(items), FieldType::Texts) => return Some(self.texts(items, path)),
            (Value::Object(map), FieldType::TextMap) => return Some(self.text_map(map, path)),
            (Value::Array(items), FieldType::Items(kinds)) => {
                let item = |(i, item): (usize, &Value)| match item {
                    Value::Object(map) => Value::Object(self.fields(map, kinds, &path.index(i))),
                    Value::Null => Value::Object(Map::new()),
                    other => {
                        self.add_unreadable(wrong_type("a map", other, &path.index(i)));
                        Value::Null
                    }
                };
                return Some(items.iter().enumerate().map(item).collect());
            }
            (_, FieldType::Text) => {
                self.add_unreadable(not_a_string(value, path));
                return None;
            }
            (_, FieldType::Integer) => "an integer",
            (_, FieldType::Bool) => "a boolean",
            (Value::String(text), FieldType::Time) => {
                let message = format!("{text:?} is not a time in RFC 3339, such as 2026-11-21T08:00:00Z");
                self.add_unreadable(Issue::new(&rules::FORMAT, &path.to_path(), message));
                return None;
            }
            (_, FieldType::Time) => "a time",
            (_, FieldType::Texts | FieldType::Items(_)) => "a list",
            (_, FieldType::TextMap) => "a map",
        };
        self.add_unreadable(wrong_type(expected, value, path));
        None
    }

    /// A null is as good as an empty text.
    fn text(&mut self, value: &Value, path: &FieldPath<'_>) -> Value {
        match value {
            Value::String(_) => return value.clone(),
            Value::Null => {}
            other => self.add_unreadable(not_a_string(other, path)),
        }
        Value::String(String::new())
    }

    fn texts(&mut self, items: &[Value], path: &FieldPath<'_>) -> Value {
        items.iter().enumerate().map(|(i, item)| self.text(item, &path.index(i))).collect()
    }

    fn text_map(&mut self, map: &Map<String, Value>, path: &FieldPath<'_>) -> Value {
        map.iter().map(|(key, value)| (key.clone(), self.text(value, &path.key(key)))).collect()
    }
}

/// Whole, and within 64 bits.
fn is_64_bits(f: f64) -> bool {
    f.fract() == 0.0 && f.abs() < 9.2e18
}

/// RFC 3339 with capital `T` and `Z`.
fn is_time(text: &str) -> bool {
    !text.contains([' ', 't', 'z']) && text.contains('T') && text.parse::<jiff::Timestamp>().is_ok()
}

/// The kind of object that has the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataOwner {
    /// An object of a cluster.
    Object,
    /// An object inside of another.
    Embedded,
}

/// Most bytes of all annotations together.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;
/// Where the API server cuts a name off before it adds five characters to it.
const MAX_GENERATE_NAME: usize = 58;

/// Makes a name where only its beginning is given, as the API server does; its five characters are random.
pub(crate) fn generate_name(meta: &mut Value) {
    let Some(map) = meta.as_object_mut().filter(|map| !map.contains_key("name")) else { return };
    if let Some(prefix) = map.get("generateName").and_then(Value::as_str) {
        let cut: String = prefix.chars().take(MAX_GENERATE_NAME).collect();
        map.insert("name".to_owned(), Value::String(format!("{cut}00000")));
    }
}

/// Checks metadata that has been read.
pub(crate) fn check(meta: &Value, owner: MetadataOwner, path: &FieldPath<'_>, faults: &mut Faults) {
    let text = |key: &str| meta[key].as_str().unwrap_or_default();
    let (name, prefix) = (text("name"), text("generateName"));
    naming(name, prefix, owner, path, faults);
    finalizers(&meta["finalizers"], &path.field("finalizers"), faults);
    if owner == MetadataOwner::Embedded {
        // The object's own namespace comes from the URL of the request, and its generation from the API server.
        if let Some(namespace) = meta["namespace"].as_str().filter(|n| !is_label(n)) {
            let at = path.field("namespace");
            let message = format!("{namespace:?} is not a valid namespace: use lowercase letters, digits and '-'");
            refuse(&at, Some((&at, message)), Reason::Invalid, faults);
        }
        if meta["generation"].as_f64().is_some_and(|generation| generation < 0.0) {
            let at = path.field("generation");
            refuse(&at, Some((&at, "must be at least 0".to_owned())), Reason::Invalid, faults);
        }
    }
    labels(&meta["labels"], &path.field("labels"), faults);
    annotations(&meta["annotations"], &path.field("annotations"), faults);
    owners(&meta["ownerReferences"], &path.field("ownerReferences"), faults);
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// `shown` is the path and the message to report; without it, another fault reports it.
fn refuse(path: &FieldPath<'_>, shown: Option<(&FieldPath<'_>, String)>, reason: Reason, faults: &mut Faults) {
    let field = path.bracketed();
    let issue = shown.map(|(at, message)| Issue::new(&rules::METADATA, &at.to_path(), message));
    faults.add(|| Fault { field, reason, issue, secondary: false });
}

fn naming(name: &str, prefix: &str, owner: MetadataOwner, path: &FieldPath<'_>, faults: &mut Faults) {
    let embedded = owner == MetadataOwner::Embedded;
    if !prefix.is_empty() {
        let fits = if embedded { !prefix.contains(['/', '%']) } else { is_subdomain(&masked(prefix)) };
        if !fits {
            let at = path.field("generateName");
            let message = format!("{prefix:?} is not a valid name prefix: use lowercase letters, digits, '-' and '.'");
            refuse(&at, Some((&at, message)), Reason::Invalid, faults);
        }
    }
    let at = path.field("name");
    if embedded {
        if !name.is_empty() && !is_path_segment(name) {
            let message = format!("{name:?} is not a valid name: it must not contain '/' or '%'");
            refuse(&at, Some((&at, message)), Reason::Invalid, faults);
        }
    } else if name.is_empty() {
        refuse(&at, None, Reason::Required, faults);
    } else if !is_subdomain(name) {
        refuse(&at, None, Reason::Invalid, faults);
    }
}

fn finalizers(finalizers: &Value, path: &FieldPath<'_>, faults: &mut Faults) {
    for (i, finalizer) in strings(finalizers).enumerate() {
        if !is_qualified_name(finalizer) {
            let message = format!("{finalizer:?} is not a valid finalizer; use for example example.com/name");
            refuse(path, Some((&path.index(i), message)), Reason::Invalid, faults);
        }
    }
    if ["orphan", "foregroundDeletion"].iter().all(|name| strings(finalizers).any(|f| f == *name)) {
        let message = "orphan and foregroundDeletion are mutually exclusive".to_owned();
        refuse(path, Some((path, message)), Reason::Invalid, faults);
    }
}

fn labels(labels: &Value, path: &FieldPath<'_>, faults: &mut Faults) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let at = path.key(key);
        if !is_qualified_name(key) {
            let message = format!("{key:?} is not a valid label key; use for example example.com/name");
            refuse(path, Some((&at, message)), Reason::Invalid, faults);
        }
        if let Some(value) = value.as_str().filter(|value| !is_label_value(value)) {
            let message =
                format!("{value:?} is not a valid label value: use at most 63 letters, digits, '-', '_' and '.'");
            refuse(path, Some((&at, message)), Reason::Invalid, faults);
        }
    }
}

fn annotations(annotations: &Value, path: &FieldPath<'_>, faults: &mut Faults) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        if !is_qualified_name(&key.to_lowercase()) {
            let message = format!("{key:?} is not a valid annotation key; use for example example.com/name");
            refuse(path, Some((&path.key(key), message)), Reason::Invalid, faults);
        }
    }
    if size > MAX_ANNOTATION_BYTES {
        let message =
            format!("the annotations have {size} bytes in total, more than the limit of {MAX_ANNOTATION_BYTES}");
        refuse(path, Some((path, message)), Reason::TooLong, faults);
    }
}

fn is_same_owner(one: &Value, other: &Value) -> bool {
    let texts = ["apiVersion", "kind", "name", "uid"];
    let flags = ["controller", "blockOwnerDeletion"];
    texts.iter().all(|key| one[key].as_str().unwrap_or_default() == other[key].as_str().unwrap_or_default())
        && flags.iter().all(|key| one[key].as_bool() == other[key].as_bool())
}

fn owners(owners: &Value, path: &FieldPath<'_>, faults: &mut Faults) {
    let mut controllers = 0;
    let list = owners.as_array().map(Vec::as_slice).unwrap_or_default();
    for (i, owner) in list.iter().enumerate() {
        // The API server drops repeated owners before its checks.
        if list[..i].iter().any(|before| is_same_owner(before, owner)) {
            continue;
        }
        let text = |key: &str| owner[key].as_str().unwrap_or_default();
        // A group without a version, or more than one slash, is no version.
        let version = text("apiVersion");
        let parsed = match version.split_once('/') {
            None => !version.is_empty(),
            Some((_, rest)) => !rest.is_empty() && !rest.contains('/'),
        };
        let given = |key: &'static str| (key, !text(key).is_empty());
        for (key, fits) in [("apiVersion", parsed), given("kind"), given("name"), given("uid")] {
            if !fits {
                let item = path.index(i);
                let message =
                    format!("an owner reference needs apiVersion, kind, name and uid: {key} is missing or invalid");
                refuse(&path.field(key), Some((&item.field(key), message)), Reason::Invalid, faults);
            }
        }
        if (version, text("kind")) == ("v1", "Event") {
            refuse(path, Some((&path.index(i), "an Event cannot be an owner".to_owned())), Reason::Invalid, faults);
        }
        controllers += usize::from(owner["controller"] == true);
    }
    if controllers > 1 {
        let message = "only one owner can be the controller".to_owned();
        refuse(path, Some((path, message)), Reason::Invalid, faults);
    }
}
