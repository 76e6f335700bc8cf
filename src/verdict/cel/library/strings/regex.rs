//! Patterns: `matches`, `find`, `findAll`, with Go's meaning of a pattern.
//!
//! Patterns that are literals are compiled with the expression; others are kept in a small cache.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, no_overload};
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::value::Val;
use crate::cel::value::opaque::Opaque;
use crate::text::re2::Pattern;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("matches", Global, [2, 2], matches),
    FunctionDef("matches", Method, [2, 2], matches),
    FunctionDef("find", Method, [2, 2], find),
    FunctionDef("findAll", Method, [2, 3], find_all),
];

/// Functions whose second argument is a pattern.
pub(crate) const TAKE_A_PATTERN: &[&str] = &["matches", "find", "findAll"];

/// Most patterns in the cache. Computed patterns are rare.
const CACHE_SIZE: usize = 128;

/// Memory that a compiled pattern may take, in bytes: objects may bring patterns of their own.
const SIZE_LIMIT: usize = 10 << 20;

static CACHE: Mutex<BTreeMap<String, Arc<Pattern>>> = Mutex::new(BTreeMap::new());

/// Compiles a pattern of an expression or an object.
pub(crate) fn compile(pattern: &str) -> std::result::Result<Pattern, String> {
    Pattern::within(pattern, SIZE_LIMIT).map_err(|error| error.to_string())
}

/// A compiled pattern, borrowed or shared.
enum Compiled<'v> {
    Literal(&'v Pattern),
    Cached(Arc<Pattern>),
}

impl Deref for Compiled<'_> {
    type Target = Pattern;
    fn deref(&self) -> &Pattern {
        match self {
            Self::Literal(regex) => regex,
            Self::Cached(regex) => regex,
        }
    }
}

/// The text and the compiled pattern.
fn parts<'v>(budget: &mut Budget, args: &'v [Val]) -> Result<(&'v str, Compiled<'v>)> {
    let [Val::Text(text), pattern, ..] = args else { return no_overload() };
    let regex = match pattern {
        Val::Opaque(opaque) => match opaque.as_ref() {
            Opaque::Pattern(regex) => Compiled::Literal(regex),
            _ => return no_overload(),
        },
        Val::Text(pattern) => {
            budget.spend_for_length(pattern.len())?;
            Compiled::Cached(cached(pattern)?)
        }
        _ => return no_overload(),
    };
    // As kube-apiserver counts it: the text and a quarter of the pattern, multiplied.
    budget.spend_for_length(text.len().saturating_mul(regex.source().len() / 4 + 1))?;
    Ok((text, regex))
}

fn cached(pattern: &str) -> Result<Arc<Pattern>> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = cache.get(pattern) {
        return Ok(regex.clone());
    }
    let regex = Arc::new(compile(pattern).map_err(EvalError::Failed)?);
    if cache.len() >= CACHE_SIZE {
        cache.clear();
    }
    cache.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
}

fn matches(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let (text, regex) = parts(budget, args)?;
    Ok(Val::Bool(regex.matches(text)))
}

fn find(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let (text, regex) = parts(budget, args)?;
    Ok(Val::text(regex.find_all(text).next().unwrap_or_default()))
}

fn find_all(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let (text, regex) = parts(budget, args)?;
    let limit = match args {
        [_, _] => usize::MAX,
        [_, _, Val::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => return no_overload(),
    };
    let found: Vec<Val> = regex.find_all(text).take(limit).map(Val::text).collect();
    budget.spend(found.len())?;
    Ok(Val::list(found))
}
