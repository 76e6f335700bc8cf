//! Files of a Git revision, and files that changed since one.
//!
//! Nothing is checked out or written: `git` lists names and prints the contents of blobs.

use crate::repository::command::{self, CommandError, CommandOutput, Limits};
use anyhow::{Context, anyhow, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A large repository has some hundred thousand names.
const NAMES: Limits = Limits { time: Duration::from_secs(60), bytes: 256 << 20 };
/// Time to read blobs.
const READING: Duration = Duration::from_secs(300);
/// Modes of regular files in `git ls-tree`; links and submodules have others.
const FILE_MODES: [&str; 2] = ["100644", "100755"];

/// A repository.
#[derive(Debug)]
pub(super) struct Repository {
    /// Its root.
    pub(super) root: PathBuf,
}

/// A file of a revision.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    /// Its path from the root.
    pub(super) path: String,
    object: String,
    /// Bytes.
    pub(super) size: u64,
}

impl Repository {
    /// The repository of a directory.
    pub(super) fn of(folder: &Path) -> anyhow::Result<Self> {
        let ran = git(folder, &["rev-parse", "--show-toplevel"], Vec::new(), NAMES)?;
        let root = text(&ran).trim_end_matches('\n').to_owned();
        let root = std::fs::canonicalize(&root)
            .with_context(|| format!("cannot find the root of the Git repository {root}"))?;
        Ok(Self { root })
    }

    /// The commit that a revision names.
    pub(super) fn commit(&self, revision: &str) -> anyhow::Result<String> {
        if revision.is_empty() || revision.starts_with('-') {
            bail!("{revision:?} is not a Git revision: use a branch, a tag or a commit");
        }
        let commit = format!("{revision}^{{commit}}");
        let ran = git(&self.root, &["rev-parse", "--verify", "--quiet", &commit], Vec::new(), NAMES);
        let known = ran.map_err(|_| {
            anyhow!(
                "{revision:?} is not a Git revision of {}: fetch it first, or check the spelling",
                self.root.display()
            )
        })?;
        Ok(text(&known).trim().to_owned())
    }

    /// All files of a commit.
    pub(super) fn files(&self, commit: &str) -> anyhow::Result<Vec<Blob>> {
        let ran = git(&self.root, &["ls-tree", "-r", "-z", "-l", "--full-tree", commit], Vec::new(), NAMES)?;
        let entry = |entry: &str| {
            let (facts, path) = entry.split_once('\t')?;
            let [mode, "blob", object, size] = facts.split_ascii_whitespace().collect::<Vec<_>>()[..] else {
                return None;
            };
            let blob = Blob { path: path.to_owned(), object: object.to_owned(), size: size.parse().ok()? };
            FILE_MODES.contains(&mode).then_some(blob)
        };
        Ok(text(&ran).split('\0').filter_map(entry).collect())
    }

    /// The contents of files, in their order.
    pub(super) fn read(&self, blobs: &[Blob]) -> anyhow::Result<Vec<Vec<u8>>> {
        let request: String = blobs.iter().map(|blob| format!("{}\n", blob.object)).collect();
        // Each object is preceded by a line with its name.
        let bytes = blobs.iter().map(|blob| blob.size + 256).sum();
        let ran = git(&self.root, &["cat-file", "--batch"], request.into_bytes(), Limits { time: READING, bytes })?;
        let mut rest = ran.stdout.as_slice();
        let mut contents = Vec::new();
        for blob in blobs {
            let content = next_object(&mut rest, blob)
                .ok_or_else(|| anyhow!("unexpected output of git cat-file for {} ({})", blob.path, blob.object))?;
            contents.push(content);
        }
        Ok(contents)
    }

    /// The merge base of two revisions, and the files that are new or changed since, as paths from the root. Without a
    /// second revision it is the working tree, including untracked files. A renamed file has changed; deleted files are
    /// not included.
    pub(super) fn changed(&self, since: &str, now: Option<&str>) -> anyhow::Result<(String, BTreeSet<String>)> {
        let since_commit = self.commit(since)?;
        let head = now.unwrap_or("HEAD");
        let base = git(&self.root, &["merge-base", &since_commit, head], Vec::new(), NAMES).map_err(|_| {
            anyhow!(
                "{since} and {head} have no common ancestor here: unshallow the clone first \
                 (git fetch --unshallow; actions/checkout with fetch-depth: 0)"
            )
        })?;
        let base = text(&base).trim().to_owned();
        let mut arguments =
            vec!["diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--diff-filter=d", &base];
        arguments.extend(now);
        arguments.push("--");
        let mut changed = names(&git(&self.root, &arguments, Vec::new(), NAMES)?);
        if now.is_none() {
            let untracked = ["ls-files", "--others", "--exclude-standard", "-z"];
            changed.extend(names(&git(&self.root, &untracked, Vec::new(), NAMES)?));
        }
        Ok((base, changed))
    }
}

/// Takes one object from the output of `git cat-file --batch`.
fn next_object(rest: &mut &[u8], blob: &Blob) -> Option<Vec<u8>> {
    let end = rest.iter().position(|b| *b == b'\n')?;
    let (line, after) = (std::str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]);
    let size: usize = line.strip_prefix(&format!("{} blob ", blob.object))?.parse().ok()?;
    let content = after.get(..size)?.to_vec();
    *rest = after.get(size + 1..)?;
    Some(content)
}

fn names(ran: &CommandOutput) -> BTreeSet<String> {
    text(ran).split('\0').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect()
}

fn text(ran: &CommandOutput) -> String {
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Runs git; an exit code other than 0 is an error.
fn git(folder: &Path, arguments: &[&str], input: Vec<u8>, limits: Limits) -> anyhow::Result<CommandOutput> {
    let mut command = Command::new("git");
    // A file monitor is a program that the repository configures; nothing here needs it.
    command.arg("-C").arg(folder).args(["-c", "core.fsmonitor=false", "--no-pager"]).args(arguments);
    // Git sets these for a hook, but the directory may be of another repository.
    command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    command.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C");
    let verb = arguments.first().copied().unwrap_or_default();
    let ran = command::run(&mut command, input, limits).map_err(|error| match error {
        CommandError::Start(source) => anyhow!("git is needed for Git revisions, and cannot be run: {source}"),
        other => anyhow!("git {verb} {other}"),
    })?;
    if !ran.status.success() {
        bail!("git {verb} failed in {}: {}", folder.display(), ran.stderr);
    }
    Ok(ran)
}
