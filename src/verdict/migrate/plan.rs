//! The edits that an object needs, and the resulting value.

use napkeeper_api::field_path::{Path, Segment};
use napkeeper_api::yaml::edit::{Edit, InsertPosition};
use serde_json::{Map, Value};

/// The line above a setting that became a comment.
const RETIRED_COMMENT: &str = "napkeeper migrate: no longer a field here";

/// The edits of an object, and the resulting value.
#[derive(Debug)]
pub(super) struct MigrationPlan {
    /// Kind and name, as they were.
    pub(super) object: String,
    /// The object after all edits.
    pub(super) value: Value,
    /// The edits, in order.
    pub(super) steps: Vec<PlannedEdit>,
    /// The field, as it was, and the message.
    pub(super) notes: Vec<(Path, String)>,
    /// Where values went: to, from.
    moved: Vec<(Path, Path)>,
}

/// An edit and its reason.
#[derive(Debug)]
pub(super) struct PlannedEdit {
    pub(super) edit: Edit,
    /// The field, as it was before any edit.
    pub(super) at: Path,
    /// The change.
    pub(super) change: String,
    /// The API change that requires it.
    pub(super) reason: &'static str,
}

impl MigrationPlan {
    pub(super) fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = format!("{} {}", text(&value["kind"]), text(&value["metadata"]["name"])).trim().to_owned();
        Self { object, value: value.clone(), steps: Vec::new(), notes: Vec::new(), moved: Vec::new() }
    }

    /// The value at a path.
    pub(super) fn get(&self, path: &Path) -> Option<&Value> {
        path.value_in(&self.value)
    }

    /// The map at a path.
    pub(super) fn map(&self, path: &Path) -> Option<&Map<String, Value>> {
        self.get(path).and_then(Value::as_object)
    }

    /// The text at a path.
    pub(super) fn text(&self, path: &Path) -> Option<&str> {
        self.get(path).and_then(Value::as_str)
    }

    /// The paths of the items of the list at a path.
    pub(super) fn items(&self, path: &Path) -> Vec<Path> {
        let len = self.get(path).and_then(Value::as_array).map_or(0, Vec::len);
        (0..len).map(|i| path.index(i)).collect()
    }

    /// Where a value was before any edit.
    fn origin(&self, path: &Path) -> Path {
        self.moved.iter().rev().fold(path.clone(), |path, (to, from)| {
            match path.segments().strip_prefix(to.segments()) {
                Some(rest) => from.join(rest),
                None => path,
            }
        })
    }

    /// Adds a note about a field.
    pub(super) fn note(&mut self, path: &Path, message: impl Into<String>) {
        let at = self.origin(path);
        self.notes.push((at, message.into()));
    }

    fn make(&mut self, edit: Edit, change: String, reason: &'static str) {
        let at = self.origin(&edit.path());
        edit.apply(&mut self.value);
        self.steps.push(PlannedEdit { edit, at, change, reason });
    }

    /// Replaces a scalar by a string, if it differs.
    pub(super) fn set(&mut self, path: &Path, text: &str, reason: &'static str) {
        let Some(old) = self.get(path).filter(|v| *v != text) else {
            return;
        };
        let change = format!("{old} becomes {:?}", text);
        self.make(Edit::Set { path: path.clone(), value: text.into() }, change, reason);
    }

    /// Replaces a text of several lines by another.
    pub(super) fn replace_text(&mut self, path: &Path, text: &str, change: String, reason: &'static str) {
        self.make(Edit::Set { path: path.clone(), value: text.into() }, change, reason);
    }

    /// Renames the key of a value.
    pub(super) fn rename(&mut self, path: &Path, to: &str, reason: &'static str) -> Path {
        let new = with_last(path, to);
        self.make(Edit::Rename { path: path.clone(), to: to.to_owned() }, format!("renamed to {to}"), reason);
        self.moved.push((new.clone(), path.clone()));
        new
    }

    /// Adds an entry.
    pub(super) fn insert(&mut self, path: &Path, position: InsertPosition, value: Value, reason: &'static str) {
        let Some((parent, key)) = split(path) else {
            return;
        };
        let change = format!("added: {value}");
        self.make(Edit::Insert { parent, position, key, value }, change, reason);
    }

    /// Moves an entry, making the maps on the way. If the target exists, the old entry becomes a comment.
    pub(super) fn relocate(&mut self, from: &Path, to: &Path, reason: &'static str) {
        if self.get(to).is_some() {
            return self.retire(from, &format!("{to} is also set and takes precedence, so this is removed"), reason);
        }
        let Some((parent, key)) = split(to) else {
            return;
        };
        self.ensure(&parent, from);
        if self.map(&parent).is_none() {
            self.note(from, format!("{parent} is not a map: move this by hand"));
            return;
        }
        self.make(Edit::Move { from: from.clone(), parent, key }, format!("moved to {to}"), reason);
        self.moved.push((to.clone(), from.clone()));
    }

    /// Makes the maps of a path that are missing, before the entry that will go there.
    fn ensure(&mut self, path: &Path, before: &Path) {
        for n in 1..=path.segments().len() {
            let part = Path::root().join(&path.segments()[..n]);
            if self.get(&part).is_none() {
                let beside = split(before).filter(|(parent, _)| split(&part).is_some_and(|(p, _)| p == *parent));
                // Metadata comes first in a template.
                let first = split(&part)
                    .filter(|(_, key)| key == "metadata")
                    .and_then(|(parent, _)| self.map(&parent)?.keys().next().cloned());
                let position = beside.map(|(_, key)| key).or(first).map_or(InsertPosition::End, InsertPosition::Before);
                self.insert(&part, position, Value::Object(Map::new()), "parent of the fields below");
            }
        }
    }

    /// Takes an entry out of use, for a person to decide. It becomes a comment, except in flow style, so the note
    /// contains its value.
    pub(super) fn retire(&mut self, path: &Path, message: &str, reason: &'static str) {
        if let Some(value) = self.get(path) {
            let message = format!("{message} (it was {value})");
            self.retire_with_message(path, message, reason);
        }
    }

    /// The same with a message that holds the value.
    pub(super) fn retire_with_message(&mut self, path: &Path, message: String, reason: &'static str) {
        self.note(path, message);
        let edit = Edit::CommentOut { path: path.clone(), comment: RETIRED_COMMENT.to_owned() };
        self.make(edit, "removed: kept as a comment where possible, otherwise only in the notes".to_owned(), reason);
    }

    /// Removes an entry that has become empty.
    pub(super) fn discard(&mut self, path: &Path, reason: &'static str) {
        self.make(Edit::RemoveEmpty { path: path.clone() }, "removed: it is empty".to_owned(), reason);
    }
}

/// The path with another last key.
fn with_last(path: &Path, key: &str) -> Path {
    split(path).map_or_else(Path::root, |(parent, _)| parent).key(key)
}

/// The path around an entry, and its key.
fn split(path: &Path) -> Option<(Path, String)> {
    let (last, rest) = path.segments().split_last()?;
    let Segment::Key(key) = last else {
        return None;
    };
    Some((Path::root().join(rest), key.to_string()))
}
