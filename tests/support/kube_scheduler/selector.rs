//! Label selectors and node selector terms.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

/// Labels, as the wire has them.
pub(super) type Labels = BTreeMap<String, String>;

/// The field of a node that terms may name.
const NAME_FIELD: &str = "metadata.name";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl Operator {
    fn read(text: &str) -> Option<Self> {
        let all = [Self::In, Self::NotIn, Self::Exists, Self::DoesNotExist, Self::Gt, Self::Lt];
        let names = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
        all.into_iter().zip(names).find(|(_, name)| *name == text).map(|(operator, _)| operator)
    }
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Clause {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

impl Clause {
    fn is(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), operator: Operator::In, values: vec![value.to_owned()] }
    }

    fn read(key: &str, operator: &str, values: Option<&Vec<String>>) -> Option<Self> {
        let values = values.cloned().unwrap_or_default();
        Some(Self { key: key.to_owned(), operator: Operator::read(operator)?, values })
    }

    fn holds(&self, value: Option<&String>) -> bool {
        let listed = |value: &String| self.values.contains(value);
        // A bound compares integers; other values satisfy neither side.
        let number = |text: &String| text.parse::<i64>().ok();
        let compared = || Some((number(value?)?, number(self.values.first()?)?));
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => compared().is_some_and(|(label, bound)| label > bound),
            Operator::Lt => compared().is_some_and(|(label, bound)| label < bound),
        }
    }

    fn matches(&self, labels: &Labels) -> bool {
        self.holds(labels.get(&self.key))
    }
}

/// A label selector; `None` selects nothing, no clauses select everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Selector(Option<Vec<Clause>>);

impl Selector {
    /// An absent selector selects nothing, and so does one that cannot be read.
    pub(super) fn read(wire: Option<&LabelSelector>) -> Self {
        Self(wire.and_then(|wire| {
            let labels = wire.match_labels.iter().flatten().map(|(key, value)| Some(Clause::is(key, value)));
            let expressions = wire.match_expressions.iter().flatten();
            labels.chain(expressions.map(|e| Clause::read(&e.key, &e.operator, e.values.as_ref()))).collect()
        }))
    }

    /// With `matchLabelKeys` and `mismatchLabelKeys` of a pod with these labels. An API server has merged them into the
    /// selector of a pod that it knows, and to do so twice changes nothing.
    pub(super) fn like(mut self, labels: &Labels, same: Option<&Vec<String>>, other: Option<&Vec<String>>) -> Self {
        for (keys, operator) in [(same, Operator::In), (other, Operator::NotIn)] {
            for key in keys.into_iter().flatten() {
                if let (Some(clauses), Some(value)) = (&mut self.0, labels.get(key)) {
                    clauses.push(Clause { operator, ..Clause::is(key, value) });
                }
            }
        }
        self
    }

    /// It selects everything.
    pub(super) fn is_everything(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.0.as_ref().is_some_and(|clauses| clauses.iter().all(|c| c.matches(labels)))
    }
}

/// A term of a node selector: all of it must match. An empty or invalid one matches no node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct NodeTerm(Option<(Vec<Clause>, Vec<Clause>)>);

impl NodeTerm {
    pub(super) fn read(wire: &NodeSelectorTerm) -> Self {
        let read = |list: &Option<Vec<NodeSelectorRequirement>>| -> Option<Vec<Clause>> {
            list.iter().flatten().map(|r| Clause::read(&r.key, &r.operator, r.values.as_ref())).collect()
        };
        let both = read(&wire.match_expressions).zip(read(&wire.match_fields));
        Self(both.filter(|(labels, fields)| !labels.is_empty() || !fields.is_empty()))
    }

    pub(super) fn matches(&self, name: &str, labels: &Labels) -> bool {
        let name = name.to_owned();
        let field = |c: &Clause| c.holds((c.key == NAME_FIELD).then_some(&name));
        self.0.as_ref().is_some_and(|(of_labels, of_fields)| {
            of_labels.iter().all(|c| c.matches(labels)) && of_fields.iter().all(field)
        })
    }
}

/// `nodeSelector` and the required terms of node affinity, of which one must hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct RequiredNode {
    selector: Vec<Clause>,
    terms: Option<Vec<NodeTerm>>,
}

impl RequiredNode {
    pub(super) fn read(spec: &PodSpec) -> Self {
        let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            selector: spec.node_selector.iter().flatten().map(|(key, value)| Clause::is(key, value)).collect(),
            terms: required.map(|r| r.node_selector_terms.iter().map(NodeTerm::read).collect()),
        }
    }

    pub(super) fn matches(&self, name: &str, labels: &Labels) -> bool {
        let one_holds = |terms: &Vec<NodeTerm>| terms.iter().any(|t| t.matches(name, labels));
        self.selector.iter().all(|c| c.matches(labels)) && self.terms.as_ref().is_none_or(one_holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn labels(wire: &[(&str, &str)]) -> Labels {
        wire.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn term(wire: Value) -> NodeTerm {
        NodeTerm::read(&serde_json::from_value(wire).unwrap())
    }

    #[test]
    fn an_absent_selector_selects_nothing_and_an_empty_one_everything() {
        assert!(!Selector::read(None).matches(&labels(&[])));
        let empty = Selector::read(Some(&LabelSelector::default()));
        assert!(empty.matches(&labels(&[("a", "b")])) && empty.is_everything());
    }

    #[test]
    fn every_operator_answers_for_present_and_absent_labels() {
        for (operator, values, present, absent) in [
            ("In", json!(["5"]), true, false),
            ("In", json!(["4"]), false, false),
            ("NotIn", json!(["5"]), false, true),
            ("NotIn", json!(["4"]), true, true),
            ("Exists", json!([]), true, false),
            ("DoesNotExist", json!([]), false, true),
            ("Gt", json!(["4"]), true, false),
            ("Gt", json!(["5"]), false, false),
            ("Lt", json!(["6"]), true, false),
            ("Lt", json!(["word"]), false, false),
        ] {
            let term = term(json!({ "matchExpressions": [{ "key": "n", "operator": operator, "values": values }] }));
            assert_eq!(term.matches("a", &labels(&[("n", "5")])), present, "{operator} {values}");
            assert_eq!(term.matches("a", &labels(&[])), absent, "{operator} {values}");
        }
    }

    #[test]
    fn a_term_may_name_a_node_and_an_empty_one_means_none() {
        let named = term(json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] }));
        assert!(named.matches("a", &labels(&[])) && !named.matches("b", &labels(&[])));
        assert!(!term(json!({})).matches("a", &labels(&[])));
    }

    #[test]
    fn keys_to_match_take_the_value_of_the_pod_and_absent_ones_are_left_out() {
        let pod = labels(&[("version", "2")]);
        let keys = vec!["version".to_owned(), "absent".to_owned()];
        let empty = LabelSelector::default();
        let same = Selector::read(Some(&empty)).like(&pod, Some(&keys), None);
        let other = Selector::read(Some(&empty)).like(&pod, None, Some(&keys));
        assert!(same.matches(&pod) && !same.matches(&labels(&[("version", "1")])));
        assert!(!other.matches(&pod) && other.matches(&labels(&[("version", "1")])));
    }
}
