//! The algebra against a model: a requirement is the set of states, out of a small universe, that it allows.

mod table;

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All states of a label that the tests distinguish. Requirements name only the words `a` and `b` and the integers 0 to
/// 4, so `z`, -1 and 5 represent all other words and integers.
const STATES: [Option<&str>; 11] = [
    None,
    Some("a"),
    Some("b"),
    Some("z"),
    Some("-1"),
    Some("0"),
    Some("1"),
    Some("2"),
    Some("3"),
    Some("4"),
    Some("5"),
];
const NAMED: [&str; 7] = ["a", "b", "0", "1", "2", "3", "4"];
const KEYS: [&str; 3] = ["k0", "k1", "k2"];

/// The operator's meaning, as the API documents it.
fn means(operator: Operator, values: &[&str], state: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = |fits: fn(i64, i64) -> bool| {
        let (Some(label), Some(bound)) = (state.and_then(number), number(values[0])) else {
            return false;
        };
        fits(label, bound)
    };
    match operator {
        Operator::In => state.is_some_and(|s| values.contains(&s)),
        Operator::NotIn => state.is_none_or(|s| !values.contains(&s)),
        Operator::Exists => state.is_some(),
        Operator::DoesNotExist => state.is_none(),
        Operator::Gt => compared(|label, bound| label > bound),
        Operator::Lt => compared(|label, bound| label < bound),
        Operator::Gte => compared(|label, bound| label >= bound),
        Operator::Lte => compared(|label, bound| label <= bound),
    }
}

fn entry() -> impl Strategy<Value = (Operator, Vec<&'static str>)> {
    prop::sample::select(Operator::ALL.to_vec()).prop_flat_map(|operator| {
        let values = match operator {
            Operator::In | Operator::NotIn => prop::sample::subsequence(NAMED.to_vec(), 1..=NAMED.len()).boxed(),
            Operator::Exists | Operator::DoesNotExist => Just(Vec::new()).boxed(),
            _ => prop::sample::select(NAMED[2..].to_vec()).prop_map(|v| vec![v]).boxed(),
        };
        (Just(operator), values)
    })
}

/// A requirement made of up to four entries, with the states that all of them allow.
fn requirement() -> impl Strategy<Value = (Requirement, Vec<bool>)> {
    prop::collection::vec(entry(), 0..=4).prop_map(|entries| {
        let both = |all: Requirement, (operator, values): &(Operator, Vec<&str>)| {
            all.intersect(&Requirement::new(*operator, values).unwrap())
        };
        let allowed = |state: &Option<&str>| entries.iter().all(|(o, v)| means(*o, v, *state));
        let requirement = entries.iter().fold(Requirement::anything(), both);
        (requirement, STATES.iter().map(allowed).collect())
    })
}

/// Requirements on some of the keys.
fn requirements() -> impl Strategy<Value = Requirements> {
    prop::collection::vec(prop::option::of(requirement()), KEYS.len()).prop_map(|all| {
        let mut requirements = Requirements::new();
        for (key, requirement) in KEYS.into_iter().zip(all) {
            if let Some((requirement, _)) = requirement {
                requirements.add(key, requirement);
            }
        }
        requirements
    })
}

