//! What did a person write, where YAML 1.1 saw no text?

use crate::finding::Finding;
use crate::rules::structure::{LOOKS_LIKE_TEXT, TYPE};
use napkeeper_api::yaml::Chunk;

/// How a finding begins that text was wanted.
const WANTED: &str = "must be a string, got a ";

/// Says what stands in the file, where that is why a value is no text: `yes`, `1.30`, `0x10`. `text` is the whole file's,
/// `chunk` the part of it that the finding is in.
pub(crate) fn explain(finding: &mut Finding, text: &str, chunk: &Chunk) {
    if finding.rule != TYPE.id && finding.rule != LOOKS_LIKE_TEXT.id {
        return;
    }
    let Some((kind, read)) = finding.message.strip_prefix(WANTED).and_then(|got| got.split_once(" (")) else { return };
    let Some(read) = read.strip_suffix(')') else { return };
    let line = finding.line.saturating_sub(chunk.lines_before());
    let Some(written) = scalar(chunk.text_in(text), line, finding.column) else { return };
    if kind != "boolean" && kind != "number" {
        return;
    }
    if written == read && finding.rule == TYPE.id {
        // It looks like what it is.
        return;
    }
    let reads = if written == read { format!("a {kind}") } else { format!("the {kind} {read}") };
    finding.message = format!("{WANTED}{kind} ({read}): YAML 1.1 reads {written} as {reads}");
    finding.fix = Some(format!("quote it: {written:?}"));
    finding.rule = LOOKS_LIKE_TEXT.id;
}

/// The plain scalar at a place, both counted from 1.
fn scalar(text: &str, line: usize, column: usize) -> Option<&str> {
    let line = text.strip_prefix('\u{feff}').unwrap_or(text).lines().nth(line.checked_sub(1)?)?;
    let start = line.char_indices().nth(column.checked_sub(1)?)?.0;
    let rest = line.get(start..)?;
    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | ']' | '}' | '#')).unwrap_or(rest.len());
    rest.get(..end).filter(|scalar| !scalar.is_empty() && !scalar.starts_with(['*', '&', '!', '"', '\'']))
}

#[cfg(test)]
mod tests {
    use crate::verdict::Verdict;
    use napkeeper_api::manifests::load_text;

    /// `rule message; fix` of what is found for a label of a NodePool's nodes.
    fn label(value: &str) -> String {
        let text = format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\nspec:\n  template:\n    metadata:\n      \
             labels: {{example.com/a: {value}}}\n    spec:\n      requirements: []\n      nodeClassRef: \
             {{group: karpenter.azure.com, kind: AKSNodeClass, name: a}}\n"
        );
        let report = Verdict::embedded().unwrap().judge(&[load_text("t.yaml", text)]).remove(0);
        let said = |f: &crate::Finding| format!("{} {}; {}", f.rule, f.message, f.fix.clone().unwrap_or_default());
        report.findings.iter().map(said).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_yaml_makes_of_text_is_said_with_what_was_written() {
        for (written, read) in [
            ("yes", "true: YAML 1.1 reads yes as the boolean true"),
            ("On", "true: YAML 1.1 reads On as the boolean true"),
            ("1.30", "1.3: YAML 1.1 reads 1.30 as the number 1.3"),
            ("0x10", "16: YAML 1.1 reads 0x10 as the number 16"),
            ("1e3", "1000: YAML 1.1 reads 1e3 as the number 1000"),
            ("010", "8: YAML 1.1 reads 010 as the number 8"),
            ("5", "5: YAML 1.1 reads 5 as a number"),
            ("true", "true: YAML 1.1 reads true as a boolean"),
        ] {
            let (value, reads) = read.split_once(": ").unwrap();
            let kind = if reads.contains("boolean") { "boolean" } else { "number" };
            let expected = format!("NK1022 must be a string, got a {kind} ({value}): {reads}; quote it: {written:?}");
            assert_eq!(label(written), expected);
        }
        assert!(label("12345678901234567890").starts_with("NK1022 must be a string, got a number (1.234567890123"));
        for text in ["2026-11-21", "'yes'", "\"1.30\"", "1.2.3"] {
            // Base 60 and dates are text to kubectl.
            assert_eq!(label(text).replace("NK1014", ""), label("'x'"), "{text}");
        }
    }
}
