//! Parsers for the values of arguments.

use std::time::Duration;

use quintet::EngineKind;

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

/// Parses a time with its unit: ms, s, m, h or d.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 500ms, 30s, 5m, 2h or 7d");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_with_their_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("2GiB"), Ok(2 << 30));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("7d"), Ok(Duration::from_hours(7 * 24)));
        for wrong in ["", "M", "1.5G", "-1", "5x", "99999999999999999999", "99999999999T"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "5", "s", "-1s", "1y", "99999999999999999d"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
