//! Finds the programs that tests run: those of a control plane, and napkeeper itself.

use super::build::Recipe;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::sync::OnceCell;

/// The folder of the Go module with the control plane.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane");
/// The folder of the Go module that requires Karpenter, for its definitions and its kwok provider.
const KARPENTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/karpenter");
/// The folder of the Go module that requires Flux's kustomize-controller.
const FLUX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/flux");
/// The folder of the Go module that requires kubeconform.
const KUBECONFORM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kubeconform");

/// Behaviours of kwok's nodes and pods, in the module's own folders.
const STAGES: &[&str] = &["node/fast", "node/heartbeat-with-lease", "pod/fast"];

/// A folder with the programs of a control plane.
#[derive(Debug, Clone)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Those of `KUBEBUILDER_ASSETS` if that is set, else built once from Go modules.
    ///
    /// # Errors
    /// When the build fails, or there is no Go to build with.
    pub async fn find() -> Result<Self> {
        static BUILT: OnceCell<PathBuf> = OnceCell::const_new();
        let folder = match std::env::var_os("KUBEBUILDER_ASSETS") {
            Some(folder) => PathBuf::from(folder),
            None => BUILT.get_or_try_init(build).await?.clone(),
        };
        Ok(Self { folder })
    }

    /// The path of a program or file of the control plane.
    ///
    /// # Errors
    /// When it is not there, which only happens in `KUBEBUILDER_ASSETS`.
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        ensure!(
            path.is_file(),
            "there is no {name} in {}, the folder that KUBEBUILDER_ASSETS names: put it there, or unset the variable to \
             have everything built with Go{}",
            self.folder.display(),
            if name.starts_with("kwok") { " (only tests that need nodes and pods to live need kwok)" } else { "" }
        );
        Ok(path)
    }
}

async fn build() -> Result<PathBuf> {
    let text = fs::read_to_string(Path::new(MODULE).join("go.mod")).context("reading the control plane's go.mod")?;
    let version = required(&text, "k8s.io/kubernetes").context("go.mod requires no k8s.io/kubernetes")?;
    let minor = version.split('.').nth(1).context("k8s.io/kubernetes has a version without a minor")?;
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let link = [
        "-s -w".to_owned(),
        set("gitVersion", version),
        set("gitMajor", "1"),
        set("gitMinor", minor),
        set("gitTreeState", "clean"),
    ];
    // The linker leaves debug information out: compiling it takes a sixth of the time.
    let compile = "-gcflags=all=-dwarf=false";
    let flags = ["-tags", "grpcnotrace", compile, "-ldflags", &link.join(" "), "tool"].map(str::to_owned);
    let recipe = Recipe { name: "control-plane", module: MODULE.into(), flags: flags.into() };
    recipe
        .build(async |folder| {
            // A package of the name `server` is a program of that name.
            fs::rename(folder.join("server"), folder.join("etcd")).context("naming etcd")?;
            let kwok = recipe.go(&["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"]).await?;
            fs::write(folder.join("kwok-stages.yaml"), stages(Path::new(&kwok))?).context("writing kwok's stages")
        })
        .await
}

/// The version that a `go.mod` requires of a module.
fn required<'a>(text: &'a str, module: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten().filter(|version| version.starts_with('v'))
    })
}

/// kwok's stages as one stream of documents.
fn stages(kwok: &Path) -> Result<String> {
    let mut all = String::new();
    for folder in STAGES {
        let folder = kwok.join("kustomize/stage").join(folder);
        let mut files = yaml_files(&folder)?;
        files.retain(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("node-") || name.starts_with("pod-")
        });
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            all.push_str("---\n");
            all.push_str(&text);
        }
    }
    ensure!(!all.is_empty(), "kwok's module at {} holds no stages", kwok.display());
    Ok(all)
}

/// The folder with the programs that Cargo built, such as `target/debug`.
pub(crate) fn built_programs() -> Result<PathBuf> {
    let test = std::env::current_exe().context("asking for the path of this test's program")?;
    // Tests lie in `deps`, examples in `examples`, programs beside those folders.
    test.ancestors().nth(2).map(Path::to_owned).with_context(|| format!("{} lies in no folder", test.display()))
}

/// The `napkeeper` to test: `NAPKEEPER_BIN`, or the one that Cargo built beside this test.
///
/// # Errors
/// When there is none, or a file that it was built from has changed since.
pub fn napkeeper_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("NAPKEEPER_BIN") {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "NAPKEEPER_BIN names {}, which is no file", path.display());
        return Ok(path);
    }
    let path = built_programs()?.join("napkeeper");
    if !path.is_file() {
        bail!("there is no {}: run `cargo build`, or set NAPKEEPER_BIN", path.display());
    }
    if let Some(newer) = newer_source(&path)? {
        bail!("{newer} is newer than {}: run `cargo build`", path.display());
    }
    Ok(path)
}

