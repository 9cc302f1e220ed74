//! Typed keys and values as text, for the command line.
//!
//! Numbers are written as Rust writes them (`-1`, `0.5`, `1e300`, `NaN`, `inf`), text as it is,
//! blobs as hexadecimal digits. A composite key is a JSON array: numbers (those that JSON lacks,
//! as strings), strings, blobs as strings of hexadecimal digits.

use std::str::FromStr;

use super::{
    keys::{KeyPart, KeyPartRef as _},
    tag::TypeTag,
    values::{TypedValue, ValueRef as _},
};
use crate::{Error, Result, util::format::hex};

fn refuse(text: &str, what: &str) -> Error {
    Error::InvalidOption { name: "type".to_owned(), what: format!("{text:?} is not {what}") }
}

fn number<T: FromStr>(text: &str, tag: TypeTag) -> Result<T> {
    text.trim().parse().map_err(|_| refuse(text, &expected(tag)))
}

/// Returns the name of a type of numbers with its article, and the numbers that it accepts.
fn expected(tag: TypeTag) -> String {
    match tag {
        TypeTag::U32 => format!("a u32: a whole number from 0 to {}", u32::MAX),
        TypeTag::U64 => format!("a u64: a whole number from 0 to {}", u64::MAX),
        TypeTag::I64 => format!("an i64: a whole number from {} to {}", i64::MIN, i64::MAX),
        float => format!("an {float}: a number such as -1, 0.5, 1e30, inf or NaN"),
    }
}

fn blob(text: &str) -> Result<Vec<u8>> {
    let wrong = || refuse(text, "a blob: pairs of hexadecimal digits");
    let digits = text.as_bytes();
    let (pairs, []) = digits.as_chunks::<2>() else { return Err(wrong()) };
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
    pairs
        .iter()
        .map(|[high, low]| Some((nibble(*high)? << 4) | nibble(*low)?))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(wrong)
}

fn put_part(tag: TypeTag, text: &str, out: &mut Vec<u8>, is_last: bool) -> Result<()> {
    match tag {
        TypeTag::U32 => number::<u32>(text, tag)?.put(out, is_last),
        TypeTag::U64 => number::<u64>(text, tag)?.put(out, is_last),
        TypeTag::I64 => number::<i64>(text, tag)?.put(out, is_last),
        TypeTag::F32 => number::<f32>(text, tag)?.put(out, is_last),
        TypeTag::F64 => number::<f64>(text, tag)?.put(out, is_last),
        TypeTag::String => text.put(out, is_last),
        TypeTag::Blob => blob(text)?.put(out, is_last),
    }
    Ok(())
}

fn read_part(tag: TypeTag, bytes: &mut &[u8], is_last: bool) -> Option<String> {
    Some(match tag {
        TypeTag::U32 => u32::take(bytes, is_last)?.to_string(),
        TypeTag::U64 => u64::take(bytes, is_last)?.to_string(),
        TypeTag::I64 => i64::take(bytes, is_last)?.to_string(),
        TypeTag::F32 => f32::take(bytes, is_last)?.to_string(),
        TypeTag::F64 => f64::take(bytes, is_last)?.to_string(),
        TypeTag::String => String::take(bytes, is_last)?,
        TypeTag::Blob => hex(&Vec::<u8>::take(bytes, is_last)?),
    })
}

pub(super) fn key_from(tags: &[TypeTag], text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    if let [tag] = tags {
        put_part(*tag, text, &mut out, true)?;
        return Ok(out);
    }
    let wrong = || refuse(text, &format!("a JSON array of {} values", tags.len()));
    let parts = json::array(text).filter(|parts| parts.len() == tags.len()).ok_or_else(wrong)?;
    for (index, (tag, part)) in tags.iter().zip(&parts).enumerate() {
        put_part(*tag, part, &mut out, index + 1 == tags.len())?;
    }
    Ok(out)
}

