//! The CRD of OrphanSweep accepts the schedules that the parser accepts, and no others.

use super::CrdSchemas;
use napkeeper_core::model::cron::Schedule;
use proptest::prelude::*;
use serde_json::json;
use std::sync::LazyLock;

static DEFINITIONS: LazyLock<CrdSchemas> = LazyLock::new(|| CrdSchemas::embedded().unwrap());

/// True when the API server accepts an OrphanSweep with this schedule. A refusal names the field.
fn is_accepted(schedule: &str) -> bool {
    let object = json!({ "apiVersion": "napkeeper.io/v1alpha1", "kind": "OrphanSweep", "metadata": { "name": "a" },
        "spec": { "schedule": schedule } });
    let response = DEFINITIONS.create(&object);
    assert!(response.causes.iter().all(|cause| cause.field == "spec.schedule"), "{schedule:?}: {response:?}");
    assert_eq!(response.causes.is_empty(), response.code == 201, "{schedule:?}: {response:?}");
    response.code == 201
}

/// Checks that both accept the schedule, or neither.
fn compare(schedule: &str) {
    assert_eq!(is_accepted(schedule), Schedule::parse(schedule).is_ok(), "{schedule:?}");
}

#[test]
fn every_value_range_and_step_of_a_field_is_judged_alike() {
    for (index, max) in [59_u16, 23, 31, 12, 6].into_iter().enumerate() {
        let with = |field: &str| {
            let mut fields = ["*"; 5];
            fields[index] = field;
            compare(&fields.join(" "));
        };
        for low in 0..=max + 2 {
            with(&low.to_string());
            with(&format!("00{low}"));
            for high in 0..=max + 2 {
                with(&format!("{low}-{high}"));
            }
        }
        for step in 0..=260 {
            with(&format!("*/{step}"));
        }
        for low in ["sun", "Mon", "sAt", "JAN", "feb", "Dec", "3"] {
            with(low);
            ["sun", "Mon", "sAt", "JAN", "feb", "Dec", "3"].iter().for_each(|high| with(&format!("{low}-{high}/2")));
        }
        for odd in [
            "?",
            "?/2",
            "*-5",
            "1-*",
            "1,",
            ",1",
            "1,,2",
            "1-2-3",
            "1/2/3",
            "/2",
            "-",
            "",
            "L",
            "1W",
            "1#2",
            "+1",
            "\u{17f}un",
            "\u{661}",
        ] {
            with(odd);
        }
    }
}

#[test]
fn aliases_and_other_shapes_are_judged_alike() {
    for text in [
        "@yearly",
        "@annually",
        "@monthly",
        "@weekly",
        "@daily",
        "@midnight",
        "@hourly",
        "@Daily",
        "@reboot",
        "@every 1h",
        "@daily * * * *",
        "",
        "* * * *",
        "* * * * * *",
        "TZ=UTC 0 0 * *",
        "0 3 * * 7",
        "0\t3  * * 0",
        "0\u{a0}3 * * * *",
        "0\n3 * * *",
    ] {
        compare(text);
    }
}

const WORDS: &[&str] = &["sun", "MON", "Tue", "wed", "thu", "fri", "sat", "jan", "Feb", "MAR", "jun", "dec"];

/// A value, or something else.
fn value() -> impl Strategy<Value = String> {
    let number = (0_u16..70, 0_usize..3).prop_map(|(n, zeros)| format!("{}{n}", "0".repeat(zeros)));
    prop_oneof![6 => number, 2 => prop::sample::select(WORDS).prop_map(str::to_owned), 1 => "[a-zA-Z0-9*?/#+.-]{0,3}"]
}

fn item() -> impl Strategy<Value = String> {
    let range = prop_oneof![
        3 => Just("*".to_owned()),
        1 => Just("?".to_owned()),
        4 => value(),
        4 => (value(), value()).prop_map(|(low, high)| format!("{low}-{high}")),
    ];
    (range, prop::option::weighted(0.3, 0_u16..300)).prop_map(|(range, step)| match step {
        Some(step) => format!("{range}/{step}"),
        None => range,
    })
}

fn schedule() -> impl Strategy<Value = String> {
    let field = prop::collection::vec(item(), 1..4).prop_map(|items| items.join(","));
    // Of five random fields one is nearly always wrong.
    let plain = prop_oneof![3 => Just("*".to_owned()), 2 => field];
    let gap = prop::sample::select(&[" ", "  ", "\t"][..]);
    (prop::collection::vec(plain, 5), gap).prop_map(|(fields, gap)| fields.join(gap))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn drawn_schedules_are_judged_alike(schedule in schedule().prop_filter("the API server counts", |s| s.len() <= 128)) {
        compare(&schedule);
    }
}
