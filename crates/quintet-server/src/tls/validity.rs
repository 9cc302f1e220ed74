//! The date of expiry of an X.509 certificate.
//!
//! A certificate is DER: elements of a tag, a length and contents. Its first element holds, in
//! order, a version (tag 0xa0, may be missing), the serial number, the algorithm, the issuer and
//! the validity: two times. RFC 5280, sections 4.1 and 4.1.2.5.

/// Splits the element at the start: its tag, its contents, and what follows.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], mut rest) = bytes.split_first_chunk::<2>()?;
    let mut length = usize::from(length);
    if length >= 0x80 {
        let (digits, behind) = rest.split_at_checked(length & 0x7f)?;
        if digits.is_empty() || digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
        rest = behind;
    }
    let (contents, behind) = rest.split_at_checked(length)?;
    Some((tag, contents, behind))
}

/// When a certificate expires, in seconds since 1970. `None` if it is not a certificate.
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (_, contents, _) = element(certificate)?;
    let (_, mut fields, _) = element(contents)?;
    let (tag, _, behind) = element(fields)?;
    if tag == 0xa0 {
        fields = behind;
    }
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (_, validity, _) = element(fields)?;
    let (_, _, behind) = element(validity)?;
    let (tag, time, _) = element(behind)?;
    parse_time(tag, time)
}

/// `YYMMDDhhmmssZ` (tag 0x17, years 1950 to 2049) or `YYYYMMDDhhmmssZ` (tag 0x18).
fn parse_time(tag: u8, time: &[u8]) -> Option<i64> {
    let digits = time.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number =
        |bytes: &[u8]| bytes.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let (year, rest) = match tag {
        0x17 => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year);
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        0x18 => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year), rest)
        }
        _ => return None,
    };
    let mut pairs = rest.chunks_exact(2).map(number);
    let [month, day, hour, minute, second] = std::array::from_fn(|_| pairs.next());
    let (month, day) = (month?, day?);
    if rest.len() != 10 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(((days(year, month, day) * 24 + hour?) * 60 + minute?) * 60 + second?)
}

/// Days since 1970 of a date in the Gregorian calendar. A year begins in March here, so that the
/// leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_since_1970() {
        for (tag, text, seconds) in [
            (0x17, "700101000000Z", Some(0)),
            (0x17, "000229235959Z", Some(951_868_799)),
            (0x17, "491231235959Z", Some(2_524_607_999)),
            (0x18, "20500101000000Z", Some(2_524_608_000)),
            (0x18, "99991231235959Z", Some(253_402_300_799)),
            (0x18, "700101000000Z", None),
            (0x17, "20500101000000Z", None),
            (0x17, "701301000000Z", None),
            (0x17, "70010100000xZ", None),
            (0x19, "700101000000Z", None),
            (0x17, "", None),
        ] {
            assert_eq!(parse_time(tag, text.as_bytes()), seconds, "{text}");
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_certificate() {
        for bytes in
            [&b""[..], b"\x30", b"\x30\x84\xff\xff\xff\xff", b"\x30\x85\0\0\0\0\0", &[0x30; 64]]
        {
            assert_eq!(not_after(bytes), None, "{bytes:?}");
        }
    }
}
