//! Rewrites manifests of older API versions in the current one.
//!
//! A plan decides which edits an object needs by its values, and notes what a person must decide. [`migrate`] edits the
//! text and parses it again: unless the result is what the plan intended, with all comments, it is rejected.

mod kustomization;
mod plan;
mod pods;
mod pool;
mod provisioner;
mod remaining;
mod selector;

use napkeeper_api::field_path::Path;
use napkeeper_api::manifests::items;
use napkeeper_api::yaml::edit::{self, EditableText};
use napkeeper_api::yaml::{self, Document, Position, Problem, ProblemKind, spans};
use plan::MigrationPlan;
pub use remaining::{Remaining, remaining};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;

/// What a text that needs migration has one of: objects of Karpenter and what names its labels, selectors of kustomizations, and
/// operations of JSON patches.
const KEYWORDS: [&str; 5] =
    ["karpenter", "version: v1beta1", "version: v1alpha", "/spec/disruption/expireAfter", "WhenUnderutilized"];
/// Or one of these: selectors in other ways of writing. Most texts with them are of other tools.
const OF_OTHERS_TOO: [&str; 3] = ["v1beta", "v1alpha", "Provisioner"];

/// What became of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Migration {
    /// The text in the current shape.
    pub text: String,
    /// What was changed, in order.
    pub edits: Vec<AppliedEdit>,
    /// Notes on undecided points, and on the new version.
    pub notes: Vec<Note>,
}

/// A change of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedEdit {
    /// Kind and name of the object, as it was.
    pub object: String,
    /// Line of the old text, from 1.
    pub line: usize,
    /// Column, in characters, from 1.
    pub column: usize,
    /// The field, as it was.
    pub path: String,
    /// What was done.
    pub change: String,
    /// The API change that requires it.
    pub reason: String,
}

/// Something to know or to decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Kind and name of the object, as it was.
    pub object: String,
    /// Line of the old text, from 1.
    pub line: usize,
    /// Column, in characters, from 1.
    pub column: usize,
    /// The field, as it was.
    pub path: String,
    /// What, and what to do.
    pub message: String,
}

/// Brings all objects of a text into the current shape. A text without such objects is returned unchanged.
///
/// # Errors
/// A [`Problem`]: the text is not YAML, or is written in a way that cannot be edited. Nothing is changed then.
pub fn migrate(text: &str) -> Result<Migration, Problem> {
    let unchanged = || Migration { text: text.to_owned(), ..Migration::default() };
    match may_need(text).then(|| all_documents(text)) {
        None => Ok(unchanged()),
        // What another tool reads need not be YAML.
        Some(Err(_)) if !has_any(text, &KEYWORDS) && !is_yaml(text) => Ok(unchanged()),
        Some(result) => result,
    }
}

fn all_documents(text: &str) -> Result<Migration, Problem> {
    let mut result = Migration::default();
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    result.text.push_str(&text[..text.len() - body.len()]);
    let (mut lines, mut counted) = (0, 0);
    for range in spans::documents(body)? {
        lines += body[counted..range.start].matches('\n').count();
        counted = range.start;
        let shifted = |problem: Problem| Problem { position: shift(problem.position, lines), ..problem };
        document(body, &range, lines, &mut result).map_err(shifted)?;
    }
    Ok(result)
}

fn may_need(text: &str) -> bool {
    has_any(text, &KEYWORDS) || has_any(text, &OF_OTHERS_TOO)
}

fn has_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

fn is_yaml(text: &str) -> bool {
    yaml::read("", text).problems.iter().all(|problem| problem.kind != ProblemKind::Syntax)
}

fn shift(at: Position, lines: usize) -> Position {
    Position { line: at.line + lines, ..at }
}

/// One document of a text. Positions of problems count from its first line.
fn document(body: &str, range: &Range<usize>, lines: usize, result: &mut Migration) -> Result<(), Problem> {
    let text = &body[range.clone()];
    let reading = yaml::read("", text);
    if let Some(problem) = reading.problems.iter().find(|p| p.kind == ProblemKind::Syntax) {
        return Err(problem.clone());
    }
    let document = reading.documents.first().filter(|_| may_need(text));
    let plans = document.map(plans).unwrap_or_default();
    let (Some(document), true) = (document, plans.iter().any(|(_, plan)| !plan.steps.is_empty())) else {
        result.text.push_str(text);
        return Ok(());
    };
    result.text.push_str(&edited(text, document, &plans)?);
    for (root, plan) in &plans {
        if !plan.steps.is_empty() {
            report(document, root, plan, lines, result);
        }
    }
    Ok(())
}

/// The objects of a document with what each of them needs.
fn plans(document: &Document) -> Vec<(Path, MigrationPlan)> {
    items(document).into_iter().map(|(root, value)| (root, plan(value))).collect()
}

/// The plan for an object. It depends on the value only.
fn plan(value: &Value) -> MigrationPlan {
    let mut plan = MigrationPlan::of(value);
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    match planner(text("apiVersion"), text("kind")) {
        Some(planner) => planner(&mut plan),
        None if value.is_array() => kustomization::list(&mut plan),
        None if kustomization::is_kustomization(value) => kustomization::migrate(&mut plan),
        None if kustomization::is_replacement(value) => kustomization::replacement(&mut plan, &Path::root()),
        None => pods::migrate(&mut plan, text("kind")),
    }
    plan
}

