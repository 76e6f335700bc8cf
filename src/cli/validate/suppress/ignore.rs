//! Comments `napkeeper:ignore` in YAML.

use super::super::verdicts::ReportedFinding;
use napkeeper_api::manifests::Source;
use napkeeper_api::yaml::{Comment, Position, comments};
use napkeeper_core::model::support::spelling::nearest;
use napkeeper_verdict::Finding;
use napkeeper_verdict::rules::{self, Rule, suppression};
use std::ops::RangeInclusive;

/// The beginning of such a comment.
const WORD: &str = "napkeeper:ignore";

/// A comment that suppresses findings.
#[derive(Debug, PartialEq, Eq)]
struct Ignore {
    at: Position,
    rules: Vec<&'static str>,
    lines: RangeInclusive<usize>,
}

/// Removes the findings of a file that its comments name. Returns how many, and the findings about the comments.
pub(super) fn apply(source: &Source, found: &mut Vec<ReportedFinding>) -> (usize, Vec<Finding>) {
    if !source.text.contains(WORD) {
        return (0, Vec::new());
    }
    let (ignores, mut wrong) = read(source);
    let mut used = vec![false; ignores.len()];
    let before = found.len();
    found.retain(|reported| {
        let mut hidden = false;
        for (ignore, used) in ignores.iter().zip(&mut used) {
            if ignore.rules.contains(&reported.finding.rule) && ignore.lines.contains(&reported.finding.line) {
                *used = true;
                hidden = true;
            }
        }
        !hidden
    });
    for (ignore, _) in ignores.iter().zip(used).filter(|(_, used)| !used) {
        let message = format!("unused ignore: no finding of {} here", ignore.rules.join(" or "));
        wrong.push(finding(
            &suppression::UNUSED,
            source,
            ignore.at,
            message,
            "remove the comment, or move it to the line of the finding",
        ));
    }
    (before - found.len(), wrong)
}

fn finding(rule: &Rule, source: &Source, at: Position, message: String, fix: &str) -> Finding {
    let (rule, severity, file) = (rule.id, rule.severity, source.file.to_string());
    let (line, column, path, fix) = (at.line, at.column, String::new(), Some(fix.to_owned()));
    Finding { rule, severity, file, line, column, path, message, fix }
}

fn read(source: &Source) -> (Vec<Ignore>, Vec<Finding>) {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut ignores = Vec::new();
    let mut wrong = Vec::new();
    for comment in comments(&source.text) {
        let Some(rest) = comment.text.strip_prefix(WORD) else { continue };
        match directive(rest) {
            Ok(rules) => ignores.push(Ignore { at: comment.position, rules, lines: covered(&comment, &lines) }),
            Err((message, fix)) => wrong.push(finding(&suppression::UNCLEAR, source, comment.position, message, &fix)),
        }
    }
    (ignores, wrong)
}

/// The rules that a comment names; else its error, and the fix.
fn directive(rest: &str) -> Result<Vec<&'static str>, (String, String)> {
    let form = || format!("use # {WORD} NK1234 reason");
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return Err((format!("{WORD}{rest} is not {WORD} followed by a rule"), form()));
    }
    let mut words = rest.split_whitespace().peekable();
    let mut ids = Vec::new();
    while let Some(word) = words.next_if(|word| looks_like_rules(word)) {
        for id in word.trim_end_matches(':').split(',').filter(|id| !id.is_empty()) {
            ids.push(known(&id.to_ascii_uppercase())?);
        }
    }
    if ids.is_empty() {
        return Err(("ignore without a rule".to_owned(), form()));
    }
    let has_reason = words.any(|word| word.chars().any(char::is_alphanumeric));
    let without = || (format!("ignore of {} has no reason, so it has no effect", ids.join(", ")), form());
    if has_reason { Ok(ids) } else { Err(without()) }
}

fn looks_like_rules(word: &str) -> bool {
    let is_id = |id: &str| {
        let number = id.strip_prefix("NK").or_else(|| id.strip_prefix("nk"));
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut ids = word.trim_end_matches(':').split(',').filter(|id| !id.is_empty()).peekable();
    ids.peek().is_some() && ids.all(is_id)
}

fn known(id: &str) -> Result<&'static str, (String, String)> {
    if id.starts_with("NK8") {
        let message = format!("{id} cannot be ignored: it reports ignores themselves");
        return Err((message, "fix the finding".to_owned()));
    }
    let rule = rules::find(id).map(|rule| rule.id);
    rule.ok_or_else(|| {
        let meant = nearest(id, rules::all().map(|rule| rule.id));
        let fix = meant.map_or_else(
            || "run `napkeeper rules` to list all rules".to_owned(),
            |near| format!("did you mean {near}?"),
        );
        (format!("unknown rule {id}"), fix)
    })
}

