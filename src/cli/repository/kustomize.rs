//! Renders of kustomizations, by kustomize or kubectl.

use super::command::{self, CommandError, CommandOutput, Limits};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Names that kustomize accepts for its file.
pub(super) const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Remote bases take time; a build that takes longer than this does not finish.
const LIMITS: Limits = Limits { time: Duration::from_secs(120), bytes: 64 << 20 };
/// Most lines of the output of a failed build.
const MOST_LINES: usize = 10;

/// The programs that can build, each with its subcommand.
const BUILDERS: [(&str, &str); 2] = [("kustomize", "build"), ("kubectl", "kustomize")];

/// Why a directory is not built, as a sentence without its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BuildError {
    /// There is no program for it.
    #[error("is a kustomization, but neither kustomize nor kubectl is in PATH: install one of them")]
    NoProgram,
    /// The program says no.
    #[error("{0}")]
    Failed(String),
}

/// The name of the kustomization file in a directory.
pub(crate) fn file_in(folder: &Path) -> Option<&'static str> {
    NAMES.into_iter().find(|name| folder.join(name).is_file())
}

/// The manifests that a directory builds.
///
/// # Errors
/// [`BuildError`]: why not.
pub(crate) fn build(folder: &Path) -> Result<String, BuildError> {
    if file_in(folder).is_none() {
        let message = format!("is not a directory with a {}, so there is nothing to build", NAMES[0]);
        return Err(BuildError::Failed(message));
    }
    for (program, verb) in BUILDERS {
        match command::run(Command::new(program).arg(verb).arg(folder), Vec::new(), LIMITS) {
            Ok(ran) => return rendered(program, verb, ran),
            Err(CommandError::Start(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(BuildError::Failed(format!("{program} {verb} {error}"))),
        }
    }
    Err(BuildError::NoProgram)
}

fn rendered(program: &str, verb: &str, ran: CommandOutput) -> Result<String, BuildError> {
    if !ran.status.success() {
        let stderr: Vec<&str> = ran.stderr.lines().take(MOST_LINES).collect();
        let message = format!("{program} {verb} failed ({}): {}", ran.status, stderr.join("\n"));
        return Err(BuildError::Failed(message));
    }
    let message = || format!("output of {program} {verb} is not valid UTF-8");
    String::from_utf8(ran.stdout).map_err(|_| BuildError::Failed(message()))
}
