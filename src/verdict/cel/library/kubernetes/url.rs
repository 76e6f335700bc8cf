//! URLs as Go's `net/url` reads them.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, failed, no_overload};
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::value::opaque::Opaque;
use crate::cel::value::{Key, Val};
use std::net::IpAddr;
use std::sync::Arc;

type Result<T> = std::result::Result<T, EvalError>;

pub(crate) const FUNCTIONS: &[FunctionDef] = &[
    FunctionDef("url", Global, [1, 1], url),
    FunctionDef("isURL", Global, [1, 1], is_url),
    FunctionDef("getScheme", Method, [1, 1], |m, args| with_url(m, args, |u| Val::text(u.scheme.as_str()))),
    FunctionDef("getHost", Method, [1, 1], |m, args| with_url(m, args, |u| Val::text(u.host.as_str()))),
    FunctionDef("getHostname", Method, [1, 1], |m, args| with_url(m, args, |u| Val::text(u.split_host().0))),
    FunctionDef("getPort", Method, [1, 1], |m, args| with_url(m, args, |u| Val::text(u.split_host().1))),
    FunctionDef("getEscapedPath", Method, [1, 1], |m, args| with_url(m, args, |u| Val::text(u.path.as_str()))),
    FunctionDef("getQuery", Method, [1, 1], |m, args| with_url(m, args, |u| query(&u.query))),
];

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    scheme: String,
    host: String,
    /// Escaped.
    path: String,
    query: String,
    /// All of it, with the scheme in lower case.
    text: String,
}

impl Url {
    /// Reads a URL that is absolute, or a path that is.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::read(text)?;
        // The whole is read with its fragment, as Go's function for requests does; the parts come from a second
        // reading without it.
        let (body, fragment) = text.split_once('#').unwrap_or((text, ""));
        unescape(fragment, &|_| true)?;
        let mut url = Self::read(body)?;
        url.text = format!("{}#{fragment}", url.text);
        Some(url)
    }

    fn read(text: &str) -> Option<Self> {
        if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return None;
        }
        if text == "*" {
            let path = text.to_owned();
            return Some(Self {
                scheme: String::new(),
                host: String::new(),
                path,
                query: String::new(),
                text: text.to_owned(),
            });
        }
        let (scheme, rest) = split_scheme(text)?;
        let scheme = scheme.to_ascii_lowercase();
        let whole = format!("{scheme}:{rest}");
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self { scheme, host: String::new(), path: String::new(), query: query.to_owned(), text: whole };
        if !rest.starts_with('/') {
            return (!url.scheme.is_empty()).then_some(url);
        }
        let path = match rest.strip_prefix("//") {
            Some(rest) if !url.scheme.is_empty() => {
                let at = rest.find('/').unwrap_or(rest.len());
                let (authority, path) = rest.split_at(at);
                url.host = host_of(authority, &url.scheme)?;
                path
            }
            _ => rest,
        };
        url.path = escaped_path(path)?;
        Some(url)
    }

    fn split_host(&self) -> (&str, &str) {
        let (host, port) = match self.host.rfind(':').map(|at| self.host.split_at(at)) {
            Some((host, port)) if valid_port(port) => (host, port.get(1..).unwrap_or("")),
            _ => (self.host.as_str(), ""),
        };
        (host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host), port)
    }
}

/// The scheme, which may be absent, and what follows.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return None,
            ':' => return Some((text.get(..i)?, text.get(i + 1..)?)),
            _ => break,
        }
    }
    Some(("", text))
}

fn valid_port(port: &str) -> bool {
    port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

/// The host of `user@host:port`, with its port.
fn host_of(authority: &str, scheme: &str) -> Option<String> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if let Some(user) = user {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(allowed) {
            return None;
        }
        unescape(user, &|_| true)?;
    }
    if let Some(open) = host.rfind('[') {
        return if open == 0 { ip_literal(host) } else { None };
    }
    if let Some(first) = host.find(':') {
        let strict = matches!(scheme, "http" | "https");
        let port = if strict { first } else { host.rfind(':')? };
        if !valid_port(host.get(port..)?) {
            return None;
        }
    }
    unescape_host(host)
}

