//! Expands macros: calls whose arguments are not evaluated before the call.

use crate::cel::compile::node::{Comprehension, ComprehensionKind, Node};
use crate::cel::compile::{Compiler, compile_error};
use crate::cel::error::CompileError;
use cel::common::ast::{CallExpr, Expr, IdedExpr};

type Result<T> = std::result::Result<T, CompileError>;

/// The macro that the call is, or nothing.
pub(crate) fn expand(compiler: &mut Compiler<'_>, call: &CallExpr) -> Result<Option<Node>> {
    let Some(target) = &call.target else {
        return match (call.func_name.as_str(), call.args.as_slice()) {
            ("has", [arg]) => compiler.has(arg).map(Some),
            _ => Ok(None),
        };
    };
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("orValue", [other]) => or_else(compiler, target, other, true).map(Some),
        ("or", [other]) => or_else(compiler, target, other, false).map(Some),
        ("optMap", [variable, body]) => opt_map(compiler, target, variable, body, false).map(Some),
        ("optFlatMap", [variable, body]) => opt_map(compiler, target, variable, body, true).map(Some),
        (name, args) => match macro_args(name, args) {
            Some((kind, args)) => comprehension(compiler, target, kind, &args).map(Some),
            None => Ok(None),
        },
    }
}

fn or_else(compiler: &mut Compiler<'_>, target: &IdedExpr, other: &IdedExpr, value: bool) -> Result<Node> {
    Ok(Node::OrElse(Box::new(compiler.lower(target)?), Box::new(compiler.lower(other)?), value))
}

fn opt_map(
    compiler: &mut Compiler<'_>,
    target: &IdedExpr,
    variable: &IdedExpr,
    body: &IdedExpr,
    flat: bool,
) -> Result<Node> {
    let target = compiler.lower(target)?;
    let at = bind(compiler, variable)?;
    let body = compiler.lower(body);
    compiler.locals.truncate(at);
    Ok(Node::OptMap(Box::new(target), at, Box::new(body?), flat))
}

/// The arguments of a macro by their meaning.
struct MacroArgs<'e> {
    first: &'e IdedExpr,
    second: Option<&'e IdedExpr>,
    filter: Option<&'e IdedExpr>,
    body: &'e IdedExpr,
}

fn macro_args<'e>(name: &str, args: &'e [IdedExpr]) -> Option<(ComprehensionKind, MacroArgs<'e>)> {
    use ComprehensionKind::{All, Collect, Exists, ExistsOne, Filter, SortBy, TransformMap, TransformMapEntry};
    let (kind, one, two) = match name {
        "all" => (All, true, true),
        "exists" => (Exists, true, true),
        "exists_one" => (ExistsOne, true, true),
        "existsOne" => (ExistsOne, false, true),
        "filter" => (Filter, true, false),
        "map" => (Collect, true, false),
        "sortBy" => (SortBy, true, false),
        "transformList" => (Collect, false, true),
        "transformMap" => (TransformMap, false, true),
        "transformMapEntry" => (TransformMapEntry, false, true),
        _ => return None,
    };
    let filters = matches!(name, "map" | "transformList" | "transformMap" | "transformMapEntry");
    let args = match args {
        [first, body] if one => MacroArgs { first, second: None, filter: None, body },
        [first, filter, body] if one && filters => MacroArgs { first, second: None, filter: Some(filter), body },
        [first, second, body] if two => MacroArgs { first, second: Some(second), filter: None, body },
        [first, second, filter, body] if two && filters => {
            MacroArgs { first, second: Some(second), filter: Some(filter), body }
        }
        _ => return None,
    };
    Some((kind, args))
}

fn comprehension(
    compiler: &mut Compiler<'_>,
    target: &IdedExpr,
    kind: ComprehensionKind,
    args: &MacroArgs<'_>,
) -> Result<Node> {
    let range = compiler.lower(target)?;
    let first = bind(compiler, args.first)?;
    let second = args.second.map(|variable| bind(compiler, variable)).transpose()?;
    if second.is_some_and(|second| compiler.locals.get(first) == compiler.locals.get(second)) {
        return compile_error("the two variables of a macro must have different names");
    }
    let filter = args.filter.map(|filter| compiler.lower(filter)).transpose()?;
    let body = compiler.lower(args.body)?;
    compiler.locals.truncate(first);
    Ok(Node::Comprehension(Box::new(Comprehension { kind, range, first, second, filter, body })))
}

/// Declares the variable of a macro and returns its index.
fn bind(compiler: &mut Compiler<'_>, variable: &IdedExpr) -> Result<usize> {
    match &variable.expr {
        Expr::Ident(name) if !name.starts_with('.') => {
            compiler.locals.push(name.clone());
            Ok(compiler.locals.len() - 1)
        }
        _ => compile_error("the variable of a macro must be a plain name"),
    }
}
