//! Values that expressions compute with, their equality and order.

pub(crate) mod json;
pub(crate) mod opaque;

use crate::cel::error::{EvalError, failed};
use crate::cel::library::time::timestamp::CelTimestamp;
use opaque::Opaque;
use std::cmp::Ordering;
use std::sync::Arc;

/// A value. Cheap to clone: large values are shared.
#[derive(Debug, Clone)]
pub(crate) enum Val {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<List>),
    Map(Arc<Map>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(CelTimestamp),
    Type(&'static str),
    Optional(Option<Arc<Val>>),
    Opaque(Arc<Opaque>),
    /// Data that does not fit its schema: reading it is an error, and only reading it.
    Invalid(Arc<str>),
}

/// The list type, which decides when two lists are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    /// By these fields, escaped.
    Keyed(Arc<[Arc<str>]>),
}

/// A list.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) items: Vec<Val>,
    pub(crate) kind: ListKind,
}

/// A map, or an object.
#[derive(Debug)]
pub(crate) struct Map {
    /// Sorted by key.
    entries: Vec<(Key, Val)>,
    /// What rules cannot see, but equality does: fields without a schema.
    hidden: Vec<(Key, Val)>,
    /// How many fields there are, with those that are null or hidden.
    size: usize,
}

/// A key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    UInt(u64),
    Text(Arc<str>),
}

impl Key {
    /// The value as a key. Doubles find whole numbers, as in the specification of the language.
    pub(crate) fn of(value: &Val) -> Option<Self> {
        Some(match value {
            Val::Bool(b) => Self::Bool(*b),
            Val::Int(i) => Self::Int(*i),
            Val::UInt(u) => i64::try_from(*u).map_or(Self::UInt(*u), Self::Int),
            Val::Double(d) => Self::Int(as_whole(*d)?),
            Val::Text(t) => Self::Text(t.clone()),
            _ => return None,
        })
    }

    pub(crate) fn to_val(&self) -> Val {
        match self {
            Self::Bool(b) => Val::Bool(*b),
            Self::Int(i) => Val::Int(*i),
            Self::UInt(u) => Val::UInt(*u),
            Self::Text(t) => Val::Text(t.clone()),
        }
    }

