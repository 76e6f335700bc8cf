//! Messages and docs do not use the phrases that were retired for plain English.

use crate::tree::{Source, files, product, root};
use std::path::Path;
use std::{fs, io};

/// Phrases that neither string literals of the product nor docs hold.
const RETIRED: &[&str] = &[
    "have a place",
    "no place:",
    "needs no place",
    "no node that is there",
    "labels that are asked for",
    "are asked for should Azure",
    "more offerings are asked",
    "do not ask for the label",
    "asks for at most",
    "next dearer",
    "no cluster can be asked",
    "no way to a cluster",
    "more than nothing",
    "no pods but daemons",
    "nodes' CPU requested",
    "pod-minutes of waiting",
    "more for napkeeper",
    "without a sign of life",
    "as an orphan begin",
    "law of deleting",
    "map of the house",
    "in flight and",
    "that exist and have room",
    "no node was to be had",
    "by itself one would get",
    "is nobody's",
    "turned suspect",
    "somebody said keep",
    "nobody has approved",
    "the law refuses",
    "of the shape that its kind",
    "sign in anew",
    "list it anew",
    "beginning anew",
    "looked at anew",
    "create it anew",
    "placed anew",
    "is there twice",
    "looks at {kind}",
    "nothing is swept:",
    "is left aside",
    "what was seen last stays",
    "cannot be told",
    "is it there, and may",
    "quota of the region",
    "reservation of {size}",
    "stands in the way",
    "was cut short",
    "was refused: ",
    "holds the drain up",
    "still stands for it",
    "each keeps the other",
    "would go with it",
    "see what it is",
    "has refused all of them lately",
    "lately refused",
    "have Azure raise",
    "may have reserved capacity alone",
    "near to the pods",
    "leaves no node and no zone",
    "not simulated: no node is made",
    "made for some of them",
    "of alike pods",
    "a mistake of napkeeper",
    "a text that is not empty",
    "nothing of NAP's is written",
    "who may run Karpenter here",
    "took the spot VM back",
    "is taken for a short answer",
    "may not buy it",
    "takes no nodes of this size",
    "does not drive its GPU",
    "a price of nothing",
    "STANDING",
    "sign of life",
    "signs of life",
    "standing of",
    "by standing",
];

/// String literals outside comments, with the number of the line where each begins. Continued lines are joined.
fn literals(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some((start, end, closing)) = literal(rest) {
            let parts: Vec<&str> = rest[start..end].split("\\\n").collect();
            let joined = parts.iter().enumerate().map(|(i, part)| if i == 0 { part } else { part.trim_start() });
            found.push((line, joined.collect()));
            end + closing
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            3
        } else {
            first.len_utf8()
        };
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    found
}

/// Where the literal at the start of some text begins and ends, and how long its closing quotes are.
fn literal(text: &str) -> Option<(usize, usize, usize)> {
    if let Some(raw) = text.strip_prefix("r").map(|raw| raw.trim_start_matches('#')).filter(|raw| raw.starts_with('"'))
    {
        let start = text.len() - raw.len() + 1;
        let closing = format!("\"{}", "#".repeat(start - 2));
        return text[start..].find(&closing).map(|length| (start, start + length, closing.len()));
    }
    let mut escaped = false;
    let body = text.strip_prefix('"')?;
    let ends = |c: char| {
        let end = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        end
    };
    body.find(ends).map(|length| (1, 1 + length, 1))
}

/// A sentence for each retired phrase in a literal of a product file.
fn retired_in_code(sources: &[Source]) -> Vec<String> {
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    let mut wrong = Vec::new();
    for source in product(sources).into_iter().filter(|source| !is_test(&source.path)) {
        for (line, text) in literals(source.before_tests()) {
            wrong.extend(retired_in(&text).map(|phrase| named(&source.path, line, phrase)));
        }
    }
    wrong
}

/// A sentence for each retired phrase in a page, also where a line ends in the middle of it.
fn retired_in_docs(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Source { path, text } in sources {
        let lines: Vec<&str> = text.lines().chain([""]).collect();
        for (number, pair) in lines.windows(2).enumerate() {
            let (this, next) = (pair[0].trim(), pair[1].trim());
            let both = format!("{this} {next}");
            let new = retired_in(&both).filter(|phrase| !next.contains(phrase));
            wrong.extend(new.map(|phrase| named(path, number + 1, phrase)));
        }
    }
    wrong
}

fn retired_in(text: &str) -> impl Iterator<Item = &'static str> {
    RETIRED.iter().copied().filter(move |phrase| text.contains(phrase))
}

fn named(path: &Path, line: usize, phrase: &str) -> String {
    format!("{}:{line}: `{phrase}` is retired: say it in plain English", path.display())
}

#[test]
fn no_message_uses_a_retired_phrase() -> io::Result<()> {
    let sources = files(&["src", "webhook"], &["rs"])?;
    assert!(sources.len() > 30, "only {} files were read", sources.len());
    let wrong = retired_in_code(&sources);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn no_page_uses_a_retired_phrase() -> io::Result<()> {
    let mut pages = files(&["docs"], &["md"])?;
    pages.retain(|page| !page.path.starts_with("docs/decisions"));
    pages.push(Source::new("README.md", &fs::read_to_string(root().join("README.md"))?));
    assert!(pages.len() > 10, "only {} pages were read", pages.len());
    let wrong = retired_in_docs(&pages);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_retired_phrase_is_named_with_its_line() {
    let code = "// the next dearer one\nlet q = '\"';\nlet a = format!(\"2 the next \\\n    dearer one\");\n\
                let b = r#\"no \" sign of\nlife, the next dearer one\"#;\n";
    let tests = "#[cfg(test)]\nmod tests {\n    const A: &str = \"the next dearer one\";\n}\n";
    let wrong = retired_in_code(&[
        Source::new("src/app/a.rs", &format!("{code}{tests}")),
        Source::new("src/app/tests/a.rs", "const A: &str = \"the next dearer one\";\n"),
    ]);
    let is_at = |said: Option<&String>, place: &str| said.is_some_and(|said| said.starts_with(place));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(is_at(wrong.first(), "src/app/a.rs:3: `next dearer`"), "{wrong:?}");
    assert!(is_at(wrong.last(), "src/app/a.rs:5: "), "{wrong:?}");
    let page = Source::new("docs/a.md", "The next\nis that the next\n  dearer one.\nthe next dearer one\n");
    let wrong = retired_in_docs(&[page]);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(is_at(wrong.first(), "docs/a.md:2: "), "{wrong:?}");
    assert!(is_at(wrong.last(), "docs/a.md:4: "), "{wrong:?}");
}
