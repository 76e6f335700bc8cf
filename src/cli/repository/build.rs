//! Builds of kustomizations, by kustomize or kubectl.

use super::command::{self, CommandError, CommandOutput, Limits};
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

/// What keeps a program from fetching: no server is at this address (port 9 is that of the discard service, RFC 863), and Git may use
/// no protocol.
const OFFLINE: [(&str, &str); 6] = [
    ("HTTP_PROXY", "http://127.0.0.1:9"),
    ("HTTPS_PROXY", "http://127.0.0.1:9"),
    ("http_proxy", "http://127.0.0.1:9"),
    ("https_proxy", "http://127.0.0.1:9"),
    ("NO_PROXY", ""),
    ("GIT_ALLOW_PROTOCOL", "none"),
];

/// Why there is no build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BuildError {
    /// No program can build.
    NoProgram,
    /// The build failed, as a sentence without the name of its folder.
    Failed(String),
}

/// The manifests that a folder on disk builds. `online` lets it fetch what is not there.
pub(super) fn build(folder: &Path, online: bool) -> Result<String, BuildError> {
    for (program, verb) in BUILDERS {
        let mut command = Command::new(program);
        command.arg(verb).arg(folder).env("GIT_TERMINAL_PROMPT", "0");
        if !online {
            command.envs(OFFLINE);
            command.env_remove("no_proxy");
        }
        match command::run(&mut command, Vec::new(), LIMITS) {
            Ok(ran) => return rendered(program, verb, ran).map_err(BuildError::Failed),
            Err(CommandError::Start(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(BuildError::Failed(format!("{program} {verb} {error}"))),
        }
    }
    Err(BuildError::NoProgram)
}

fn rendered(program: &str, verb: &str, ran: CommandOutput) -> Result<String, String> {
    if !ran.status.success() {
        let stderr: Vec<&str> = ran.stderr.lines().take(MOST_LINES).collect();
        return Err(format!("{program} {verb} failed ({}): {}", ran.status, stderr.join("\n")));
    }
    String::from_utf8(ran.stdout).map_err(|_| format!("output of {program} {verb} is not valid UTF-8"))
}
