//! The folders of `src/core` and `src/verdict` import each other only from later to earlier ones of [`CORE`] and
//! [`VERDICT`].
//!
//! An import is any path that begins at the root of the crate, or climbs to it by `super`. Tests may import anything.

use crate::tree::{Source, files, product};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// The folders of `src/core`, each with what it may import besides itself. None imports a later one, so there is no
/// circle.
const CORE: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("catalog", &["model"]),
    ("snapshot", &["model", "catalog"]),
    ("scheduling", &["model", "catalog", "snapshot"]),
    ("admission", &["model", "catalog", "snapshot", "scheduling"]),
    ("plan", &["model", "catalog", "snapshot", "scheduling"]),
    ("provisioning", &["model", "catalog", "snapshot", "scheduling", "plan"]),
    ("lifecycle", &["model", "catalog", "snapshot", "scheduling", "plan", "provisioning"]),
    ("disruption", &["model", "catalog", "snapshot", "scheduling", "plan", "provisioning", "lifecycle"]),
    (
        "static_capacity",
        &["model", "catalog", "snapshot", "scheduling", "plan", "provisioning", "lifecycle", "disruption"],
    ),
    (
        "outlook",
        &[
            "model",
            "catalog",
            "snapshot",
            "scheduling",
            "plan",
            "provisioning",
            "lifecycle",
            "disruption",
            "static_capacity",
        ],
    ),
    ("status", &["model", "snapshot", "scheduling", "plan", "lifecycle", "disruption"]),
    ("orphans", &["model", "catalog", "snapshot", "plan"]),
    ("history", &["model", "snapshot", "plan"]),
    (
        "engine",
        &[
            "model",
            "catalog",
            "snapshot",
            "scheduling",
            "plan",
            "provisioning",
            "lifecycle",
            "disruption",
            "static_capacity",
            "status",
            "orphans",
            "history",
        ],
    ),
];

/// The folders of `src/verdict`, likewise.
const VERDICT: &[(&str, &[&str])] = &[
    ("text", &[]),
    ("rules", &[]),
    ("migrate", &[]),
    ("cel", &["text", "rules"]),
    ("schema", &["text", "rules", "migrate", "cel"]),
    ("policy", &["text", "rules", "cel"]),
    ("semantic", &["text", "rules", "cel", "policy"]),
    ("validator", &["rules", "migrate", "cel", "schema", "policy", "semantic"]),
];

/// What `src/core/scheduling` consists of, from below.
const SCHEDULING: &[&str] =
    &["pods", "topology", "offerings", "input", "result", "nodes", "packing", "explain", "scheduler", "incremental"];

/// How many imports against that order there are, each named in `docs/decisions/0050-folders-of-core.md`.
const AGAINST_THE_ORDER: usize = 5;

/// Where an item is that `src/core/scheduling/mod.rs` passes on.
fn room_of(head: &str) -> &str {
    match head {
        "Input" | "MAX_NEW_NODES" => "input",
        "NewNode" | "NoReservation" | "PodPlacement" | "SchedulingResult" | "Target" | "UnschedulableReason" => {
            "result"
        }
        other => other,
    }
}

/// A sentence for each file of scheduling and each later room of [`SCHEDULING`] that it imports from.
fn against_the_order(sources: &[Source]) -> BTreeSet<String> {
    let rank = |room: &str| SCHEDULING.iter().position(|name| *name == room);
    let mut found = BTreeSet::new();
    for source in product(sources) {
        let Ok(below) = source.path.strip_prefix("src/core/scheduling") else { continue };
        let Some(first) = below.components().next() else { continue };
        let own = first.as_os_str().to_string_lossy().replace(".rs", "");
        let text = source.before_tests();
        for (at, prefix) in text.match_indices("crate::scheduling::") {
            for head in heads(&text[at + prefix.len()..]) {
                if rank(&own).zip(rank(room_of(&head))).is_some_and(|(own, other)| other > own) {
                    found.insert(format!("{}: {own} imports {}", source.path.display(), room_of(&head)));
                }
            }
        }
    }
    found
}

/// Folders of a crate that a file imports from, by the path of the crate's root.
fn imported(source: &Source, root: &Path) -> BTreeSet<String> {
    let text: String = source.before_tests().lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let depth = module_depth(source, root);
    let climb = format!("{}::", vec!["super"; depth].join("::"));
    let mut found = BTreeSet::new();
    for from_root in ["crate::", &climb] {
        for (at, _) in text.match_indices(from_root) {
            let climbs_further = text[..at].ends_with("super::") || text[..at].ends_with(|c: char| c.is_alphanumeric());
            if depth == 0 && from_root == climb || climbs_further {
                continue;
            }
            found.extend(heads(&text[at + from_root.len()..]));
        }
    }
    found
}

