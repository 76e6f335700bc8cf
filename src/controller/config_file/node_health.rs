//! Reads by which signs nodes are unhealthy or about to be lost.

use anyhow::{Context, bail, ensure};
use jiff::SignedDuration;
use napkeeper_api::config::NodeHealth;
use napkeeper_api::types::duration;
use napkeeper_core::model::cluster::node::ConditionStatus;
use napkeeper_core::model::settings::{NodeHealthAction, NodeHealthRule, NodeHealthRules, NodeSign};
use std::sync::Arc;

/// Most rules: each is looked for on every node at every decision.
const MAX_RULES: usize = 50;

/// The rules of the file.
///
/// # Errors
/// When one of them is invalid.
pub(super) fn rules(given: &[NodeHealth]) -> anyhow::Result<NodeHealthRules> {
    ensure!(given.len() <= MAX_RULES, "nodeHealth has {} entries: the maximum is {MAX_RULES}", given.len());
    let one = |(i, entry)| rule(entry).with_context(|| format!("nodeHealth[{i}]"));
    Ok(NodeHealthRules::new(given.iter().enumerate().map(one).collect::<anyhow::Result<_>>()?))
}

fn rule(given: &NodeHealth) -> anyhow::Result<NodeHealthRule> {
    let tolerated = match &given.tolerated {
        Some(text) => duration::parse(text).with_context(|| format!("for: {text:?}"))?,
        None => SignedDuration::ZERO,
    };
    let action = match given.means.as_str() {
        "repair" => NodeHealthAction::Repair,
        "interruption" => NodeHealthAction::Interruption,
        other => bail!("means is {other:?}: it must be repair or interruption"),
    };
    ensure!(
        given.condition.as_deref() != Some("Ready") || action == NodeHealthAction::Repair,
        "a node that is not ready gives no notice: write means: repair"
    );
    Ok(NodeHealthRule { sign: sign(given)?, tolerated, action })
}

fn sign(given: &NodeHealth) -> anyhow::Result<NodeSign> {
    match (&given.condition, &given.taint) {
        (Some(kind), None) => {
            let status = match given.status.as_deref() {
                Some("True") => ConditionStatus::True,
                Some("False") => ConditionStatus::False,
                Some("Unknown") => ConditionStatus::Unknown,
                Some(other) => bail!("status is {other:?}: it must be \"True\", \"False\" or \"Unknown\""),
                None => bail!("status is required for a condition: \"True\", \"False\" or \"Unknown\""),
            };
            ensure!(
                kind != "Ready" || status != ConditionStatus::True,
                "a node that is ready is neither unhealthy nor lost"
            );
            let words = given.words.iter().flatten();
            ensure!(words.clone().all(|word| is_word(word)), "words must consist of letters and digits");
            Ok(NodeSign::Condition {
                kind: Arc::from(kind.as_str()),
                status,
                words: words.map(|word| Arc::from(word.as_str())).collect(),
            })
        }
        (None, Some(taint)) => {
            ensure!(given.status.is_none() && given.words.is_none(), "a taint has neither status nor words");
            let is_ours = ["karpenter.sh/", "napkeeper.io/"].iter().any(|domain| taint.starts_with(domain));
            ensure!(!is_ours, "{taint} is a taint of napkeeper itself");
            Ok(NodeSign::Taint(Arc::from(taint.as_str())))
        }
        _ => bail!("either condition or taint is required"),
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_api::yaml;

    fn read(entry: &str) -> anyhow::Result<NodeHealthRule> {
        let text = format!("clusters:\n- name: prod\n  nodeHealth:\n  - {{ {entry} }}\n");
        let document = yaml::read("napkeeper.yaml", &text).documents.remove(0);
        let config = napkeeper_api::config::read(&document).map_err(|problem| anyhow::anyhow!("{problem}"))?;
        let rules = rules(config.clusters[0].node_health.as_deref().unwrap_or_default())?;
        Ok(rules.all()[0].clone())
    }

    #[test]
    fn signs_are_read() {
        let found = read("condition: Disk, status: 'False', words: [Broken], for: 5m, means: repair").unwrap();
        let sign = NodeSign::Condition {
            kind: Arc::from("Disk"),
            status: ConditionStatus::False,
            words: vec![Arc::from("Broken")],
        };
        let tolerated = SignedDuration::from_mins(5);
        assert_eq!(found, NodeHealthRule { sign, tolerated, action: NodeHealthAction::Repair });
        let found = read("taint: example.com/lost, means: interruption").unwrap();
        let sign = NodeSign::Taint(Arc::from("example.com/lost"));
        let (tolerated, action) = (SignedDuration::ZERO, NodeHealthAction::Interruption);
        assert_eq!(found, NodeHealthRule { sign, tolerated, action });
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (entry, message) in [
            ("means: repair", "nodeHealth[0]: either condition or taint"),
            ("condition: A, taint: b, status: 'True', means: repair", "either condition or taint"),
            ("condition: A, means: repair", "status is required for a condition"),
            ("condition: A, status: 'Yes', means: repair", "status is \"Yes\""),
            ("condition: A, status: 'True', means: reboot", "means is \"reboot\""),
            ("condition: A, status: 'True', for: soon, means: repair", "for: \"soon\""),
            ("condition: A, status: 'True', words: [a b], means: repair", "letters and digits"),
            ("condition: Ready, status: 'True', means: repair", "a node that is ready"),
            ("condition: Ready, status: 'False', means: interruption", "means: repair"),
            ("taint: a, status: 'True', means: repair", "neither status nor words"),
            ("taint: karpenter.sh/disrupted, means: repair", "napkeeper itself"),
            ("taint: napkeeper.io/underutilized, means: repair", "napkeeper itself"),
            ("condition: A, status: 'True'", "means"),
            ("condition: A, status: 'True', until: 5m, means: repair", "until"),
        ] {
            let error = format!("{:#}", read(entry).unwrap_err());
            assert!(error.contains(message), "{entry}: {error}");
        }
    }

    #[test]
    fn the_number_of_rules_is_bounded() {
        let one = NodeHealth { taint: Some("a".to_owned()), means: "repair".to_owned(), ..NodeHealth::default() };
        assert!(rules(&vec![one.clone(); MAX_RULES]).is_ok());
        assert!(rules(&vec![one; MAX_RULES + 1]).is_err());
        assert!(rules(&[]).unwrap().all().is_empty());
    }
}
