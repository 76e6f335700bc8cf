//! Character classes and escapes of a pattern.

/// The meaning of an escape.
#[derive(Debug, Clone)]
pub(crate) enum ClassItem {
    Char(char),
    /// A class, written for the `regex` crate; it may be nested in another.
    Set(String),
}

/// A literal character, escaped.
pub(crate) fn hex(c: char) -> String {
    if c.is_alphanumeric() { c.to_string() } else { format!("\\x{{{:X}}}", u32::from(c)) }
}

/// An escape, beginning at its backslash.
pub(crate) fn escape(chars: &[char], at: &mut usize) -> Result<ClassItem, &'static str> {
    let Some(c) = chars.get(*at + 1).copied() else { return Err("trailing backslash") };
    *at += 2;
    let control = match c {
        'a' => Some('\u{7}'),
        'f' => Some('\u{c}'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\u{b}'),
        _ => None,
    };
    if let Some(c) = control {
        return Ok(ClassItem::Char(c));
    }
    match c {
        'd' | 'D' | 's' | 'S' | 'w' | 'W' => Ok(ClassItem::Set(perl(c).to_owned())),
        'p' | 'P' => unicode(chars, at, c == 'P').map(ClassItem::Set),
        'x' => hexadecimal(chars, at).map(ClassItem::Char),
        '0'..='7' => octal(chars, at, c).map(ClassItem::Char),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(ClassItem::Char(c)),
        _ => Err("unsupported escape sequence"),
    }
}

const fn perl(c: char) -> &'static str {
    match c {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => r"[\t\n\x0C\r ]",
        'S' => r"[^\t\n\x0C\r ]",
        'w' => "[0-9A-Za-z_]",
        _ => "[^0-9A-Za-z_]",
    }
}

/// `\pL`, `\p{Greek}`, `\p{^Greek}`.
fn unicode(chars: &[char], at: &mut usize, negated: bool) -> Result<String, &'static str> {
    let Some(first) = chars.get(*at).copied() else { return Err("\\p without a class name") };
    *at += 1;
    let mut name = first.to_string();
    if first == '{' {
        name = chars[*at..].iter().take_while(|c| **c != '}').collect();
        *at += name.chars().count() + 1;
        if *at > chars.len() {
            return Err("unclosed \\p{");
        }
    }
    let inner = name.strip_prefix('^');
    let negated = negated != inner.is_some();
    let name = inner.unwrap_or(&name);
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ')) {
        return Err("unknown Unicode class in \\p");
    }
    Ok(format!("\\{}{{{name}}}", if negated { 'P' } else { 'p' }))
}

/// `\x7F`, `\x{10FFFF}`.
fn hexadecimal(chars: &[char], at: &mut usize) -> Result<char, &'static str> {
    let digits: String = if chars.get(*at) == Some(&'{') {
        let digits: String = chars[*at + 1..].iter().take_while(|c| **c != '}').collect();
        *at += digits.chars().count() + 2;
        digits
    } else {
        let digits = chars[(*at).min(chars.len())..].iter().take(2).collect();
        *at += 2;
        digits
    };
    let valid = *at <= chars.len() && !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    let code = u32::from_str_radix(&digits, 16).ok().filter(|_| valid);
    code.and_then(char::from_u32).ok_or("\\x without a character code")
}

/// `\012`. A single digit other than 0 would be a reference to a group, which does not exist.
fn octal(chars: &[char], at: &mut usize, first: char) -> Result<char, &'static str> {
    let more = chars[(*at).min(chars.len())..].iter().take(2).take_while(|c| ('0'..='7').contains(*c));
    let more: String = more.collect();
    if first != '0' && more.is_empty() {
        return Err("backreferences are not supported");
    }
    *at += more.len();
    let code = u32::from_str_radix(&format!("{first}{more}"), 8).ok();
    code.and_then(char::from_u32).ok_or("octal escape out of range")
}

/// A class, beginning at its `[`.
pub(crate) fn class(chars: &[char], at: &mut usize) -> Result<String, &'static str> {
    const OPEN: &str = "missing closing ]";
    *at += 1;
    let mut out = String::from("[");
    if chars.get(*at) == Some(&'^') {
        *at += 1;
        out.push('^');
    }
    let mut first = true;
    loop {
        let c = chars.get(*at).copied().ok_or(OPEN)?;
        if c == ']' && !first {
            *at += 1;
            out.push(']');
            return Ok(out);
        }
        first = false;
        if c == '['
            && chars.get(*at + 1) == Some(&':')
            && let Some(named) = posix(chars, at)?
        {
            out.push_str(&named);
            continue;
        }
        let low = match member(chars, at)? {
            ClassItem::Set(set) => {
                out.push_str(&set);
                continue;
            }
            ClassItem::Char(low) => low,
        };
        let range = chars.get(*at) == Some(&'-') && chars.get(*at + 1).is_some_and(|c| *c != ']');
        if !range {
            out.push_str(&hex(low));
            continue;
        }
        *at += 1;
        let ClassItem::Char(high) = member(chars, at)? else { return Err("a character range ends in a class") };
        if high < low {
            return Err("invalid character range: the end is before the start");
        }
        out.push_str(&format!("{}-{}", hex(low), hex(high)));
    }
}

fn member(chars: &[char], at: &mut usize) -> Result<ClassItem, &'static str> {
    match chars.get(*at).copied() {
        None => Err("missing closing ]"),
        Some('\\') => escape(chars, at),
        Some(c) => {
            *at += 1;
            Ok(ClassItem::Char(c))
        }
    }
}

/// `[:alpha:]`; `None` if the two characters are literal.
fn posix(chars: &[char], at: &mut usize) -> Result<Option<String>, &'static str> {
    let rest: String = chars[*at + 2..].iter().collect();
    let Some(end) = rest.find(":]") else { return Ok(None) };
    let name = &rest[..end];
    let known = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
        "word", "xdigit",
    ];
    if !known.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err("unknown character class");
    }
    *at += name.chars().count() + 4;
    Ok(Some(format!("[:{name}:]")))
}
