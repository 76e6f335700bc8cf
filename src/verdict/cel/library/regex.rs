//! Patterns: `matches`, `find`, `findAll`, with Go's meaning of a pattern.
//!
//! A pattern that stands in the expression as a literal is compiled with it; others are kept in a small cache.

use super::{
    Entry,
    Style::{Global, Method},
};
use crate::cel::error::{EvalError, no_overload};
use crate::cel::machine::Machine;
use crate::cel::opaque::Opaque;
use crate::cel::value::Val;
use regex::Regex;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

type Result<T> = std::result::Result<T, EvalError>;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry("matches", Global, [2, 2], matches),
    Entry("matches", Method, [2, 2], matches),
    Entry("find", Method, [2, 2], find),
    Entry("findAll", Method, [2, 3], find_all),
];

/// Functions whose second argument is a pattern.
pub(crate) const TAKE_A_PATTERN: &[&str] = &["matches", "find", "findAll"];

/// How many patterns are kept. They are few: computed patterns are rare.
const CACHED: usize = 128;

static CACHE: Mutex<BTreeMap<String, Arc<Regex>>> = Mutex::new(BTreeMap::new());

/// Compiles a pattern of Go. The one place that knows how.
pub(crate) fn compile(pattern: &str) -> std::result::Result<Regex, String> {
    Regex::new(&with_ascii_classes(pattern)).map_err(|e| format!("{pattern:?} is no regular expression: {e}"))
}

/// Go's `\d`, `\w` and `\s` know ASCII only, and Rust's do not.
fn with_ascii_classes(pattern: &str) -> String {
    let mut out = String::new();
    let mut in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            in_class = (in_class || c == '[') && c != ']';
            out.push(c);
            continue;
        }
        let Some(escaped) = chars.next() else {
            out.push(c);
            break;
        };
        let set = match escaped.to_ascii_lowercase() {
            'd' => "0-9",
            'w' => "0-9A-Za-z_",
            's' => r"\t\n\x0c\r ",
            _ => {
                out.extend([c, escaped]);
                continue;
            }
        };
        match (escaped.is_ascii_uppercase(), in_class) {
            (true, _) => out.push_str(&format!("[^{set}]")),
            (false, true) => out.push_str(set),
            (false, false) => out.push_str(&format!("[{set}]")),
        }
    }
    out
}

/// A compiled pattern. It is never cloned: a clone would begin with an empty cache of its own.
enum Compiled<'v> {
    Written(&'v Regex),
    Kept(Arc<Regex>),
}

impl Deref for Compiled<'_> {
    type Target = Regex;
    fn deref(&self) -> &Regex {
        match self {
            Self::Written(regex) => regex,
            Self::Kept(regex) => regex,
        }
    }
}

/// The text and the compiled pattern.
fn parts<'v>(machine: &mut Machine<'_>, args: &'v [Val]) -> Result<(&'v str, Compiled<'v>)> {
    let [Val::Text(text), pattern, ..] = args else { return no_overload() };
    let regex = match pattern {
        Val::Opaque(opaque) => match opaque.as_ref() {
            Opaque::Pattern(regex) => Compiled::Written(regex),
            _ => return no_overload(),
        },
        Val::Text(pattern) => {
            machine.spend_on(pattern.len())?;
            Compiled::Kept(cached(pattern)?)
        }
        _ => return no_overload(),
    };
    // As kube-apiserver counts it: the text and a quarter of the pattern, multiplied.
    machine.spend_on(text.len().saturating_mul(regex.as_str().len() / 4 + 1))?;
    Ok((text, regex))
}

fn cached(pattern: &str) -> Result<Arc<Regex>> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = cache.get(pattern) {
        return Ok(regex.clone());
    }
    let regex = Arc::new(compile(pattern).map_err(EvalError::Failed)?);
    if cache.len() >= CACHED {
        cache.clear();
    }
    cache.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
}

fn matches(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let (text, regex) = parts(machine, args)?;
    Ok(Val::Bool(regex.is_match(text)))
}

fn find(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let (text, regex) = parts(machine, args)?;
    Ok(Val::text(regex.find(text).map_or("", |m| m.as_str())))
}

fn find_all(machine: &mut Machine<'_>, args: &[Val]) -> Result<Val> {
    let (text, regex) = parts(machine, args)?;
    let limit = match args {
        [_, _] => usize::MAX,
        [_, _, Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => return no_overload(),
    };
    let found: Vec<Val> = regex.find_iter(text).take(limit).map(|m| Val::text(m.as_str())).collect();
    machine.spend(found.len())?;
    Ok(Val::list(found))
}
