//! Named formats: `format.dns1123Label().validate(name)`.

use crate::cel::cost_limit::Budget;
use crate::cel::error::{EvalError, no_overload};
use crate::cel::library::function::CallStyle::{Global, Method};
use crate::cel::library::function::FunctionDef;
use crate::cel::library::kubernetes::base64;
use crate::cel::library::kubernetes::url::Url;
use crate::cel::library::time::timestamp::{self, CelTimestamp};
use crate::cel::value::Val;
use crate::cel::value::opaque::Opaque;
use napkeeper_core::model::support::name_syntax::{is_label_of_any_length, is_name_part_of_any_length, masked};

type Result<T> = std::result::Result<T, EvalError>;

macro_rules! formats {
    ($($name:literal = $format:ident;)*) => {
        /// A named format.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Format {
            $($format),*
        }

        pub(crate) const FUNCTIONS: &[FunctionDef] = &[
            FunctionDef("validate", Method, [2, 2], validate),
            FunctionDef("format.named", Global, [1, 1], named),
            $(FunctionDef(concat!("format.", $name), Global, [0, 0], |_, _| Ok(value(Format::$format)))),*
        ];

        fn by_name(name: &str) -> Option<Format> {
            match name {
                $($name => Some(Format::$format),)*
                _ => None,
            }
        }
    };
}

formats! {
    "dns1123Label" = Dns1123Label;
    "dns1123Subdomain" = Dns1123Subdomain;
    "dns1035Label" = Dns1035Label;
    "qualifiedName" = QualifiedName;
    "dns1123LabelPrefix" = Dns1123LabelPrefix;
    "dns1123SubdomainPrefix" = Dns1123SubdomainPrefix;
    "dns1035LabelPrefix" = Dns1035LabelPrefix;
    "labelValue" = LabelValue;
    "uri" = Uri;
    "uuid" = Uuid;
    "byte" = Byte;
    "date" = Date;
    "datetime" = DateTime;
}

fn value(format: Format) -> Val {
    Val::opaque(Opaque::Format(format))
}

fn named(_: &mut Budget, args: &[Val]) -> Result<Val> {
    match args {
        [Val::Text(name)] => Ok(by_name(name).map_or(Val::Optional(None), |format| Val::some(value(format)))),
        _ => no_overload(),
    }
}

fn validate(budget: &mut Budget, args: &[Val]) -> Result<Val> {
    let [Val::Opaque(opaque), Val::Text(text)] = args else { return no_overload() };
    let Opaque::Format(format) = opaque.as_ref() else { return no_overload() };
    budget.spend_for_length(text.len())?;
    let faults: Vec<Val> = violations(*format, text).into_iter().map(Val::text).collect();
    Ok(if faults.is_empty() { Val::Optional(None) } else { Val::some(Val::list(faults)) })
}

/// Violations of the format.
fn violations(format: Format, text: &str) -> Vec<String> {
    let one = |valid: bool, message: &str| if valid { Vec::new() } else { vec![message.to_owned()] };
    match format {
        Format::Dns1123Label => label(text, false),
        Format::Dns1123LabelPrefix => label(&masked(text), false),
        Format::Dns1035Label => label(text, true),
        Format::Dns1035LabelPrefix => label(&masked(text), true),
        Format::Dns1123Subdomain => subdomain(text),
        Format::Dns1123SubdomainPrefix => subdomain(&masked(text)),
        Format::QualifiedName => qualified_name(text),
        Format::LabelValue => label_value(text),
        Format::Uri => one(Url::parse(text).is_some(), "is not an absolute URI"),
        Format::Uuid => one(is_uuid(text), "does not match the UUID format"),
        Format::Byte => one(!text.is_empty() && base64::decode(text).is_some(), "invalid base64"),
        Format::Date => one(timestamp::parse_date(text).is_some(), "invalid date"),
        Format::DateTime => one(is_date_time(text), "invalid datetime"),
    }
}

fn too_long(text: &str, max_length: usize) -> Vec<String> {
    if text.len() > max_length { vec![format!("must be no more than {max_length} bytes")] } else { Vec::new() }
}

fn label(text: &str, letter_first: bool) -> Vec<String> {
    let mut faults = too_long(text, 63);
    let begins = !letter_first || text.starts_with(|c: char| c.is_ascii_lowercase());
    if !(begins && is_label_of_any_length(text)) {
        let first = if letter_first { "begin with a letter" } else { "begin with a letter or digit" };
        faults.push(format!("must consist of lower case letters, digits and '-', {first} and end with one"));
    }
    faults
}

fn subdomain(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    if !text.split('.').all(is_label_of_any_length) {
        faults.push(
            "must consist of lower case letters, digits, '-' and '.', and begin and end with one of the first two"
                .to_owned(),
        );
    }
    faults
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut parts = text.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => return vec!["must be a name, perhaps with a prefix and '/' before it".to_owned()],
    };
    let mut faults = match prefix {
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => subdomain(prefix),
        None => Vec::new(),
    };
    faults.extend(too_long(name, 63));
    if !is_name_part_of_any_length(name) {
        faults.push(
            "name part must consist of letters, digits and '-_.', and begin and end with one of the first two"
                .to_owned(),
        );
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !text.is_empty() && !is_name_part_of_any_length(text) {
        faults.push("must be empty, or letters, digits and '-_.', with one of the first two at both ends".to_owned());
    }
    faults
}

/// 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12; the dashes may be absent.
fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for (i, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if let (true, Some((b'-', after))) = (i > 0, rest.split_first()) {
            rest = after;
        }
        match rest.split_at_checked(length) {
            Some((group, after)) if group.iter().all(u8::is_ascii_hexdigit) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// The formatter of the API server accepts lower case letters and hardly checks the time.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, clock)) = lower.split_once('t') else { return false };
    timestamp::parse_date(date).is_some() && CelTimestamp::parse(&format!("{date}T{}", clock.to_uppercase())).is_some()
}
