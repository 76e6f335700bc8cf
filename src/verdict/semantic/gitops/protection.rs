//! Argo CD and Flux: would a removed file take its nodes with it, and are definitions there first?

use super::super::{Digest, Render};
use crate::finding::Issue;
use crate::rules::gitops as rules;
use napkeeper_api::manifests::Object;
use napkeeper_api::path::Path;
use serde_json::Value;

const ARGO_OPTIONS: &str = "argocd.argoproj.io/sync-options";
const ARGO_WAVE: &str = "argocd.argoproj.io/sync-wave";
const FLUX_PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";
const FLUX_RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
const HELM_POLICY: &str = "helm.sh/resource-policy";
const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// Definitions whose removal removes all nodes.
const DEFINITIONS: [(&str, &str); 3] = [
    ("nodepools.karpenter.sh", "NodePools"),
    ("nodeclaims.karpenter.sh", "NodeClaims"),
    ("aksnodeclasses.karpenter.azure.com", "AKSNodeClasses"),
];

/// What applies the objects, as far as the input shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Argo,
    Flux,
    Helm,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::Argo => "Argo CD",
            Self::Flux => "Flux",
            Self::Helm => "Helm",
        }
    }

    fn annotation(self) -> String {
        match self {
            Self::Argo => format!("{ARGO_OPTIONS}: Prune=false,Delete=false (Prune=confirm asks a person first)"),
            Self::Flux => format!("{FLUX_PRUNE}: disabled"),
            Self::Helm => format!("{HELM_POLICY}: keep"),
        }
    }
}

/// The tool that the input is for, when it prunes.
fn tool(render: &Render) -> Option<Tool> {
    let mut prunes: Option<Tool> = None;
    let mut never = Vec::new();
    for digest in &render.digests {
        match by_object(digest) {
            Some((tool, true)) => prunes = prunes.or(Some(tool)),
            Some((tool, false)) => never.push(tool),
            None => {}
        }
    }
    let annotated = || {
        let tools = render.digests.iter().filter_map(by_annotation);
        // What an Application or a Kustomization says of itself counts for more than a trace of the tool.
        tools.into_iter().find(|tool| !never.contains(tool))
    };
    prunes.or_else(annotated)
}

/// An object of a tool, and whether what it applies is pruned.
fn by_object(digest: &Digest) -> Option<(Tool, bool)> {
    let Object::Other { kind, api_version, .. } = &digest.object else { return None };
    let raw = digest.raw.as_deref()?;
    let group = api_version.split('/').next().unwrap_or_default();
    match (group, &**kind) {
        ("argoproj.io", "Application") => Some((Tool::Argo, argo_prunes(&raw["spec"]))),
        ("argoproj.io", "ApplicationSet") => Some((Tool::Argo, argo_prunes(&raw["spec"]["template"]["spec"]))),
        ("kustomize.toolkit.fluxcd.io", "Kustomization") => Some((Tool::Flux, raw["spec"]["prune"] != false)),
        ("helm.toolkit.fluxcd.io", "HelmRelease") => Some((Tool::Flux, true)),
        _ => None,
    }
}

/// `Prune=false` holds for a whole Application, too.
fn argo_prunes(spec: &Value) -> bool {
    let options = spec["syncPolicy"]["syncOptions"].as_array().into_iter().flatten();
    !options.filter_map(Value::as_str).any(keeps)
}

fn keeps(option: &str) -> bool {
    matches!(option.trim(), "Prune=false" | "Prune=confirm")
}

fn by_annotation(digest: &Digest) -> Option<Tool> {
    digest.annotations.keys().find_map(|key| {
        let domain = key.split('/').next().unwrap_or_default();
        match domain {
            "argocd.argoproj.io" => Some(Tool::Argo),
            "kustomize.toolkit.fluxcd.io" => Some(Tool::Flux),
            _ if &**key == HELM_RELEASE => Some(Tool::Helm),
            _ => None,
        }
    })
}

/// Any of the tools' annotations counts: who has one has thought of it.
fn is_protected(digest: &Digest) -> bool {
    let text = |key: &str| digest.annotations.get(key).map(|v| &**v).unwrap_or_default();
    text(ARGO_OPTIONS).split(',').any(keeps)
        || text(FLUX_PRUNE).eq_ignore_ascii_case("disabled")
        || text(FLUX_RECONCILE).eq_ignore_ascii_case("disabled")
        || text(HELM_POLICY).eq_ignore_ascii_case("keep")
}

pub(super) fn pruning(render: &Render, found: &mut Vec<(usize, Issue)>) {
    let Some(tool) = tool(render) else { return };
    let at = Path::of("metadata.name");
    let fix = || format!("annotate it with {}", tool.annotation());
    for (i, digest) in render.digests.iter().enumerate().filter(|(_, d)| !is_protected(d)) {
        let name = tool.name();
        let issue = match &digest.object {
            Object::NodePool(pool) => {
                let message = format!(
                    "when this file is moved or no longer rendered {name} deletes NodePool {}, and with it all its nodes \
                     at once, past its budgets",
                    pool.name
                );
                Issue::new(&rules::PRUNED, &at, message)
            }
            Object::NodeClass(class) => {
                let message = format!(
                    "when this file is moved or no longer rendered {name} deletes AKSNodeClass {}, and its NodePools can \
                     make no nodes",
                    class.name
                );
                Issue::new(&rules::PRUNED, &at, message)
            }
            object => match definition(object) {
                Some(objects) => {
                    let message =
                        format!("when {name} deletes this definition all {objects} go with it, and their nodes");
                    Issue::new(&rules::PRUNED_DEFINITION, &at, message)
                }
                None => continue,
            },
        };
        found.push((i, issue.fix(fix())));
    }
}

/// What a definition of Karpenter's defines.
fn definition(object: &Object) -> Option<&'static str> {
    let Object::Other { kind, name, .. } = object else { return None };
    let found = DEFINITIONS.iter().find(|(definition, _)| *definition == &**name);
    found.filter(|_| &**kind == "CustomResourceDefinition").map(|(_, objects)| *objects)
}

/// In one wave Argo CD applies definitions first; a definition in a later wave comes too late.
pub(super) fn waves(render: &Render, found: &mut Vec<(usize, Issue)>) {
    let wave = |digest: &Digest| digest.annotations.get(ARGO_WAVE).map_or(Some(0), |w| w.parse::<i64>().ok());
    let later = |name: &str| {
        let defines = |d: &&Digest| match &d.object {
            Object::Other { name: defined, kind, .. } => &**defined == name && &**kind == "CustomResourceDefinition",
            _ => false,
        };
        render.digests.iter().find(defines).and_then(wave)
    };
    let (pools, classes) = (later(DEFINITIONS[0].0), later(DEFINITIONS[2].0));
    for (i, digest) in render.digests.iter().enumerate() {
        let definition = match digest.object {
            Object::NodePool(_) => pools,
            Object::NodeClass(_) => classes,
            _ => None,
        };
        let Some((definition, own)) = definition.zip(wave(digest)) else { continue };
        if definition > own {
            let message =
                format!("its definition is applied in wave {definition}, after it (wave {own}): the first sync fails");
            let fix = format!("write a {ARGO_WAVE} of {definition} or more here, or a lower one at the definition");
            found.push((i, Issue::new(&rules::WAVES, &Path::of("metadata.name"), message).fix(fix)));
        }
    }
}
