//! Compiled schemas. Read once from JSON, so that a check looks nothing up by name but fields.

pub(crate) mod compile;
pub(crate) mod formats;

use crate::schema::structural::field_path::FieldPath;
use crate::text::re2::Pattern;
use formats::Format;
use napkeeper_api::field_path::{Path, Segment};
use serde_json::{Map, Value};

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Types(u8);

impl Types {
    pub(crate) const ANY: Self = Self(0);
    pub(crate) const OBJECT: Self = Self(1);
    pub(crate) const ARRAY: Self = Self(2);
    pub(crate) const STRING: Self = Self(4);
    pub(crate) const INTEGER: Self = Self(8);
    pub(crate) const NUMBER: Self = Self(16);
    pub(crate) const BOOLEAN: Self = Self(32);
    const NAMES: [(Self, &'static str); 6] = [
        (Self::INTEGER, "integer"),
        (Self::STRING, "string"),
        (Self::OBJECT, "object"),
        (Self::ARRAY, "array"),
        (Self::NUMBER, "number"),
        (Self::BOOLEAN, "boolean"),
    ];

    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The type of a name in a schema.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, n)| *n == name).map(|(types, _)| *types)
    }

    /// The names of all that are in the set.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(types, _)| self.has(*types)).map(|(_, name)| name)
    }
}

/// What values of a map may be.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    /// There are none: fields that are not named are unknown.
    #[default]
    None,
    /// Any value without a schema for its fields.
    Any,
    /// Values of this form.
    Schema(Box<SchemaNode>),
}

/// What makes items of a list the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// Nothing.
    #[default]
    Atomic,
    /// All of them.
    Set,
    /// These fields.
    Map(Vec<String>),
}

/// Least and most of something.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    pub(crate) least: Option<u64>,
    pub(crate) most: Option<u64>,
}

/// Bounds of numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Numeric {
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
}

/// Schemas that are combined.
#[derive(Debug, Default)]
pub(crate) struct Junctors {
    pub(crate) all_of: Vec<SchemaNode>,
    pub(crate) any_of: Vec<SchemaNode>,
    pub(crate) one_of: Vec<SchemaNode>,
    pub(crate) not: Option<SchemaNode>,
    /// `anyOf` only repeats `x-kubernetes-int-or-string`.
    pub(crate) int_or_string: bool,
}

/// A node of a schema.
#[derive(Debug, Default)]
pub(crate) struct SchemaNode {
    pub(crate) types: Types,
    pub(crate) nullable: bool,
    pub(crate) preserve: bool,
    pub(crate) embedded: bool,
    /// A quantity of Kubernetes: a number, or a text that is one.
    pub(crate) quantity: bool,
    /// By name, in order.
    pub(crate) properties: Vec<(Box<str>, SchemaNode)>,
    /// Which of the properties have a default.
    pub(crate) defaulted: Vec<usize>,
    pub(crate) additional: Additional,
    pub(crate) required: Vec<Box<str>>,
    pub(crate) items: Option<Box<SchemaNode>>,
    /// With the defaults of its fields.
    pub(crate) default: Option<Value>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) format: Option<Format>,
    pub(crate) length: Bounds,
    pub(crate) count: Bounds,
    pub(crate) entries: Bounds,
    pub(crate) numeric: Option<Numeric>,
    pub(crate) list: ListType,
    pub(crate) junctors: Option<Box<Junctors>>,
    /// Below are lists that may not repeat items, or embedded objects.
    pub(crate) deep: Contains,
}

/// Further checks that a node or its descendants need.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Contains {
    pub(crate) lists: bool,
    pub(crate) embedded: bool,
}

/// The schema of a field of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldSchema<'n> {
    /// It is named.
    Property(&'n SchemaNode),
    /// It is a key of a map.
    Additional(&'n SchemaNode),
    /// It is a key of a map of anything.
    Anything,
    /// There is none.
    Nothing,
}

impl<'n> FieldSchema<'n> {
    /// The path of the field of this name. The API server writes named fields and keys of maps differently.
    pub(crate) fn child_path<'p>(self, parent: &'p FieldPath<'p>, name: &'p str) -> FieldPath<'p> {
        match self {
            Self::Property(_) => parent.field(name),
            Self::Additional(_) | Self::Anything | Self::Nothing => parent.key(name),
        }
    }

    pub(crate) fn node(self) -> Option<&'n SchemaNode> {
        match self {
            Self::Property(node) | Self::Additional(node) => Some(node),
            Self::Anything | Self::Nothing => None,
        }
    }
}

impl SchemaNode {
    pub(crate) fn property(&self, name: &str) -> Option<&Self> {
        let at = self.properties.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        self.properties.get(at).map(|(_, node)| node)
    }

    pub(crate) fn find(&self, name: &str) -> FieldSchema<'_> {
        match (self.property(name), &self.additional) {
            (Some(node), _) => FieldSchema::Property(node),
            (None, Additional::Schema(node)) => FieldSchema::Additional(node),
            (None, Additional::Any) => FieldSchema::Anything,
            (None, Additional::None) => FieldSchema::Nothing,
        }
    }

    /// True when the schema has a field.
    pub(crate) fn knows(&self, path: &Path) -> bool {
        let mut current = self;
        for segment in path.segments() {
            let next = match segment {
                Segment::Key(key) => current.find(key).node(),
                Segment::Index(_) => current.items.as_deref(),
            };
            match next {
                Some(node) => current = node,
                None => return false,
            }
        }
        true
    }

    /// The path of the only field of this name in the spec of an object; `None` if there are several or none.
    pub(crate) fn only_place_of(&self, name: &str) -> Option<Path> {
        let mut found = Vec::new();
        let at = Path::from_dotted("spec");
        self.property("spec")?.places_of(name, &at, &mut found);
        let only = found.pop()?;
        found.is_empty().then_some(only)
    }

    fn places_of(&self, name: &str, at: &Path, found: &mut Vec<Path>) {
        for (key, node) in &self.properties {
            if **key == *name {
                found.push(at.key(key));
            }
            node.places_of(name, &at.key(key), found);
        }
    }

    /// A path as the API server writes it: keys of maps in brackets.
    pub(crate) fn server_path(&self, path: &Path) -> String {
        let mut current = Some(self);
        let mut text = String::new();
        for segment in path.segments() {
            match segment {
                Segment::Index(index) => {
                    text += &format!("[{index}]");
                    current = current.and_then(|node| node.items.as_deref());
                }
                Segment::Key(key) => {
                    let found = current.map_or(FieldSchema::Nothing, |node| node.find(key));
                    let named = matches!(found, FieldSchema::Property(_) | FieldSchema::Nothing);
                    match (named, text.is_empty()) {
                        (true, true) => text += key,
                        (true, false) => text += &format!(".{key}"),
                        (false, _) => text += &format!("[{key}]"),
                    }
                    current = found.node();
                }
            }
        }
        // A fault of the whole object names no field.
        if text.is_empty() { crate::schema::structural::NO_FIELD.to_owned() } else { text }
    }

    /// Names of the fields.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.properties.iter().map(|(name, _)| &**name)
    }

    /// The fields that have a default and are not there.
    pub(crate) fn missing_defaults(&self, map: &Map<String, Value>) -> Vec<(&str, &Value)> {
        let defaulted = self.defaulted.iter().filter_map(|at| self.properties.get(*at));
        let absent = defaulted.filter(|(name, _)| !map.contains_key(&**name));
        absent.filter_map(|(name, node)| Some((&**name, node.default.as_ref()?))).collect()
    }
}
