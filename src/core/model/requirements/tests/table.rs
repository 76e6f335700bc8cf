//! The algebra by table: the intersection of every pair of 26 requirements, as text.
//!
//! The table (`pairs.txt`) is read by people; that it is right is checked state by state against what both sides allow.

use super::super::*;
use std::fmt::Write as _;
use std::sync::Arc;

const TABLE: &str = include_str!("../pairs.txt");

/// Words and integers that the requirements name, and some that none of them does.
const STATES: [Option<&str>; 12] = [
    None,
    Some("a"),
    Some("b"),
    Some("c"),
    Some("zz"),
    Some("-1"),
    Some("0"),
    Some("1"),
    Some("2"),
    Some("5"),
    Some("9"),
    Some("10"),
];

fn all() -> Vec<Requirement> {
    use Operator::{DoesNotExist, Exists, Gt, Gte, In, Lt, Lte, NotIn};
    let cases: [(Operator, &[&str]); 26] = [
        (Exists, &[]),
        (DoesNotExist, &[]),
        (In, &["a"]),
        (In, &["a", "b"]),
        (In, &["b", "c"]),
        (In, &["1"]),
        (In, &["1", "9"]),
        (In, &["1", "a"]),
        (NotIn, &["a"]),
        (NotIn, &["a", "b"]),
        (NotIn, &["c"]),
        (NotIn, &["1"]),
        (NotIn, &["1", "9"]),
        (Gt, &["0"]),
        (Gt, &["1"]),
        (Gt, &["9"]),
        (Gt, &["9223372036854775807"]),
        (Lt, &["0"]),
        (Lt, &["1"]),
        (Lt, &["2"]),
        (Lt, &["9"]),
        (Gte, &["1"]),
        (Gte, &["9"]),
        (Lte, &["1"]),
        (Lte, &["9"]),
        (Lte, &["-9223372036854775808"]),
    ];
    cases.into_iter().map(|(operator, values)| Requirement::new(operator, values).unwrap()).collect()
}

/// The table again, and all that is wrong with it by the states that each side allows.
fn table() -> (String, Vec<String>) {
    let (mut text, mut wrong) = (String::new(), Vec::new());
    let all = all();
    for (n, a) in all.iter().enumerate() {
        for b in &all[n..] {
            let both = a.intersect(b);
            writeln!(text, "{a} & {b} = {both}").unwrap();
            for state in STATES {
                let expected = a.allows(state) && b.allows(state);
                if both.allows(state) != expected {
                    wrong.push(format!("{a} & {b} = {both}: {state:?} is allowed by both: {expected}"));
                }
                if expected && (!a.intersects(b) || !b.intersects(a)) {
                    wrong.push(format!("{a} and {b} both allow {state:?}, but do not intersect"));
                }
            }
            if a.intersects(b) == both.is_empty() || both != b.intersect(a) {
                wrong.push(format!("{a} & {b} = {both}, the other way round {}", b.intersect(a)));
            }
        }
    }
    (text, wrong)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "on request the test rewrites its table")]
fn every_intersection_allows_what_both_allow() {
    let (text, wrong) = table();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if std::env::var_os("NAPKEEPER_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/model/requirements/pairs.txt"), &text).unwrap();
    } else {
        let lines = text.lines().zip(TABLE.lines()).find(|(found, expected)| found != expected);
        assert!(text == TABLE, "the first that differs from the table: {lines:?}");
    }
    assert_eq!(text.lines().count(), 351);
}

#[test]
fn some_value_of_a_requirement_is_one_that_it_allows() {
    for requirement in all() {
        match requirement.any_value() {
            Some(value) => assert!(requirement.allows(Some(&value)), "{requirement}: {value}"),
            None => {
                let allowed = STATES.into_iter().flatten().find(|state| requirement.allows(Some(state)));
                assert_eq!(allowed, None, "{requirement}");
            }
        }
    }
    let bounded = |low: &str, high: &str| {
        let low = Requirement::new(Operator::Gt, &[low]).unwrap();
        low.intersect(&Requirement::new(Operator::Lt, &[high]).unwrap()).any_value()
    };
    assert_eq!(bounded("3", "9"), Some(Arc::from("4")));
    assert_eq!(bounded("-9", "-3"), Some(Arc::from("-8")));
    assert_eq!(Requirement::new(Operator::Lt, &["-3"]).unwrap().any_value(), Some(Arc::from("-4")));
}
