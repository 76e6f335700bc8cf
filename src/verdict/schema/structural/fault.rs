//! Faults, as the API server reports them.

use crate::cel;
use crate::finding::Issue;
use std::fmt;

/// Why the API server refuses a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It must be given.
    Required,
    /// It is of the wrong type, or has not the format.
    TypeInvalid,
    /// It is not an allowed value.
    NotSupported,
    /// It is too long.
    TooLong,
    /// It has too many items or entries.
    TooMany,
    /// It already exists.
    Duplicate,
    /// It may not be given here.
    Forbidden,
    /// It is wrong in another way.
    Invalid,
}

impl Reason {
    /// As `causes[].reason` of a `Status` has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::Invalid => "FieldValueInvalid",
        }
    }

    /// True if cross-field rules are not evaluated because of it.
    pub(crate) const fn blocks(self) -> bool {
        matches!(self, Self::Required | Self::TypeInvalid | Self::NotSupported | Self::TooLong | Self::TooMany)
    }
}

impl From<cel::Reason> for Reason {
    fn from(reason: cel::Reason) -> Self {
        match reason {
            cel::Reason::Invalid => Self::Invalid,
            cel::Reason::Forbidden => Self::Forbidden,
            cel::Reason::Required => Self::Required,
            cel::Reason::Duplicate => Self::Duplicate,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The API server's text for no field.
pub(crate) const NO_FIELD: &str = "<nil>";

/// Something that the API server refuses.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// As the API server writes it.
    pub(crate) field: String,
    pub(crate) reason: Reason,
    /// The issue to report, unless another fault covers it.
    pub(crate) issue: Option<Issue>,
    /// It is worth telling only when nothing else is wrong there.
    pub(crate) secondary: bool,
}

/// How many faults, unknown fields and unreadable values of one object are kept: a request of a few megabytes can have a
/// million, which would take hundreds of megabytes of memory and which nobody reads.
pub(crate) const MAX_KEPT: usize = 10_000;

/// Collects faults, or only counts them while a schema is tried.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    list: Vec<Fault>,
    counted: usize,
    trials: usize,
}

impl Faults {
    /// Adds a fault. During a trial, and beyond [`MAX_KEPT`], it is only counted.
    pub(crate) fn add(&mut self, fault: impl FnOnce() -> Fault) {
        self.counted += 1;
        if self.trials == 0 && self.list.len() < MAX_KEPT {
            self.list.push(fault());
        }
    }

    /// How many there are, to compare with later.
    pub(crate) const fn mark(&self) -> usize {
        self.counted
    }

    /// Forgets all since a mark.
    pub(crate) fn forget(&mut self, mark: usize) {
        if self.trials == 0 {
            self.list.truncate(mark);
        }
        self.counted = mark;
    }

    /// Faults are counted only, until [`Faults::end_trial`].
    pub(crate) const fn start_trial(&mut self) {
        self.trials += 1;
    }

    pub(crate) const fn end_trial(&mut self) {
        self.trials = self.trials.saturating_sub(1);
    }

    /// All that are kept.
    pub(crate) fn into_list(self) -> Vec<Fault> {
        self.list
    }
}
