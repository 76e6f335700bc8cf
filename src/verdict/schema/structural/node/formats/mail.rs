//! Mail addresses as Go's `net/mail` reads them: `a@b`, `<a@b>` or `A Name <a@b>`.

pub(crate) fn address(text: &str) -> bool {
    // A comment is allowed at the end.
    let text = match text.strip_suffix(')').and_then(|inner| inner.rsplit_once('(')) {
        Some((before, comment)) if !comment.contains(')') => before,
        _ => text,
    };
    let text = text.trim_matches([' ', '\t']);
    match text.strip_suffix('>').and_then(|inner| inner.rsplit_once('<')) {
        Some((name, inner)) => phrase(name.trim_matches([' ', '\t'])) && plain(inner),
        None => plain(text),
    }
}

/// A name before an address: words or quoted strings.
fn phrase(name: &str) -> bool {
    let quoted = name.len() > 1 && name.starts_with('"') && name.ends_with('"');
    name.is_empty() || quoted || name.split([' ', '\t']).all(|word| word.is_empty() || word.split('.').all(atom))
}

fn plain(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.strip_prefix('[').and_then(|inner| inner.strip_suffix(']'));
    let domain = literal.map_or_else(|| dotted(domain), |inner| !inner.is_empty() && !inner.contains(['[', ']', '\\']));
    (quoted || dotted(local)) && domain
}

fn dotted(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && atom(part))
}

fn atom(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c))
}