pub(super) fn key_to(tags: &[TypeTag], mut bytes: &[u8]) -> Option<String> {
    if let [tag] = tags {
        return read_part(*tag, &mut bytes, true).filter(|_| bytes.is_empty());
    }
    let mut text = String::from("[");
    for (index, tag) in tags.iter().enumerate() {
        let part = read_part(*tag, &mut bytes, index + 1 == tags.len())?;
        if index > 0 {
            text.push(',');
        }
        let is_number = !matches!(tag, TypeTag::String | TypeTag::Blob);
        if is_number && part.ends_with(|last: char| last.is_ascii_digit()) {
            text.push_str(&part);
        } else {
            json::put_string(&mut text, &part);
        }
    }
    text.push(']');
    bytes.is_empty().then_some(text)
}

pub(super) fn value_from(tag: TypeTag, text: &str) -> Result<Vec<u8>> {
    let bytes = |bytes: &[u8]| Ok(bytes.to_vec());
    match tag {
        TypeTag::U32 => number::<u32>(text, tag)?.with_bytes(bytes),
        TypeTag::U64 => number::<u64>(text, tag)?.with_bytes(bytes),
        TypeTag::I64 => number::<i64>(text, tag)?.with_bytes(bytes),
        TypeTag::F32 => number::<f32>(text, tag)?.with_bytes(bytes),
        TypeTag::F64 => number::<f64>(text, tag)?.with_bytes(bytes),
        TypeTag::String => text.with_bytes(bytes),
        TypeTag::Blob => blob(text),
    }
}

pub(super) fn value_to(tag: TypeTag, bytes: &[u8]) -> Option<String> {
    Some(match tag {
        TypeTag::U32 => u32::decode_value(bytes)?.to_string(),
        TypeTag::U64 => u64::decode_value(bytes)?.to_string(),
        TypeTag::I64 => i64::decode_value(bytes)?.to_string(),
        TypeTag::F32 => f32::decode_value(bytes)?.to_string(),
        TypeTag::F64 => f64::decode_value(bytes)?.to_string(),
        TypeTag::String => String::decode_value(bytes)?,
        TypeTag::Blob => hex(bytes),
    })
}

/// The part of JSON that composite keys need: an array of numbers and strings.
///
/// Not a crate, because the library has no other use for JSON.
mod json {
    use std::{fmt::Write as _, iter::Peekable, str::Chars};

    type Characters<'a> = Peekable<Chars<'a>>;

    /// The elements of an array of numbers and strings, as text.
    pub(super) fn array(text: &str) -> Option<Vec<String>> {
        let mut rest = text.chars().peekable();
        let mut elements = Vec::new();
        expect(&mut rest, '[')?;
        loop {
            skip_spaces(&mut rest);
            let element =
                if rest.peek() == Some(&'"') { string(&mut rest)? } else { bare(&mut rest)? };
            elements.push(element);
            skip_spaces(&mut rest);
            match rest.next()? {
                ',' => {}
                ']' => break,
                _ => return None,
            }
        }
        skip_spaces(&mut rest);
        rest.next().is_none().then_some(elements)
    }

    fn skip_spaces(rest: &mut Characters<'_>) {
        while rest.next_if(char::is_ascii_whitespace).is_some() {}
    }

    fn expect(rest: &mut Characters<'_>, wanted: char) -> Option<()> {
        skip_spaces(rest);
        rest.next_if_eq(&wanted).map(drop)
    }

    fn bare(rest: &mut Characters<'_>) -> Option<String> {
        let is_part = |c: &char| c.is_ascii_alphanumeric() || "+-.".contains(*c);
        let text: String = std::iter::from_fn(|| rest.next_if(|c| is_part(c))).collect();
        (!text.is_empty()).then_some(text)
    }

    fn string(rest: &mut Characters<'_>) -> Option<String> {
        expect(rest, '"')?;
        let mut text = String::new();
        loop {
            text.push(match rest.next()? {
                '"' => return Some(text),
                '\\' => escaped(rest)?,
                other => other,
            });
        }
    }

