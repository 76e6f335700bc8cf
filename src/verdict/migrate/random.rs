//! Documents of old shapes in random layouts: whatever the layout, the result is valid, keeps every comment, is what
//! the plan intended and does not change the second time.

use super::*;
use crate::{Severity, Validator};
use napkeeper_api::manifests::load_text;
use proptest::prelude::*;
use serde_json::{Map, json};
use std::sync::LazyLock;

/// Draws that decide on a layout, used up one after another.
struct Layout {
    draws: Vec<u8>,
    at: usize,
    step: usize,
    comments: Vec<String>,
}

impl Layout {
    fn draw(&mut self, of: u8) -> u8 {
        let draw = self.draws[self.at % self.draws.len()];
        // The same draws again would repeat the same layout.
        let shift = u8::try_from(self.at / self.draws.len() % 251).unwrap();
        self.at += 1;
        draw.wrapping_add(shift) % of
    }

    fn comment(&mut self) -> String {
        let text = format!("note {} of: someone's {{own}}, [#{}]", self.comments.len(), self.comments.len());
        self.comments.push(text.clone());
        let tab = if self.draw(4) == 0 { "\t" } else { " " };
        format!("#{tab}{text}")
    }

    /// Comments and blank lines before an entry.
    fn before(&mut self, pad: &str, text: &mut String) {
        match self.draw(6) {
            0 => *text += &format!("{pad}{}\n", self.comment()),
            1 => *text += "\n",
            2 => *text += &format!("{pad}{}\n\n{pad}{}\n", self.comment(), self.comment()),
            _ => {}
        }
    }

    fn beside(&mut self) -> String {
        if self.draw(4) == 0 { format!("  {}", self.comment()) } else { String::new() }
    }

    fn scalar(&mut self, value: &Value) -> String {
        match value {
            Value::String(s) => match self.draw(3) {
                0 if !s.contains('\'') => format!("'{s}'"),
                1 if s != "true" && s.chars().all(|c| c.is_ascii_alphabetic() || c == '/') => s.clone(),
                _ => value.to_string(),
            },
            other => other.to_string(),
        }
    }

    fn block(&mut self, value: &Value, indent: usize, text: &mut String) {
        let pad = " ".repeat(indent);
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    self.before(&pad, text);
                    let key = if self.draw(5) == 0 { format!("\"{key}\"") } else { key.clone() };
                    let open = matches!(value, Value::Object(m) if !m.is_empty())
                        || matches!(value, Value::Array(l) if !l.is_empty());
                    if open && self.draw(5) > 0 {
                        *text += &format!("{pad}{key}:{}\n", self.beside());
                        let deeper = if value.is_array() && self.draw(2) == 0 { 0 } else { self.step };
                        self.block(value, indent + deeper, text);
                    } else {
                        let value = self.flow(value, indent);
                        *text += &format!("{pad}{key}: {value}{}\n", self.beside());
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    self.before(&pad, text);
                    *text += &format!("{pad}- {}{}\n", self.flow(item, indent), self.beside());
                }
            }
            other => *text += &format!("{pad}{}\n", self.scalar(other)),
        }
    }

    fn flow(&mut self, value: &Value, indent: usize) -> String {
        let inner = indent + self.step;
        let (parts, open, close): (Vec<String>, _, _) = match value {
            Value::Object(map) => {
                (map.iter().map(|(k, v)| format!("{k}: {}", self.flow(v, inner))).collect(), '{', '}')
            }
            Value::Array(items) => (items.iter().map(|v| self.flow(v, inner)).collect(), '[', ']'),
            other => return self.scalar(other),
        };
        if parts.is_empty() || self.draw(3) > 0 {
            return format!("{open}{}{close}", parts.join(", "));
        }
        let mut text = format!("{open}{}\n", self.beside());
        let last = parts.len() - 1;
        for (i, part) in parts.iter().enumerate() {
            let comma = if i < last || self.draw(3) == 0 { "," } else { "" };
            text += &format!("{}{part}{comma}{}\n", " ".repeat(inner), self.beside());
        }
        format!("{text}{}{close}", " ".repeat(inner))
    }
}

/// Leaves out entries whose draw is even.
fn some(map: Value, draws: u32) -> Map<String, Value> {
    let Value::Object(map) = map else { panic!("a map is expected") };
    map.into_iter().enumerate().filter(|(i, _)| draws >> i & 1 == 1).map(|(_, e)| e).collect()
}

fn class_ref(draws: u32) -> Value {
    let mut map = some(json!({"apiVersion": "karpenter.azure.com/v1alpha2", "kind": "AKSNodeClass"}), draws);
    map.insert("name".to_owned(), "web".into());
    Value::Object(map)
}

fn provisioner(draws: u32) -> Value {
    let mut spec = some(
        json!({
            "consolidation": {"enabled": draws & 0x10000 > 0},
            "requirements": [
                {"key": "beta.kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
            ],
            "limits": {"resources": {"cpu": "100", "memory": "10Gi"}},
            "labels": {"example.com/team": "web"},
            "annotations": {"karpenter.sh/do-not-consolidate": "true", "example.com/a": "b, c"},
            "taints": [{"key": "example.com/a", "value": "b", "effect": "NoSchedule"}],
            "ttlSecondsAfterEmpty": 30,
            "startupTaints": [{"key": "example.com/s", "effect": "NoExecute"}],
            "kubeletConfiguration": {"maxPods": 50, "systemReserved": {"cpu": "100m"}},
            "ttlSecondsUntilExpired": 86400,
            "provider": {"subnet": "x"},
            "weight": 7,
        }),
        draws >> 2,
    );
    spec.insert("providerRef".to_owned(), class_ref(draws));
    json!({"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": "old"}, "spec": spec})
}