    fn compare_text(&self, text: &str) -> Ordering {
        match self {
            Self::Text(t) => t.as_ref().cmp(text),
            _ => Ordering::Less,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
pub(crate) fn as_whole(d: f64) -> Option<i64> {
    (d.fract() == 0.0 && d > -9.2e18 && d < 9.2e18).then_some(d as i64)
}

impl Map {
    /// A map of these entries. Of two with the same key the last wins.
    pub(crate) fn new(entries: Vec<(Key, Val)>) -> Self {
        let mut map = Self::object(entries, Vec::new(), 0);
        map.size = map.entries.len();
        map
    }

    /// An object of visible and hidden fields, `size` of them with those that are null.
    pub(crate) fn object(mut entries: Vec<(Key, Val)>, mut hidden: Vec<(Key, Val)>, size: usize) -> Self {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_by(|a, b| b.0.cmp(&a.0));
            entries.reverse();
            entries.dedup_by(|later, earlier| later.0 == earlier.0);
        }
        hidden.sort_by(|a, b| a.0.cmp(&b.0));
        Self { entries, hidden, size }
    }

    pub(crate) fn entries(&self) -> &[(Key, Val)] {
        &self.entries
    }

    pub(crate) fn len(&self) -> usize {
        self.size
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Val> {
        find(&self.entries, |k| k.cmp(key))
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Val> {
        find(&self.entries, |k| k.compare_text(name))
    }
}

fn find(entries: &[(Key, Val)], order: impl Fn(&Key) -> Ordering) -> Option<&Val> {
    let at = entries.binary_search_by(|(k, _)| order(k)).ok()?;
    entries.get(at).map(|(_, v)| v)
}

impl Val {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(List { items, kind: ListKind::Atomic }))
    }

    pub(crate) fn map(entries: Vec<(Key, Self)>) -> Self {
        Self::Map(Arc::new(Map::new(entries)))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn opaque(value: Opaque) -> Self {
        Self::Opaque(Arc::new(value))
    }

    /// The name of its type, as `type()` gives it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::UInt(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(..) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Opaque(o) => o.type_name(),
            Self::Invalid(_) => "error",
        }
    }

    /// True if empty, zero or null.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(b) => !b,
            Self::Int(i) | Self::Duration(i) => *i == 0,
            Self::UInt(u) => *u == 0,
            Self::Double(d) => *d == 0.0,
            Self::Text(t) => t.is_empty(),
            Self::Bytes(b) => b.is_empty(),
            Self::List(l) => l.items.is_empty(),
            Self::Map(m) => m.len() == 0,
            Self::Optional(o) => o.is_none(),
            Self::Timestamp(..) | Self::Type(_) | Self::Opaque(_) | Self::Invalid(_) => false,
        }
    }

    /// Are the two equal? Values of different types are not, except numbers.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Bytes(a), Self::Bytes(b)) => a == b,
            (Self::List(a), Self::List(b)) => Arc::ptr_eq(a, b) || a.equals(b),
            (Self::Map(a), Self::Map(b)) => Arc::ptr_eq(a, b) || a.equals(b),
            (Self::Duration(a), Self::Duration(b)) => a == b,
            (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (None, None) => true,
                _ => false,
            },
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            _ => compare_numbers(self, other) == Some(Ordering::Equal),
        }
    }

    /// How the two are ordered, if they are.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            _ => compare_numbers(self, other),
        }
    }
}

impl List {
    fn equals(&self, other: &Self) -> bool {
        let within = |items: &[Val], item: &Val| items.iter().any(|i| i.equals(item));
        self.items.len() == other.items.len()
            && match &self.kind {
                ListKind::Atomic => self.items.iter().zip(&other.items).all(|(a, b)| a.equals(b)),
                ListKind::Set => other.items.iter().all(|item| within(&self.items, item)),
                ListKind::Keyed(keys) => other
                    .items
                    .iter()
                    .all(|item| self.items.iter().any(|mine| same_keys(keys, mine, item) && mine.equals(item))),
            }
    }
}

/// Are these two items of a list the same by its keys?
pub(crate) fn same_keys(keys: &[Arc<str>], a: &Val, b: &Val) -> bool {
    let (Val::Map(a), Val::Map(b)) = (a, b) else { return false };
    keys.iter().all(|key| match (a.field(key), b.field(key)) {
        (Some(x), Some(y)) => x.equals(y),
        (None, None) => true,
        _ => false,
    })
}

impl Map {
    fn equals(&self, other: &Self) -> bool {
        let same = |a: &[(Key, Val)], b: &[(Key, Val)]| {
            a.len() == b.len() && a.iter().zip(b).all(|((k, v), (l, w))| k == l && v.equals(w))
        };
        self.size == other.size && same(&self.entries, &other.entries) && same(&self.hidden, &other.hidden)
    }
}

#[expect(clippy::cast_precision_loss, reason = "doubles are compared as such after the exact cases")]
fn compare_numbers(a: &Val, b: &Val) -> Option<Ordering> {
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::UInt(a), Val::UInt(b)) => Some(a.cmp(b)),
        (Val::Int(a), Val::UInt(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::UInt(a), Val::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Double(a), Val::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Val::Int(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
        (Val::Double(a), Val::UInt(b)) => a.partial_cmp(&(*b as f64)),
        (Val::UInt(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
        _ => None,
    }
}

/// The value, or the error of reading it.
pub(crate) fn readable(value: Val) -> Result<Val, EvalError> {
    match value {
        Val::Invalid(message) => failed(message.as_ref()),
        value => Ok(value),
    }
}
