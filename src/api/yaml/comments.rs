//! The comments of a file.
//!
//! Comments are found by the parser, so a `#` in a quoted or block scalar does not count. Parsing a file drops its
//! comments, so this is a second pass.

use super::Position;
use super::parser::position;
use granit_parser::{Event, Parser, options};

/// A comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The position of its `#`.
    pub position: Position,
    /// The text, without the `#` and surrounding spaces.
    pub text: String,
    /// Only spaces precede it on its line.
    pub on_own_line: bool,
}

/// All comments of a text, in order. Comments after a syntax error, up to the next document, are missing.
#[must_use]
pub fn comments(text: &str) -> Vec<Comment> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The size of a file bounds its comments.
    let options = options! { max_buffered_comment_events: usize::MAX };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut found: Vec<(Position, String)> = Vec::new();
    while let Some(event) = parser.next_event() {
        match event {
            Ok((Event::Comment(text, _), span)) => found.push((position(&span.start), text.trim().to_owned())),
            Ok(_) => {}
            Err(_) => {
                if !matches!(parser.proceed_next_document(), Ok(true)) {
                    break;
                }
            }
        }
    }
    found.sort_by_key(|(at, _)| *at);
    let mut lines = text.lines().enumerate();
    let mut line = lines.next();
    let mut placed = |(at, text): (Position, String)| {
        while line.is_some_and(|(i, _)| i + 1 < at.line) {
            line = lines.next();
        }
        let before = line.map_or("", |(_, line)| line).chars().take(at.column - 1);
        Comment { position: at, text, on_own_line: before.clone().all(char::is_whitespace) }
    };
    found.into_iter().map(&mut placed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Vec<String> {
        let show = |c: Comment| format!("{} {}{}", c.position, c.text, if c.on_own_line { " (alone)" } else { "" });
        comments(text).into_iter().map(show).collect()
    }

    #[test]
    fn comments_have_positions_and_scalars_are_not_comments() {
        let text = "# one\na: '# no' # two\nb: |\n  # no\nc: \"#\n  # no\"\nd: x#no\n  # three\ne: é # four\n";
        assert_eq!(shown(text), ["1:1 one (alone)", "2:11 two", "8:3 three (alone)", "9:6 four"]);
    }

    #[test]
    fn many_comments_and_flow_style_are_read() {
        let many = "# x\n".repeat(500) + "a: [1, # y\n 2]\n";
        let found = shown(&many);
        assert_eq!(found.len(), 501);
        assert_eq!(found[500], "501:8 y");
    }

    #[test]
    fn a_document_after_a_syntax_error_is_validated() {
        assert_eq!(shown("a: [1\nb: 2\n---\nc: 3 # x\n"), ["4:6 x"]);
    }

    proptest! {
        #[test]
        fn a_comment_has_the_position_of_its_mark(text in "[-a-c0-9:&*<>|{}\\[\\],!?'\"%#.é \n\t]{0,120}") {
            for comment in comments(&text) {
                let line = text.lines().nth(comment.position.line - 1).unwrap_or_default();
                prop_assert_eq!(line.chars().nth(comment.position.column - 1), Some('#'), "{:?}", comment);
            }
        }

        #[test]
        fn looking_for_comments_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(comments(&String::from_utf8_lossy(&bytes)));
        }
    }
}
