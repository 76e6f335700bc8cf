//! The outcome of each rule at admission: denied, warned, or left to others.

use napkeeper_verdict::{Severity, rules};

/// What becomes of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// The webhook refuses it, and names the rule.
    Denied,
    /// It is taken, with a warning that names the rule.
    Warned,
    /// The API server rejects it before it calls webhooks.
    Server,
    /// It is taken, and the rule is not named.
    Silent,
    /// It has no object of a kind of the hook.
    NotCalled,
}

/// Refused by the webhook.
const DENIED: [&str; 9] = ["NK1020", "NK1021", "NK2009", "NK2010", "NK2016", "NK2017", "NK3006", "NK3007", "NK3013"];
/// Rejected by the shipped definitions, before the webhook is called; by the webhook if they check nothing.
const BY_DEFINITION: [&str; 7] = ["NK1011", "NK1012", "NK1014", "NK1015", "NK1016", "NK1022", "NK1030"];
/// The same, but the webhook only warns: the server's definition may be newer than the one that is built in.
const MAY_BE_NEWER: [&str; 2] = ["NK1010", "NK1013"];
/// Refused by any API server: it reads no such text, serves no such kind, and takes no such metadata.
const BY_SERVER: [&str; 8] = ["NK1001", "NK1002", "NK1003", "NK1004", "NK1005", "NK1017", "NK1018", "NK1019"];
/// Errors of which the webhook warns: Azure, AKS or the subscription may have changed since this program was made.
const MAY_CHANGE: [&str; 9] =
    ["NK2001", "NK2003", "NK2004", "NK2011", "NK2018", "NK2021", "NK2022", "NK2030", "NK5002"];
/// Warnings.
const WARNED: [&str; 25] = [
    "NK1006", "NK1023", "NK2002", "NK2005", "NK2006", "NK2007", "NK2008", "NK2012", "NK2013", "NK2014", "NK2028",
    "NK3001", "NK3002", "NK3003", "NK3004", "NK3005", "NK3011", "NK3012", "NK3020", "NK3022", "NK3030", "NK5001",
    "NK5003", "NK5007", "NK9501",
];
/// Rules that cannot apply at admission, with reasons.
const ELSEWHERE: [(&str, &[&str]); 11] = [
    (
        "of another kind than the hook asks about",
        &[
            "NK1031", "NK2023", "NK2024", "NK2026", "NK3031", "NK3032", "NK3033", "NK4002", "NK6001", "NK6002",
            "NK6010", "NK6011", "NK6020", "NK7004", "NK7005", "NK8001", "NK8002", "NK8003", "NK9003",
        ],
    ),
    (
        "compares objects of an input with each other; of a live cluster NK9501 and NK9502 say it",
        &["NK2019", "NK2020", "NK2025", "NK2027", "NK5004", "NK5005", "NK5006", "NK6003", "NK6012"],
    ),
    ("about files in Git", &["NK4001", "NK4003", "NK4004", "NK4005", "NK4006", "NK4007"]),
    ("reads comments", &["NK3040", "NK5010"]),
    ("asks what a person wrote, and the server has filled in defaults", &["NK3010", "NK3021"]),
    ("is about an older Kubernetes than this server has", &["NK2015"]),
    ("asks for other definitions", &["NK1032"]),
    ("is denied with `--mode provisioner` only", &["NK2029"]),
    ("asks for the time: nothing is refused for the clock of a webhook", &["NK9001", "NK9002"]),
    ("asks for policies; live::policies", &["NK7001", "NK7002", "NK7003"]),
    (
        "asks for nodes that run, or a class with a state; the test program `alone`",
        &["NK9502", "NK9503", "NK9504", "NK9505", "NK9506"],
    ),
];
/// What becomes of bad examples of a rule; `None` for one that no list has.
pub(crate) fn expected(id: &str, shipped: bool) -> Option<Outcome> {
    let is = |list: &[&str]| list.contains(&id);
    let elsewhere = ELSEWHERE.iter().any(|(_, ids)| is(ids));
    let lists = [
        (is(&DENIED), Outcome::Denied),
        (is(&BY_DEFINITION), if shipped { Outcome::Server } else { Outcome::Denied }),
        (is(&MAY_BE_NEWER), if shipped { Outcome::Server } else { Outcome::Warned }),
        (is(&BY_SERVER), Outcome::Server),
        (is(&MAY_CHANGE) || is(&WARNED), Outcome::Warned),
        (elsewhere, Outcome::Silent),
    ];
    let mut found = lists.into_iter().filter(|(is, _)| *is).map(|(_, outcome)| outcome);
    found.next().filter(|_| found.next().is_none())
}

#[test]
fn every_rule_is_in_one_list_and_only_changeable_facts_are_softened() {
    let unlisted: Vec<_> = rules::all().filter(|rule| expected(rule.id, true).is_none()).map(|rule| rule.id).collect();
    assert!(unlisted.is_empty(), "in no list, or in two: {unlisted:?}");
    let severity = |id: &&str| rules::find(id).map(|rule| rule.severity);
    let refused = DENIED.iter().chain(&BY_DEFINITION).chain(&MAY_BE_NEWER).chain(&BY_SERVER).chain(&MAY_CHANGE);
    assert!(refused.map(severity).all(|s| s == Some(Severity::Error)));
    assert!(WARNED.iter().map(severity).all(|s| s == Some(Severity::Warning)));
}
