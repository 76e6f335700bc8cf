//! The edits that an object needs, and the value that they lead to.

use napkeeper_api::field_path::{Path, Segment};
use napkeeper_api::yaml::edit::{Edit, InsertPosition};
use serde_json::{Map, Value};

/// The line above a setting that became a comment.
const RETIRED_COMMENT: &str = "napkeeper migrate: no longer a field here";

/// The edits of an object, and the value that they lead to.
#[derive(Debug)]
pub(super) struct MigrationPlan {
    /// Kind and name, as they were.
    pub(super) object: String,
    /// The object after all edits.
    pub(super) value: Value,
    /// The edits, in order.
    pub(super) steps: Vec<PlannedEdit>,
    /// What is to be said, and the field, as it was.
    pub(super) notes: Vec<(Path, String)>,
    /// Where values went: to, from.
    moved: Vec<(Path, Path)>,
}

/// An edit and what it is for.
#[derive(Debug)]
pub(super) struct PlannedEdit {
    pub(super) edit: Edit,
    /// The field, as it was before any edit.
    pub(super) at: Path,
    /// What is done.
    pub(super) what: String,
    /// Which change of the API asks for it.
    pub(super) why: &'static str,
}

impl MigrationPlan {
    pub(super) fn of(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = format!("{} {}", text(&value["kind"]), text(&value["metadata"]["name"])).trim().to_owned();
        Self { object, value: value.clone(), steps: Vec::new(), notes: Vec::new(), moved: Vec::new() }
    }

    /// The value at a path.
    pub(super) fn get(&self, path: &Path) -> Option<&Value> {
        path.segments().iter().try_fold(&self.value, |value, segment| match segment {
            Segment::Key(key) => value.get(&**key),
            Segment::Index(index) => value.get(index),
        })
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

    /// Says something about a field.
    pub(super) fn note(&mut self, path: &Path, message: impl Into<String>) {
        let at = self.origin(path);
        self.notes.push((at, message.into()));
    }

    fn make(&mut self, edit: Edit, what: String, why: &'static str) {
        let at = self.origin(&edit.path());
        edit.apply(&mut self.value);
        self.steps.push(PlannedEdit { edit, at, what, why });
    }

    /// Puts a text in the place of a scalar that says something else.
    pub(super) fn set(&mut self, path: &Path, text: &str, why: &'static str) {
        let Some(old) = self.get(path).filter(|v| *v != text) else {
            return;
        };
        let what = format!("{old} becomes {:?}", text);
        self.make(Edit::Set { path: path.clone(), value: text.into() }, what, why);
    }

    /// Gives a value another key.
    pub(super) fn rename(&mut self, path: &Path, to: &str, why: &'static str) -> Path {
        let new = with_last(path, to);
        self.make(Edit::Rename { path: path.clone(), to: to.to_owned() }, format!("renamed to {to}"), why);
        self.moved.push((new.clone(), path.clone()));
        new
    }

    /// Adds an entry.
    pub(super) fn insert(&mut self, path: &Path, place: InsertPosition, value: Value, why: &'static str) {
        let Some((parent, key)) = split(path) else {
            return;
        };
        let what = format!("added: {value}");
        self.make(Edit::Insert { parent, place, key, value }, what, why);
    }

    /// Moves an entry, making the maps on the way. Where one stands there already, the old one becomes a comment.
    pub(super) fn relocate(&mut self, from: &Path, to: &Path, why: &'static str) {
        if self.get(to).is_some() {
            return self.retire(from, &format!("{to} is also set and takes precedence, so this is removed"), why);
        }
        let Some((parent, key)) = split(to) else {
            return;
        };
        self.ensure(&parent, from);
        if self.map(&parent).is_none() {
            self.note(from, format!("{parent} is not a map: move this by hand"));
            return;
        }
        self.make(Edit::Move { from: from.clone(), parent, key }, format!("moved to {to}"), why);
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
                let place = beside.map(|(_, key)| key).or(first).map_or(InsertPosition::End, InsertPosition::Before);
                self.insert(&part, place, Value::Object(Map::new()), "parent of the fields below");
            }
        }
    }

    /// Takes an entry out of use, for a person to decide. Where there is room it becomes a comment; in braces there is
    /// none, so the note says in any case what it was.
    pub(super) fn retire(&mut self, path: &Path, message: &str, why: &'static str) {
        if let Some(value) = self.get(path) {
            let message = format!("{message} (it was {value})");
            self.retire_with_message(path, message, why);
        }
    }

    /// The same with a message that holds the value.
    pub(super) fn retire_with_message(&mut self, path: &Path, message: String, why: &'static str) {
        self.note(path, message);
        let edit = Edit::CommentOut { path: path.clone(), why: RETIRED_COMMENT.to_owned() };
        self.make(edit, "removed: kept as a comment where possible, otherwise only in the notes".to_owned(), why);
    }

    /// Takes an entry away that says nothing any more.
    pub(super) fn discard(&mut self, path: &Path, why: &'static str) {
        self.make(Edit::RemoveEmpty { path: path.clone() }, "removed: it is empty".to_owned(), why);
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
