//! Finds the field of an object that an expression checks.

use crate::policy::model::NamedExpression;
use crate::policy::parse::begins_with;
use napkeeper_api::field_path::{Path, Segment};
use std::sync::Arc;

/// How far variables that name variables are followed.
const MAX_VARIABLE_DEPTH: usize = 8;

/// The field, when the expression names one: `object.spec.limits` in `has(object.spec.limits)`. Of several nested ones
/// it is the innermost; otherwise their common prefix, which may be the root.
pub(crate) fn field_of(expression: &str, variables: &[NamedExpression]) -> Path {
    let mut fields = Vec::new();
    collect(expression, variables, MAX_VARIABLE_DEPTH, &mut fields);
    // Beside other fields, labels and annotations select or exempt objects.
    let in_metadata = |field: &Vec<Segment>| field.first() == Some(&Segment::Key(Arc::from("metadata")));
    if !fields.iter().all(in_metadata) {
        fields.retain(|f| !in_metadata(f));
    }
    fields.sort();
    fields.dedup();
    let longest = fields.iter().max_by_key(|f| f.len()).cloned().unwrap_or_default();
    let common = fields.iter().fold(longest.clone(), |common, field| {
        if begins_with(&common, field) {
            common
        } else {
            let same = common.iter().zip(field).take_while(|(a, b)| a == b).count();
            common[..same].to_vec()
        }
    });
    Path::root().join(&common)
}

fn collect(expression: &str, variables: &[NamedExpression], deepest: usize, fields: &mut Vec<Vec<Segment>>) {
    for chain in chains(expression) {
        note(&chain, variables, deepest, fields);
    }
}

fn note(chain: &[Segment], variables: &[NamedExpression], deepest: usize, fields: &mut Vec<Vec<Segment>>) {
    match chain {
        [Segment::Key(root), steps @ ..] if &**root == "object" && !steps.is_empty() => fields.push(steps.to_vec()),
        [Segment::Key(root), Segment::Key(name), steps @ ..] if &**root == "variables" && deepest > 0 => {
            let Some(NamedExpression { expression, .. }) = variables.iter().find(|v| *v.name == **name) else { return };
            let text = expression.trim();
            let (start, end) = chain_at(text);
            if end == text.len() && !text.ends_with(')') {
                // The variable is only a name for a field.
                note(&[start, steps.to_vec()].concat(), variables, deepest - 1, fields);
            } else {
                collect(expression, variables, deepest - 1, fields);
            }
        }
        _ => {}
    }
}

/// All `a.b[0].c['d']` in a text, without the method at its end. Not a parser: a chain in a quoted string counts, which
/// at worst moves a caret.
fn chains(text: &str) -> Vec<Vec<Segment>> {
    let mut found = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let starts = (first.is_ascii_alphabetic() || first == '_') && !is_word(before) && before != '.';
        if starts {
            let (chain, end) = chain_at(rest);
            found.push(chain);
            before = rest[..end].chars().next_back().unwrap_or(' ');
            rest = &rest[end..];
        } else {
            before = first;
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

/// The chain that a text begins with, and how long it is.
fn chain_at(text: &str) -> (Vec<Segment>, usize) {
    let first = word(text);
    let (mut steps, mut end) = (vec![Segment::Key(Arc::from(first))], first.len());
    loop {
        let rest = &text[end..];
        let Some((step, length)) = field(rest).or_else(|| key(rest)) else { break };
        if rest[length..].trim_start().starts_with('(') {
            end += length;
            break;
        }
        steps.push(step);
        end += length;
    }
    (steps, end)
}

/// `.field` or `.?field`.
fn field(text: &str) -> Option<(Segment, usize)> {
    let rest = text.strip_prefix('.')?;
    let name = word(rest.strip_prefix('?').unwrap_or(rest));
    (!name.is_empty()).then(|| (Segment::Key(Arc::from(name)), text.find(name).unwrap_or(1) + name.len()))
}

/// `['key']`, `[?'key']` or `[0]`.
fn key(text: &str) -> Option<(Segment, usize)> {
    let rest = text.strip_prefix('[')?;
    let end = rest.find(']')?;
    let inner = rest[..end].strip_prefix('?').unwrap_or(&rest[..end]).trim();
    let quoted = |q: char| inner.strip_prefix(q).and_then(|t| t.strip_suffix(q));
    let step = match quoted('\'').or_else(|| quoted('"')) {
        Some(key) => Segment::Key(Arc::from(key)),
        None => Segment::Index(inner.parse().ok()?),
    };
    Some((step, end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_the_one_that_all_of_an_expression_is_about() {
        let variables = [
            NamedExpression { name: "spec".into(), expression: "object.spec.template.spec".into() },
            NamedExpression { name: "after".into(), expression: "variables.spec.expireAfter".into() },
        ];
        for (expression, field) in [
            ("has(object.spec.limits)", "spec.limits"),
            ("has(object.spec.limits) && 'cpu' in object.spec.limits", "spec.limits"),
            ("object.?spec.?limits[?'cpu'].hasValue()", "spec.limits.cpu"),
            ("object.metadata.?labels[?'example.com/team'].orValue('') != ''", "metadata.labels[example.com/team]"),
            ("object.spec.disruption.budgets.all(b, b.nodes != '0')", "spec.disruption.budgets"),
            ("object.spec.a == 1 || object.spec.b == 2", "spec"),
            ("object.spec.taints[0].key == 'x'", "spec.taints[0].key"),
            ("variables.after != 'Never'", "spec.template.spec.expireAfter"),
            ("has(object.spec.limits) || 'x' in object.metadata.annotations", "spec.limits"),
            ("params.max > 1", ""),
            ("size(object.metadata.name) < 5", "metadata.name"),
        ] {
            assert_eq!(field_of(expression, &variables).to_string(), field, "{expression}");
        }
    }
}
