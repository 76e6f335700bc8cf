//! Formats of strings and numbers that a schema can name, as the API server checks them.
//!
//! Formats that it does not know for a type are ignored.

mod mail;

use crate::cel::parse_lenient_duration;
use crate::schema::structural::node::Types;
use napkeeper_core::model::support::name_syntax::{is_label, is_subdomain};
use regex::Regex;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

/// A format that is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Int32,
    Int64,
    Float,
    Double,
    /// A string format: its index in [`TEXTS`].
    Text(usize),
}

/// A string format: its name without dashes, its description, and its check.
struct Text {
    name: &'static str,
    shown: &'static str,
    matches: fn(&str) -> bool,
}

macro_rules! texts {
    ($($name:literal, $shown:literal, $matches:expr;)*) => {
        const TEXTS: &[Text] = &[$(Text { name: $name, shown: $shown, matches: $matches }),*];
    };
}

texts! {
    "datetime", "a time in RFC 3339, such as 2026-11-21T08:00:00Z", date_time;
    "date", "a date such as 2026-11-21", date;
    "duration", "a duration such as 90s or 1h30m", |text| parse_lenient_duration(text).is_some();
    "email", "an email address", mail::address;
    "hostname", "a host name", hostname;
    "ipv4", "an IPv4 address", ipv4;
    "ipv6", "an IPv6 address", ipv6;
    "cidr", "an address range such as 10.0.0.0/16", cidr;
    "mac", "a MAC address", |text| MAC.is_match(text) && [12, 16, 40].contains(&text.bytes().filter(u8::is_ascii_hexdigit).count());
    "uri", "a URI", uri;
    "uuid", "a UUID", |text| UUID.is_match(text);
    "uuid3", "a UUID of version 3", |text| UUID3.is_match(text);
    "uuid4", "a UUID of version 4", |text| UUID4.is_match(text);
    "uuid5", "a UUID of version 5", |text| UUID5.is_match(text);
    "byte", "base64", base64;
    "password", "a password", |_| true;
    "bsonobjectid", "an object id of 24 hexadecimal digits", |text| hexadecimal(text) && text.len() == 24;
    "hexcolor", "a color such as #00ff00", |text| HEX_COLOUR.is_match(text);
    "rgbcolor", "a color such as rgb(0,255,0)", |text| RGB_COLOUR.is_match(text);
    "ssn", "a social security number", |text| SSN.is_match(text);
    "creditcard", "a credit card number", credit_card;
    "isbn", "an ISBN", |text| isbn10(text) || isbn13(text);
    "isbn10", "an ISBN of 10 digits", isbn10;
    "isbn13", "an ISBN of 13 digits", isbn13;
    "k8sshortname", "a name of at most 63 lowercase letters, digits and '-'", is_label;
    "k8slongname", "a name of at most 253 lowercase letters, digits, '-' and '.'", is_subdomain;
}

macro_rules! regexes {
    ($($name:ident = $pattern:literal;)*) => {
        $(static $name: LazyLock<Lazy> = LazyLock::new(|| Lazy(Regex::new($pattern).ok()));)*
    };
}

/// A built-in regular expression; a test checks that each compiles.
struct Lazy(Option<Regex>);

impl Lazy {
    fn is_match(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(text))
    }
}

regexes! {
    MAC = r"^(?:[0-9a-fA-F]{2}(?:(?::[0-9a-fA-F]{2})+|(?:-[0-9a-fA-F]{2})+)|[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4})+)$";
    UUID = r"^(?i-u)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID3 = r"^(?i-u)[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = r"^(?i-u)[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = r"^(?i-u)[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    HEX_COLOUR = r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    RGB_COLOUR = r"^rgb\([\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*,[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*,[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9]{2}|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*\)$";
    SSN = r"^[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}$";
    CARD = r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(?:222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14}|[0-9]{19})$";
    BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$";
    TIME = r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})$";
    HOST = r"^(?:[a-zA-Z0-9\p{S}\p{L}](?:-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?|(?:[a-zA-Z0-9\p{S}\p{L}](?:[-a-zA-Z0-9\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?\.)+[a-zA-Z\p{L}]{2,63})$";
}

impl Format {
    /// The format of a name in a schema of some types, where it is checked.
    pub(crate) fn of(name: &str, types: Types) -> Option<Self> {
        match (types, name) {
            (Types::INTEGER, "int32") => Some(Self::Int32),
            (Types::INTEGER, "int64") => Some(Self::Int64),
            (Types::NUMBER, "float") => Some(Self::Float),
            (Types::NUMBER, "double") => Some(Self::Double),
            (Types::INTEGER | Types::NUMBER | Types::OBJECT | Types::ARRAY | Types::BOOLEAN, _) => None,
            _ => {
                let name = name.replace('-', "");
                TEXTS.iter().position(|text| text.name == name).map(Self::Text)
            }
        }
    }

