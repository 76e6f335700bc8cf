//! NK2027 for AKSNodeClasses that the merge base still has.
//!
//! An input without AKSNodeClasses says nothing about them, unless a change has removed them.

use super::args::Args;
use super::input::{ChangedFiles, Input};
use super::targets::Targets;
use super::targets::sources::{TargetSources, divide};
use super::verdicts::Verdicts;
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::{Object, Source, items, object};
use napkeeper_api::yaml::Document;
use napkeeper_verdict::Finding;
use napkeeper_verdict::rules::azure::NO_CLASS;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Adds a finding for each NodePool whose AKSNodeClass was removed since the merge base, where no AKSNodeClass is left:
/// where some are, the validation itself has reported it.
pub(super) fn add(
    args: &Args,
    targets: &Targets,
    changed: &ChangedFiles,
    verdicts: &mut Verdicts,
) -> anyhow::Result<()> {
    let now = divide(args, targets, &verdicts.input)?;
    let input = &verdicts.input;
    // The merge base is read, and built, only for NodePools.
    let has_pools = |of_target: &TargetSources<'_>| {
        let mut sources = of_target.sources.iter().filter_map(|index| input.sources.get(*index));
        sources.any(|source| source.text.contains("NodePool"))
    };
    let without = |of_target: &&TargetSources<'_>| has_pools(of_target) && classes(input, of_target).is_empty();
    let without: Vec<&TargetSources<'_>> = now.iter().filter(without).collect();
    if without.is_empty() {
        return Ok(());
    }
    let base = changed.read_base(&verdicts.input.selection)?;
    let before = divide(args, targets, &base)?;
    let mut found: Vec<(usize, Finding, Vec<Arc<str>>)> = Vec::new();
    for of_target in without {
        let name = &of_target.target.name;
        let removed = before.iter().filter(|of_base| of_base.target.name == *name);
        let removed: BTreeSet<String> = removed.flat_map(|of_base| classes(&base, of_base)).collect();
        for index in of_target.sources.iter().copied() {
            let Some(source) = verdicts.input.sources.get(index) else { continue };
            let documents = source.parsed().documents.iter();
            let findings = documents.flat_map(|document| missing(document, &removed));
            found.extend(findings.map(|finding| (index, finding, name.iter().cloned().collect())));
        }
    }
    for (index, finding, clusters) in found {
        verdicts.add_to(index, finding, clusters);
    }
    verdicts.sort();
    Ok(())
}

/// The names of the AKSNodeClasses of a target.
fn classes(input: &Input, of_target: &TargetSources<'_>) -> BTreeSet<String> {
    let sources = of_target.sources.iter().filter_map(|index| input.sources.get(*index));
    // Each NodePool names the kind as well.
    let mentions = |source: &&Source| source.text.contains("AKSNodeClass");
    let documents = sources.filter(mentions).flat_map(|source| &source.parsed().documents);
    let values = documents.flat_map(|document| items(document));
    let is_class = |value: &serde_json::Value| value["kind"] == "AKSNodeClass";
    let named = values.filter(|(_, value)| is_class(value)).filter_map(|(_, value)| value["metadata"]["name"].as_str());
    named.map(ToOwned::to_owned).collect()
}

/// The findings about NodePools of a document whose AKSNodeClass was removed.
fn missing(document: &Document, removed: &BTreeSet<String>) -> Vec<Finding> {
    let about = |(root, value): (Path, &serde_json::Value)| {
        let Ok(Object::NodePool(pool)) = object(value) else { return None };
        let class = pool.class.as_str();
        let path = Path::from_dotted("spec.template.spec.nodeClassRef.name");
        let path = root.join(path.segments());
        let at = document.position(&path);
        removed.contains(class).then(|| Finding {
            rule: NO_CLASS.id,
            severity: NO_CLASS.severity,
            file: document.file.to_string(),
            line: at.line,
            column: at.column,
            path: path.to_string(),
            message: format!("AKSNodeClass {class:?} is no longer in the input: this change removes it"),
            fix: Some(format!(
                "keep AKSNodeClass {class}, or remove this NodePool first: without the class it creates no nodes"
            )),
        })
    };
    items(document).into_iter().filter_map(about).collect()
}
