//! `napkeeper migrate`: rewrites manifests to the current API versions.

mod left;
mod print;
mod write;

use super::Outcome;
use super::output::{self, OutputFormat};
use super::repository::{AsWritten, Kustomize, ReadingArgs, Selection, read_as_written};
use anyhow::bail;
use napkeeper_api::manifests::{Loaded, OtherFile, Problem, STDIN, Source};
use napkeeper_verdict::migrate::{Migration, migrate};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  napkeeper migrate                           show what would change in the current directory
  napkeeper migrate --write                   change the files
  napkeeper migrate --check                   for CI: fails if anything needs migration
  kustomize build . | napkeeper migrate - | kubectl apply -f -

Exit codes: 0 nothing to migrate, or migrated; 1 migration needed; 2 error (bad input or I/O).";

/// Rewrite old NodePools, Provisioners, NodeClaims and AKSNodeClasses to the current API versions.
///
/// Only the necessary text is changed: comments, order and blank lines stay. The diff goes to stdout, notes
/// about manual steps go to stderr. `-` reads from stdin and prints the migrated text. Patches of kustomizations are
/// migrated with what they patch: pass the root of the repository.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Files and directories (.yaml, .yml, .json; hidden directories, target, node_modules, templates and values are
    /// skipped); - is stdin.
    #[arg(default_value = ".", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Change the files. Each is replaced atomically.
    #[arg(short, long, conflicts_with = "check")]
    write: bool,
    /// Print only the names of files that would change, and no diff. Prints nothing with -.
    #[arg(long)]
    check: bool,
    /// Files and folders to leave out where they are found in folders, as in a .gitignore file. Adds to the
    /// .napkeeperignore in or above the first PATH.
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text, value_name = "FORMAT")]
    output: OutputFormat,
}

/// A file with its migration.
struct MigratedFile {
    source: Source,
    migration: Migration,
    /// The file holds the new text.
    written: bool,
}

impl MigratedFile {
    fn changed(&self) -> bool {
        *self.migration.text != *self.source.text
    }
}

/// All files, and the problems of those that are left out.
struct MigrationResult {
    files: Vec<MigratedFile>,
    problems: Vec<Problem>,
    /// What is left as it is, for a person to change, and why.
    left: Vec<Problem>,
    /// Files that are no manifests, and how many.
    others: BTreeMap<OtherFile, usize>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let is_filter = args.paths.iter().any(|p| p.as_os_str() == STDIN);
    if is_filter && args.paths.len() > 1 {
        bail!("- cannot be combined with files: migrate stdin in a separate run");
    }
    if is_filter && args.write {
        bail!("--write requires files: migrated stdin is printed to stdout");
    }
    let reading = ReadingArgs { kustomize: Kustomize::Never, exclude: args.exclude.clone() };
    let selection = Selection { paths: args.paths.clone(), explicit: true, reading };
    let AsWritten { loaded, beyond, changing } = read_as_written(&selection)?;
    if loaded.files.is_empty() && loaded.unreadable.is_empty() && loaded.others.is_empty() {
        bail!("no .yaml, .yml or .json files in {}", output::path_list(&args.paths));
    }
    let mut result = migrated(loaded);
    left::leave_patches(&mut result, &changing);
    result.left.extend(left::beyond(&beyond));
    result.left.extend(left::remaining(&result));
    if args.write {
        write_all(&mut result);
    }
    if args.output == OutputFormat::Text {
        for left in &result.left {
            output::warning(&left.to_string());
        }
    }
    match (args.output, is_filter) {
        (OutputFormat::Json, _) => print::json(&result, is_filter)?,
        (OutputFormat::Text, true) => print::filter(&result, args.check)?,
        (OutputFormat::Text, false) => print::text(&result, args.check)?,
    }
    for problem in &result.problems {
        output::error(&problem.to_string());
    }
    let due = result.files.iter().any(|d| d.changed() && !d.written);
    Ok(match (result.problems.is_empty(), due) {
        (false, _) => Outcome::Incomplete,
        // The output of a filter is migrated.
        (true, true) if is_filter && !args.check && args.output == OutputFormat::Text => Outcome::Fine,
        (true, true) => Outcome::Findings,
        (true, false) => Outcome::Fine,
    })
}

fn migrated(loaded: Loaded) -> MigrationResult {
    let (files, left) = (Vec::new(), Vec::new());
    let mut result = MigrationResult { files, problems: loaded.unreadable, left, others: loaded.others };
    for source in loaded.files {
        match migrate(&source.text) {
            Ok(migration) => result.files.push(MigratedFile { source, migration, written: false }),
            Err(problem) => result.problems.push(Problem {
                file: Arc::clone(&source.file),
                position: Some(problem.position),
                message: format!("{} (this file was not changed)", problem.message),
            }),
        }
    }
    result
}

/// Writes each changed file. An error does not prevent the others from being written.
fn write_all(result: &mut MigrationResult) {
    for file in result.files.iter_mut().filter(|d| d.changed()) {
        match write::replace(Path::new(&*file.source.file), &file.source.text, &file.migration.text) {
            Ok(()) => file.written = true,
            Err(error) => result.problems.push(Problem {
                file: Arc::clone(&file.source.file),
                position: None,
                message: format!("not changed: {error:#}"),
            }),
        }
    }
}
