//! The table of expressions, and what a table cannot show: unknown inputs, bounds, and any input at all.

use crate::cel::{Env, EvalError, Program, Rules};
use proptest::prelude::*;
use serde_json::json;

fn outcome(text: &str, env: &Env, variables: &crate::cel::Variables) -> String {
    match Program::compile(text, env).map(|program| program.eval(variables)) {
        Err(error) => format!("refused: {error}"),
        Ok(Err(error)) => format!("error: {error}"),
        Ok(Ok(value)) => value.as_bool().map_or_else(|| value.type_name().to_owned(), |b| b.to_string()),
    }
}

#[test]
fn expressions_come_out_as_on_the_api_server() {
    let probe: serde_json::Value = serde_json::from_str(include_str!("probe.json")).unwrap();
    let rows = include_str!("expressions.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (expected, expression) in rows.filter_map(|line| line.split_once('\t')) {
        let mut spec = probe["schema"].clone();
        spec["x-kubernetes-validations"] = json!([{"rule": expression, "message": "no"}]);
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let got = match Rules::compile(&schema) {
            Err(error) => format!("refused: {error}"),
            Ok(rules) => match rules.check(&json!({"spec": probe["value"]})).as_slice() {
                [] => "true".to_owned(),
                [finding] if finding.message == "no" => "false".to_owned(),
                found => format!("error: {found:?}"),
            },
        };
        // Types are not checked here, so what the server refuses may compile.
        compared += usize::from(expected != "refused");
        if expected != "refused" && !got.starts_with(expected) {
            wrong.push(format!("{expression}: {expected} on the server, here {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 500, "{compared}");
}

#[test]
fn unknown_values_differ_from_failures() {
    let env = Env::new(["object", "request", "request.userInfo", "variables.a", "params", "variables.b"]);
    let mut variables = env.variables();
    variables.set("object", &json!({"n": 1, "labels": {"a": "b"}}));
    variables.set("request", &json!({"operation": "CREATE"}));
    variables.set_unknown("request.userInfo");
    variables.set_result("variables.a", Err(EvalError::Failed("boom".to_owned())));
    let program = Program::compile("object.n + 1", &env).unwrap();
    variables.set_result("variables.b", program.eval(&variables));
    for (text, expected) in [
        ("request.operation == 'CREATE'", "true"),
        ("request.userInfo.username == 'a'", "error: request.userInfo is not available here"),
        ("has(request.userInfo)", "error: request.userInfo is not available here"),
        ("request.userInfo.username == 'a' || object.n == 1", "true"),
        ("object.n == 1 || request.userInfo.username == 'a'", "true"),
        ("request.userInfo.username == 'a' && object.n == 2", "false"),
        ("request.userInfo.username == 'a' || object.n == 2", "error: request.userInfo is not available here"),
        ("variables.a == 1 || request.userInfo.x == 1", "error: request.userInfo is not available here"),
        ("['x'].exists(n, n == request.userInfo.name)", "error: request.userInfo is not available here"),
        ("['x'].exists(n, n == request.userInfo.name || n == 'x')", "true"),
        ("variables.a == 1", "error: boom"),
        ("variables.b == 2", "true"),
        ("has(variables.b)", "true"),
        ("has(params.x)", "error: no such attribute: params"),
        ("variables.c == 1", "refused: undeclared reference to 'variables.c'"),
        ("object.labels.exists(k, k == 'a')", "true"),
    ] {
        assert_eq!(outcome(text, &env, &variables), expected, "{text}");
    }
}

#[test]
fn endless_expressions_run_out_of_budget() {
    let env = Env::new(["list", "text"]);
    let mut variables = env.variables();
    variables.set("list", &json!((0..2000).collect::<Vec<_>>()));
    variables.set("text", &json!("a".repeat(1 << 20)));
    for text in [
        "list.all(a, list.all(b, list.all(c, a + b + c >= 0)))",
        "lists.range(1000000000).size() > 0",
        "list.map(x, text + text).size() > 0",
        "list.all(x, text.matches('(a+)+$'))",
        "list.exists(x, text.replace('a', 'aaaaaaaaaaaaaaaaaaaa').size() < 0)",
        "list.all(x, list.all(y, true) || true) && lists.range(5000000).size() > 0 || false",
    ] {
        let program = Program::compile(text, &env).unwrap();
        assert_eq!(program.eval(&variables).err(), Some(EvalError::Budget), "{text}");
    }
    for text in ["1+".repeat(5_000) + "1", "(".repeat(10_000), "!".repeat(20_000) + "true", "[".repeat(999)] {
        assert!(Program::compile(&text, &env).is_err());
    }
}

#[test]
fn the_deepest_accepted_expression_fits_on_the_stack() {
    let env = Env::default();
    for n in [100, 500, 1_000, 2_900] {
        for text in [
            "1".to_owned() + &"+1".repeat(n),
            "x".to_owned() + &".a".repeat(n),
            "-".repeat(n) + "1",
            "true?1:".repeat(n / 2) + "1",
            "[".repeat(n.min(60)) + &"]".repeat(n.min(60)),
            "(".repeat(n.min(60)) + "1" + &")".repeat(n.min(60)),
            "{1:".repeat(n.min(60)) + "1" + &"}".repeat(n.min(60)),
        ] {
            let _ = Program::compile(&text, &env);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_compiles_or_is_refused(text in "\\PC{0,40}") {
        let env = Env::new(["self"]);
        let _ = outcome(&text, &env, &env.variables());
    }

    #[test]
    fn any_expression_has_a_value_or_an_error(
        parts in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 1..14),
    ) {
        let env = Env::new(["self"]);
        let mut variables = env.variables();
        variables.set("self", &json!({"a": [1, "b", null, 2.5, {"c": "é"}], "m": {"k": 9_223_372_036_854_775_807_i64}}));
        let _ = outcome(&parts.concat(), &env, &variables);
    }
}

/// What expressions are made of.
const PIECES: &[&str] = &[
    "self",
    ".a",
    ".m",
    ".k",
    "[0]",
    "[?1]",
    ".?c",
    "1",
    "-1",
    "1.5",
    "2u",
    "'é😀'",
    "b'\\xff'",
    "null",
    "true",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ":",
    ",",
    "?",
    " + ",
    " - ",
    " * ",
    " / ",
    " % ",
    " == ",
    " < ",
    " in ",
    " && ",
    " || ",
    "!",
    ".all(x, x == 1)",
    ".map(x, x)",
    ".exists(i, v, v > i)",
    ".size()",
    ".sum()",
    ".sort()",
    ".charAt(-1)",
    ".substring(1)",
    ".substring(1, 2)",
    ".indexOf('é', 1)",
    ".lastIndexOf('é')",
    ".split('', 2)",
    ".replace('', 'x')",
    ".format([1, 'a'])",
    "'%.3f %s'",
    ".find('.')",
    "quantity('1Gi')",
    ".add(quantity('1m'))",
    ".asInteger()",
    "url('https://é/%41?é=1')",
    ".getQuery()",
    "ip('::1')",
    "cidr('10.0.0.0/8')",
    ".containsIP('10.1.1.1')",
    "semver('1.2.3')",
    ".compareTo(semver('1.2.3'))",
    "optional.of(1)",
    ".orValue(2)",
    ".optMap(x, x)",
    "duration('1h')",
    "timestamp(0)",
    ".getHours('+1:2')",
    "dyn(",
    "type(",
    "int('9')",
    "double('0x1p9')",
    "string(",
    ".transformMap(k, v, v)",
    ".slice(0, 1)",
    ".flatten(3)",
    ".validate('a')",
    "format.dns1123Label()",
    "sets.contains([1], [1])",
    ".sortBy(x, x)",
    "lists.range(3)",
];
