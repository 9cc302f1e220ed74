//! Parsers for the values of arguments.

use quintet::EngineKind;
pub(super) use quintet_bench::args::duration as parse_duration;

use crate::formats::Column;

pub(super) fn parse_engine(text: &str) -> Result<EngineKind, String> {
    text.parse::<EngineKind>().map_err(|error| error.to_string())
}

pub(super) fn parse_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("an option is NAME=VALUE".to_owned()),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "clap's signature for parsers")]
pub(super) fn parse_column(text: &str) -> Result<Column, String> {
    Ok(Column::from(text))
}

/// Parses a number of bytes. The units K, M, G and T are powers of 1024; `KB` and `KiB` mean `K`.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size such as 1048576, 64M or 2G");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        for wrong in ["", "M", "1.5G", "-1", "5x", "99999999999999999999", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