/// A source that has changed since the program was built from it. Files of tests do not go into a program.
fn newer_source(program: &Path) -> Result<Option<String>> {
    let modified = |path: &Path| -> Result<SystemTime> {
        fs::metadata(path)
            .and_then(|m| m.modified())
            .with_context(|| format!("asking for the age of {}", path.display()))
    };
    let built = modified(program)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![root.join("src"), root.join("webhook")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            let named = |name: &str| path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with(name));
            if named("tests") || named("examples") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && modified(&path)? > built {
                return Ok(Some(path.display().to_string()));
            }
        }
    }
    Ok(None)
}

/// The CustomResourceDefinitions in Karpenter's Go module, as YAML documents.
///
/// # Errors
/// When there is no Go, or the module cannot be downloaded or read.
pub async fn upstream_crds() -> Result<String> {
    documents(&module(&karpenter_recipe(), "sigs.k8s.io/karpenter").await?.join("pkg/apis/crds"))
}

/// A controller of somebody else.
#[derive(Debug, Clone)]
pub struct PeerProgram {
    /// The path of the program.
    pub program: PathBuf,
    /// Its CustomResourceDefinitions as YAML documents.
    pub definitions: String,
}

/// Flux's kustomize-controller, in the version that the Go module requires, built once.
///
/// # Errors
/// When there is no Go, the module cannot be downloaded or read, or the build fails.
pub async fn kustomize_controller() -> Result<PeerProgram> {
    let flags = ["-ldflags", "-s -w", "tool"].map(str::to_owned);
    let recipe = Recipe { name: "flux", module: FLUX.into(), flags: flags.into() };
    let program = recipe.build(async |_| Ok(())).await?.join("kustomize-controller");
    let module = module(&recipe, "github.com/fluxcd/kustomize-controller").await?;
    Ok(PeerProgram { program, definitions: documents(&module.join("config/crd/bases"))? })
}

/// Karpenter with its kwok provider, whose Nodes are objects without a machine, in the version that the Go module requires,
/// built once. Its definitions are Karpenter's, and KWOKNodeClass.
///
/// # Errors
/// When there is no Go, the module cannot be downloaded or read, or the build fails.
pub async fn karpenter_kwok() -> Result<PeerProgram> {
    let recipe = karpenter_recipe();
    let program = recipe.build(async |_| Ok(())).await?.join("kwok");
    let module = module(&recipe, "sigs.k8s.io/karpenter").await?;
    let folders = ["pkg/apis/crds", "kwok/apis/crds"].map(|folder| documents(&module.join(folder)));
    let definitions = folders.into_iter().collect::<Result<Vec<_>>>()?.join("\n---\n");
    Ok(PeerProgram { program, definitions })
}

fn karpenter_recipe() -> Recipe<'static> {
    let flags = ["-ldflags", "-s -w", "tool"].map(str::to_owned);
    Recipe { name: "karpenter", module: KARPENTER.into(), flags: flags.into() }
}

/// Where Go keeps the files of a module that is required, which it downloads if need be.
async fn module(recipe: &Recipe<'_>, name: &str) -> Result<PathBuf> {
    let output = recipe.go(&["mod", "download", "-json", name]).await?;
    // Go may write to stderr about what it downloads.
    let json = output.find('{').zip(output.rfind('}')).and_then(|(start, end)| output.get(start..=end));
    let download: Value = serde_json::from_str(json.unwrap_or_default())
        .with_context(|| format!("reading what go mod download printed: {output}"))?;
    download["Dir"].as_str().map(PathBuf::from).context("go mod download printed no Dir")
}

/// The YAML documents in a folder.
fn documents(folder: &Path) -> Result<String> {
    let files = yaml_files(folder)?;
    ensure!(!files.is_empty(), "{} holds no CustomResourceDefinitions", folder.display());
    files.iter().map(|file| fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))).collect()
}

/// The YAML files of a folder, by name.
fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    Ok(files)
}

/// The program kubeconform, a peer to measure beside.
///
/// # Errors
/// When there is no Go, or the build fails.
pub async fn kubeconform() -> Result<PathBuf> {
    let flags = vec!["tool".to_owned()];
    let recipe = Recipe { name: "kubeconform", module: KUBECONFORM.into(), flags };
    Ok(recipe.build(async |_| Ok(())).await?.join("kubeconform"))
}
