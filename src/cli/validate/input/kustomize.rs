//! What does a kustomization build?

use super::command::{self, Bounds, CommandError, Ran};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Names of the file, as kustomize knows them.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Remote bases take time; a build that takes longer than this does not come back.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(120), bytes: 64 << 20 };
/// Most lines of what a failed build says.
const MOST_LINES: usize = 10;

/// The programs that can build, and how they are asked to.
const BUILDERS: [(&str, &str); 2] = [("kustomize", "build"), ("kubectl", "kustomize")];

/// The name of the kustomization in a folder.
pub(super) fn file_in(folder: &Path) -> Option<&'static str> {
    NAMES.into_iter().find(|name| folder.join(name).is_file())
}

/// The manifests that a folder builds.
///
/// # Errors
/// Why not, as a sentence without the folder's name.
pub(super) fn build(folder: &Path) -> Result<String, String> {
    if file_in(folder).is_none() {
        return Err(format!("is not a directory with a {}, so there is nothing to build", NAMES[0]));
    }
    for (program, verb) in BUILDERS {
        match command::run(Command::new(program).arg(verb).arg(folder), Vec::new(), BOUNDS) {
            Ok(ran) => return rendered(program, verb, ran),
            Err(CommandError::Start(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{program} {verb} {error}")),
        }
    }
    Err("is a kustomization, but neither kustomize nor kubectl is in PATH: install one of them, or use \
         --kustomize=never to read its files as they are"
        .to_owned())
}

fn rendered(program: &str, verb: &str, ran: Ran) -> Result<String, String> {
    if !ran.status.success() {
        let said: Vec<&str> = ran.said.lines().take(MOST_LINES).collect();
        return Err(format!("{program} {verb} failed ({}): {}", ran.status, said.join("\n")));
    }
    String::from_utf8(ran.stdout).map_err(|_| format!("output of {program} {verb} is not valid UTF-8"))
}
