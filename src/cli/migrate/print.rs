//! Output of migrations: diffs, notes, and a summary.

use super::{MigratedFile, MigrationResult};
use crate::output::style::{BOLD, CYAN, DIM, GREEN, RED};
use crate::output::{self, plural, write_json};
use anstyle::Style;
use napkeeper_api::manifests::{OtherFile, Problem, describe};
use napkeeper_verdict::migrate::Note;
use serde::Serialize;
use serde_json::{Value, json};
use similar::{DiffOp, TextDiff};
use std::io::{self, IsTerminal, Write};

const NOTE: Style = CYAN.bold();

/// Prints diffs, or the names of written files, on stdout; notes and a summary on stderr.
pub(super) fn text(result: &MigrationResult, names_only: bool) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    for migrated in result.files.iter().filter(|d| d.changed()) {
        let file = output::printable(&migrated.source.file);
        if migrated.written {
            writeln!(out, "migrated {file}")?;
        } else if names_only {
            writeln!(out, "{file}")?;
        } else {
            colour(&mut out, &diff(migrated))?;
        }
    }
    out.flush()?;
    notes(result);
    print_summary(&summary(result));
    Ok(())
}

/// Prints the migrated text of the standard input.
pub(super) fn filter(result: &MigrationResult, quiet: bool) -> io::Result<()> {
    // Bytes as they are: the text is for another program.
    let mut out = io::stdout().lock();
    for migrated in result.files.iter().filter(|_| !quiet) {
        out.write_all(migrated.migration.text.as_bytes())?;
    }
    out.flush()?;
    notes(result);
    Ok(())
}

/// Prints everything as one JSON object.
pub(super) fn json(result: &MigrationResult, with_text: bool) -> anyhow::Result<()> {
    let file = |migrated: &MigratedFile| {
        let mut file = json!({
            "file": migrated.source.file,
            "written": migrated.written,
            "diff": diff(migrated),
            "edits": migrated.migration.edits,
            "notes": placed(migrated),
        });
        if with_text {
            file["text"] = migrated.migration.text.clone().into();
        }
        file
    };
    let files: Vec<Value> = result.files.iter().filter(|d| d.changed() || with_text).map(file).collect();
    let told = |problems: &[Problem]| -> Vec<Value> {
        let one = |p: &Problem| {
            json!({
                "file": p.file,
                "line": p.position.map(|at| at.line),
                "column": p.position.map(|at| at.column),
                "message": p.message,
            })
        };
        problems.iter().map(one).collect()
    };
    let (refused, left) = (told(&result.problems), told(&result.left));
    let value = json!({ "files": files, "refused": refused, "left": left, "summary": Counts::of(result) });
    let mut out = anstream::stdout().lock();
    write_json(&value, &mut out)?;
    Ok(out.flush()?)
}

/// A unified diff that `patch -p0` and `git apply -p0` take.
fn diff(migrated: &MigratedFile) -> String {
    let file = &migrated.source.file;
    let diff = TextDiff::from_lines(&*migrated.source.text, &migrated.migration.text);
    diff.unified_diff().context_radius(3).header(file, file).to_string()
}

fn colour(out: &mut impl Write, diff: &str) -> io::Result<()> {
    let for_people = io::stdout().is_terminal();
    for (n, line) in diff.split_inclusive('\n').enumerate() {
        let style = match line.as_bytes().first() {
            _ if n < 2 => BOLD,
            Some(b'+') => GREEN,
            Some(b'-') => RED,
            Some(b'@') => CYAN,
            _ => Style::new(),
        };
        let body = line.strip_suffix('\n').unwrap_or(line);
        let end = &line[body.len()..];
        if for_people {
            write!(out, "{style}{}{style:#}{end}", output::printable(body))?;
        } else {
            write!(out, "{style}{body}{style:#}{end}")?;
        }
    }
    Ok(())
}

