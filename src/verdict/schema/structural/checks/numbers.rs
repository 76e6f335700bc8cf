//! Checks numbers against bounds, multiples and formats.
//!
//! The API server knows 64-bit integers and floats. Whole floats are integers to a schema, up to 2^53.

use crate::schema::structural::node::{Numeric, SchemaNode, Types};
use serde_json::Number;

/// A number as the API server holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Num {
    Int(i64),
    Float(f64),
}

/// The largest float that represents exactly one integer.
const MOST_WHOLE: f64 = 9_007_199_254_740_991.0;

impl Num {
    pub(crate) fn of(number: &Number) -> Self {
        number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Int)
    }

    #[expect(clippy::cast_precision_loss, reason = "the API server loses it as well")]
    pub(crate) fn float(self) -> f64 {
        match self {
            Self::Int(n) => n as f64,
            Self::Float(f) => f,
        }
    }

    /// True when a schema takes it for an integer.
    pub(crate) fn is_integer(self) -> bool {
        match self {
            Self::Int(_) => true,
            Self::Float(f) => is_whole(f),
        }
    }

    /// True when two numbers are the same to an `enum`.
    pub(crate) fn equals(self, allowed: Self) -> bool {
        match (self, allowed) {
            (Self::Float(given), Self::Int(_)) => Self::Int(truncated(given)) == allowed,
            (Self::Int(_), Self::Float(allowed)) => same(self.float(), allowed),
            (given, allowed) => given == allowed,
        }
    }
}

/// An integer, or within a billionth of one.
pub(crate) fn is_whole(f: f64) -> bool {
    if !f.is_finite() || f.abs() > MOST_WHOLE {
        return false;
    }
    let near = f.trunc();
    if same(f, near) {
        return true;
    }
    near > 0.0 && (f - near).abs() / (f.abs() + near.abs()) < 1e-9
}

#[expect(clippy::float_cmp, reason = "the API server compares exactly")]
fn same(a: f64, b: f64) -> bool {
    a == b
}

#[expect(clippy::cast_possible_truncation, reason = "the API server cuts bounds of integers off like this")]
const fn truncated(f: f64) -> i64 {
    f as i64
}

/// An invalid number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NumberError {
    /// It does not fit in its type and format; the API server names no field.
    Range,
    /// It is smaller than this, or not larger.
    Least { bound: f64, exclusive: bool },
    /// It is larger than this, or not smaller.
    Most { bound: f64, exclusive: bool },
    /// It is no multiple of this.
    Multiple(f64),
}

/// Checks a number, and calls for each thing that is wrong.
pub(crate) fn check(n: Num, node: &SchemaNode, mut wrong: impl FnMut(NumberError)) {
    if !in_range(n, node) {
        wrong(NumberError::Range);
    }
    let Some(numeric) = &node.numeric else { return };
    // A bound that is no value of the type is wrong for every value.
    let mut usable = |bound: f64| {
        let usable = in_range(Num::Float(bound), node);
        if !usable {
            wrong(NumberError::Range);
        }
        usable
    };
    let uses = [numeric.multiple_of, numeric.maximum, numeric.minimum].map(|bound| bound.is_none_or(&mut usable));
    bounds(n, numeric, uses, wrong);
}

fn bounds(n: Num, numeric: &Numeric, uses: [bool; 3], mut wrong: impl FnMut(NumberError)) {
    let [use_multiple, use_maximum, use_minimum] = uses;
    // Integers are compared with the whole part of a bound.
    let compare = |bound: f64, native: bool| match n {
        Num::Int(n) if native => n.partial_cmp(&truncated(bound)),
        _ => n.float().partial_cmp(&bound),
    };
    if let Some(factor) = numeric.multiple_of
        && !is_multiple(n, factor, use_multiple)
    {
        wrong(NumberError::Multiple(factor));
    }
    if let Some(bound) = numeric.maximum {
        let exclusive = numeric.exclusive_maximum;
        let order = compare(bound, use_maximum);
        if order.is_some_and(|order| order.is_gt() || exclusive && order.is_eq()) {
            wrong(NumberError::Most { bound, exclusive });
        }
    }
    if let Some(bound) = numeric.minimum {
        let exclusive = numeric.exclusive_minimum;
        let order = compare(bound, use_minimum);
        if order.is_some_and(|order| order.is_lt() || exclusive && order.is_eq()) {
            wrong(NumberError::Least { bound, exclusive });
        }
    }
}

