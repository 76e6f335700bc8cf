//! One requirement: the set of states that one label may be in.

use super::{Operator, ValueSet};
use std::fmt;
use std::sync::Arc;

/// The values that a label may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Values {
    /// Just these.
    Listed(ValueSet),
    /// All others. Boxed, since most requirements list values.
    Complement(Box<Complement>),
}

/// All but these; where a bound is given, integers within the bounds only (both inclusive).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
struct Complement {
    excluded: ValueSet,
    gte: Option<i64>,
    lte: Option<i64>,
}

impl Complement {
    fn contains(&self, value: &str) -> bool {
        !self.excluded.contains(value) && self.in_bounds(value)
    }

    fn is_bounded(&self) -> bool {
        self.gte.is_some() || self.lte.is_some()
    }

    fn in_bounds(&self, value: &str) -> bool {
        if !self.is_bounded() {
            return true;
        }
        let Ok(n) = value.parse::<i64>() else {
            return false;
        };
        self.gte.is_none_or(|low| low <= n) && self.lte.is_none_or(|high| n <= high)
    }

    /// The intersection.
    fn intersect(&self, other: &Self) -> Values {
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { excluded: self.excluded.union(&other.excluded), gte: self.gte.max(other.gte), lte }.normalized()
    }

    /// An interval that is empty, or of which every integer is excluded, becomes the empty set: integers are taken as
    /// written without sign or leading zeros, as Azure's labels are.
    fn normalized(self) -> Values {
        if self.is_bounded() {
            let (low, high) = (self.gte.unwrap_or(i64::MIN), self.lte.unwrap_or(i64::MAX));
            let narrow = high.checked_sub(low).is_some_and(|width| width < MAX_ENUMERATED_INTERVAL);
            if low > high || narrow && (low..=high).all(|n| self.excluded.contains(&n.to_string())) {
                return Values::Listed(ValueSet::default());
            }
        }
        Values::Complement(Box::new(self))
    }
}

/// Beyond this width an interval is not checked for being exhausted by exclusions: no manifest lists as many.
const MAX_ENUMERATED_INTERVAL: i64 = 4096;

/// The set of states that one label may be in: absent, or a value out of a set.
///
/// Unlike Karpenter's representation this keeps "absent" apart from "complement", so `NotIn` combined with a bound
/// no longer tolerates a missing label, and bounds survive beside exclusions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    values: Values,
    absent: bool,
    min_values: Option<u32>,
}

/// Why operator and values do not make a requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// `In` or `NotIn` without values.
    #[error("operator {0} needs at least one value")]
    NoValues(Operator),
    /// `Exists` or `DoesNotExist` with values.
    #[error("operator {0} takes no values")]
    SurplusValues(Operator),
    /// A bound with none or several values.
    #[error("operator {0} needs exactly one value")]
    NotOneValue(Operator),
    /// A bound that is no integer.
    #[error("operator {operator} needs an integer, got {value:?}")]
    NotAnInteger {
        /// The operator.
        operator: Operator,
        /// The value as given.
        value: String,
    },
}

