//! Findings in NodePools and other manifests, for tests.

use crate::finding::Finding;
use crate::validator::Validator;
use napkeeper_api::manifests::load_text;
use std::sync::LazyLock;

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| Validator::embedded().unwrap());

/// All that is found in some files, each a name and a text, of one family.
pub(crate) fn files(family: &str, files: &[(&str, &str)]) -> Vec<Finding> {
    let sources: Vec<_> = files.iter().map(|(name, text)| load_text(name, (*text).to_owned())).collect();
    let all = VALIDATOR.validate_files(&sources).into_iter().flat_map(|report| report.findings);
    let all: Vec<Finding> = all.collect();
    let broken: Vec<&Finding> = all.iter().filter(|f| f.rule.starts_with("NK1")).collect();
    assert!(broken.is_empty(), "{broken:?}");
    all.into_iter().filter(|f| f.rule.starts_with(family)).collect()
}

/// `path rule` of all that is found in a text, of one family.
pub(crate) fn findings(family: &str, text: &str) -> Vec<String> {
    files(family, &[("t.yaml", text)]).iter().map(|f| format!("{} {}", f.path, f.rule)).collect()
}

/// A NodePool in flow style; `spec` and `template` are more fields of `spec` and of `spec.template.spec`.
pub(crate) fn pool(name: &str, requirements: &str, spec: &str, template: &str) -> String {
    let class = "nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: a}";
    format!(
        "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: {name}}}, spec: {{{spec}template: {{spec: \
         {{{template}{class}, requirements: [{requirements}]}}}}}}}}\n---\n"
    )
}
