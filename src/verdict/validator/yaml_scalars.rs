//! Explains values that YAML 1.1 reads from unquoted words: `yes`, `1.30`, `0x10`.

use crate::finding::{Finding, Issue};
use crate::rules::structure::UNQUOTED;
use napkeeper_api::field_path::Path;
use napkeeper_api::yaml::{Chunk, Document};

/// A part of a file, as written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceText<'s> {
    /// The text of the whole file.
    pub(crate) file: &'s str,
    pub(crate) chunk: &'s Chunk,
}

impl SourceText<'_> {
    /// The finding of an issue. If a string is required, it shows the word that YAML parsed as another type.
    pub(crate) fn locate(self, issue: Issue, document: &Document, root: &Path) -> Finding {
        let value = issue.not_a_string.clone();
        let mut finding = issue.locate(document, root);
        let Some((value, written)) = value.zip(self.scalar(finding.line, finding.column)) else { return finding };
        // `true` and `4` look like what they are, except where people write words.
        if finding.rule == UNQUOTED.id || !value.is_written_as(written) {
            finding.rule = UNQUOTED.id;
            finding.message = value.message(Some(written));
            finding.fix = Some(format!("quote it: {written:?}"));
        }
        finding
    }

    /// The plain scalar at a position of the file, counted from 1.
    fn scalar(&self, line: usize, column: usize) -> Option<&str> {
        let text = self.chunk.text_in(self.file);
        let line = line.saturating_sub(self.chunk.lines_before());
        let line = text.strip_prefix('\u{feff}').unwrap_or(text).lines().nth(line.checked_sub(1)?)?;
        let start = line.char_indices().nth(column.checked_sub(1)?)?.0;
        let rest = line.get(start..)?;
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | ']' | '}' | '#')).unwrap_or(rest.len());
        rest.get(..end).filter(|scalar| !scalar.is_empty() && !scalar.starts_with(['*', '&', '!', '"', '\'']))
    }
}

#[cfg(test)]
mod tests {
    use crate::validator::Validator;
    use napkeeper_api::manifests::load_text;

    /// `rule message; fix` of the findings for a label of a NodePool's nodes.
    fn label(value: &str) -> String {
        let text = format!(
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {{name: a}}\nspec:\n  template:\n    metadata:\n      \
             labels: {{example.com/a: {value}}}\n    spec:\n      requirements: []\n      nodeClassRef: \
             {{group: karpenter.azure.com, kind: AKSNodeClass, name: a}}\n"
        );
        let report = Validator::embedded().unwrap().validate_files(&[load_text("t.yaml", text)]).remove(0);
        let shown = |f: &crate::Finding| format!("{} {}; {}", f.rule, f.message, f.fix.clone().unwrap_or_default());
        report.findings.iter().map(shown).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn findings_show_the_scalar_as_written() {
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