    fn escaped(rest: &mut Characters<'_>) -> Option<char> {
        Some(match rest.next()? {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => {
                let first = hex4(rest)?;
                if !(0xd800..0xdc00).contains(&first) {
                    return char::from_u32(first);
                }
                (rest.next()? == '\\' && rest.next()? == 'u').then_some(())?;
                let second = hex4(rest)?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
                char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + second)?
            }
            same @ ('"' | '\\' | '/') => same,
            _ => return None,
        })
    }

    fn hex4(rest: &mut Characters<'_>) -> Option<u32> {
        (0..4).try_fold(0, |number, _| Some(number * 16 + rest.next()?.to_digit(16)?))
    }

    /// Appends `text` as a JSON string.
    pub(super) fn put_string(out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                c if c.is_control() => {
                    let _ = write!(out, "\\u{:04x}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::util::types::{KeyRef as _, TableTypes};

    proptest! {
        #[test]
        fn keys_round_trip_as_text(a: String, b: f64, c: i64, d: Vec<u8>) {
            let types = TableTypes::of::<(String, f64, i64, Vec<u8>), u32>();
            let bytes = (a.clone(), b, c, d).encode();
            let text = types.key_to_text(&bytes).unwrap();
            prop_assert_eq!(types.key_from_text(&text).unwrap(), bytes, "{}", text);
            let types = TableTypes::of::<String, u32>();
            prop_assert_eq!(types.key_to_text(a.as_bytes()).unwrap(), a);
        }

        #[test]
        fn values_round_trip_as_text(a: u64, b: f32, c: Vec<u8>) {
            for (tag, bytes) in [
                (TypeTag::U64, a.to_le_bytes().to_vec()),
                (TypeTag::F32, b.to_le_bytes().to_vec()),
                (TypeTag::Blob, c),
            ] {
                let text = value_to(tag, &bytes).unwrap();
                prop_assert_eq!(value_from(tag, &text).unwrap(), bytes);
            }
        }

        #[test]
        fn any_text_is_a_key_or_an_error(text: String) {
            for tags in [&[TypeTag::F64][..], &[TypeTag::Blob], &[TypeTag::String, TypeTag::U32]] {
                let _ = key_from(tags, &text);
            }
        }
    }

    #[test]
    fn composite_keys_are_json_arrays() {
        let types = TableTypes::of::<(String, i64), u32>();
        let bytes = ("a\"\n\u{1f600}".to_owned(), -5_i64).encode();
        assert_eq!(types.key_to_text(&bytes).unwrap(), "[\"a\\\"\\u000a\u{1f600}\",-5]");
        let same = r#" [ "a\"\n\ud83d\ude00" , -5 ] "#;
        assert_eq!(types.key_from_text(same).unwrap(), bytes);
        let floats = TableTypes::of::<(f64, u32), u32>();
        let text = floats.key_to_text(&(f64::NEG_INFINITY, 1_u32).encode()).unwrap();
        assert_eq!(text, r#"["-inf",1]"#);
    }

    #[test]
    fn wrong_text_says_what_was_expected() {
        const MINUS_ONE: &str = "option type: \"-1\" is not a u64: a whole number from 0 to \
                                 18446744073709551615";
        let message = |types: &TableTypes, text| types.key_from_text(text).unwrap_err().to_string();
        let number = TableTypes::of::<u64, u32>();
        assert_eq!(message(&number, "-1"), MINUS_ONE);
        let pair = TableTypes::of::<(u64, u64), u32>();
        for text in ["1,2", "[1]", "[1,2", "[1,2,3]", "[1,2]x", "[]", "[\"\\x\",1]"] {
            assert!(message(&pair, text).contains("a JSON array of 2 values"), "{text}");
        }
        let blob = TableTypes::of::<Vec<u8>, u32>();
        assert!(message(&blob, "abc").contains("hexadecimal"));
    }
}