impl Requirement {
    /// Builds a requirement from an operator and its values.
    ///
    /// # Errors
    /// [`RequirementError`] when the number or the form of the values does not suit the operator.
    pub fn new<V: AsRef<str>>(operator: Operator, values: &[V]) -> Result<Self, RequirementError> {
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => Err(RequirementError::NoValues(operator)),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Err(RequirementError::SurplusValues(operator))
            }
            Operator::In => Ok(Self::any_of(values)),
            Operator::NotIn => Ok(Self::none_of(values)),
            Operator::Exists => Ok(Self::exists()),
            Operator::DoesNotExist => Ok(Self::does_not_exist()),
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => Self::bound(operator, values),
        }
    }

    /// Builds a requirement of a NodePool or NodeClaim, as Karpenter reads it: it ignores values of `Exists` and `DoesNotExist`,
    /// and takes `NotIn` without values for `Exists` (`NewRequirementWithFlexibility` in `pkg/scheduling/requirement.go`).
    ///
    /// # Errors
    /// [`RequirementError`] when Karpenter refuses it too.
    pub fn of_karpenter<V: AsRef<str>>(operator: Operator, values: &[V]) -> Result<Self, RequirementError> {
        match operator {
            Operator::Exists | Operator::DoesNotExist => Self::new::<&str>(operator, &[]),
            Operator::NotIn if values.is_empty() => Ok(Self::exists()),
            _ => Self::new(operator, values),
        }
    }

    /// One of the values.
    #[must_use]
    pub fn any_of<V: AsRef<str>>(values: impl IntoIterator<Item = V>) -> Self {
        Self::of(Values::Listed(values.into_iter().map(|v| Arc::from(v.as_ref())).collect()), false)
    }

    /// None of the values, or absent.
    #[must_use]
    pub fn none_of<V: AsRef<str>>(values: impl IntoIterator<Item = V>) -> Self {
        let excluded = values.into_iter().map(|v| Arc::from(v.as_ref())).collect();
        Self::of(Values::Complement(Box::new(Complement { excluded, ..Complement::default() })), true)
    }

    /// Present, with any value.
    #[must_use]
    pub fn exists() -> Self {
        Self::of(Values::Complement(Box::default()), false)
    }

    /// Absent.
    #[must_use]
    pub fn does_not_exist() -> Self {
        Self::of(Values::Listed(ValueSet::default()), true)
    }

    /// No constraint at all: any value, or absent.
    #[must_use]
    pub fn anything() -> Self {
        Self::of(Values::Complement(Box::default()), true)
    }

    fn of(values: Values, absent: bool) -> Self {
        Self { values, absent, min_values: None }
    }

    fn bound<V: AsRef<str>>(operator: Operator, values: &[V]) -> Result<Self, RequirementError> {
        let [value] = values else {
            return Err(RequirementError::NotOneValue(operator));
        };
        let value = value.as_ref();
        let n: i64 = value.parse().map_err(|_| RequirementError::NotAnInteger { operator, value: value.to_owned() })?;
        let (gte, lte) = match operator {
            Operator::Gt => (n.checked_add(1), None),
            Operator::Lt => (None, n.checked_sub(1)),
            Operator::Gte => (Some(n), None),
            _ => (None, Some(n)),
        };
        if gte.is_none() && lte.is_none() {
            // No integer is beyond the limits.
            return Ok(Self::of(Values::Listed(ValueSet::default()), false));
        }
        Ok(Self::of(Values::Complement(Box::new(Complement { gte, lte, ..Complement::default() })), false))
    }

    /// Requires at least this many distinct values among the offerings.
    #[must_use]
    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    /// At least this many distinct values must remain on offer.
    #[must_use]
    pub fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    /// True when a label in this state satisfies the requirement; `None` is an absent label.
    #[must_use]
    pub fn allows(&self, state: Option<&str>) -> bool {
        let Some(value) = state else {
            return self.absent;
        };
        match &self.values {
            Values::Listed(set) => set.contains(value),
            Values::Complement(rest) => rest.contains(value),
        }
    }

    /// The intersection, with the greater `minValues`.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let values = match (&self.values, &other.values) {
            (Values::Listed(a), Values::Listed(b)) => Values::Listed(a.intersection(b)),
            (Values::Listed(set), Values::Complement(rest)) | (Values::Complement(rest), Values::Listed(set)) => {
                Values::Listed(set.iter().filter(|value| rest.contains(value)).cloned().collect())
            }
            (Values::Complement(a), Values::Complement(b)) => a.intersect(b),
        };
        Self { values, absent: self.absent && other.absent, min_values: self.min_values.max(other.min_values) }
    }

    /// True when some state satisfies both. The same as `!self.intersect(other).is_empty()`, without building it.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        if self.absent && other.absent {
            return true;
        }
        match (&self.values, &other.values) {
            (Values::Listed(a), Values::Listed(b)) => !a.is_disjoint(b),
            (Values::Listed(set), Values::Complement(rest)) | (Values::Complement(rest), Values::Listed(set)) => {
                set.iter().any(|value| rest.contains(value))
            }
            (Values::Complement(_), Values::Complement(_)) => !self.intersect(other).is_empty(),
        }
    }

    /// True when no state satisfies it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.absent && matches!(&self.values, Values::Listed(set) if set.is_empty())
    }

    /// True when an absent label satisfies it.
    #[must_use]
    pub fn allows_absent(&self) -> bool {
        self.absent
    }

    /// The values, when they are finitely many by name.
    #[must_use]
    pub fn values(&self) -> Option<&ValueSet> {
        match &self.values {
            Values::Listed(set) => Some(set),
            Values::Complement(_) => None,
        }
    }

    /// The values that are ruled out, when all others are allowed.
    #[must_use]
    pub fn excluded(&self) -> Option<&ValueSet> {
        match &self.values {
            Values::Complement(rest) if !rest.is_bounded() => Some(&rest.excluded),
            _ => None,
        }
    }

    /// Some value that is allowed: the first that is listed; or the least whole number within the bounds, from 1 on
    /// where there is none below. `None` where there is none.
    #[must_use]
    pub fn any_value(&self) -> Option<Arc<str>> {
        let rest = match &self.values {
            Values::Listed(set) => return set.first().cloned(),
            Values::Complement(rest) => rest,
        };
        let from = rest.gte.unwrap_or(1).min(rest.lte.unwrap_or(i64::MAX));
        let above = (from..=i64::MAX).take(MAX_ENUMERATED_INTERVAL as usize);
        let below = (i64::MIN..from).rev().take(MAX_ENUMERATED_INTERVAL as usize);
        let mut texts = above.chain(below).map(|n| Arc::<str>::from(n.to_string()));
        texts.find(|text| self.allows(Some(text)))
    }

    /// The single value, when there is just one and the label must be present.
    #[must_use]
    pub fn single(&self) -> Option<&Arc<str>> {
        let set = self.values().filter(|set| set.len() == 1 && !self.absent)?;
        set.first()
    }

    /// The requirement as entries of `requirements[]`; no entry at all when it constrains nothing, and two that
    /// contradict each other when it allows nothing. Read back they give an equal requirement, `minValues` aside.
    #[must_use]
    pub fn entries(&self) -> Vec<(Operator, Vec<Arc<str>>)> {
        match &self.values {
            Values::Listed(set) if set.is_empty() => {
                let exists = (!self.absent).then_some(Operator::Exists);
                let operators = exists.into_iter().chain([Operator::DoesNotExist]);
                operators.map(|o| (o, Vec::new())).collect()
            }
            Values::Listed(set) => vec![(Operator::In, set.iter().cloned().collect())],
            Values::Complement(rest) => {
                let Complement { excluded, gte, lte } = &**rest;
                let bound = |operator, n: Option<i64>| n.map(|n| (operator, vec![Arc::from(n.to_string().as_str())]));
                let exists = !self.absent && gte.is_none() && lte.is_none();
                let none_of = (!excluded.is_empty()).then(|| (Operator::NotIn, excluded.iter().cloned().collect()));
                [
                    exists.then(|| (Operator::Exists, Vec::new())),
                    bound(Operator::Gte, *gte),
                    bound(Operator::Lte, *lte),
                    none_of,
                ]
                .into_iter()
                .flatten()
                .collect()
            }
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let entries = self.entries();
        if entries.is_empty() {
            return f.write_str("anything");
        }
        for (i, (operator, values)) in entries.iter().enumerate() {
            let gap = if i > 0 { " and " } else { "" };
            match operator {
                Operator::Exists | Operator::DoesNotExist => write!(f, "{gap}{operator}")?,
                _ => write!(f, "{gap}{operator} [{}]", values.join(" "))?,
            }
        }
        Ok(())
    }
}
