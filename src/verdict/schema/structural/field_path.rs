//! Paths of fields in a value, written out only when they are needed.

use napkeeper_api::field_path::Path;
use std::fmt::Write;

/// One step, by its schema.
#[derive(Debug, Clone, Copy)]
enum Step<'p> {
    Root,
    /// A field that the schema names.
    Field(&'p str),
    /// A key of a map.
    Key(&'p str),
    Index(usize),
}

/// The path of a field, linked to its parent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldPath<'p> {
    parent: Option<&'p FieldPath<'p>>,
    step: Step<'p>,
}

impl<'p> FieldPath<'p> {
    pub(crate) const ROOT: FieldPath<'static> = FieldPath { parent: None, step: Step::Root };

    pub(crate) fn field(&'p self, name: &'p str) -> Self {
        Self { parent: Some(self), step: Step::Field(name) }
    }

    pub(crate) fn key(&'p self, key: &'p str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }

    pub(crate) fn index(&'p self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    fn steps(&self) -> Vec<Step<'p>> {
        let mut steps = Vec::new();
        let mut current = Some(self);
        while let Some(path) = current.filter(|path| !path.is_root()) {
            steps.push(path.step);
            current = path.parent;
        }
        steps.reverse();
        steps
    }

    /// The path, written out.
    pub(crate) fn to_path(self) -> Path {
        self.steps().into_iter().fold(Path::root(), |path, step| match step {
            Step::Root => path,
            Step::Field(key) | Step::Key(key) => path.key(key),
            Step::Index(index) => path.index(index),
        })
    }

    /// As the API server writes it for schemas and unknown fields: a dot before every name.
    pub(crate) fn dotted(&self) -> String {
        self.written(false)
    }

    /// As the API server writes it for everything else: keys of maps in brackets.
    pub(crate) fn bracketed(&self) -> String {
        self.written(true)
    }

    fn written(&self, brackets: bool) -> String {
        let mut text = String::new();
        for step in self.steps() {
            let dot = if text.is_empty() { "" } else { "." };
            let written = match step {
                Step::Root => Ok(()),
                Step::Index(index) => write!(text, "[{index}]"),
                Step::Key(key) if brackets => write!(text, "[{key}]"),
                Step::Field(name) | Step::Key(name) => write!(text, "{dot}{name}"),
            };
            debug_assert!(written.is_ok(), "writing into a String cannot fail");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_maps_are_written_in_two_ways() {
        let spec = FieldPath::ROOT.field("spec");
        let limits = spec.field("limits");
        let key = limits.key("nvidia.com/gpu");
        let item = key.index(2);
        assert_eq!(item.dotted(), "spec.limits.nvidia.com/gpu[2]");
        assert_eq!(item.bracketed(), "spec.limits[nvidia.com/gpu][2]");
        assert_eq!(item.to_path().to_string(), "spec.limits[nvidia.com/gpu][2]");
        assert_eq!(FieldPath::ROOT.dotted(), "");
    }
}
