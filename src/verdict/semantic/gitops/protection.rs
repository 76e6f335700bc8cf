//! Pruning by Argo CD, Flux and Helm, and the order in which they apply CRDs.

use crate::finding::Issue;
use crate::rules::gitops as rules;
use crate::semantic::{ManifestSet, RetainedObject};
use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::Object;
use serde_json::Value;

const ARGO_OPTIONS: &str = "argocd.argoproj.io/sync-options";
const ARGO_WAVE: &str = "argocd.argoproj.io/sync-wave";
const FLUX_PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";
const FLUX_RECONCILE: &str = "kustomize.toolkit.fluxcd.io/reconcile";
const HELM_POLICY: &str = "helm.sh/resource-policy";
const HELM_RELEASE: &str = "meta.helm.sh/release-name";

/// CRDs whose removal removes all nodes.
const CRDS: [(&str, &str); 3] = [
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
            Self::Argo => format!("{ARGO_OPTIONS}: Prune=false,Delete=false (Prune=confirm asks for confirmation)"),
            Self::Flux => format!("{FLUX_PRUNE}: disabled"),
            Self::Helm => format!("{HELM_POLICY}: keep"),
        }
    }
}

/// What of the input deletes objects.
struct PruningTools {
    /// The Applications and Kustomizations that prune.
    pruners: Vec<Pruner>,
    /// There is a HelmRelease, which deletes what its chart no longer has, and nothing else.
    release: bool,
}

/// An Application or Kustomization that prunes.
struct Pruner {
    tool: Tool,
    /// The folder that it applies, by its parts; `None` if that is not known, so that it may apply everything.
    folder: Option<Vec<String>>,
}

impl PruningTools {
    fn of(set: &ManifestSet) -> Self {
        let objects = || set.objects.iter().filter_map(tool_object);
        let pruning = objects().filter(|of| of.prunes && of.tool != Tool::Helm);
        let pruners = pruning.flat_map(|ToolObject { tool, paths, .. }| {
            paths.into_iter().map(move |path| Pruner { tool, folder: applied_folder(path, set) })
        });
        Self { pruners: pruners.collect(), release: objects().any(|of| of.tool == Tool::Helm) }
    }

    /// The tool that would delete an object. An annotation of Argo CD or Flux does not show that the tool prunes; Helm
    /// always does.
    fn tool(&self, retained: &RetainedObject, file: &str) -> Option<Tool> {
        let released = || retained.annotations.contains_key(HELM_RELEASE) || self.release && retained.managed_by_helm;
        let applies = |pruner: &&Pruner| pruner.folder.as_ref().is_none_or(|folder| is_under(file, folder));
        let pruner = self.pruners.iter().find(applies).map(|pruner| pruner.tool);
        pruner.or_else(|| released().then_some(Tool::Helm))
    }
}

/// The folder of a path in the repository. None is known without a path, with a templated one, and where a kustomization in it may
/// take in other folders.
fn applied_folder(path: Option<&str>, set: &ManifestSet) -> Option<Vec<String>> {
    let path = path.filter(|path| !path.contains(['{', '$']))?;
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let folder: Vec<String> = parts.map(ToOwned::to_owned).collect();
    let is_kustomization = |file: &str| {
        file.to_lowercase().rsplit(['/', '\\']).next().is_some_and(|name| name.starts_with("kustomization"))
    };
    let takes_in_others = set.files().any(|file| is_kustomization(file) && is_under(file, &folder));
    (!folder.is_empty() && !takes_in_others).then_some(folder)
}

/// True for a file, or what kustomize has built, below a folder of the repository, of which the input may be a part or a parent; also
/// for what is no file, such as the standard input.
fn is_under(file: &str, folder: &[String]) -> bool {
    let built = file.strip_prefix("<kustomize ").and_then(|rest| rest.strip_suffix('>')).filter(|built| *built != ".");
    let mut parts: Vec<&str> = built.unwrap_or(file).split(['/', '\\']).collect();
    if built.is_none() {
        parts.pop();
    }
    // Where the command runs within the folder, the beginning of it is not in the names of files.
    let is_within = (1..folder.len()).any(|n| {
        let rest = folder.get(n..).unwrap_or_default();
        parts.get(..rest.len()).is_some_and(|first| first.iter().eq(rest))
    });
    let is_below = parts.windows(folder.len().max(1)).any(|part| part.iter().eq(folder));
    built.is_none() && file.starts_with('<') || is_below || is_within
}

/// An object of a tool.
struct ToolObject<'o> {
    tool: Tool,
    prunes: bool,
    /// The paths in the repository that it applies; one that is absent is not known.
    paths: Vec<Option<&'o str>>,
}

