//! Paths of fields in an object.

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
