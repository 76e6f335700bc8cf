//! Every rule is in order, and the examples of its page are true.

use super::*;
use crate::finding::Finding;
use crate::schema::crds::CrdSchemas;
use crate::semantic::facts::Facts;
use crate::validator::Validator;
use napkeeper_api::crds;
use napkeeper_api::manifests::load_text;
use napkeeper_core::model::names::Region;
use serde_json::Value;
use std::sync::LazyLock;

#[test]
fn ids_are_in_order_and_unique() {
    let ids: Vec<_> = all().map(|rule| rule.id).collect();
    assert!(ids.windows(2).all(|w| w[0] < w[1]));
}

#[test]
fn a_page_begins_with_its_rule_and_has_all_sections() {
    for rule in all() {
        let severity = serde_json::to_value(rule.severity).unwrap();
        let title = format!("# {}: {}\n\nSeverity: {}.\n\n", rule.id, rule.title, severity.as_str().unwrap());
        assert!(rule.page.starts_with(&title), "{} does not begin with\n{title}", rule.id);
        let headings: Vec<&str> = rule.page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, ["Bad", "Good", "What to do"], "{}", rule.id);
    }
}

/// An example of a page: the info string of its code block, and the text.
struct Example<'p> {
    words: Vec<&'p str>,
    text: String,
}

impl Example<'_> {
    /// The value of a fact such as `region=westeurope`.
    fn fact(&self, key: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

/// The examples under a heading.
fn examples<'p>(page: &'p str, heading: &str) -> Vec<Example<'p>> {
    let section = page.lines().skip_while(|line| line.strip_prefix("## ") != Some(heading)).skip(1);
    let mut lines = section.take_while(|line| !line.starts_with("## "));
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let text = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
        let mut words = info.split_whitespace();
        assert_eq!(words.next(), Some("yaml"), "an example is YAML: {line}");
        found.push(Example { words: words.collect(), text });
    }
    found
}

/// The embedded definitions without a field, as an older version would have them.
fn older(path: &str) -> CrdSchemas {
    let mut crds: Vec<Value> = crds::all().unwrap().into_iter().map(|crd| crd.definition).collect();
    let versions = crds.iter_mut().flat_map(|crd| crd["spec"]["versions"].as_array_mut().unwrap());
    let (parent, field) = path.rsplit_once('.').unwrap();
    let at = parent.replace('.', "/properties/");
    let mut found = 0;
    for version in versions {
        let properties = format!("/schema/openAPIV3Schema/properties/{at}/properties");
        let map = version.pointer_mut(&properties).and_then(Value::as_object_mut);
        found += usize::from(map.and_then(|map| map.shift_remove(field)).is_some());
    }
    assert!(found > 0, "no definition has {path}");
    CrdSchemas::from_crds("crds", crds.iter()).unwrap()
}

/// The findings of an example. `file=` is its file name, `region=`, `kubernetes=` and `now=` are facts, `mode=provisioner` lets
/// napkeeper itself launch the nodes, and `without=` takes a field out of the definitions.
fn found(example: &Example<'_>) -> Vec<Finding> {
    /// Most examples need no facts.
    static PLAIN: LazyLock<Validator> = LazyLock::new(|| Validator::embedded().unwrap());
    let source = load_text(example.fact("file").unwrap_or("example.yaml"), example.text.clone());
    let facts = ["region", "kubernetes", "now", "mode", "without"].map(|key| example.fact(key));
    let reports = match facts {
        [None, None, None, None, None] => PLAIN.validate_files(&[source]),
        [region, kubernetes, now, mode, without] => {
            let region = region.map(|name| Region::new(name).unwrap());
            let mut facts = Facts::embedded(region.as_ref()).unwrap();
            facts.kubernetes = kubernetes.map(ToOwned::to_owned);
            facts.now = now.map(|text| text.parse().unwrap());
            facts.nodes.self_managed = mode == Some("provisioner");
            let validator = Validator::embedded().unwrap().with_facts(facts);
            let validator = match without {
                Some(path) => validator.with_definitions(older(path)),
                None => validator,
            };
            validator.validate_files(&[source])
        }
    };
    reports.into_iter().flat_map(|report| report.findings).collect()
}

/// The errors in the examples of a rule's page.
fn wrong(rule: &Rule) -> Vec<String> {
    // Suppressions, policies and a rule about folders need more than one file, and cluster rules a cluster.
    let may_be_ignored = ["NK4007", "NK7", "NK8", "NK9"].iter().any(|family| rule.id.starts_with(family));
    let mut wrong = Vec::new();
    for (heading, reported) in [("Bad", true), ("Good", false)] {
        let examples = examples(rule.page, heading);
        if examples.is_empty() {
            wrong.push(format!("{}: {heading} has no example", rule.id));
        }
        for example in examples.iter().filter(|example| !(may_be_ignored && example.words.contains(&"ignore"))) {
            let found = found(example);
            let ids: Vec<&str> = found.iter().map(|finding| finding.rule).collect();
            if ids.contains(&rule.id) != reported {
                wrong.push(format!("{}: {heading} has {ids:?}:\n{}", rule.id, example.text));
            }
            let own = || found.iter().filter(|finding| finding.rule == rule.id);
            if rule.id.starts_with("NK2") && ids.iter().any(|id| id.starts_with("NK1")) {
                wrong.push(format!("{}: {heading} is wrong in form, {ids:?}:\n{}", rule.id, example.text));
            }
            if rule.id.starts_with("NK2") && own().any(|finding| finding.line <= 1 || finding.fix.is_none()) {
                wrong.push(format!("{}: {heading} has no place or no fix: {found:?}", rule.id));
            }
        }
    }
    wrong
}

#[test]
fn rule_pages() {
    let wrong: Vec<String> = all().flat_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_page_is_detected() {
    let page = "## Bad\n\n```yaml region=westeurope\na: 1\n```\n\n## Good\n\n```yaml\na: 1\na: 2\n```\n";
    let rule = Rule { id: "NK1002", severity: Severity::Error, title: "", page };
    assert_eq!(wrong(&rule).len(), 2, "{:?}", wrong(&rule));
    let rule = Rule { page: "", ..rule };
    assert_eq!(wrong(&rule).len(), 2);
}
