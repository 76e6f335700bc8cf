//! Paths of fields in an object.

use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// A key as a part of a JSON pointer (RFC 6901, section 3).
#[must_use]
pub fn pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// One step into an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// A field, or a key of a map.
    Key(Arc<str>),
    /// An item of a list.
    Index(usize),
}

/// The path from an object's root to a value in it. Shown as `spec.taints[0].key`, and `spec.limits[nvidia.com/gpu]`
/// for keys that are not identifiers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Path(Vec<Segment>);

impl Path {
    /// The object itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The way along plain fields, written with dots: `spec.template.spec`.
    #[must_use]
    pub fn from_dotted(dotted: &str) -> Self {
        Self(dotted.split('.').map(|k| Segment::Key(Arc::from(k))).collect())
    }

    /// A path as it is shown; `None` for any other text.
    #[must_use]
    pub fn parse(shown: &str) -> Option<Self> {
        let (mut segments, mut rest) = (Vec::new(), shown);
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (within, after) = inner.split_once(']')?;
                let index = Some(within).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
                let index = index.and_then(|text| text.parse().ok());
                segments.push(index.map_or_else(|| Segment::Key(Arc::from(within)), Segment::Index));
                rest = after;
            } else {
                let rest_of_key = rest.strip_prefix('.').filter(|_| !segments.is_empty()).unwrap_or(rest);
                let end = rest_of_key.find(['.', '[']).unwrap_or(rest_of_key.len());
                let (key, after) = rest_of_key.split_at(end);
                if key.is_empty() {
                    return None;
                }
                segments.push(Segment::Key(Arc::from(key)));
                rest = after;
            }
        }
        Some(Self(segments))
    }

    /// The value at this path in another, if there is one.
    #[must_use]
    pub fn value_in<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, segment| match segment {
            Segment::Key(key) => value.get(&**key),
            Segment::Index(index) => value.get(*index),
        })
    }

    /// One field further.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(Arc::from(key)))
    }

    /// One item further.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    /// One step further.
    #[must_use]
    pub fn with(&self, segment: Segment) -> Self {
        self.join(&[segment])
    }

    /// Some steps further.
    #[must_use]
    pub fn join(&self, segments: &[Segment]) -> Self {
        Self([self.0.as_slice(), segments].concat())
    }

    /// The field or key that it ends with; none for an item, and for the object itself.
    #[must_use]
    pub fn last_key(&self) -> Option<&str> {
        match self.0.last()? {
            Segment::Key(key) => Some(key),
            Segment::Index(_) => None,
        }
    }

    /// The steps.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if key.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                    write!(f, "{}{key}", if i > 0 { "." } else { "" })?;
                }
                Segment::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_shown_can_be_parsed() {
        let paths = [
            Path::root(),
            Path::from_dotted("spec.template.spec"),
            Path::from_dotted("spec.taints").index(0).key("key"),
            Path::from_dotted("spec.limits").key("nvidia.com/gpu"),
            Path::from_dotted("data").key("80").key("a-b").index(12),
        ];
        for path in paths {
            assert_eq!(Path::parse(&path.to_string()), Some(path.clone()), "{path}");
        }
        for text in [".spec", "spec..a", "spec[0", "spec."] {
            assert_eq!(Path::parse(text), None, "{text}");
        }
    }
}