/// The notes of a file, at their lines in its current text.
fn placed(migrated: &MigratedFile) -> Vec<Note> {
    let mut notes = migrated.migration.notes.clone();
    if migrated.written {
        let diff = TextDiff::from_lines(&*migrated.source.text, &migrated.migration.text);
        for note in &mut notes {
            note.line = new_line(diff.ops(), note.line);
        }
    }
    notes.sort_by_key(|n| (n.line, n.column));
    notes
}

/// The line of the new text that an old line became. Both count from 1.
fn new_line(ops: &[DiffOp], line: usize) -> usize {
    let index = line.saturating_sub(1);
    // In order of the old text, so the first one that ends after the line holds it.
    let op = ops.get(ops.partition_point(|op| op.old_range().end <= index));
    op.map_or(line, |op| {
        let (old, new) = (op.old_range(), op.new_range());
        new.start + (index - old.start).min(new.len().saturating_sub(1)) + 1
    })
}

fn notes(result: &MigrationResult) {
    let mut err = anstream::stderr().lock();
    for migrated in &result.files {
        for Note { line, column, path, message, object } in placed(migrated) {
            let file = output::printable(&migrated.source.file);
            let message = output::printable(&message);
            let object = output::printable(&format!("{object}: {path}"));
            // An error of stderr cannot be reported anywhere.
            drop(writeln!(
                err,
                "{BOLD}{file}:{line}:{column}:{BOLD:#} {NOTE}note:{NOTE:#} {message} {DIM}({object}){DIM:#}"
            ));
        }
    }
}

fn print_summary(text: &str) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

#[derive(Serialize)]
struct Counts {
    files: usize,
    changed: usize,
    written: usize,
    edits: usize,
    notes: usize,
    refused: usize,
    left: usize,
    /// Files that belong to Helm charts.
    charts: usize,
    /// Files that are templates.
    templates: usize,
    /// Files and folders that are excluded.
    excluded: usize,
}

impl Counts {
    fn of(result: &MigrationResult) -> Self {
        let changed = || result.files.iter().filter(|d| d.changed());
        let others = |other: OtherFile| result.others.get(&other).copied().unwrap_or_default();
        Self {
            files: result.files.len(),
            changed: changed().count(),
            written: changed().filter(|d| d.written).count(),
            edits: changed().map(|d| d.migration.edits.len()).sum(),
            notes: changed().map(|d| d.migration.notes.len()).sum(),
            refused: result.problems.len(),
            left: result.left.len(),
            charts: others(OtherFile::HelmChart),
            templates: others(OtherFile::Template),
            excluded: others(OtherFile::Excluded),
        }
    }
}

fn summary(result: &MigrationResult) -> String {
    let counts = Counts::of(result);
    let files = plural(counts.files, "file");
    let mut text = match counts {
        Counts { files: 0, .. } => "no files read".to_owned(),
        Counts { changed: 0, .. } => format!("{files} read: nothing to migrate"),
        Counts { changed, written: 0, edits, .. } => {
            let edits = plural(edits, "edit");
            format!("{files} read: {} to migrate ({edits}); use --write to change", plural(changed, "file"))
        }
        Counts { changed, written, .. } => format!("{files} read: {written} of {changed} migrated"),
    };
    if counts.notes > 0 {
        text += &format!("; {}", plural(counts.notes, "note"));
    }
    if counts.refused > 0 {
        text += &format!("; {} refused", counts.refused);
    }
    if counts.left > 0 {
        text += &format!("; {} left as is", counts.left);
    }
    if let Some(others) = describe(&result.others) {
        text += &format!("; ignored {others}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again_after_the_edits() {
        let diff = TextDiff::from_lines("a\nb\nc\nd\n", "a\nx\ny\nb\nd\n");
        let found: Vec<_> = (1..=4).map(|line| new_line(diff.ops(), line)).collect();
        assert_eq!(found, [1, 4, 5, 5]);
    }
}
