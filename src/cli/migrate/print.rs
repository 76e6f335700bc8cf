//! How does a migration look?

use super::{Done, Result};
use crate::output::{self, plural};
use anstyle::{AnsiColor, Style};
use napkeeper_verdict::migrate::Note;
use serde_json::{Value, json};
use similar::{DiffOp, TextDiff};
use std::io::{self, IsTerminal, Write};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GONE: Style = AnsiColor::Red.on_default();
const NEW: Style = AnsiColor::Green.on_default();
const HUNK: Style = AnsiColor::Cyan.on_default();
const NOTE: Style = AnsiColor::Cyan.on_default().bold();

/// Prints diffs, or the names of what was written, on stdout; notes and a summary on stderr.
pub(super) fn text(result: &Result, names_only: bool) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    for done in result.done.iter().filter(|d| d.changed()) {
        let file = output::printable(&done.source.file);
        if done.written {
            writeln!(out, "migrated {file}")?;
        } else if names_only {
            writeln!(out, "{file}")?;
        } else {
            colour(&mut out, &diff(done))?;
        }
    }
    out.flush()?;
    notes(result);
    tell(&summary(result));
    Ok(())
}

/// Prints the new text of the standard input.
pub(super) fn filter(result: &Result, quiet: bool) -> io::Result<()> {
    // Bytes as they are: the text is for another program.
    let mut out = io::stdout().lock();
    for done in result.done.iter().filter(|_| !quiet) {
        out.write_all(done.migration.text.as_bytes())?;
    }
    out.flush()?;
    notes(result);
    Ok(())
}

/// Prints everything as one JSON object.
pub(super) fn json(result: &Result, with_text: bool) -> anyhow::Result<()> {
    let file = |done: &Done| {
        let mut file = json!({
            "file": done.source.file,
            "written": done.written,
            "diff": diff(done),
            "edits": done.migration.edits,
            "notes": placed(done),
        });
        if with_text {
            file["text"] = done.migration.text.clone().into();
        }
        file
    };
    let files: Vec<Value> = result.done.iter().filter(|d| d.changed() || with_text).map(file).collect();
    let refused = result.problems.iter().map(|p| {
        json!({
            "file": p.file,
            "line": p.position.map(|at| at.line),
            "column": p.position.map(|at| at.column),
            "message": p.message,
        })
    });
    let counts = Counts::of(result);
    let value = json!({
        "files": files,
        "refused": refused.collect::<Vec<_>>(),
        "summary": {
            "files": counts.files,
            "changed": counts.changed,
            "written": counts.written,
            "edits": counts.edits,
            "notes": counts.notes,
            "refused": counts.refused,
        },
    });
    let mut out = anstream::stdout().lock();
    writeln!(out, "{}", serde_json::to_string_pretty(&value)?)?;
    Ok(out.flush()?)
}

/// A unified diff that `patch -p0` and `git apply -p0` take.
fn diff(done: &Done) -> String {
    let file = &done.source.file;
    let diff = TextDiff::from_lines(&*done.source.text, &done.migration.text);
    diff.unified_diff().context_radius(3).header(file, file).to_string()
}

fn colour(out: &mut impl Write, diff: &str) -> io::Result<()> {
    let for_people = io::stdout().is_terminal();
    for (n, line) in diff.split_inclusive('\n').enumerate() {
        let style = match line.as_bytes().first() {
            _ if n < 2 => BOLD,
            Some(b'+') => NEW,
            Some(b'-') => GONE,
            Some(b'@') => HUNK,
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

/// The notes of a file, at their lines in what the file holds now.
fn placed(done: &Done) -> Vec<Note> {
    let mut notes = done.migration.notes.clone();
    if done.written {
        let diff = TextDiff::from_lines(&*done.source.text, &done.migration.text);
        for note in &mut notes {
            note.line = new_line(diff.ops(), note.line);
        }
    }
    notes.sort_by_key(|n| (n.line, n.column));
    notes
}

/// Where a line of the old text is in the new one, or what came in its place. Both count from 1.
fn new_line(ops: &[DiffOp], line: usize) -> usize {
    let index = line.saturating_sub(1);
    // In order of the old text, so the first one that ends after the line holds it.
    let op = ops.get(ops.partition_point(|op| op.old_range().end <= index));
    op.map_or(line, |op| {
        let (old, new) = (op.old_range(), op.new_range());
        new.start + (index - old.start).min(new.len().saturating_sub(1)) + 1
    })
}

fn notes(result: &Result) {
    let mut err = anstream::stderr().lock();
    for done in &result.done {
        for Note { line, column, path, message, object } in placed(done) {
            let file = output::printable(&done.source.file);
            let message = output::printable(&message);
            let object = output::printable(&format!("{object}: {path}"));
            // A stderr that cannot be written to is nobody's problem.
            drop(writeln!(
                err,
                "{BOLD}{file}:{line}:{column}:{BOLD:#} {NOTE}note:{NOTE:#} {message} {DIM}({object}){DIM:#}"
            ));
        }
    }
}

fn tell(text: &str) {
    drop(writeln!(anstream::stderr(), "{text}"));
}

struct Counts {
    files: usize,
    changed: usize,
    written: usize,
    edits: usize,
    notes: usize,
    refused: usize,
}

impl Counts {
    fn of(result: &Result) -> Self {
        let changed = || result.done.iter().filter(|d| d.changed());
        Self {
            files: result.done.len(),
            changed: changed().count(),
            written: changed().filter(|d| d.written).count(),
            edits: changed().map(|d| d.migration.edits.len()).sum(),
            notes: changed().map(|d| d.migration.notes.len()).sum(),
            refused: result.problems.len(),
        }
    }
}

fn summary(result: &Result) -> String {
    let counts = Counts::of(result);
    let files = plural(counts.files, "file");
    let mut text = match counts {
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
