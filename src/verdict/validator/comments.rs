//! Comments of a NodePool that contradict its fields.
//!
//! Only comments directly beside a field count.

use crate::finding::{Finding, Issue};
use crate::rules::{cost, disruption};
use jiff::SignedDuration;
use napkeeper_api::field_path::Path;
use napkeeper_api::types::duration;
use napkeeper_api::yaml::{Chunk, Comment, Document, comments};

/// Checks the comments of a document. `text` is that of the whole file.
pub(crate) fn check(document: &Document, text: &str, chunk: &Chunk, found: &mut Vec<Finding>) {
    let part = chunk.text_in(text);
    if document.value["kind"] != "NodePool" || !part.contains('#') {
        return;
    }
    // Reading the text for its comments takes longer than all the rest: most have none that matters.
    let speaks = |line: &str| line.split_once('#').is_some_and(|(_, text)| is_relevant(&text.to_lowercase()));
    if !part.lines().any(speaks) {
        return;
    }
    let comments = Comments { all: comments(part), before: chunk.lines_before() };
    let issues = [weight(document, &comments), wait(document, &comments)];
    found.extend(issues.into_iter().flatten().map(|issue| issue.locate(document, &Path::root())));
}

const LOW_WORDS: [&str; 3] = ["lower", "lowest", "small"];
const PRECEDENCE_WORDS: [&str; 4] = ["higher", "first", "prefer", "wins"];
const IDLE_WORDS: [&str; 4] = ["empty", "idle", "unused", "utilized"];

fn is_relevant(text: &str) -> bool {
    LOW_WORDS.iter().chain(&IDLE_WORDS).any(|word| text.contains(word))
}

struct Comments {
    all: Vec<Comment>,
    /// Lines of the file before its part.
    before: usize,
}

impl Comments {
    /// The text beside the key of a field: on its line, and in the block of comments right above it.
    fn beside(&self, document: &Document, path: &Path) -> String {
        let line = document.key_position(path).line.saturating_sub(self.before);
        let mut text: Vec<&str> = Vec::new();
        let mut above = line;
        for comment in self.all.iter().rev().filter(|c| c.position.line <= line) {
            if comment.position.line == line || (comment.on_own_line && comment.position.line + 1 == above) {
                text.push(&comment.text);
                above = comment.position.line;
            }
        }
        text.reverse();
        text.join(" ").to_lowercase()
    }
}

/// A comment that takes a low weight for the stronger one.
fn weight(document: &Document, comments: &Comments) -> Option<Issue> {
    let path = Path::from_dotted("spec.weight");
    let weight = document.value["spec"].get("weight")?;
    let text = comments.beside(document, &path);
    // "Lowest priority" is correct for a low weight; "a lower weight goes first" is not.
    let low = LOW_WORDS.iter().filter_map(|word| text.find(word)).min();
    let turned = low.is_some_and(|low| PRECEDENCE_WORDS.iter().any(|word| text[low..].contains(word)));
    turned.then(|| {
        let message = format!(
            "the comment says that a lower weight comes first, but the highest weight does: {weight} comes before every \
             NodePool with a lower weight, or none (0)"
        );
        let fix = "give the preferred NodePool the highest weight, and correct the comment";
        Issue::new(&cost::WEIGHT_COMMENT, &path, message).fix(fix.to_owned())
    })
}

/// A comment with another delay than `consolidateAfter`.
fn wait(document: &Document, comments: &Comments) -> Option<Issue> {
    let at = Path::from_dotted("spec.disruption");
    let disruption = document.value["spec"].get("disruption")?;
    let field = at.key("consolidateAfter");
    let given = disruption["consolidateAfter"].as_str();
    let mut paths = vec![at.clone(), at.key("consolidationPolicy")];
    paths.extend(given.map(|_| field.clone()));
    let text = paths.iter().map(|path| comments.beside(document, path)).find(|text| stated_delay(text).is_some())?;
    let stated = stated_delay(&text)?;
    let real = given.map_or(Some(SignedDuration::ZERO), |text| duration::parse_or_never(text).ok().flatten());
    (real != Some(stated)).then(|| {
        let does = given.map_or_else(|| "is missing, which means 0s".to_owned(), |given| format!("is {given}"));
        let stated = duration::format(stated);
        let message = format!("the comment says {stated}, but consolidateAfter {does}");
        let fix = format!("set consolidateAfter: {stated}, or correct the comment");
        Issue::new(&disruption::DELAY_COMMENT, if given.is_some() { &field } else { &at }, message).fix(fix)
    })
}

/// The delay in a comment about empty or idle nodes.
fn stated_delay(text: &str) -> Option<SignedDuration> {
    if !IDLE_WORDS.iter().any(|word| text.contains(word)) {
        return None;
    }
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let rest = &text[start..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let n: i64 = rest[..digits].parse().ok()?;
    let unit: String = rest[digits..].trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    let seconds = match unit.as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => 1,
        "m" | "min" | "mins" | "minute" | "minutes" => 60,
        "h" | "hour" | "hours" => 3600,
        _ => return None,
    };
    n.checked_mul(seconds).map(SignedDuration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Validator;
    use napkeeper_api::manifests::load_text;

    fn found(spec: &str) -> Vec<String> {
        let text = format!(
            "# a lower weight has priority\n---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\nspec:\n  \
             template:\n    spec:\n      nodeClassRef: {{group: karpenter.azure.com, kind: AKSNodeClass, name: a}}\n      \
             requirements: []\n{spec}"
        );
        let report = Validator::embedded().unwrap().validate_files(&[load_text("t.yaml", text)]).remove(0);
        let findings = report
            .findings
            .iter()
            .filter(|f| [cost::WEIGHT_COMMENT.id, disruption::DELAY_COMMENT.id].contains(&f.rule));
        findings.map(|f| format!("{}:{} {}", f.line, f.column, f.message)).collect()
    }

    #[test]
    fn only_comments_beside_the_field_count() {
        for (spec, n) in [
            ("  weight: 10\n", 0),
            ("  # a lower weight\n  # is tried first\n  weight: 10\n", 1),
            ("  weight: 10 # lowest wins\n", 1),
            ("  # a lower weight is tried first\n\n  weight: 10\n", 0),
            ("  weight: 10 # higher goes first\n", 0),
            ("  weight: 1 # lowest priority, fallback\n", 0),
            ("  limits: {cpu: 1} # lower limits first\n  weight: 10\n", 0),
        ] {
            assert_eq!(found(spec).len(), n, "{spec}: {:?}", found(spec));
        }
        assert!(found("  weight: 10 # lowest wins\n")[0].starts_with("11:11 the comment says"));
    }

    #[test]
    fn a_delay_in_a_comment_is_compared_with_the_field() {
        for (comment, after, n) in [
            ("remove empty nodes after 30 seconds", "1m", 1),
            ("remove empty nodes after 30 seconds", "30s", 0),
            ("remove idle nodes after 2 minutes", "2m", 0),
            ("remove idle nodes after 2h", "Never", 1),
            ("remove empty nodes", "1m", 0),
            ("wait 30 seconds", "1m", 0),
            ("empty nodes, 3 of them", "1m", 0),
        ] {
            let spec = format!("  # {comment}\n  disruption:\n    consolidateAfter: {after}\n");
            assert_eq!(found(&spec).len(), n, "{spec}: {:?}", found(&spec));
        }
    }
}
