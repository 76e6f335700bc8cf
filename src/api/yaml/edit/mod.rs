//! Edits of one value of a document that keep the rest of its text.
//!
//! An [`Edit`] describes a change. [`Edit::apply`] makes it in a value, [`EditableText::changes`] in the text, at the
//! spans concerned, so that comments, order, quotes and blank lines are kept. Callers parse the text again and compare
//! it with the value: both must be equal.

mod block;
mod editable_text;
mod flow;
mod render;

use crate::field_path::{Path, Segment};
pub use editable_text::{Change, EditableText, apply_changes};
use serde_json::{Map, Value};
use std::fmt;

/// Where a map gets a new entry. If the named key is absent, that is the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertPosition {
    /// Before the entry of this key, and before its comments.
    Before(String),
    /// Right after the entry of this key.
    After(String),
    /// After all others.
    End,
}

/// One change of a document. Paths begin at the object that is edited.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// Replaces a scalar.
    Set {
        /// Of the scalar.
        path: Path,
        /// The new value.
        value: Value,
    },
    /// Renames a key.
    Rename {
        /// Of the value.
        path: Path,
        /// The new key.
        to: String,
    },
    /// Inserts an entry.
    Insert {
        /// The map that gets it; an absent value there counts as an empty map.
        parent: Path,
        /// Where in the map.
        position: InsertPosition,
        /// Its key.
        key: String,
        /// Its value.
        value: Value,
    },
    /// Moves an entry to the end of another map, with its comments.
    Move {
        /// Of the value.
        from: Path,
        /// The map that gets it.
        parent: Path,
        /// Its key there.
        key: String,
    },
    /// Turns an entry into a comment; in flow style it is removed.
    CommentOut {
        /// Of the value.
        path: Path,
        /// The comment above it.
        comment: String,
    },
    /// Removes an entry with an empty map; its comments are kept.
    RemoveEmpty {
        /// Of the value.
        path: Path,
    },
}

impl Edit {
    /// The path that is edited.
    #[must_use]
    pub fn path(&self) -> Path {
        match self {
            Self::Set { path, .. }
            | Self::Rename { path, .. }
            | Self::CommentOut { path, .. }
            | Self::RemoveEmpty { path } => path.clone(),
            Self::Insert { parent, key, .. } => parent.key(key),
            Self::Move { from, .. } => from.clone(),
        }
    }

    /// Applies it to a value. Nothing happens if the path does not exist.
    pub fn apply(&self, value: &mut Value) {
        match self {
            Self::Set { path, value: new } => {
                if let Some(scalar) = at_mut(value, path.segments()) {
                    *scalar = new.clone();
                }
            }
            Self::Rename { path, to } => {
                if let Some((map, key)) = parent_map(value, path) {
                    let renamed = |(k, v): (String, Value)| (if k == key { to.clone() } else { k }, v);
                    *map = std::mem::take(map).into_iter().map(renamed).collect();
                }
            }
            Self::Insert { parent, position, key, value: new } => insert(value, parent, position, (key, new)),
            Self::Move { from, parent, key } => {
                let taken = parent_map(value, from).and_then(|(map, key)| map.shift_remove(&key));
                if let Some(taken) = taken {
                    insert(value, parent, &InsertPosition::End, (key, &taken));
                }
            }
            Self::CommentOut { path, .. } | Self::RemoveEmpty { path } => {
                if let Some((map, key)) = parent_map(value, path) {
                    map.shift_remove(&key);
                }
            }
        }
    }
}

fn insert(root: &mut Value, parent: &Path, position: &InsertPosition, (key, value): (&str, &Value)) {
    let Some(parent) = at_mut(root, parent.segments()) else {
        return;
    };
    if parent.is_null() {
        *parent = Value::Object(Map::new());
    }
    if let Some(map) = parent.as_object_mut() {
        let index_of = |k: &str| map.keys().position(|key| key == k);
        let index = match position {
            InsertPosition::Before(key) => index_of(key),
            InsertPosition::After(key) => index_of(key).map(|i| i + 1),
            InsertPosition::End => None,
        };
        map.shift_insert(index.unwrap_or(map.len()), key.to_owned(), value.clone());
    }
}

fn at_mut<'v>(value: &'v mut Value, path: &[Segment]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Key(key) => value.get_mut(&**key),
        Segment::Index(index) => value.get_mut(index),
    })
}

/// The map that holds an entry, and the entry's key.
fn parent_map<'v>(value: &'v mut Value, path: &Path) -> Option<(&'v mut Map<String, Value>, String)> {
    let (last, rest) = path.segments().split_last()?;
    let Segment::Key(key) = last else {
        return None;
    };
    let map = at_mut(value, rest)?.as_object_mut()?;
    map.contains_key(&**key).then(|| (map, key.to_string()))
}

/// Why a text cannot be changed in this way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The byte where it shows.
    pub at: usize,
    /// Why, and what to do.
    pub message: String,
}

impl Refusal {
    fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests;