/// The lines that a comment applies to. At the end of a line: that line, and the value below if the line ends with a
/// key. On its own line: the next line with content, and the value below it.
fn covered(comment: &Comment, lines: &[&str]) -> RangeInclusive<usize> {
    let own = comment.position.line;
    let line = |n: usize| lines.get(n - 1).copied().unwrap_or_default();
    if comment.on_own_line {
        let next = (own + 1..=lines.len()).find(|n| has_content(line(*n)));
        return next.map_or(own..=own, |next| next..=end_of_value(next, lines));
    }
    let before: String = line(own).chars().take(comment.position.column - 1).collect();
    let ends = if before.trim_end().ends_with(':') { end_of_value(own, lines) } else { own };
    own..=ends
}

fn has_content(line: &str) -> bool {
    let text = line.trim_start();
    !text.is_empty() && !text.starts_with('#')
}

/// The last line of the value that begins in a line: the lines below that are indented further, and the items of a list
/// at the indentation of their key.
fn end_of_value(begin: usize, lines: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let Some(first) = lines.get(begin - 1) else { return begin };
    let is_item = |line: &str| line.trim_start().starts_with("- ") || line.trim() == "-";
    let mut last = begin;
    for (i, line) in lines.iter().enumerate().skip(begin).filter(|(_, line)| has_content(line)) {
        let inside = indent(line) > indent(first);
        let item_below_key = indent(line) == indent(first) && is_item(line) && !is_item(first);
        let closes = indent(line) == indent(first) && line.trim_start().starts_with(['}', ']']);
        if !inside && !item_below_key && !closes {
            break;
        }
        last = i + 1;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use napkeeper_api::manifests::load_text;

    fn lines(text: &str) -> Vec<RangeInclusive<usize>> {
        let (ignores, wrong) = read(&load_text("t.yaml", text.to_owned()));
        assert_eq!(wrong, []);
        ignores.into_iter().map(|ignore| ignore.lines).collect()
    }

    #[test]
    fn a_comment_counts_for_its_line_or_for_the_value_below() {
        let x = "# napkeeper:ignore NK1015 why";
        assert_eq!(lines(&format!("a: 1 {x}\nb: 2\n")), [1..=1]);
        assert_eq!(lines(&format!("{x}\na: 1\nb: 2\n")), [2..=2]);
        assert_eq!(lines(&format!("{x}\n# more\n\na:\n  b: 1\n\n  c: 2\nd: 3\n")), [4..=7]);
        assert_eq!(lines(&format!("a:\n  {x}\n  b:\n  - 1\n  - 2\n  c: 3\n")), [3..=5]);
        assert_eq!(lines(&format!("a:\n  {x}\n  - b: 1\n    c: 1\n  - 2\n")), [3..=4]);
        assert_eq!(lines(&format!("a: {x}\n  b: 1\nc: 1\n")), [1..=2]);
        assert_eq!(lines(&format!("a: 1\n{x}\n")), [2..=2]);
        assert_eq!(lines(&format!("a: '{x}'\nb: |\n  {x}\n")), []);
    }

    #[test]
    fn an_ignore_names_rules_that_exist_and_a_reason() {
        assert_eq!(directive(" NK1015 why").unwrap(), ["NK1015"]);
        assert_eq!(directive(" nk1015: why").unwrap(), ["NK1015"]);
        assert_eq!(directive(" NK1015,NK1013, NK1014 -- why").unwrap(), ["NK1015", "NK1013", "NK1014"]);
        for (text, wrong) in [
            ("", "without a rule"),
            (" because", "without a rule"),
            (" NK1015", "has no reason"),
            (" NK1015 --", "has no reason"),
            (" NK1999 why", "unknown rule NK1999"),
            (" NK8001 why", "cannot be ignored"),
            ("d NK1015 why", "is not napkeeper:ignore"),
        ] {
            let (message, _) = directive(text).unwrap_err();
            assert!(message.contains(wrong), "{text}: {message}");
        }
    }
}
