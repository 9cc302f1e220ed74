//! Numbers as Redis parses and prints them.
//!
//! Clients compare replies as text, so the text must be Redis's: integers without a sign or zeros
//! in front, floating-point numbers with 17 significant digits.

/// Parses a 64-bit integer. Returns `None` for a plus sign, leading zeros, spaces and overflow.
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match text {
        [b'-', rest @ ..] => (rest, true),
        _ => (text, false),
    };
    match digits {
        [b'0'] => return if is_negative { None } else { Some(0) },
        [] | [b'0', ..] => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut value = 0_i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        value = value.checked_mul(10)?;
        value = if is_negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

/// Parses an unsigned 64-bit integer.
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => Some(0),
        [] | [b'0' | b'+', ..] => None,
        _ => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// Parses a floating-point number. Infinities are accepted, NaN and surrounding spaces are not.
pub(crate) fn parse_f64(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number = match text.to_ascii_lowercase().as_str() {
        "inf" | "+inf" | "infinity" | "+infinity" => f64::INFINITY,
        "-inf" | "-infinity" => f64::NEG_INFINITY,
        "nan" | "+nan" | "-nan" => return None,
        _ => match text.parse() {
            Ok(number) => number,
            Err(_) => parse_hexadecimal(text)?,
        },
    };
    // Too large a number is no infinity in Redis but an error.
    let is_named = text.bytes().any(|byte| byte.eq_ignore_ascii_case(&b'i'));
    (number.is_finite() || is_named).then_some(number)
}

/// Parses `0x10`, which C's `strtod` accepts.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (digits, sign) = match text.strip_prefix('-') {
        Some(rest) => (rest, -1.0),
        None => (text.strip_prefix('+').unwrap_or(text), 1.0),
    };
    let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"))?;
    let value = u32::from_str_radix(digits, 16).ok()?;
    Some(sign * f64::from(value))
}

/// Formats a score as C's `%.17g` does.
pub(crate) fn format_score(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..17).contains(&exponent) {
        let mantissa = trim_fraction(mantissa);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
    let decimals = usize::try_from(16 - exponent).unwrap_or(0);
    trim_fraction(&format!("{value:.decimals$}")).to_owned()
}

/// Formats the result of `INCRBYFLOAT`: no exponent, no zeros behind the fraction.
pub(crate) fn format_decimal(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value}") }
}

/// Removes zeros at the end of a fraction, and a point without a fraction.
fn trim_fraction(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Maps a score to 8 bytes whose order as bytes is the order of the scores.
pub(crate) fn ordered_score(score: f64) -> [u8; 8] {
    // Both zeros are equal as scores.
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    ordered.to_be_bytes()
}

/// The inverse of [`ordered_score`].
pub(crate) fn score_of(ordered: [u8; 8]) -> f64 {
    let ordered = u64::from_be_bytes(ordered);
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            ("", None),
            ("-", None),
            (" 1", None),
            ("1x", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn scores_print_as_c_does() {
        for (value, text) in [
            (1.0, "1"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (1e20, "1e+20"),
            (1e-5, "1.0000000000000001e-05"),
            (123_456_789.0, "123456789"),
            (f64::NEG_INFINITY, "-inf"),
            (3.15, "3.1499999999999999"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
        ] {
            assert_eq!(format_score(value), text);
        }
    }

    #[test]
    fn ordered_scores_sort_as_numbers() {
        let numbers = [f64::NEG_INFINITY, -1e300, -1.0, -1e-300, 0.0, 1e-300, 2.0, f64::INFINITY];
        for pair in numbers.windows(2) {
            assert!(ordered_score(pair[0]) < ordered_score(pair[1]), "{pair:?}");
        }
        for number in numbers {
            assert_eq!(score_of(ordered_score(number)).to_bits(), number.to_bits());
        }
    }
}
