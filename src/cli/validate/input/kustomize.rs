//! Renders of kustomizations, by kustomize or kubectl.

use super::command::{self, CommandError, CommandOutput, Limits};
use crate::repository::{KUSTOMIZATION_NAMES, kustomization_in};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Remote bases take time; a build that takes longer than this does not finish.
const LIMITS: Limits = Limits { time: Duration::from_secs(120), bytes: 64 << 20 };
/// Most lines of the output of a failed build.
const MOST_LINES: usize = 10;

/// The programs that can build, each with its subcommand.
const BUILDERS: [(&str, &str); 2] = [("kustomize", "build"), ("kubectl", "kustomize")];

/// The manifests that a directory builds.
///
/// # Errors
/// Why not, as a sentence without the directory's name.
pub(super) fn build(folder: &Path) -> Result<String, String> {
    if kustomization_in(folder).is_none() {
        return Err(format!("is not a directory with a {}, so there is nothing to build", KUSTOMIZATION_NAMES[0]));
    }
    for (program, verb) in BUILDERS {
        match command::run(Command::new(program).arg(verb).arg(folder), Vec::new(), LIMITS) {
            Ok(ran) => return rendered(program, verb, ran),
            Err(CommandError::Start(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{program} {verb} {error}")),
        }
    }
    Err("is a kustomization, but neither kustomize nor kubectl is in PATH: install one of them, or use \
         --kustomize=never to read its files as they are"
        .to_owned())
}

fn rendered(program: &str, verb: &str, ran: CommandOutput) -> Result<String, String> {
    if !ran.status.success() {
        let stderr: Vec<&str> = ran.stderr.lines().take(MOST_LINES).collect();
        return Err(format!("{program} {verb} failed ({}): {}", ran.status, stderr.join("\n")));
    }
    String::from_utf8(ran.stdout).map_err(|_| format!("output of {program} {verb} is not valid UTF-8"))
}