    pub(crate) const fn is_of_text(self) -> bool {
        matches!(self, Self::Text(_))
    }

    fn text(self) -> Option<&'static Text> {
        match self {
            Self::Text(at) => TEXTS.get(at),
            _ => None,
        }
    }

    /// True when a text has the format.
    pub(crate) fn matches(self, text: &str) -> bool {
        self.text().is_none_or(|format| (format.matches)(text))
    }

    /// Its description.
    pub(crate) fn describe(self) -> &'static str {
        self.text().map_or("a number", |format| format.shown)
    }
}

fn date(text: &str) -> bool {
    let digits = |range: std::ops::Range<usize>| text.get(range).filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
    let parts = (digits(0..4), digits(5..7), digits(8..10));
    let (Some(year), Some(month), Some(day)) = parts else { return false };
    let dashes = text.len() == 10 && text.as_bytes().get(4) == Some(&b'-') && text.as_bytes().get(7) == Some(&b'-');
    match (year.parse(), month.parse(), day.parse()) {
        (Ok(year), Ok(month), Ok(day)) => dashes && jiff::civil::Date::new(year, month, day).is_ok(),
        _ => false,
    }
}

/// A time needs its zone; `t` and `z` may be in either case; 60 seconds do not exist.
fn date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(time)) = (parts.next(), parts.next()) else { return false };
    let two = |at: usize| time.get(at..at + 2).unwrap_or("99");
    date(day) && TIME.is_match(time) && two(0) <= "23" && two(3) <= "59" && two(6) <= "59"
}

