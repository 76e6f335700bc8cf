//! Go's regular expressions (RE2).
//!
//! Patterns are translated for the `regex` crate, which differs: in Go `\d`, `\w` and `\s` match ASCII only, `{` may be
//! literal, and a class has no set operations.

mod class;

use class::{ClassItem, escape, hex};
// For bytes, since only there `\B` may be restricted to ASCII.
use regex::bytes::{Regex, RegexBuilder};

/// Most repetitions of anything, nested ones multiplied, as in Go.
const MAX_REPEATS: u32 = 1000;
/// Memory that the compiled pattern of a schema may take, in bytes.
const SIZE_LIMIT: usize = 64 << 20;

/// A compiled pattern. It is never cloned: a clone would begin with an empty cache of its own.
#[derive(Debug)]
pub(crate) struct Pattern {
    source: Box<str>,
    regex: Regex,
}

/// An invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Go's syntax does not allow it.
    #[error("{pattern:?} is not a valid RE2 regular expression: {reason}")]
    Syntax {
        /// The pattern.
        pattern: String,
        /// The problem.
        reason: String,
    },
    /// It is too large.
    #[error("regular expression {0:?} is too large to compile")]
    TooLarge(String),
}

impl Pattern {
    /// Compiles the pattern of a schema.
    pub(crate) fn new(pattern: &str) -> Result<Self, PatternError> {
        Self::within(pattern, SIZE_LIMIT)
    }

    /// Compiles a pattern with a limit of memory in bytes.
    pub(crate) fn within(pattern: &str, size_limit: usize) -> Result<Self, PatternError> {
        let translated = translate(pattern)
            .map_err(|reason| PatternError::Syntax { pattern: pattern.to_owned(), reason: reason.to_owned() })?;
        let regex = RegexBuilder::new(&translated).size_limit(size_limit).build().map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge(pattern.to_owned()),
            other => PatternError::Syntax { pattern: pattern.to_owned(), reason: other.to_string() },
        })?;
        Ok(Self { source: pattern.into(), regex })
    }

    /// As written in the schema.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// True when it is found in the text.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    /// The parts of the text where it is found, from left to right. As in Go, none begins or ends within a character.
    pub(crate) fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.regex.find_iter(text.as_bytes()).filter_map(|found| text.get(found.range()))
    }
}

/// A pattern of Go in the syntax of the `regex` crate.
pub(crate) fn translate(pattern: &str) -> Result<String, &'static str> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut translator = Translator { chars: &chars, at: 0, out: String::new(), open: Vec::new() };
    translator.run()?;
    Ok(translator.out)
}

/// The expression before a quantifier.
#[derive(Debug, Clone, Copy)]
enum Preceding {
    /// Nothing that could be repeated.
    Nothing,
    /// Something, with the most repetitions in it.
    Atom(u32),
    /// A quantifier, over which none may be stacked.
    Quantified(u32),
}

/// A group that is not closed yet.
struct OpenGroup {
    /// The most repetitions in it so far.
    repeats: u32,
}

struct Translator<'c> {
    chars: &'c [char],
    at: usize,
    out: String,
    open: Vec<OpenGroup>,
}

