//! The crates of the workspace use each other only along the arrows of docs/architecture.md.
//!
//! `cargo metadata` has what is; [`MAY_USE`] and [`CORE_MAY_USE`] say what may be. Each rule is a pure function
//! over a list, so that a made-up mistake shows that the rule can fail.

use crate::tree::root;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// What `cargo metadata` prints, as far as these rules go.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    workspace_default_members: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// What a dependency is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DependencyKind {
    Normal,
    Build,
    Development,
}

impl DependencyKind {
    fn of(kind: Option<&str>) -> Self {
        match kind {
            Some("dev") => Self::Development,
            Some("build") => Self::Build,
            _ => Self::Normal,
        }
    }
}

/// Which members of the workspace each member may use. The adapters (kube, azure, sim, webhook) never use each other:
/// the controller and the webhook server wire them. What is not here may use nothing of ours.
const MAY_USE: &[(&str, &[&str])] = &[
    ("napkeeper-core", &[]),
    ("napkeeper-serve", &[]),
    ("napkeeper-api", &["napkeeper-core"]),
    ("napkeeper-verdict", &["napkeeper-api", "napkeeper-core"]),
    ("napkeeper-kube", &["napkeeper-api", "napkeeper-core"]),
    ("napkeeper-azure", &["napkeeper-api", "napkeeper-core"]),
    ("napkeeper-sim", &["napkeeper-api", "napkeeper-core"]),
    ("napkeeper-webhook", &["napkeeper-api", "napkeeper-core", "napkeeper-serve", "napkeeper-verdict"]),
    ("napkeeper-azure-sim", &["napkeeper-core", "napkeeper-sim"]),
    (
        "napkeeper-controller",
        &["napkeeper-api", "napkeeper-azure", "napkeeper-core", "napkeeper-kube", "napkeeper-serve"],
    ),
    (
        "napkeeper-webhook-server",
        &[
            "napkeeper-api",
            "napkeeper-core",
            "napkeeper-kube",
            "napkeeper-serve",
            "napkeeper-verdict",
            "napkeeper-webhook",
        ],
    ),
    ("napkeeper-cli", BELOW_THE_COMMAND_LINE),
    ("napkeeper", &["napkeeper-cli"]),
    (TESTS, BELOW_THE_COMMAND_LINE),
    ("napkeeper-features", &[]),
    ("napkeeper-structure", &[]),
];

/// What the command line wires together, and the tests see.
const BELOW_THE_COMMAND_LINE: &[&str] = &[
    "napkeeper-api",
    "napkeeper-azure",
    "napkeeper-azure-sim",
    "napkeeper-controller",
    "napkeeper-core",
    "napkeeper-kube",
    "napkeeper-serve",
    "napkeeper-sim",
    "napkeeper-verdict",
    "napkeeper-webhook",
    "napkeeper-webhook-server",
];

/// The tests see everything, and nobody sees them.
const TESTS: &str = "napkeeper-tests";

/// Crates that the domain may use, each with the reason. None of them brings I/O or an async runtime into a decision.
const CORE_MAY_USE: &[(&str, &str)] = &[
    ("croner", "parses cron expressions of budgets and sweeps"),
    ("jiff", "instants and durations; clippy bans its clock in core"),
    ("serde", "derives, so that records and plans can be written down"),
    ("thiserror", "derives error types"),
];

/// Pure-Rust decompressors for the embedded catalogue: the domain may use one of them.
const CORE_MAY_INFLATE_WITH: &[&str] = &["flate2", "miniz_oxide", "lz4_flex", "ruzstd"];

/// One member of the workspace uses another crate, ours or not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Arrow {
    from: String,
    to: String,
    kind: DependencyKind,
}

impl Arrow {
    fn all(metadata: &Metadata) -> Vec<Self> {
        let uses = |package: &Package| {
            let arrow = move |dependency: &Dependency| Self {
                from: package.name.clone(),
                to: dependency.name.clone(),
                kind: DependencyKind::of(dependency.kind.as_deref()),
            };
            package.dependencies.iter().map(arrow).collect::<Vec<_>>()
        };
        metadata.packages.iter().flat_map(uses).collect()
    }

    /// True when the arrow shapes what ships, not only the tests of a crate.
    fn ships(&self) -> bool {
        self.kind != DependencyKind::Development
    }
}

/// A sentence for each arrow between members that the map does not draw.
fn wrong_arrows(members: &BTreeSet<&str>, arrows: &[Arrow]) -> Vec<String> {
    let unknown = members
        .iter()
        .filter(|member| !MAY_USE.iter().any(|(name, _)| name == *member))
        .map(|member| format!("{member} is a member of the workspace, but MAY_USE does not say what it may use"));
    let wrong = arrows.iter().filter(|arrow| members.contains(&*arrow.to)).filter_map(wrong_arrow);
    unknown.chain(wrong).collect()
}

