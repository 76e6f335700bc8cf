//! Functions take at most five values: a tuple of several parameters is not one.
//!
//! Clippy's `too_many_arguments` counts a tuple once. Values that belong together are a struct with a name.

use crate::tree::{Source, files};
use std::io;

/// Most values that a function takes, each member of a tuple counted.
const MOST_VALUES: usize = 5;

/// A function as it is declared.
struct Function<'t> {
    name: &'t str,
    line: usize,
    parameters: Vec<&'t str>,
}

/// A sentence for each function that takes too many values by means of a tuple.
fn hides_parameters(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Source { path, text } in sources {
        for Function { name, line, parameters } in functions(text) {
            let values: usize = parameters.iter().map(|parameter| values_of(parameter)).sum();
            if values > MOST_VALUES && values > parameters.len() {
                let path = path.display();
                wrong.push(format!(
                    "{path}:{line}: `{name}` takes {values} values, some of them in tuples; at most {MOST_VALUES} are \
                     allowed: make those that belong together a struct"
                ));
            }
        }
    }
    wrong
}

/// Every function that a text declares.
fn functions(text: &str) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    for (at, keyword) in text.match_indices("fn ") {
        let rest = &text[at + keyword.len()..];
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let generics = in_brackets(rest, '<', '>').map_or(0, |generics| generics.len() + 2);
        let Some(parameters) = in_brackets(&rest[generics..], '(', ')').filter(|_| !name.is_empty()) else { continue };
        let line = text[..at].lines().count().max(1);
        found.push(Function { name, line, parameters: split_at_commas(parameters) });
    }
    found
}

/// How many values a parameter has: those of its tuple, or one.
fn values_of(parameter: &str) -> usize {
    let kind = parameter.split_once(": ").map_or("", |(_, kind)| kind).trim_start_matches('&');
    let kind = kind.strip_prefix('\'').and_then(|kind| kind.split_once(' ')).map_or(kind, |(_, kind)| kind);
    let kind = kind.strip_prefix("mut ").unwrap_or(kind);
    in_brackets(kind, '(', ')').map_or(1, |members| split_at_commas(members).len().max(1))
}

/// What is between the brackets with which a text begins.
fn in_brackets(text: &str, open: char, close: char) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, letter) in brackets(text) {
        if at == 0 && letter != open {
            return None;
        }
        if letter == open {
            depth += 1;
        } else if letter == close {
            depth = depth.checked_sub(1)?;
        }
        if depth == 0 {
            return text.get(1..at);
        }
    }
    None
}

/// The parts of a list, which may have brackets with commas of their own.
fn split_at_commas(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_usize, 0, Vec::new());
    for (at, letter) in brackets(list) {
        match letter {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// The letters of a text with their places; the `>` of an arrow is none.
fn brackets(text: &str) -> impl Iterator<Item = (usize, char)> {
    let arrow = |at: usize| text[..at].ends_with(['-', '=']);
    text.char_indices().filter(move |(at, letter)| *letter != '>' || !arrow(*at))
}

#[test]
fn no_tuple_hides_parameters() -> io::Result<()> {
    let wrong = hides_parameters(&files(&["src", "webhook", "tests"], &["rs"])?);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_function_that_hides_parameters_in_tuples_is_named() {
    let text = "
        def five(&self, (a, b): (&A, B), c: &mut C, d: D) {}
        def six(&self, (a, b): (&A, B), c: &mut C, d: &[D], e: E) {}
        def generic<'a, F: Fn(A, B) -> Vec<C>>(
            pairs: &[(A, B)],
            make: F,
            then: impl Fn((A, B), C) -> D,
            own: &'a mut (Map<A, B>, C, D),
        ) {}
        def unit(_: (), b: B, c: C, d: D, e: fn(A, B) -> C) {}
        type Callback = def (A, B, C, D, E, F);
    ";
    // So that the check does not find it here.
    let text = text.replace("def ", "fn ");
    let wrong = hides_parameters(&[Source::new("src/core/a.rs", &text)]);
    assert!(
        matches!(&wrong[..], [a, b] if a.starts_with("src/core/a.rs:3: `six` takes 6") && b.starts_with("src/core/a.rs:4: `generic` takes 6")),
        "{wrong:?}"
    );
}