fn hostname(text: &str) -> bool {
    HOST.is_match(text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

/// Four numbers, leading zeros allowed, or an IPv6 address that ends in four numbers.
fn ipv4(text: &str) -> bool {
    text.contains('.') && (sloppy_ipv4(text) || sloppy_ipv6(text))
}

fn sloppy_ipv4(text: &str) -> bool {
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u64>().is_ok_and(|n| n < 256)
    };
    let parts: Vec<&str> = text.split('.').collect();
    parts.len() == 4 && parts.into_iter().all(number)
}

fn sloppy_ipv6(text: &str) -> bool {
    let Some((head, tail)) = text.rsplit_once(':').filter(|(_, tail)| tail.contains('.')) else {
        return text.parse::<Ipv6Addr>().is_ok();
    };
    sloppy_ipv4(tail) && format!("{head}:0.0.0.0").parse::<Ipv6Addr>().is_ok()
}

fn ipv6(text: &str) -> bool {
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    zone.is_none() && address.contains(':') && address.parse::<Ipv6Addr>().is_ok()
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let plain = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit());
    let most = if address.contains(':') { 128 } else { 32 };
    let known = sloppy_ipv4(address) || address.contains(':') && sloppy_ipv6(address);
    plain && known && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

/// A URI as the first line of a request has it: absolute, or a path from the root.
fn uri(text: &str) -> bool {
    let control = |c: char| c.is_ascii_control();
    if text.is_empty() || text.chars().any(control) {
        return false;
    }
    if text == "*" {
        return true;
    }
    if let Some(path) = text.strip_prefix('/') {
        let path = path.split('?').next().unwrap_or_default();
        return escapes(path) && (!path.starts_with('/') || authority(path.trim_start_matches('/')));
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(word) {
        return false;
    }
    let rest = rest.split('?').next().unwrap_or_default();
    match rest.strip_prefix("//") {
        Some(rest) => authority(rest) && escapes(rest.split_once('/').map_or("", |(_, path)| path)),
        // The rest after a scheme without slashes is not checked.
        None => !rest.starts_with('/') || escapes(rest),
    }
}

/// Each `%` is followed by two hexadecimal digits.
fn escapes(path: &str) -> bool {
    path.split('%').skip(1).all(|after| after.get(..2).is_some_and(hexadecimal))
}

fn authority(rest: &str) -> bool {
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_of_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(is_of_user) {
        return false;
    }
    let (name, port) = match host.strip_prefix('[') {
        Some(inner) => match inner.split_once(']') {
            Some((address, after)) => {
                let address = address.split("%25").next().unwrap_or_default();
                if address.parse::<Ipv6Addr>().is_err() {
                    return false;
                }
                ("", after)
            }
            None => return false,
        },
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let forbidden = |c: char| matches!(c, ' ' | '<' | '>' | '"' | '\\' | '^' | '`' | '{' | '|' | '}' | '%');
    let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    port_fits && !name.contains(|c: char| forbidden(c) && !matches!(c, '<' | '>' | '"'))
}

fn base64(text: &str) -> bool {
    BASE64.is_match(text)
}

fn hexadecimal(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

/// Luhn's checksum of the digits; separators are ignored.
fn credit_card(text: &str) -> bool {
    let number = digits(text);
    let sum: u32 = number
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, b)| {
            let digit = u32::from(b - b'0') * if i % 2 == 1 { 2 } else { 1 };
            if digit > 9 { digit - 9 } else { digit }
        })
        .sum();
    CARD.is_match(&number) && sum.is_multiple_of(10)
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect()
}

fn isbn10(text: &str) -> bool {
    let text = without_separators(text);
    let value = |(i, b): (usize, u8)| match b {
        b'0'..=b'9' => Some(u32::from(b - b'0')),
        b'X' if i == 9 => Some(10),
        _ => None,
    };
    let values: Option<Vec<u32>> = text.bytes().enumerate().map(value).collect();
    values.is_some_and(|v| v.len() == 10 && v.iter().zip(1..).map(|(d, n)| d * n).sum::<u32>() % 11 == 0)
}

fn isbn13(text: &str) -> bool {
    let text = without_separators(text);
    let all = text.len() == 13 && text.bytes().all(|b| b.is_ascii_digit());
    let weight = |(i, b): (usize, u8)| u32::from(b - b'0') * if i % 2 == 1 { 3 } else { 1 };
    all && text.bytes().enumerate().map(weight).sum::<u32>() % 10 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expression_compiles() {
        for regex in [
            &*MAC,
            &*UUID,
            &*UUID3,
            &*UUID4,
            &*UUID5,
            &*HEX_COLOUR,
            &*RGB_COLOUR,
            &*SSN,
            &*CARD,
            &*BASE64,
            &*TIME,
            &*HOST,
        ] {
            assert!(regex.0.is_some());
        }
    }

    /// Each format with texts that have it, and texts that have not, as the API server 1.36 judges them.
    #[test]
    fn formats_match_the_api_server() {
        let long = "a".repeat(64);
        for (name, good, bad) in [
            (
                "date-time",
                vec!["2026-11-21T08:00:00Z", "2026-11-21t08:00:00z", "2026-11-21T08:00:00.5+01:00"],
                vec!["2026-11-21 08:00:00Z", "2026-11-21T08:00:00", "2026-11-21", "tomorrow", "2026-02-30T08:00:00Z"],
            ),
            ("date", vec!["2026-11-21"], vec!["2026-1-21", "2026-13-01", "21.11.2026", ""]),
            ("duration", vec!["1h", "1d", "1 day", "P1D", "0", "-1.5h", "22 ns"], vec!["5", "", "h", "x"]),
            ("email", vec!["a@b.c", "A B <a@b.c>", "a@b"], vec!["a", "a@", "@b", "a b@c", ""]),
            ("hostname", vec!["a", "a.example", "a-b.example"], vec!["-a", "a.b-", "a..b", "", &long]),
            ("ipv4", vec!["10.0.0.1", "010.0.0.1"], vec!["10.0.0", "10.0.0.256", "::1", ""]),
            ("ipv6", vec!["::1", "2001:db8::1"], vec!["10.0.0.1", ":::", ""]),
            ("cidr", vec!["10.0.0.0/8", "10.0.0.1/32", "::/0"], vec!["10.0.0.0", "10.0.0.0/33", "/8"]),
            ("mac", vec!["00:00:5e:00:53:01", "0000.5e00.5301"], vec!["00:00", "x"]),
            ("uri", vec!["https://a.example/b", "/a", "a:b"], vec!["a", "", "http://[::1", "/%zz"]),
            ("uuid", vec!["00000000-0000-0000-0000-00000000000A", "0000000000000000000000000000000a"], vec!["0", ""]),
            ("byte", vec!["YQ==", "YWJj"], vec!["YQ", "a", "", "Y Q="]),
            ("isbn", vec!["0321751043", "978-0321751041"], vec!["0321751044", ""]),
            ("k8s-short-name", vec!["a-b"], vec!["a.b", "-a", &long]),
            ("password", vec![""], vec![]),
        ] {
            let format = Format::of(name, Types::STRING).unwrap();
            good.iter().for_each(|text| assert!(format.matches(text), "{name} {text}"));
            bad.iter().for_each(|text| assert!(!format.matches(text), "{name} {text}"));
        }
        assert_eq!(Format::of("int32", Types::STRING), None);
        assert_eq!(Format::of("date", Types::INTEGER), None);
    }
}