/// An object of an older shape as it would be in the current one; `None` for one that is current.
pub(crate) fn migrated(value: &Value) -> Option<Value> {
    let plan = plan(value);
    (!plan.steps.is_empty()).then_some(plan.value)
}

/// What plans for objects of Karpenter.
fn planner(api_version: &str, kind: &str) -> Option<fn(&mut MigrationPlan)> {
    Some(match (api_version, kind) {
        ("karpenter.sh/v1alpha5", "Provisioner") => |plan| provisioner::migrate(plan, true),
        ("karpenter.sh/v1alpha5", "NodePool") => |plan| provisioner::migrate(plan, false),
        ("karpenter.sh/v1beta1" | "karpenter.sh/v1", "NodePool") => pool::migrate,
        ("karpenter.sh/v1beta1" | "karpenter.sh/v1", "NodeClaim") => pool::claim,
        ("karpenter.azure.com/v1alpha2" | "karpenter.azure.com/v1beta1", "AKSNodeClass") => pool::class,
        _ => return None,
    })
}

/// True when [`migrate`] brings objects of this kind of Karpenter's to the current version.
pub(crate) fn can_migrate(api_version: &str, kind: &str) -> bool {
    planner(api_version, kind).is_some()
}

/// The text of a document with all edits, checked.
fn edited(text: &str, document: &Document, plans: &[(Path, MigrationPlan)]) -> Result<String, Problem> {
    let ends = text.ends_with('\n');
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut new = if ends { text.to_owned() } else { format!("{text}{newline}") };
    let comments = spans::tree(&new)?.comments;
    // Objects of a List are edited side by side, so that the text is read once a round and not once an edit.
    let rounds = plans.iter().map(|(_, plan)| plan.steps.len()).max().unwrap_or_default();
    for round in 0..rounds {
        let sheet = EditableText::read(&new)?;
        let mut changes = Vec::new();
        for (root, plan) in plans {
            let Some(step) = plan.steps.get(round) else {
                continue;
            };
            let refused =
                |refusal: edit::Refusal| problem(document.position(&root.join(step.at.segments())), refusal.message);
            changes.extend(sheet.changes(&step.edit, root).map_err(refused)?);
        }
        let start = Position { line: 1, column: 1 };
        let next = edit::apply_changes(&new, changes).map_err(|refusal| problem(start, refusal.message))?;
        new = next;
    }
    check(&new, document, plans, &comments)?;
    if !ends {
        new.truncate(new.trim_end_matches(['\r', '\n']).len());
    }
    Ok(new)
}

/// The text must have the intended content and every comment of the old one.
fn check(text: &str, document: &Document, plans: &[(Path, MigrationPlan)], comments: &[String]) -> Result<(), Problem> {
    let mut intended = document.value.clone();
    for (root, plan) in plans {
        if root.segments().is_empty() {
            intended = plan.value.clone();
        } else if let Some(subtree) = intended.pointer_mut(&pointer(root)) {
            *subtree = plan.value.clone();
        }
    }
    let reading = yaml::read("", text);
    let fails = |failure: &str| {
        let message = format!("{failure}: migrate this document by hand, or simplify its YAML");
        Err(problem(document.position(&Path::root()), message))
    };
    if reading.documents.len() != 1 || reading.documents[0].value != intended {
        return fails("the edited text would not have the intended content");
    }
    let new = spans::tree(text)?.comments;
    let (old, new) = (count(comments), count(&new));
    if comments.iter().any(|c| new.get(c.as_str()) < old.get(c.as_str())) {
        return fails("a comment would be lost");
    }
    Ok(())
}

/// How often each comment occurs, alone or at the end of another: a setting that became a comment includes the comments
/// in it.
fn count(comments: &[String]) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for comment in comments {
        let begins = |at: &usize| comment[..*at].chars().next_back().is_none_or(char::is_whitespace);
        let within = comment.match_indices('#').map(|(at, _)| at).filter(begins).map(|at| comment[at + 1..].trim());
        for found in std::iter::once(comment.as_str()).chain(within).filter(|c| !c.is_empty()) {
            *counts.entry(found).or_default() += 1;
        }
    }
    counts
}

fn pointer(path: &Path) -> String {
    use napkeeper_api::field_path::{Segment, pointer_token};
    let shown = |segment: &Segment| match segment {
        Segment::Key(key) => format!("/{}", pointer_token(key)),
        Segment::Index(index) => format!("/{index}"),
    };
    path.segments().iter().map(shown).collect()
}

fn problem(at: Position, message: String) -> Problem {
    Problem { kind: ProblemKind::Syntax, position: at, message }
}

/// Reports the edits and notes of an object.
fn report(document: &Document, root: &Path, plan: &MigrationPlan, lines: usize, result: &mut Migration) {
    let object = || plan.object.clone();
    let position = |path: &Path| shift(document.key_position(&root.join(path.segments())), lines);
    result.edits.extend(plan.steps.iter().map(|step| {
        let at = position(&step.at);
        let (path, change, reason) = (step.at.to_string(), step.change.clone(), step.reason.to_owned());
        AppliedEdit { object: object(), line: at.line, column: at.column, path, change, reason }
    }));
    result.notes.extend(plan.notes.iter().map(|(path, message)| {
        let at = position(path);
        Note { object: object(), line: at.line, column: at.column, path: path.to_string(), message: message.clone() }
    }));
}

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
