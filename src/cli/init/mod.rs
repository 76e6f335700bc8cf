//! `napkeeper init`: writes the configuration of a cluster, and an overlay of kustomize that installs napkeeper in it.

mod cluster;
mod files;

use super::{Outcome, output};
use crate::repository::{KUSTOMIZATION_NAMES, between};
use anyhow::{Context, bail};
use clap::ValueEnum;
use cluster::Cluster;
use files::RenderedFile;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  az aks show -g RESOURCE_GROUP -n CLUSTER -o json | napkeeper init --from - --client-id CLIENT_ID
  napkeeper init --from aks.json --dry-run              print the files
  napkeeper init --from aks.json --mode provisioner     instead of managed NAP
  napkeeper init --cluster-name prod --region westeurope --resource-group rg \\
      --node-resource-group MC_rg_prod_westeurope --subscription SUBSCRIPTION_ID

Exit codes: 0 written or printed, 2 error (bad input or I/O).";

/// The folder of the overlay.
const OVERLAY: &str = "napkeeper-system";

/// Write napkeeper.yaml, and an overlay of kustomize that installs napkeeper in a cluster.
///
/// Writes `napkeeper.yaml`, and `kustomization.yaml` with a copy of it in the folder `napkeeper-system`: kustomize reads
/// no file outside of its folder. What a flag names counts more than the file of --from.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The output of az aks show -o json; - is stdin.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Name of the AKS cluster.
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// Azure region, for example westeurope.
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Resource group of the cluster.
    #[arg(long, value_name = "GROUP")]
    resource_group: Option<String>,
    /// Resource group of its nodes, such as `MC_rg_prod_westeurope`.
    #[arg(long, value_name = "GROUP")]
    node_resource_group: Option<String>,
    /// Subscription id.
    #[arg(long, value_name = "ID")]
    subscription: Option<String>,
    /// Kubernetes version, for example 1.33.
    #[arg(long, value_name = "VERSION")]
    kubernetes_version: Option<String>,
    /// Client id of napkeeper's identity in Azure. Without it the overlay has a placeholder.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// What to install.
    #[arg(long, value_enum, default_value_t = Mode::Companion, value_name = "MODE")]
    mode: Mode,
    /// The folder to write to. It must exist.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    directory: PathBuf,
    /// The folder kustomize/overlays of a copy of the folders kustomize and manifests/crds, in place of that of this release on
    /// GitHub.
    #[arg(long, value_name = "FOLDER")]
    overlays: Option<PathBuf>,
    /// Replace files that exist, with all that they hold.
    #[arg(long)]
    force: bool,
    /// Print the files instead of writing them.
    #[arg(long)]
    dry_run: bool,
}

/// Which overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Beside managed NAP.
    Companion,
    /// Instead of managed NAP.
    Provisioner,
    /// A daily report alone.
    Audit,
}

impl Mode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Companion => "companion",
            Self::Provisioner => "provisioner",
            Self::Audit => "audit",
        }
    }

    /// The ServiceAccount that signs in to Azure.
    fn service_account(self) -> &'static str {
        if self == Self::Audit { "napkeeper-audit" } else { "napkeeper-controller" }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let cluster = Cluster::of(args)?;
    let client_id = args.client_id.as_deref().map(|id| cluster::guid("--client-id", id)).transpose()?;
    let base = base(args)?;
    let files = files::render(&cluster, args.mode, &base, client_id);
    let mut out = anstream::stdout().lock();
    if args.dry_run {
        for RenderedFile { path, text } in &files {
            writeln!(out, "# {}\n{text}", args.directory.join(path).display())?;
        }
    } else {
        write_all(&args.directory, &files, args.force)?;
        for RenderedFile { path, .. } in &files {
            writeln!(out, "wrote {}", args.directory.join(path).display())?;
        }
        write!(out, "\n{}", files::next_steps(&cluster, args.mode, &args.directory.join(OVERLAY)))?;
    }
    for warning in &cluster.warnings {
        output::warning(warning);
    }
    if client_id.is_none() {
        let file = args.directory.join(OVERLAY).join("kustomization.yaml");
        output::warning(&format!("no --client-id: set that of napkeeper's identity in {}", file.display()));
    }
    Ok(Outcome::Fine)
}

/// The overlay of the mode, as the kustomization names it.
fn base(args: &Args) -> anyhow::Result<String> {
    let mode = args.mode.as_str();
    let Some(overlays) = &args.overlays else {
        let (repository, version) = (env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION"));
        return Ok(format!("{repository}//kustomize/overlays/{mode}?ref=v{version}"));
    };
    let overlay = overlays.join(mode);
    for needed in ["kustomization.yaml", "../../base", "../../components/image", "../../../manifests/crds"] {
        if !overlay.join(needed).exists() {
            let folder = overlays.display();
            bail!(
                "--overlays {folder}: it has no {mode}/{needed}: copy the folders kustomize and manifests/crds, as they are in the repository"
            );
        }
    }
    let from = fs::canonicalize(&args.directory)
        .with_context(|| format!("--directory {}: cannot be read; create it", args.directory.display()))?;
    // Kustomize takes no absolute paths.
    Ok(between(&from.join(OVERLAY), &fs::canonicalize(overlay)?).to_string_lossy().into_owned())
}

/// Writes all files, or none if one exists.
fn write_all(directory: &Path, files: &[RenderedFile], force: bool) -> anyhow::Result<()> {
    // A link is there too, wherever it leads; kustomize takes its file by three names.
    let is_there = |path: &PathBuf| fs::symlink_metadata(path).is_ok();
    let others = KUSTOMIZATION_NAMES.iter().map(|name| directory.join(OVERLAY).join(name));
    let mut existing: Vec<_> =
        files.iter().map(|file| directory.join(file.path)).chain(others).filter(is_there).collect();
    existing.sort();
    existing.dedup();
    if !force && !existing.is_empty() {
        let names = output::path_list(&existing);
        bail!("{names}: exists, and nothing was written; --dry-run prints what to add, --force replaces it");
    }
    if !directory.is_dir() {
        bail!("--directory {}: no such folder; create it", directory.display());
    }
    let overlay = directory.join(OVERLAY);
    fs::create_dir_all(&overlay).with_context(|| format!("creating {}", overlay.display()))?;
    for RenderedFile { path, text } in files {
        let path = directory.join(path);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