fn ip_literal(host: &str) -> Option<String> {
    let close = host.rfind(']')?;
    let (inside, port) = (host.get(1..close)?, host.get(close + 1..)?);
    if !valid_port(port) {
        return None;
    }
    let (address, zone) = match inside.find("%25") {
        Some(at) => inside.split_at(at),
        None => (inside, ""),
    };
    let (address, zone) = (unescape_host(address)?, unescape(zone, &|_| true)?);
    let valid = matches!(address.parse(), Ok(IpAddr::V6(_))) && zone != "%";
    valid.then(|| format!("[{address}{zone}]{port}"))
}

/// In a host only bytes beyond ASCII may be escaped.
fn unescape_host(host: &str) -> Option<String> {
    let allowed = |b: u8| b >= 0x80 || b.is_ascii_alphanumeric() || b"!\"$&'()*+,-.:;<=>[]_~%".contains(&b);
    if !host.bytes().all(allowed) {
        return None;
    }
    unescape(host, &|b| b >= 0x80)
}

/// The text without escapes. `None` for a broken escape, or one of a byte that must not be escaped.
fn unescape(text: &str, may: &dyn Fn(u8) -> bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (code, after) = after.split_at_checked(2)?;
        let byte = code.iter().try_fold(0, |n, d| char::from(*d).to_digit(16).map(|d| n * 16 + d))?;
        let byte = u8::try_from(byte).ok()?;
        if !may(byte) && code != b"25" {
            return None;
        }
        bytes.push(byte);
        rest = after;
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The path as given if its escapes are valid, otherwise escaped again.
fn escaped_path(path: &str) -> Option<String> {
    unescape(path, &|_| true)?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~$&+,/:;=@".contains(&b);
    if path.bytes().all(|b| plain(b) || b"!'()*[]%".contains(&b)) {
        return Some(path.to_owned());
    }
    let mut escaped = String::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match after.split_at_checked(2) {
            Some((code, after)) if *first == b'%' => (hex(code)?, after),
            _ => (*first, after),
        };
        rest = after;
        if plain(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(escaped)
}

fn hex(code: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()
}

/// Keys and their values. Invalid pairs are skipped, as in Go.
fn query(text: &str) -> Val {
    let mut found: Vec<(String, Vec<Val>)> = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |text: &str| unescape(&text.replace('+', " "), &|_| true);
        let Some((key, value)) = plain(key).zip(plain(value)) else { continue };
        match found.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(Val::text(value)),
            None => found.push((key, vec![Val::text(value)])),
        }
    }
    Val::map(found.into_iter().map(|(key, values)| (Key::Text(Arc::from(key)), Val::list(values))).collect())
}

fn read(args: &[Val]) -> Result<Option<Url>> {
    match args {
        [Val::Text(text)] => Ok(Url::parse(text)),
        _ => no_overload(),
    }
}

fn url(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    budget.spend(1)?;
    read(args)?.map_or_else(
        || failed("URL parse error during conversion from string"),
        |url| Ok(Val::opaque(Opaque::Url(url))),
    )
}

fn is_url(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    budget.spend(1)?;
    match args {
        [Val::Text(text)] => Ok(Val::Bool(Url::read(text).is_some())),
        _ => no_overload(),
    }
}

fn with_url(budget: &mut Budget, args: &[Val], of: impl Fn(&Url) -> Val) -> Result<Val> {
    match args {
        [Val::Opaque(opaque)] => match opaque.as_ref() {
            Opaque::Url(url) => {
                budget.spend_for_length(url.text.len())?;
                Ok(of(url))
            }
            _ => no_overload(),
        },
        _ => no_overload(),
    }
}
