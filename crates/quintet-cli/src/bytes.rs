//! Converts arbitrary bytes to text and back: escapes, hexadecimal, JSON.
//!
//! A key may contain a line break, a NUL or half a character. Printed without escapes, it would
//! break columns or act on the terminal.
//!
//! Invariants: `unescape(escape(bytes)) == bytes`. The result of [`escape`] has no control
//! character, no line break and no character that reorders text.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Formats `bytes` as one line of text. UTF-8 is unchanged. Backslash, control characters, line and
/// paragraph separators, text direction marks and bytes that are not UTF-8 become `\\`, `\n`,
/// `\t`, `\r`, `\0`, `\u{..}` and `\x..`.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    escape_into(&mut out, bytes, false);
    out
}

/// As [`escape`], in double quotes. A quote in `bytes` becomes `\"`.
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    escape_into(&mut out, bytes, true);
    out.push('"');
    out
}

fn escape_into(out: &mut String, bytes: &[u8], in_quotes: bool) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\0' => out.push_str("\\0"),
                '"' if in_quotes => out.push_str("\\\""),
                c if needs_escape(c) => {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

/// Whether a character would act on a terminal or reorder text.
fn needs_escape(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// Reverses [`escape`]. The error describes the wrong escape.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        rest = unescape_one(rest, &mut out)?;
    }
    Ok(out)
}

/// Decodes one escape after its backslash, and returns the text after the escape.
fn unescape_one<'a>(text: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], String> {
    let (kind, rest) = text.split_first().ok_or("a lone \\ at the end")?;
    match kind {
        b'n' => out.push(b'\n'),
        b'r' => out.push(b'\r'),
        b't' => out.push(b'\t'),
        b'0' => out.push(0),
        b'\\' | b'"' => out.push(*kind),
        b'x' => {
            let (digits, rest) = rest.split_at_checked(2).ok_or("\\x needs two digits")?;
            out.extend(parse_hex(digits).ok_or("\\x needs two hexadecimal digits")?);
            return Ok(rest);
        }
        b'u' => {
            let body = rest.strip_prefix(b"{").ok_or("\\u needs {hexadecimal digits}")?;
            let end = body.iter().position(|b| *b == b'}').ok_or("\\u{ is not closed by }")?;
            let (digits, rest) = body.split_at_checked(end).ok_or("\\u{ is not closed by }")?;
            let character = std::str::from_utf8(digits)
                .ok()
                .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                .and_then(char::from_u32)
                .ok_or("\\u{..} does not name a character")?;
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(rest.get(1..).unwrap_or(&[]));
        }
        other => {
            let shown = escape(&[*other]);
            return Err(format!("unknown escape \\{shown}; use \\\\ for a backslash"));
        }
    }
    Ok(rest)
}

/// Lower-case hexadecimal digits, two a byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// Reverses [`hex`]; upper case is taken too. `None` for anything else.
pub fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some((nibble(*high)? << 4) | nibble(*low)?)).collect()
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Adds `bytes` to a JSON object: as text under `name`, or where they are not UTF-8, as
/// hexadecimal digits under `name_hex`.
pub fn put_json(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_hex"), hex(bytes).into()),
    };
}

/// Reverses [`put_json`]. `Ok(None)` where the object has neither field; null is the empty value.
pub fn get_json(object: &Map<String, Value>, name: &str) -> Result<Option<Vec<u8>>, String> {
    let hex_name = format!("{name}_hex");
    match (object.get(name), object.get(&hex_name)) {
        (None, None) => Ok(None),
        (Some(Value::Null), None) => Ok(Some(Vec::new())),
        (Some(Value::String(text)), None) => Ok(Some(text.clone().into_bytes())),
        (None, Some(Value::String(digits))) => parse_hex(digits.as_bytes())
            .map(Some)
            .ok_or_else(|| format!("field {hex_name:?} is not pairs of hexadecimal digits")),
        (Some(_), None) => Err(format!("field {name:?} is not a string")),
        (None, Some(_)) => Err(format!("field {hex_name:?} is not a string")),
        (Some(_), Some(_)) => Err(format!("both {name:?} and {hex_name:?} are given")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_awkward_text_survives_escaping() {
        let mut all: Vec<u8> = (0..=255).collect();
        all.extend_from_slice("plain \u{e9} \u{202e} \u{1f600} \"quoted\" \\n \u{feff}".as_bytes());
        let text = escape(&all);
        assert!(text.chars().all(|c| !needs_escape(c)), "{text}");
        assert_eq!(unescape(text.as_bytes()).unwrap(), all);
        let quoted = quote(&all);
        assert_eq!(unescape(&quoted.as_bytes()[1..quoted.len() - 1]).unwrap(), all);
    }

    #[test]
    fn bad_escapes_are_refused() {
        for text in ["\\", "\\q", "\\x1", "\\xzz", "\\u", "\\u{", "\\u{}", "\\u{d800}", "\\u{zz}"] {
            assert!(unescape(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn hexadecimal_round_trips_and_odd_digits_are_refused() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(parse_hex(hex(&all).as_bytes()).unwrap(), all);
        assert_eq!(parse_hex(b"AbcD").unwrap(), [0xab, 0xcd]);
        assert_eq!(parse_hex(b"abc"), None);
        assert_eq!(parse_hex(b"ag"), None);
    }

    #[test]
    fn json_fields_hold_any_bytes() {
        for bytes in [&b""[..], b"text", b"\xff\x00", b"\0", "\u{e9}\n".as_bytes()] {
            let mut object = Map::new();
            put_json(&mut object, "key", bytes);
            assert_eq!(get_json(&object, "key").unwrap().unwrap(), bytes);
        }
    }
}