fn wrong_arrow(arrow: &Arrow) -> Option<String> {
    let Arrow { from, to, .. } = arrow;
    if to == TESTS {
        return Some(format!("{from} uses {TESTS}: nobody may see the tests"));
    }
    let may = MAY_USE.iter().find(|(name, _)| name == from).map_or(&[][..], |(_, may)| *may);
    (arrow.ships() && !may.contains(&&**to)).then(|| {
        let may = match may {
            [] => "no other member".to_owned(),
            some => format!("only {}", some.join(", ")),
        };
        format!("{from} uses {to}, an arrow that docs/architecture.md does not draw: it may use {may}")
    })
}

/// A sentence for each crate that the domain has no reason to use.
fn unexpected_in_core(arrows: &[Arrow]) -> Vec<String> {
    let used = arrows.iter().filter(|arrow| arrow.from == "napkeeper-core" && arrow.ships());
    let (inflaters, others): (Vec<_>, Vec<_>) =
        used.map(|arrow| &*arrow.to).partition(|name| CORE_MAY_INFLATE_WITH.contains(name));
    let mut wrong: Vec<String> = others
        .into_iter()
        .filter(|name| !CORE_MAY_USE.iter().any(|(allowed, _)| allowed == name))
        .map(|name| {
            format!("napkeeper-core uses {name}: the domain has no I/O, no clock and no async, and few dependencies")
        })
        .collect();
    if inflaters.len() > 1 {
        wrong.push(format!("napkeeper-core uses {}: one decompressor is enough", inflaters.join(" and ")));
    }
    wrong
}

/// A sentence for each use of Azure's SDK outside the adapter. Its ARM crates are unmaintained, so only one crate
/// may have to change when they go.
fn azure_sdk_outside_the_adapter(arrows: &[Arrow]) -> Vec<String> {
    arrows
        .iter()
        .filter(|arrow| arrow.to.starts_with("azure_") && arrow.from != "napkeeper-azure")
        .map(|Arrow { from, to, .. }| format!("{from} uses {to}: only napkeeper-azure may know Azure's SDK"))
        .collect()
}

/// True when a manifest takes its lints from the workspace.
fn inherits_lints(manifest: &str) -> bool {
    let mut table = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            table = line;
        }
        let setting = line.replace(' ', "");
        match table {
            "[lints]" => setting == "workspace=true",
            "" => setting == "lints.workspace=true",
            _ => false,
        }
    })
}

/// The workspace as cargo reads it, without its dependencies, so that no network and no lock file is needed.
fn workspace() -> Result<Metadata, Box<dyn Error>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version=1", "--no-deps", "--offline"]).current_dir(root());
    let output = cargo.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn names(metadata: &Metadata) -> BTreeSet<&str> {
    metadata.packages.iter().map(|p| p.name.as_str()).collect()
}

fn arrow(from: &str, to: &str, kind: DependencyKind) -> Arrow {
    Arrow { from: from.to_owned(), to: to.to_owned(), kind }
}

