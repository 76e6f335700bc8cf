//! Compiles the text of an expression into nodes.
//!
//! The crate `cel` parses. Names, functions and macros are resolved here, once: an unknown one is an error of the
//! expression, not of its evaluation.

pub(crate) mod macros;
pub(crate) mod node;

use crate::cel::cost_limit::{Budget, RULE_BUDGET};
use crate::cel::error::CompileError;
use crate::cel::library;
use crate::cel::library::function::CallStyle;
use crate::cel::value::Val;
use crate::cel::value::opaque::Opaque;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr};
use node::Node;
use std::sync::{Arc, LazyLock};

type Result<T> = std::result::Result<T, CompileError>;

/// Longest expression, in characters. The API server accepts longer ones, which do not occur in practice.
const MAX_EXPRESSION_CHARS: usize = 20_000;

/// Most operators, selections, calls and brackets of an expression: nesting is no deeper than this, so the stack is
/// enough for parsing, evaluating and dropping it.
const MAX_OPERATORS: usize = 3_000;

/// Deepest nesting.
const MAX_DEPTH: usize = 250;

/// Most brackets inside of each other. The parser recurses for each.
const MAX_BRACKET_DEPTH: usize = 60;

/// Names of types, as expressions write them.
const TYPE_NAMES: &[&str] = &[
    "int",
    "uint",
    "double",
    "bool",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "optional_type",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "net.IP",
    "net.CIDR",
];

/// Functions that convert a constant when the expression is compiled.
const CONVERSIONS: &[&str] = &["bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"];

/// Parses without any macro: those of the language are resolved here.
static PARSER: LazyLock<cel::Env> = LazyLock::new(cel::Env::default);

/// Compiles an expression that may name these variables.
pub(crate) fn compile(text: &str, names: &[String]) -> Result<Node> {
    let operators = text.bytes().filter(|b| b"+-*/%<>=!&|?.[({,".contains(b)).count();
    if text.chars().count() > MAX_EXPRESSION_CHARS || operators > MAX_OPERATORS {
        return compile_error(format!(
            "the expression is too long: at most {MAX_EXPRESSION_CHARS} characters and {MAX_OPERATORS} operators and brackets"
        ));
    }
    if bracket_depth(text) > MAX_BRACKET_DEPTH {
        return compile_error(format!("brackets are nested too deeply: at most {MAX_BRACKET_DEPTH}"));
    }
    let parsed = parse(text)?;
    Compiler { names, locals: Vec::new(), depth: 0 }.lower(&parsed)
}

/// How deep brackets are nested, at most: those in texts count as well.
fn bracket_depth(text: &str) -> usize {
    let mut deepest = 0;
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Deepest nesting that the parser follows.
const MAX_PARSER_DEPTH: u16 = 250;

/// Stack of the parser. It recurses up to [`MAX_PARSER_DEPTH`], through many functions for each level: 2 MiB, which threads have
/// by default, are not enough in every build.
const PARSER_STACK_BYTES: usize = 16 << 20;

/// The parser is third-party code: it has a thread of its own, and if it panics, the expression is rejected.
fn parse(text: &str) -> Result<IdedExpr> {
    let parsed = std::thread::scope(|scope| {
        let parse = || PARSER.parser().max_recursion_depth(MAX_PARSER_DEPTH).parse(text);
        std::thread::Builder::new().stack_size(PARSER_STACK_BYTES).spawn_scoped(scope, parse).map(|t| t.join())
    });
    match parsed {
        Ok(Ok(Ok(parsed))) => Ok(parsed),
        Ok(Ok(Err(errors))) => {
            let first = errors.errors.first();
            compile_error(first.map_or_else(
                || "syntax error".to_owned(),
                |e| format!("syntax error at line {}, column {}: {}", e.pos.0, e.pos.1, e.msg),
            ))
        }
        Ok(Err(_)) => compile_error("syntax error: the parser cannot read it"),
        Err(error) => compile_error(format!("no thread for the parser: {error}")),
    }
}

pub(crate) fn compile_error<T>(message: impl Into<String>) -> Result<T> {
    Err(CompileError(message.into()))
}

/// Resolves the names of an expression.
pub(crate) struct Compiler<'a> {
    names: &'a [String],
    /// Variables of the macros around, the innermost last.
    pub(crate) locals: Vec<String>,
    depth: usize,
}

