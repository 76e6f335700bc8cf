//! Fuzzing on stable Rust: no input makes a parser panic, or take longer than it may.
//!
//! Each parser has a corpus and a dictionary of its own grammar. Inputs are mutated from them by a fixed seed, the same
//! ones in every run: as many as the test sets, or `NAPKEEPER_FUZZ_INPUTS`. A failing input is printed whole; it
//! becomes a case of the parser's own tests.

mod hostile;
mod mutate;
mod reviews;

use mutate::Mutator;
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::object;
use napkeeper_api::yaml;
use napkeeper_core::model::amounts::quantity::Quantity;
use napkeeper_core::model::cron::Schedule;
use napkeeper_tests::options::number;
use napkeeper_verdict::cel::{Env, Program};
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Processor time that one input may take; none is longer than a few thousand bytes, and nothing is optimised here.
const SLOWEST: Duration = Duration::from_secs(1);

/// Processor time of this thread so far: other than by the clock on the wall, a busy machine makes nothing slow.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

/// Tries a parser with inputs made from a corpus.
fn fuzz(name: &str, inputs: u64, (corpus, words): (&[&str], &[&str]), parse: impl Fn(&str)) {
    let inputs = number("NAPKEEPER_FUZZ_INPUTS", inputs).unwrap();
    let mut mutator = Mutator::new(7, corpus, words);
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    for _ in 0..inputs {
        let input = mutator.next();
        let begun = processor_time();
        let outcome = catch_unwind(AssertUnwindSafe(|| parse(&input)));
        assert!(outcome.is_ok(), "{name} panics on {input:?}");
        let took = processor_time() - begun;
        assert!(took < SLOWEST, "{name} takes {took:?} of processor time for {input:?}");
        slowest = slowest.max(took);
    }
    eprintln!("{name}: {inputs} inputs in {:?}, the slowest {slowest:?} of processor time", start.elapsed());
}

const POOL: &str = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: a, labels: {a: b}}
spec:
  weight: 10
  limits: {cpu: '100', memory: 400Gi}
  disruption:
    consolidateAfter: 1m
    budgets: [{nodes: 10%, schedule: '0 9 * * 1-5', duration: 8h, reasons: [Drifted]}]
  template:
    spec:
      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}
      requirements:
      - {key: karpenter.azure.com/sku-cpu, operator: Lt, values: ['9'], minValues: 1}
      - key: kubernetes.io/arch
        operator: In
        values: [amd64, arm64]
";

#[test]
fn the_yaml_reader_survives_any_text() {
    let corpus = [
        POOL,
        "a: &x [1, {b: *x}]\n<<: {c: 2}\n---\n- |\n  text\n- >-\n  more\n...\n? [k]\n: v\n",
        "{\"a\": [1, true, null, \"\\u00e9\"], \"b\": 1.5e3}",
        "%YAML 1.1\n--- !!str 'a''b'\n# comment\n\"c\\x41\": ~\r\n",
    ];
    let words =
        ["---\n", "&a ", "*a", "<<: ", "!!int ", "|2-\n", "? ", ": ", "- ", "\u{feff}", "\u{0}", "\t", "'", "\""];
    fuzz("yaml", 5_000, (&corpus, &words), |text| {
        for document in &yaml::read("t.yaml", text).documents {
            let _ = (document.position(&Path::from_dotted("spec.template")), document.key_position(&Path::root()));
        }
    });
}

#[test]
fn the_quantity_parser_survives_any_text() {
    let corpus = ["100m", "1.5Gi", "+.5e-3", "9223372036854775807", "-0.000000001n", "1e400", "0x10"];
    fuzz("quantity", 100_000, (&corpus, &["Ki", "Ei", "e9", "E-", ".", "99999999999999999999", "m"]), |text| {
        if let Ok(quantity) = Quantity::parse(text) {
            let _ = (quantity.ceil(), quantity.milli_ceil(), quantity.to_string());
        }
    });
}

#[test]
fn the_cron_parser_survives_any_text() {
    let corpus = ["0 9 * * 1-5", "*/15 0-6 1,15 JAN-MAR SUN", "@weekly", "59 23 31 12 7", "0 0 30 2 *"];
    let now: jiff::Timestamp = "2026-11-21T08:00:00Z".parse().expect("a time");
    fuzz("cron", 50_000, (&corpus, &["*/", ",", "-", "L", "#2", "?", "@", "0", "99", " "]), |text| {
        if let Ok(schedule) = Schedule::parse(text) {
            let _ = (schedule.after(now), schedule.at_or_before(now));
        }
    });
}

#[test]
fn requirements_survive_any_manifest() {
    let words =
        ["In", "NotIn", "Exists", "Gt", "Gte", "values: ['9']", "minValues: 50", "null", "[]", "{}", "1e3", "~"];
    fuzz("requirements", 2_000, (&[POOL], &words), |text| {
        for document in &yaml::read("t.yaml", text).documents {
            let _ = object(&document.value);
        }
    });
}

#[test]
fn the_expression_language_survives_any_text() {
    let corpus = [
        "self.spec.requirements.all(x, x.operator == 'In' ? x.values.size() != 0 : true)",
        "self.?a.orValue([1, 2]).map(i, v, i + v).sum() > int('9') && !has(self.b)",
        "'%s is %d'.format([self.a, size(self.b)]).find('[a-z]+') != ''",
        "quantity('10Mi').isGreaterThan(quantity('1Gi')) || ip('10.0.0.1') in cidr('10.0.0.0/8')",
        "timestamp('2026-11-21T08:00:00Z') + duration('1h') < self.t && semver('1.2.3').major() == 1",
        "{'a': 1}[self.c] == b'x'.size() || [3, 1].sort()[0] in sets.contains([1], [2])",
    ];
    let words = [
        "all(",
        "exists(x, ",
        "optMap(y, y)",
        "?.",
        "[?",
        "**",
        "'\\u{1}'",
        "r'(a+)+$'",
        "9223372036854775807",
        "-",
        "&&",
        "null",
    ];
    let env = Env::new(["self"]);
    let value =
        json!({ "a": "text", "b": [1, 2.5, null], "c": { "d": true }, "spec": { "requirements": [] }, "t": "x" });
    fuzz("cel", 5_000, (&corpus, &words), |text| {
        if let Ok(program) = Program::compile(text, &env) {
            let mut variables = env.variables();
            variables.set("self", &value);
            let _ = program.eval(&variables).map(|output| output.to_json());
        }
    });
}