#[test]
fn arrows_between_members_are_those_of_the_map() -> Result<(), Box<dyn Error>> {
    let metadata = workspace()?;
    let arrows = Arrow::all(&metadata);
    assert!(
        arrows.contains(&arrow("napkeeper-api", "napkeeper-core", DependencyKind::Normal)),
        "an arrow that must exist was not read: {arrows:?}"
    );
    let wrong = wrong_arrows(&names(&metadata), &arrows);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn core_uses_only_what_a_domain_needs() -> Result<(), Box<dyn Error>> {
    let wrong = unexpected_in_core(&Arrow::all(&workspace()?));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn only_the_adapter_knows_the_azure_sdk() -> Result<(), Box<dyn Error>> {
    let wrong = azure_sdk_outside_the_adapter(&Arrow::all(&workspace()?));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn there_is_exactly_one_binary() -> Result<(), Box<dyn Error>> {
    let metadata = workspace()?;
    let binaries: Vec<_> = metadata
        .packages
        .iter()
        .flat_map(|package| &package.targets)
        .filter(|target| target.kind.iter().any(|kind| kind == "bin"))
        .map(|target| &*target.name)
        .collect();
    assert_eq!(binaries, ["napkeeper"], "the workspace has one binary; a generator is an example or an ignored test");
    Ok(())
}

#[test]
fn a_command_at_the_root_means_all_but_the_tests_across_crates() -> Result<(), Box<dyn Error>> {
    let metadata = workspace()?;
    let others = metadata.workspace_members.difference(&metadata.workspace_default_members);
    let named =
        |id: &&String| metadata.packages.iter().find(|package| package.id == **id).map(|package| &*package.name);
    let others: BTreeSet<_> = others.filter_map(|id| named(&id)).collect();
    assert_eq!(others, BTreeSet::from(["napkeeper-structure", TESTS]), "default-members of Cargo.toml");
    Ok(())
}

#[test]
fn every_member_takes_its_lints_from_the_workspace() -> Result<(), Box<dyn Error>> {
    for package in &workspace()?.packages {
        assert!(
            inherits_lints(&std::fs::read_to_string(&package.manifest_path)?),
            "{} has no `[lints] workspace = true`, so no lint of ours looks at it",
            package.manifest_path.display()
        );
    }
    Ok(())
}

#[test]
fn a_wrong_arrow_is_named() {
    let members = MAY_USE.iter().map(|(name, _)| *name).collect();
    let normal = DependencyKind::Normal;
    let fine = [
        arrow("napkeeper-cli", "napkeeper-azure", normal),
        arrow("napkeeper-webhook", "napkeeper-verdict", normal),
        arrow("napkeeper-core", "jiff", normal),
        arrow("napkeeper-core", "napkeeper-sim", DependencyKind::Development),
    ];
    assert_eq!(wrong_arrows(&members, &fine), Vec::<String>::new());

    for (from, to, kind) in [
        ("napkeeper-core", "napkeeper-api", normal),
        ("napkeeper-serve", "napkeeper-core", normal),
        ("napkeeper-sim", "napkeeper-azure", normal),
        ("napkeeper-kube", "napkeeper-sim", DependencyKind::Build),
        ("napkeeper-webhook", "napkeeper-azure", normal),
        ("napkeeper-kube", "napkeeper", normal),
        ("napkeeper-azure-sim", "napkeeper-controller", normal),
        ("napkeeper-webhook-server", "napkeeper-azure", normal),
        ("napkeeper-controller", "napkeeper-cli", normal),
        ("napkeeper-core", "napkeeper-tests", DependencyKind::Development),
    ] {
        let [sentence] = &wrong_arrows(&members, &[arrow(from, to, kind)])[..] else {
            panic!("the arrow from {from} to {to} ({kind:?}) must be refused, once");
        };
        assert!(sentence.starts_with(&format!("{from} uses {to}")), "{sentence}");
    }
}

#[test]
fn a_member_without_a_rule_is_named() {
    let wrong = wrong_arrows(&BTreeSet::from(["napkeeper-other"]), &[]);
    assert!(matches!(&wrong[..], [one] if one.starts_with("napkeeper-other is a member")), "{wrong:?}");
}

#[test]
fn an_unexpected_crate_in_core_is_named() {
    let uses = |to: &str, kind| arrow("napkeeper-core", to, kind);
    let wrong = unexpected_in_core(&[
        uses("serde", DependencyKind::Normal),
        uses("tokio", DependencyKind::Normal),
        uses("proptest", DependencyKind::Development),
        uses("flate2", DependencyKind::Normal),
    ]);
    assert!(matches!(&wrong[..], [one] if one.starts_with("napkeeper-core uses tokio")), "{wrong:?}");
    let two =
        unexpected_in_core(&[uses("flate2", DependencyKind::Normal), uses("miniz_oxide", DependencyKind::Normal)]);
    assert_eq!(two.len(), 1, "{two:?}");
}

#[test]
fn the_azure_sdk_elsewhere_is_named() {
    let normal = DependencyKind::Normal;
    let wrong = azure_sdk_outside_the_adapter(&[
        arrow("napkeeper-azure", "azure_mgmt_compute", normal),
        arrow("napkeeper", "azure_mgmt_compute", normal),
    ]);
    assert!(matches!(&wrong[..], [one] if one.starts_with("napkeeper uses azure_mgmt_compute")), "{wrong:?}");
}

#[test]
fn a_manifest_without_lints_is_seen() {
    for (manifest, inherits) in [
        ("[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n", true),
        ("lints.workspace = true\n[package]\nname = \"x\"\n", true),
        ("[package]\nname = \"x\"\n", false),
        ("[package]\nedition.workspace = true\n[lints]\n", false),
        ("[lints]\nworkspace = false\n[dependencies.x]\nworkspace = true\n", false),
    ] {
        assert_eq!(inherits_lints(manifest), inherits, "{manifest}");
    }
}