impl Compiler<'_> {
    pub(crate) fn lower(&mut self, expr: &IdedExpr) -> Result<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return compile_error("the expression is nested too deeply");
        }
        let node = match &expr.expr {
            Expr::Literal(literal) => Ok(Node::Const(constant(literal))),
            Expr::Ident(name) => self.name(&[name]),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let item = |(i, e): (usize, &IdedExpr)| Ok((self.lower(e)?, list.optional_indices.contains(&i)));
                Ok(Node::List(list.elements.iter().enumerate().map(item).collect::<Result<_>>()?))
            }
            Expr::Map(map) => self.map(map.entries.iter().map(|e| &e.expr)),
            Expr::Struct(message) => compile_error(format!("cannot construct a value of type {}", message.type_name)),
            Expr::Comprehension(_) | Expr::Unspecified => compile_error("the expression is incomplete"),
        };
        self.depth -= 1;
        node
    }

    fn map<'e>(&mut self, entries: impl Iterator<Item = &'e EntryExpr>) -> Result<Node> {
        let mut map = Vec::new();
        for entry in entries {
            let EntryExpr::MapEntry(entry) = entry else { return compile_error("a map literal needs key-value pairs") };
            map.push((self.lower(&entry.key)?, self.lower(&entry.value)?, entry.optional));
        }
        Ok(Node::Map(map))
    }

    /// The variable, type or path that a dotted name refers to.
    fn name(&self, segments: &[&str]) -> Result<Node> {
        let (first, rest) = match segments {
            [] => return compile_error("a name is missing"),
            [first, rest @ ..] => (first.trim_start_matches('.'), rest),
        };
        if let Some(local) = self.locals.iter().rposition(|name| name == first) {
            return Ok(path(Node::Local(local), rest));
        }
        for end in (1..=segments.len()).rev() {
            let (head, tail) = segments.split_at(end);
            let name = head.join(".");
            let name = name.trim_start_matches('.');
            if let Some(slot) = self.names.iter().position(|n| n == name) {
                return Ok(path(Node::Slot(slot), tail));
            }
            if let (Some(name), []) = (TYPE_NAMES.iter().find(|t| **t == name), tail) {
                return Ok(Node::Const(Val::Type(name)));
            }
        }
        compile_error(format!("undeclared reference to '{}'", segments.join(".")))
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Node> {
        let mut segments = vec![select.field.as_str()];
        if let Some(prefix) = dotted_name(&select.operand) {
            segments.splice(0..0, prefix);
            return self.name(&segments);
        }
        Ok(Node::Select(Box::new(self.lower(&select.operand)?), select.field.as_str().into()))
    }

    fn call(&mut self, call: &CallExpr) -> Result<Node> {
        if let Some(node) = macros::expand(self, call)? {
            return Ok(node);
        }
        let qualified_name = call.target.as_ref().and_then(|t| dotted_name(t)).map(|mut segments| {
            segments.push(&call.func_name);
            segments.join(".")
        });
        if let Some(name) = qualified_name.filter(|name| library::exists(name, CallStyle::Global)) {
            return self.function(&name, CallStyle::Global, None, &call.args);
        }
        match &call.target {
            Some(target) => self.function(&call.func_name, CallStyle::Method, Some(target), &call.args),
            None => self.operator(call),
        }
    }

    /// Operators that are no plain functions, then functions.
    fn operator(&mut self, call: &CallExpr) -> Result<Node> {
        let name = call.func_name.as_str();
        Ok(match (name, call.args.as_slice()) {
            ("_&&_", [a, b]) => Node::And(Box::new(self.lower(a)?), Box::new(self.lower(b)?)),
            ("_||_", [a, b]) => Node::Or(Box::new(self.lower(a)?), Box::new(self.lower(b)?)),
            ("_?_:_", [a, b, c]) => Node::If(Box::new([self.lower(a)?, self.lower(b)?, self.lower(c)?])),
            ("_[_]", [a, b]) => Node::Index(Box::new(self.lower(a)?), Box::new(self.lower(b)?)),
            ("_[?_]", [a, b]) => Node::OptIndex(Box::new(self.lower(a)?), Box::new(self.lower(b)?)),
            ("_?._", [a, field]) => match &field.expr {
                Expr::Literal(LiteralValue::String(field)) => {
                    Node::OptSelect(Box::new(self.lower(a)?), field.inner().into())
                }
                _ => return compile_error("an optional field must be a plain name"),
            },
            _ => return self.function(name, CallStyle::Global, None, &call.args),
        })
    }

    fn function(&mut self, name: &str, style: CallStyle, target: Option<&IdedExpr>, args: &[IdedExpr]) -> Result<Node> {
        let all: Vec<&IdedExpr> = target.into_iter().chain(args).collect();
        let Some(function) = library::find(name.trim_start_matches('.'), style, all.len()) else {
            return compile_error(match library::exists(name, style) {
                true => format!("found no matching overload for '{name}'"),
                false => format!("undeclared reference to '{name}'"),
            });
        };
        let mut nodes = all.into_iter().map(|arg| self.lower(arg)).collect::<Result<Vec<_>>>()?;
        let takes_pattern = library::strings::regex::TAKE_A_PATTERN.contains(&name);
        if let (true, Some(Node::Const(Val::Text(pattern)))) = (takes_pattern, nodes.get(1)) {
            let regex = library::strings::regex::compile(pattern).map_err(CompileError)?;
            nodes.splice(1..2, [Node::Const(Val::opaque(Opaque::Pattern(Arc::new(regex))))]);
        }
        // The API server converts constants at compile time.
        if let (true, [Node::Const(value)]) =
            (CONVERSIONS.contains(&name) && style == CallStyle::Global, nodes.as_slice())
        {
            let value = function(&mut Budget::new(RULE_BUDGET), std::slice::from_ref(value))
                .map_err(|e| CompileError(e.to_string()))?;
            return Ok(Node::Const(value));
        }
        Ok(Node::Call(function, nodes))
    }

    /// `has(a.b)`.
    pub(crate) fn has(&mut self, arg: &IdedExpr) -> Result<Node> {
        let Expr::Select(select) = &arg.expr else { return compile_error("invalid argument to has() macro") };
        let segments = dotted_name(arg).unwrap_or_default();
        let local = segments.first().is_some_and(|first| self.locals.iter().any(|name| name == first));
        let name = segments.join(".");
        if let (false, Some(slot)) = (local, self.names.iter().position(|n| *n == name)) {
            return Ok(Node::HasSlot(slot));
        }
        Ok(Node::Has(Box::new(self.lower(&select.operand)?), select.field.as_str().into()))
    }
}

fn path(root: Node, fields: &[&str]) -> Node {
    fields.iter().fold(root, |node, field| Node::Select(Box::new(node), Arc::from(*field)))
}

/// The segments of a name with dots, if the expression is one.
fn dotted_name(expr: &IdedExpr) -> Option<Vec<&str>> {
    match &expr.expr {
        Expr::Ident(name) => Some(vec![name]),
        Expr::Select(select) if !select.test => {
            let mut segments = dotted_name(&select.operand)?;
            segments.push(&select.field);
            Some(segments)
        }
        _ => None,
    }
}

fn constant(literal: &LiteralValue) -> Val {
    match literal {
        LiteralValue::Boolean(b) => Val::Bool(*b.inner()),
        LiteralValue::Bytes(b) => Val::Bytes(b.inner().into()),
        LiteralValue::Double(d) => Val::Double(*d.inner()),
        LiteralValue::Int(i) => Val::Int(*i.inner()),
        LiteralValue::Null => Val::Null,
        LiteralValue::String(s) => Val::text(s.inner()),
        LiteralValue::UInt(u) => Val::UInt(*u.inner()),
    }
}