impl Translator<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn looking_at(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(i, c)| self.chars.get(self.at + i) == Some(&c))
    }

    fn run(&mut self) -> Result<(), &'static str> {
        let mut before = Preceding::Nothing;
        let mut repeats = 1;
        while let Some(c) = self.peek() {
            let next = match c {
                '(' => self.open_group(&mut repeats)?,
                ')' => self.close_group(&mut repeats)?,
                '|' => self.copy(Preceding::Nothing),
                '^' | '$' | '.' => self.copy(Preceding::Atom(1)),
                '[' => {
                    self.out.push_str(&class::class(self.chars, &mut self.at)?);
                    Preceding::Atom(1)
                }
                '*' | '+' | '?' => self.quantifier(before, c)?,
                '{' => self.counted(before)?,
                '\\' if self.looking_at("\\Q") => self.quoted(before),
                '\\' => {
                    self.escaped()?;
                    Preceding::Atom(1)
                }
                literal => {
                    self.at += 1;
                    self.out.push_str(&hex(literal));
                    Preceding::Atom(1)
                }
            };
            if let Preceding::Atom(n) | Preceding::Quantified(n) = next {
                repeats = repeats.max(n);
            }
            before = next;
        }
        if self.open.is_empty() { Ok(()) } else { Err("missing closing )") }
    }

    fn copy(&mut self, before: Preceding) -> Preceding {
        self.out.extend(self.peek());
        self.at += 1;
        before
    }

    fn open_group(&mut self, repeats: &mut u32) -> Result<Preceding, &'static str> {
        self.at += 1;
        if self.peek() != Some('?') {
            return Ok(self.enter("(?:", repeats));
        }
        let named = ["?P<", "?<"].into_iter().find(|start| self.looking_at(start));
        if let Some(start) = named {
            self.at += start.len();
            let name: String = self.chars[self.at..].iter().take_while(|c| **c != '>').collect();
            self.at += name.chars().count() + 1;
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(word) || self.at > self.chars.len() {
                return Err("invalid group name; look-around is not supported");
            }
            return Ok(self.enter("(?:", repeats));
        }
        self.at += 1;
        let flags: String = self.chars[self.at..].iter().take_while(|c| !matches!(c, ':' | ')')).collect();
        self.at += flags.chars().count();
        let known =
            flags.chars().all(|c| "imsU-".contains(c)) && flags.matches('-').count() <= 1 && !flags.ends_with('-');
        match self.peek() {
            Some(':') if known => {
                self.at += 1;
                Ok(self.enter(&format!("(?{flags}:"), repeats))
            }
            Some(')') if known => {
                self.at += 1;
                if !flags.is_empty() {
                    self.out.push_str(&format!("(?{flags})"));
                }
                Ok(Preceding::Nothing)
            }
            _ => Err("unknown group flags; look-around is not supported"),
        }
    }

    fn enter(&mut self, start: &str, repeats: &mut u32) -> Preceding {
        self.out.push_str(start);
        self.open.push(OpenGroup { repeats: std::mem::replace(repeats, 1) });
        Preceding::Nothing
    }

    fn close_group(&mut self, repeats: &mut u32) -> Result<Preceding, &'static str> {
        let Some(outer) = self.open.pop() else { return Err("unmatched )") };
        let inner = std::mem::replace(repeats, outer.repeats);
        Ok(self.copy(Preceding::Atom(inner)))
    }

    fn quantifier(&mut self, before: Preceding, c: char) -> Result<Preceding, &'static str> {
        let repeats = match before {
            Preceding::Nothing => return Err("quantifier without an operand"),
            Preceding::Quantified(_) => return Err("two quantifiers in a row"),
            Preceding::Atom(repeats) => repeats,
        };
        self.at += 1;
        self.out.push(c);
        self.lazy();
        Ok(Preceding::Quantified(repeats))
    }

    fn lazy(&mut self) {
        if self.peek() == Some('?') {
            self.at += 1;
            self.out.push('?');
        }
    }

    /// `{n}`, `{n,}` or `{n,m}`; any other `{` is literal.
    fn counted(&mut self, before: Preceding) -> Result<Preceding, &'static str> {
        let Some((least, most, end)) = self.counts() else {
            self.at += 1;
            self.out.push_str(&hex('{'));
            return Ok(Preceding::Atom(1));
        };
        let repeats = match before {
            Preceding::Nothing => return Err("repetition without an operand"),
            Preceding::Quantified(_) => return Err("two repetitions in a row"),
            Preceding::Atom(repeats) => repeats,
        };
        if least > MAX_REPEATS || most.is_some_and(|most| most > MAX_REPEATS || most < least) {
            return Err("a repetition count exceeds 1000, or its minimum exceeds its maximum");
        }
        let all = repeats * most.unwrap_or(least).max(1);
        if all > MAX_REPEATS {
            return Err("nested repetitions exceed 1000");
        }
        self.out.extend(&self.chars[self.at..end]);
        self.at = end;
        self.lazy();
        Ok(Preceding::Quantified(all))
    }

    /// The ends of a repetition, and where it ends.
    fn counts(&self) -> Option<(u32, Option<u32>, usize)> {
        let (least, at) = self.number(self.at + 1)?;
        match self.chars.get(at)? {
            '}' => Some((least, Some(least), at + 1)),
            ',' if self.chars.get(at + 1) == Some(&'}') => Some((least, None, at + 2)),
            ',' => {
                let (most, at) = self.number(at + 1)?;
                (self.chars.get(at) == Some(&'}')).then_some((least, Some(most), at + 1))
            }
            _ => None,
        }
    }

    /// A number without leading zeros.
    fn number(&self, at: usize) -> Option<(u32, usize)> {
        let digits: String = self.chars.get(at..)?.iter().take_while(|c| c.is_ascii_digit()).collect();
        let leading = digits.len() > 1 && digits.starts_with('0');
        // A number that does not fit is over the limit.
        let n = digits.parse().unwrap_or(u32::MAX);
        (!digits.is_empty() && !leading).then_some((n, at + digits.len()))
    }

    /// `\Q...\E`: literal text.
    fn quoted(&mut self, before: Preceding) -> Preceding {
        self.at += 2;
        let mut before = before;
        while let Some(c) = self.peek() {
            if self.looking_at("\\E") {
                self.at += 2;
                break;
            }
            self.at += 1;
            self.out.push_str(&hex(c));
            before = Preceding::Atom(1);
        }
        before
    }

    fn escaped(&mut self) -> Result<(), &'static str> {
        match self.chars.get(self.at + 1) {
            Some('A') => self.out.push_str(r"\A"),
            Some('z') => self.out.push_str(r"\z"),
            Some('b') => self.out.push_str(r"(?-u:\b)"),
            Some('B') => self.out.push_str(r"(?-u:\B)"),
            _ => {
                let text = match escape(self.chars, &mut self.at)? {
                    ClassItem::Char(c) => hex(c),
                    ClassItem::Set(set) => set,
                };
                self.out.push_str(&text);
                return Ok(());
            }
        }
        self.at += 2;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