fn labels(states: &[Option<&str>]) -> BTreeMap<Arc<str>, Arc<str>> {
    let label = |(key, state): (&str, &Option<&str>)| Some((Arc::from(key), Arc::from((*state)?)));
    KEYS.into_iter().zip(states).filter_map(label).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_requirement_allows_what_its_entries_allow((requirement, allowed) in requirement()) {
        for (state, allowed) in STATES.into_iter().zip(&allowed) {
            prop_assert_eq!(requirement.allows(state), *allowed, "{} {:?}", requirement, state);
        }
        prop_assert_eq!(requirement.is_empty(), !allowed.contains(&true), "{}", requirement);
        prop_assert_eq!(requirement.allows_absent(), allowed[0]);
        if let Some(single) = requirement.single() {
            prop_assert!(requirement.allows(Some(single)));
            prop_assert_eq!(allowed.iter().filter(|a| **a).count(), 1);
        }
    }

    #[test]
    fn an_intersection_allows_what_both_allow((a, in_a) in requirement(), (b, in_b) in requirement()) {
        let both = a.intersect(&b);
        let mut any = false;
        for (i, state) in STATES.into_iter().enumerate() {
            let expected = in_a[i] && in_b[i];
            any |= expected;
            prop_assert_eq!(both.allows(state), expected, "{} and {}: {:?}", a, b, state);
        }
        prop_assert_eq!(a.intersects(&b), any, "{} and {}", a, b);
        prop_assert_eq!(b.intersects(&a), any);
        prop_assert_eq!(both.is_empty(), !any);
        prop_assert_eq!(&b.intersect(&a), &both);
        prop_assert_eq!(&both.intersect(&a), &both);
    }

    #[test]
    fn entries_read_back_as_the_same_requirement((requirement, _) in requirement()) {
        let read = |all: Requirement, (operator, values): (Operator, Vec<Arc<str>>)| {
            all.intersect(&Requirement::new(operator, &values).unwrap())
        };
        let back = requirement.entries().into_iter().fold(Requirement::anything(), read);
        prop_assert_eq!(back, requirement);
    }

    #[test]
    fn compatible_is_that_a_node_exists_which_suits_both(
        offered in requirements(), requested in requirements(),
        open in prop::collection::vec(any::<bool>(), KEYS.len()),
    ) {
        let is_open = |key: &str| KEYS.iter().zip(&open).any(|(k, open)| *k == key && *open);
        // Keys are independent of each other, so a node exists when every requested key has a state.
        let possible = |key: &str, state: Option<&str>| match offered.get(key) {
            Some(offered) => offered.allows(state),
            None => state.is_none() || is_open(key),
        };
        let exists = |key: &str| STATES.into_iter().any(|s| possible(key, s) && requested.allows(key, s));
        let expected = requested.iter().all(|(key, _)| exists(key));
        let compatible = offered.compatible(&requested, is_open);
        prop_assert_eq!(compatible.is_ok(), expected, "{} | {} | {:?}", offered, requested, compatible);
    }

    #[test]
    fn labels_satisfy_an_intersection_when_they_satisfy_both(
        a in requirements(), b in requirements(), states in prop::collection::vec(prop::sample::select(STATES.to_vec()), KEYS.len()),
    ) {
        let labels = labels(&states);
        let both = a.intersect(&b);
        prop_assert_eq!(both.satisfied_by(&labels), a.satisfied_by(&labels) && b.satisfied_by(&labels));
        if both.first_empty().is_some() {
            prop_assert!(!both.satisfied_by(&labels));
        }
        prop_assert!(Requirements::from_labels(&labels).satisfied_by(&labels));
    }
}

#[test]
fn bounds_at_the_ends_of_the_integers() {
    let max = i64::MAX.to_string();
    let above = Requirement::new(Operator::Gt, &[&max]).unwrap();
    assert!(above.is_empty() && !above.allows(Some(&max)));
    let at = Requirement::new(Operator::Gte, &[&max]).unwrap();
    assert!(at.allows(Some(&max)) && !at.allows(Some("12")));
    assert!(at.intersect(&Requirement::new(Operator::NotIn, &[&max]).unwrap()).is_empty());
}

#[test]
fn operators_check_their_values() {
    for (operator, values) in [
        (Operator::In, &[] as &[&str]),
        (Operator::NotIn, &[]),
        (Operator::Exists, &["a"]),
        (Operator::DoesNotExist, &["a"]),
        (Operator::Gt, &[]),
        (Operator::Lt, &["1", "2"]),
        (Operator::Gte, &["many"]),
    ] {
        assert!(Requirement::new(operator, values).is_err(), "{operator} {values:?}");
    }
}

#[test]
fn unsatisfiable_requirements_are_satisfied_by_no_labels() {
    let unsatisfiable = Requirements::unsatisfiable();
    for labels in [&[][..], &[("labels", "")], &[("labels", "x")]] {
        let labels = labels.iter().map(|(k, v)| (Arc::from(*k), Arc::from(*v))).collect();
        assert!(!unsatisfiable.satisfied_by(&labels), "{labels:?}");
    }
    assert!(unsatisfiable.first_empty().is_some() && !Requirements::new().is_compatible(&unsatisfiable, |_| true));
}