fn is_multiple(n: Num, factor: f64, native: bool) -> bool {
    match n {
        Num::Int(n) if native => {
            let factor = truncated(factor);
            factor > 0 && n % factor == 0
        }
        _ if factor <= 0.0 => false,
        _ if factor < 1.0 => is_whole(1.0 / factor * n.float()),
        _ => is_whole(n.float() / factor),
    }
}

/// True when a number fits in the type and format of a schema; both count only when there is one type.
fn in_range(n: Num, node: &SchemaNode) -> bool {
    use crate::schema::structural::node::formats::Format;
    match (node.types, node.format) {
        (Types::INTEGER, format) => match n {
            Num::Int(n) => format != Some(Format::Int32) || i32::try_from(n).is_ok(),
            Num::Float(f) => {
                // 2^63 itself does not fit, and is the first float that does not.
                let fits = if format == Some(Format::Int32) {
                    (-2_147_483_648.0..=2_147_483_647.0).contains(&f)
                } else {
                    (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&f)
                };
                same(f, f.trunc()) && fits
            }
        },
        #[expect(clippy::cast_possible_truncation, reason = "what matters is whether it becomes infinite")]
        (Types::NUMBER, Some(Format::Float)) => (n.float() as f32).is_finite(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::node::formats::Format;

    fn wrong(n: Num, node: &SchemaNode) -> Vec<NumberError> {
        let mut found = Vec::new();
        check(n, node, |w| found.push(w));
        found
    }

    #[test]
    fn integers_have_ranges_and_floats_may_be_whole() {
        let int32 = SchemaNode { types: Types::INTEGER, format: Some(Format::Int32), ..SchemaNode::default() };
        assert_eq!(wrong(Num::Int(2_147_483_648), &int32), [NumberError::Range]);
        assert_eq!(wrong(Num::Float(1.5), &int32), [NumberError::Range]);
        assert_eq!(wrong(Num::Float(1e2), &int32), []);
        assert!(Num::Float(1.000_000_000_000_1).is_integer());
        assert!(!Num::Float(1e17).is_integer());
        let float = SchemaNode { types: Types::NUMBER, format: Some(Format::Float), ..SchemaNode::default() };
        assert_eq!(wrong(Num::Float(1e39), &float), [NumberError::Range]);
    }

    #[test]
    fn exclusive_bounds_are_flags() {
        let numeric = Numeric { minimum: Some(1.0), exclusive_minimum: true, ..Numeric::default() };
        let node = SchemaNode { types: Types::NUMBER, numeric: Some(numeric), ..SchemaNode::default() };
        assert_eq!(wrong(Num::Int(1), &node), [NumberError::Least { bound: 1.0, exclusive: true }]);
        assert_eq!(wrong(Num::Float(1.5), &node), []);
    }

    #[test]
    fn integers_see_the_whole_part_of_a_bound() {
        let numeric = Numeric { minimum: Some(0.5), multiple_of: Some(0.5), ..Numeric::default() };
        let node = SchemaNode { types: Types::NUMBER, numeric: Some(numeric), ..SchemaNode::default() };
        assert_eq!(wrong(Num::Int(0), &node), [NumberError::Multiple(0.5)]);
        assert_eq!(wrong(Num::Float(0.25), &node).len(), 2);
        assert_eq!(wrong(Num::Float(1.5), &node), []);
    }
}