fn tool_object(retained: &RetainedObject) -> Option<ToolObject<'_>> {
    let Object::Other { kind, api_version, .. } = &retained.object else { return None };
    let raw = retained.raw.as_deref()?;
    let group = api_version.split('/').next().unwrap_or_default();
    let argo = |spec| ToolObject { tool: Tool::Argo, prunes: argo_prunes(spec), paths: argo_paths(spec) };
    match (group, &**kind) {
        ("argoproj.io", "Application") => Some(argo(&raw["spec"])),
        ("argoproj.io", "ApplicationSet") => Some(argo(&raw["spec"]["template"]["spec"])),
        ("kustomize.toolkit.fluxcd.io", "Kustomization") => {
            let paths = vec![raw["spec"]["path"].as_str()];
            Some(ToolObject { tool: Tool::Flux, prunes: raw["spec"]["prune"] == true, paths })
        }
        ("helm.toolkit.fluxcd.io", "HelmRelease") => {
            Some(ToolObject { tool: Tool::Helm, prunes: true, paths: Vec::new() })
        }
        _ => None,
    }
}

/// The paths of the sources of an Application.
fn argo_paths(spec: &Value) -> Vec<Option<&str>> {
    let several = spec["sources"].as_array().into_iter().flatten();
    let one = spec.get("source").into_iter();
    let paths: Vec<Option<&str>> = one.chain(several).map(|source| source["path"].as_str()).collect();
    if paths.is_empty() { vec![None] } else { paths }
}

/// Argo CD prunes automatically only if configured; `Prune=false` may apply to a whole Application.
fn argo_prunes(spec: &Value) -> bool {
    let policy = &spec["syncPolicy"];
    let automated = &policy["automated"];
    let mut options = policy["syncOptions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    automated["prune"] == true && automated["enabled"] != false && !options.any(keeps)
}

fn keeps(option: &str) -> bool {
    matches!(option.trim(), "Prune=false" | "Prune=confirm")
}

/// The annotation of any tool counts.
fn is_protected(retained: &RetainedObject) -> bool {
    let text = |key: &str| retained.annotations.get(key).map(|v| &**v).unwrap_or_default();
    text(ARGO_OPTIONS).split(',').any(keeps)
        || text(FLUX_PRUNE).eq_ignore_ascii_case("disabled")
        || text(FLUX_RECONCILE).eq_ignore_ascii_case("disabled")
        || text(HELM_POLICY).eq_ignore_ascii_case("keep")
}

pub(super) fn pruning(set: &ManifestSet, found: &mut Vec<(usize, Issue)>) {
    let pruners = PruningTools::of(set);
    let at = Path::from_dotted("metadata.name");
    for (i, retained) in set.objects.iter().enumerate().filter(|(_, d)| !is_protected(d)) {
        let Some(tool) = pruners.tool(retained, set.file(retained)) else { continue };
        let name = tool.name();
        let issue = match &retained.object {
            Object::NodePool(pool) => {
                let message = format!(
                    "if this file is moved or no longer rendered, {name} deletes NodePool {}, and with it all its nodes \
                     at once, ignoring its budgets",
                    pool.name
                );
                Issue::new(&rules::PRUNED, &at, message)
            }
            Object::NodeClass(class) => {
                let message = format!(
                    "if this file is moved or no longer rendered, {name} deletes AKSNodeClass {}, and its NodePools cannot \
                     create nodes",
                    class.name
                );
                Issue::new(&rules::PRUNED, &at, message)
            }
            object => match definition(object) {
                Some(objects) => {
                    let message = format!("if {name} deletes this CRD, all {objects} and their nodes are deleted too");
                    Issue::new(&rules::PRUNED_DEFINITION, &at, message)
                }
                None => continue,
            },
        };
        found.push((i, issue.fix(format!("annotate it with {}", tool.annotation()))));
    }
}

/// The kind of a CRD of Karpenter.
fn definition(object: &Object) -> Option<&'static str> {
    let Object::Other { kind, name, .. } = object else { return None };
    let found = CRDS.iter().find(|(definition, _)| *definition == &**name);
    found.filter(|_| &**kind == "CustomResourceDefinition").map(|(_, objects)| *objects)
}

/// In one wave Argo CD applies definitions first; a definition in a later wave comes too late.
pub(super) fn waves(set: &ManifestSet, found: &mut Vec<(usize, Issue)>) {
    let wave =
        |retained: &RetainedObject| retained.annotations.get(ARGO_WAVE).map_or(Some(0), |w| w.parse::<i64>().ok());
    let later = |name: &str| {
        let defines = |d: &&RetainedObject| match &d.object {
            Object::Other { name: defined, kind, .. } => &**defined == name && &**kind == "CustomResourceDefinition",
            _ => false,
        };
        set.objects.iter().find(defines).and_then(wave)
    };
    let (pools, classes) = (later(CRDS[0].0), later(CRDS[2].0));
    for (i, retained) in set.objects.iter().enumerate() {
        let definition = match retained.object {
            Object::NodePool(_) => pools,
            Object::NodeClass(_) => classes,
            _ => None,
        };
        let Some((definition, own)) = definition.zip(wave(retained)) else { continue };
        if definition > own {
            let message = format!(
                "its CRD is applied in sync wave {definition}, after this object (wave {own}): the first sync fails"
            );
            let fix = format!("set {ARGO_WAVE} to {definition} or more here, or to a lower value in the CRD");
            found.push((i, Issue::new(&rules::LATE_CRD, &Path::from_dotted("metadata.name"), message).fix(fix)));
        }
    }
}
