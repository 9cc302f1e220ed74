//! Parsers of command-line values, for `clap` attributes and for option strings.

use std::{ops::RangeInclusive, time::Duration};

use quintet::Options;

use crate::data::{KEY_BYTES, VALUE_BYTES};

/// Largest count that [`count`] accepts. Products of two counts and a record size stay below
/// `u64::MAX` in practice, and a larger number on a command line is a typing error.
const COUNT_MAX: u64 = 1 << 50;

/// Limits of the log that a command line gives. The parsers of sizes differ between commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogLimits {
    /// See [`Options::sync_interval`].
    pub sync_interval: Option<Duration>,
    /// See [`Options::recovery_budget`].
    pub recovery_budget: Option<u64>,
    /// See [`Options::checkpoint_interval`].
    pub checkpoint_interval: Option<Duration>,
}

impl LogLimits {
    /// Adds the limits that are given to the options of a database.
    pub fn apply(self, mut options: Options) -> Options {
        if let Some(interval) = self.sync_interval {
            options = options.sync_interval(interval);
        }
        if let Some(bytes) = self.recovery_budget {
            options = options.recovery_budget(bytes);
        }
        if let Some(interval) = self.checkpoint_interval {
            options = options.checkpoint_interval(interval);
        }
        options
    }
}

/// Parses a count: decimal digits with optional `_` separators and an optional suffix `k`, `M` or
/// `G` (powers of 1000).
pub fn count(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let (digits, unit) = match digits.as_bytes().last() {
        Some(b'k' | b'K') => (digits.trim_end_matches(['k', 'K']), 1_000),
        Some(b'm' | b'M') => (digits.trim_end_matches(['m', 'M']), 1_000_000),
        Some(b'g' | b'G') => (digits.trim_end_matches(['g', 'G']), 1_000_000_000),
        _ => (digits.as_str(), 1),
    };
    let number: u64 = digits.parse().map_err(|_| "not a count such as 2000000, 2M or 500k")?;
    number
        .checked_mul(unit)
        .filter(|count| *count <= COUNT_MAX)
        .ok_or_else(|| format!("greater than the maximum {COUNT_MAX}"))
}

/// Parses a size in bytes: a [`count`], or a count with the suffix `KiB`, `MiB` or `GiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30)];
    let unit = units.into_iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    count(digits)?.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

fn size_within(text: &str, allowed: &RangeInclusive<usize>) -> Result<usize, String> {
    let size = count(text)?;
    usize::try_from(size)
        .ok()
        .filter(|size| allowed.contains(size))
        .ok_or_else(|| format!("sizes are from {} to {} bytes", allowed.start(), allowed.end()))
}

/// Parses the size of a key in bytes, within [`KEY_BYTES`].
pub fn key_bytes(text: &str) -> Result<usize, String> {
    size_within(text, &KEY_BYTES)
}

/// Parses the size of a value in bytes, within [`VALUE_BYTES`].
pub fn value_bytes(text: &str) -> Result<usize, String> {
    size_within(text, &VALUE_BYTES)
}

/// Parses a rate in operations per second.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate >= 1e-3);
    rate.ok_or_else(|| "not a rate of at least 0.001 operations per second".to_owned())
}

/// Parses a time with its unit: ms, s, m, h or d.
pub fn duration(text: &str) -> Result<Duration, String> {
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

/// Parses an option `name=value`.
pub fn option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("not of the form name=value")?;
    if name.is_empty() {
        return Err("the name is empty".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a factor for numbers of records and operations: above 0, at most 100.
pub fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| *scale > 0.0 && *scale <= 100.0);
    scale.ok_or_else(|| "not a factor such as 0.01".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_with_their_units() {
        assert_eq!(count("2_000_000"), Ok(2_000_000));
        assert_eq!(count("2M"), Ok(2_000_000));
        assert_eq!(count("500k"), Ok(500_000));
        for wrong in ["", "k", "-1", "1.5", "1x", "99999999999G"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes("2KiB"), Ok(2048));
        assert!(key_bytes("7").is_err() && key_bytes("65536").is_err());
        assert_eq!(value_bytes("0"), Ok(0));
        assert!(rate("0").is_err() && rate("inf").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("7d"), Ok(Duration::from_hours(7 * 24)));
        for wrong in ["", "5", "s", "-1s", "1y", "99999999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(option("=1").is_err() && option("x").is_err());
    }
}
