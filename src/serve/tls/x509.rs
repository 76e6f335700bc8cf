//! Reads validity and public key of an X.509 certificate, from its DER (RFC 5280, 4.1).

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// `notAfter` in seconds since 1970; `None` when the certificate cannot be read.
pub(crate) fn not_after(der: &[u8]) -> Option<i64> {
    validity(der).map(|(_, not_after)| not_after)
}

/// `notBefore` and `notAfter` in seconds since 1970; `None` when the certificate cannot be read.
pub(crate) fn validity(der: &[u8]) -> Option<(i64, i64)> {
    let mut fields = from_validity(der)?;
    let times = &mut expect(&mut fields, SEQUENCE)?;
    let mut read = || {
        let (tag, text) = next(times)?;
        time(tag, std::str::from_utf8(text).ok()?)
    };
    Some((read()?, read()?))
}

/// `subjectPublicKeyInfo`, as DER; `None` when the certificate cannot be read.
pub(crate) fn public_key(der: &[u8]) -> Option<&[u8]> {
    let mut fields = from_validity(der)?;
    // Validity, subject.
    for tag in [SEQUENCE, SEQUENCE] {
        expect(&mut fields, tag)?;
    }
    let whole = fields;
    expect(&mut fields, SEQUENCE)?;
    whole.get(..whole.len() - fields.len())
}

/// The fields of a certificate from the validity on.
fn from_validity(der: &[u8]) -> Option<&[u8]> {
    let certificate = &mut &*der;
    let body = &mut expect(certificate, SEQUENCE)?;
    let mut fields = expect(body, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        expect(&mut fields, VERSION)?;
    }
    // Serial number, signature algorithm, issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        expect(&mut fields, tag)?;
    }
    Some(fields)
}

fn expect<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    next(input).filter(|(found, _)| *found == tag).map(|(_, content)| content)
}

/// Takes one element: its tag and content.
fn next<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[tag, first], mut rest) = input.split_first_chunk()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let (bytes, after) = rest.split_at_checked(usize::from(first & 0x7f)).filter(|(bytes, _)| bytes.len() <= 4)?;
        length = bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        rest = after;
    }
    let (content, after) = rest.split_at_checked(length)?;
    *input = after;
    Some((tag, content))
}

fn time(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let (year, rest) = match tag {
        UTC_TIME if digits.len() == 12 => {
            let year: i64 = digits[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &digits[2..])
        }
        GENERALIZED_TIME if digits.len() == 14 => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| rest[at..at + 2].parse::<i64>().ok();
    let (month, day, hour, minute, second) = (part(0)?, part(2)?, part(4)?, part(6)?, part(8)?);
    Some(days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar, with years that begin in March, so that leap days are last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_read() {
        for (year, month, day, seconds) in
            [(2030, 1, 2, 1_893_542_400), (2049, 12, 31, 2_524_521_600), (2100, 3, 1, 4_107_542_400)]
        {
            let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            assert_eq!(not_after(certificate.der()), Some(seconds), "{year}");
            // Any cut is refused or read, never a panic.
            let der = certificate.der();
            assert!((0..der.len()).all(|n| not_after(&der[..n]).is_none()));
        }
    }

    #[test]
    fn invalid_certificates_have_no_expiry() {
        for bytes in [&[][..], &[0x30], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x89], b"hello there"] {
            assert_eq!(not_after(bytes), None);
        }
    }
}