/// How many `super`s lead from a file's module to the root of its crate.
fn module_depth(source: &Source, root: &Path) -> usize {
    let below = source.path.strip_prefix(root).unwrap_or(&source.path);
    let is_folder = below.file_name().is_some_and(|name| name == "mod.rs" || name == "lib.rs");
    below.components().count() - usize::from(is_folder)
}

/// The first names of a path, or of all paths of a group.
fn heads(path: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else {
        return vec![name(path)];
    };
    let mut depth = 0_usize;
    let mut outside_groups = String::new();
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            c if depth == 0 => outside_groups.push(c),
            _ => {}
        }
    }
    outside_groups.split(',').map(|head| name(head.trim())).collect()
}

/// A sentence for each import that the list does not allow.
fn wrong_imports(sources: &[Source], root: &Path, allowed: &[(&str, &[&str])]) -> Vec<String> {
    let rules: BTreeMap<&str, &[&str]> = allowed.iter().copied().collect();
    let mut wrong = Vec::new();
    for source in product(sources) {
        let Ok(below) = source.path.strip_prefix(root) else { continue };
        let mut parts = below.components();
        let folder = parts.next().map(|part| part.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
        if parts.next().is_none() {
            continue;
        }
        let Some(may) = rules.get(&*folder) else {
            wrong.push(format!("{}: the list of folders does not have {folder}", source.path.display()));
            continue;
        };
        for head in imported(source, root) {
            if rules.contains_key(&*head) && head != folder && !may.contains(&&*head) {
                wrong.push(format!(
                    "{}: {folder} imports {head}; it may import {}",
                    source.path.display(),
                    may.join(", ")
                ));
            }
        }
    }
    wrong
}

#[test]
fn folders_of_the_core_import_only_earlier_ones() -> io::Result<()> {
    let sources = files(&["src/core"], &["rs"])?;
    let sources: Vec<Source> = sources.into_iter().filter(|s| !s.path.starts_with("src/core/examples")).collect();
    let wrong = wrong_imports(&sources, Path::new("src/core"), CORE);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn folders_of_verdict_import_only_earlier_ones() -> io::Result<()> {
    let sources = files(&["src/verdict"], &["rs"])?;
    let sources: Vec<Source> = sources.into_iter().filter(|s| !s.path.starts_with("src/verdict/examples")).collect();
    assert!(sources.len() > VERDICT.len(), "{} files", sources.len());
    let wrong = wrong_imports(&sources, Path::new("src/verdict"), VERDICT);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn rooms_of_scheduling_import_earlier_ones() -> io::Result<()> {
    let found = against_the_order(&files(&["src/core/scheduling"], &["rs"])?);
    let text = found.iter().map(|line| format!("{line}\n")).collect::<String>();
    assert!(found.len() <= AGAINST_THE_ORDER, "move an item down instead:\n{text}");
    Ok(())
}

#[test]
fn an_import_against_the_order_is_named() {
    let text = "use crate::scheduling::packing::repack::repack;\nuse crate::scheduling::{Input, topology};\n";
    let found = against_the_order(&[Source::new("src/core/scheduling/pods/pod_class.rs", text)]);
    let named: Vec<&str> = found.iter().filter_map(|line| line.split(" imports ").nth(1)).collect();
    assert_eq!(named, ["input", "packing", "topology"]);
}

#[test]
fn no_folder_may_import_a_later_one() {
    for (index, (folder, may)) in CORE.iter().enumerate() {
        let earlier: Vec<_> = CORE[..index].iter().map(|(name, _)| *name).collect();
        for name in *may {
            assert!(earlier.contains(name), "{folder} may import {name}, which does not come before it");
        }
    }
}

#[test]
fn a_wrong_import_is_named_however_it_is_written() {
    let allowed: &[(&str, &[&str])] = &[("model", &[]), ("engine", &["model"])];
    let root = Path::new("src/core");
    for text in [
        "use crate::engine::Settings;\n",
        "use crate::{a::B, engine::{Settings, Other}};\n",
        "use super::super::engine::Settings;\n",
        "fn f() { crate::engine::run() }\n",
    ] {
        let wrong = wrong_imports(&[Source::new("src/core/model/pod.rs", text)], root, allowed);
        assert!(matches!(&wrong[..], [one] if one.contains("model imports engine")), "{text}: {wrong:?}");
    }
    for text in [
        "use crate::model::Pod;\nuse super::node::Node;\nuse super::super::model::Node;\n",
        "// crate::engine::Settings\n#[cfg(test)]\nmod tests {\n    use crate::engine::Settings;\n}\n",
    ] {
        assert_eq!(wrong_imports(&[Source::new("src/core/model/pod.rs", text)], root, allowed), Vec::<String>::new());
    }
    let allowed_way = Source::new("src/core/engine/mod.rs", "use crate::model::Pod;\nuse super::model::Node;\n");
    assert_eq!(wrong_imports(&[allowed_way], root, allowed), Vec::<String>::new());
}