fn pool(draws: u32) -> Value {
    let mut template = some(
        json!({
            "taints": [{"key": "example.com/a", "effect": "NoSchedule"}],
            "kubelet": {"cpuCFSQuota": false, "evictionHard": {"memory.available": "5%"}},
            "resources": {"requests": {"cpu": "1"}},
        }),
        draws >> 2,
    );
    template.insert("nodeClassRef".to_owned(), class_ref(draws));
    template.insert("requirements".to_owned(), json!([{"key": "beta.kubernetes.io/os", "operator": "Exists"}]));
    let disruption = some(
        json!({"consolidationPolicy": "WhenUnderutilized", "expireAfter": "72h", "budgets": [{"nodes": "20%"}]}),
        draws >> 5,
    );
    let mut spec = some(json!({"disruption": disruption, "limits": {"cpu": 10}, "weight": 3}), draws >> 8);
    spec.insert("template".to_owned(), json!({"spec": template}));
    if draws & 0x1000 > 0 {
        spec["template"]["metadata"] = json!({"annotations": {"karpenter.sh/do-not-evict": "true"}});
    }
    let version = if draws & 0x2000 > 0 { "karpenter.sh/v1beta1" } else { "karpenter.sh/v1alpha5" };
    json!({"apiVersion": version, "kind": "NodePool", "metadata": {"name": "old"}, "spec": spec})
}

fn class(draws: u32) -> Value {
    let spec = some(json!({"imageVersion": "1.2", "osDiskSizeGB": 128, "tags": {"a": "b"}}), draws);
    json!({"apiVersion": "karpenter.azure.com/v1alpha2", "kind": "AKSNodeClass", "metadata": {"name": "a"}, "spec": spec})
}

/// An object and its text, and the intended value.
fn written(which: u8, draws: u32, layout: &mut Layout) -> (String, Value) {
    let value = match which {
        0 => provisioner(draws),
        1 => pool(draws),
        _ => class(draws),
    };
    let mut text = String::new();
    layout.block(&value, 0, &mut text);
    (text, value)
}

/// The keys and scalars of a value.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Object(map) => map.iter().flat_map(|(key, v)| std::iter::once(key.clone()).chain(words(v))).collect(),
        Value::Array(items) => items.iter().flat_map(words).collect(),
        scalar => vec![scalar.to_string()],
    }
}

/// The words of the entries that are taken out of use.
fn taken_out(value: &Value) -> Vec<String> {
    let steps = plan(value).steps.into_iter().filter(|step| matches!(step.edit, edit::Edit::CommentOut { .. }));
    steps.flat_map(|step| words(value.pointer(&pointer(&step.at)).unwrap())).collect()
}

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| Validator::embedded().unwrap());

fn errors(text: &str) -> Vec<String> {
    let reports = VALIDATOR.validate_files(&[load_text("t.yaml", text.to_owned())]);
    let errors = reports[0].findings.iter().filter(|f| f.severity == Severity::Error);
    errors.map(|f| format!("{} {}", f.path, f.message)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_layout_leads_to_the_intended_value(
        which in 0..3_u8,
        draws in any::<u32>(),
        looks in proptest::collection::vec(any::<u8>(), 40..120),
        step in 1..5_usize,
        crlf in any::<bool>(),
        ends in any::<bool>(),
    ) {
        let mut layout = Layout { draws: looks, at: 0, step, comments: Vec::new() };
        let (mut text, value) = written(which, draws, &mut layout);
        if !ends {
            text.truncate(text.trim_end().len());
        }
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        prop_assert_eq!(&yaml::read("", &text).documents[0].value, &value, "the test writes what it means:\n{}", text);
        let result = migrate(&text).map_err(|p| TestCaseError::fail(format!("{} {}\n{text}", p.position, p.message)))?;
        let new = &result.text;
        prop_assert_eq!(&yaml::read("", new).documents[0].value, &plan(&value).value, "{}", new);
        for comment in &layout.comments {
            prop_assert_eq!(new.matches(comment.as_str()).count(), 1, "{}\n{}", text, new);
        }
        prop_assert_eq!(errors(new), Vec::<String>::new(), "{}", new);
        // Flow style has no comments.
        for word in taken_out(&value) {
            prop_assert!(result.notes.iter().any(|n| n.message.contains(&word)), "{} {:?}", word, result.notes);
        }
        let again = migrate(new).unwrap();
        prop_assert_eq!(&again.text, new);
        prop_assert!(again.edits.is_empty());
        prop_assert_eq!(crlf && new.replace("\r\n", "").contains('\n'), false, "{:?}", new);
        prop_assert_eq!(ends, new.ends_with('\n'));
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-a-c:&*|{}\\[\\],!?'\"#. \n\t]{0,60}", at in 0..60_usize) {
        let pool = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nspec: {template: {spec: {}}, disruption: {expireAfter: 1h}}\n";
        let mut mixed = pool.to_owned();
        mixed.insert_str(at, &text);
        let _ = migrate(&mixed);
        let _ = migrate(&format!("{pool}{text}"));
    }
}
