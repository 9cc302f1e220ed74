//! Formats of figures: three significant digits, with a unit.

use crate::numbers::to_f64;

/// Text for a missing figure.
pub(super) const NONE: &str = "-";

/// Formats three significant digits; `-` for NaN and infinities.
pub(super) fn digits(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    // Rounding may carry into one more digit: 99.96 is 100, not 100.0.
    if size >= 99.95 {
        format!("{value:.0}")
    } else if size >= 9.995 {
        format!("{value:.1}")
    } else if size >= 0.01 {
        format!("{value:.2}")
    } else {
        format!("{value:.1e}")
    }
}

/// Formats a figure with `k`, `M` or `G` (powers of 1000).
pub(super) fn scaled(value: f64) -> String {
    match value.abs() {
        size if size >= 0.9995e9 => format!("{} G", digits(value / 1e9)),
        size if size >= 0.9995e6 => format!("{} M", digits(value / 1e6)),
        size if size >= 0.9995e3 => format!("{} k", digits(value / 1e3)),
        _ => digits(value),
    }
}

/// Formats a whole number, with `k`, `M` or `G` if that is exact: 10 M, 1.5 M, 1234567.
pub(super) fn count(value: u64) -> String {
    for (unit, name) in [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")] {
        if value >= unit && value.is_multiple_of(unit / 100) {
            let whole = value / unit;
            let hundredths = value % unit / (unit / 100);
            return match hundredths {
                0 => format!("{whole} {name}"),
                part if part.is_multiple_of(10) => format!("{whole}.{} {name}", part / 10),
                part => format!("{whole}.{part:02} {name}"),
            };
        }
    }
    value.to_string()
}

/// Formats nanoseconds in a suitable unit.
pub(super) fn time(ns: f64) -> String {
    match ns.abs() {
        size if size >= 0.9995e9 => format!("{} s", digits(ns / 1e9)),
        size if size >= 0.9995e6 => format!("{} ms", digits(ns / 1e6)),
        size if size >= 0.9995e3 => format!("{} us", digits(ns / 1e3)),
        _ => format!("{} ns", digits(ns)),
    }
}

/// Formats bytes in a suitable unit, powers of 1024.
pub(super) fn bytes(value: f64) -> String {
    for (power, name) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let unit = to_f64(1 << power);
        if value.abs() >= unit {
            return format!("{} {name}", digits(value / unit));
        }
    }
    format!("{} B", if value.fract() == 0.0 { format!("{value:.0}") } else { digits(value) })
}

/// Formats a whole number of bytes, in a larger unit if that is exact: 23 B, 4 KiB, 32 MiB.
pub(super) fn size(value: u64) -> String {
    for (power, name) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if value >= 1 << power && value.is_multiple_of(1 << power) {
            return format!("{} {name}", value >> power);
        }
    }
    if value >= 1 << 20 { bytes(to_f64(value)) } else { format!("{value} B") }
}

/// Formats a ratio: `4.20x`. Near 1 it has one more digit, so that a narrow loss is not `1.00x`.
pub(super) fn ratio(value: f64) -> String {
    match value {
        value if !value.is_finite() => NONE.to_owned(),
        value if (0.99..1.0).contains(&value) => format!("{:.3}x", value.min(0.999)),
        value => format!("{}x", digits(value)),
    }
}

/// Formats a time in UTC, to the minute: `2026-11-21 14:45`.
pub(super) fn moment(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let (days, minute) = (minutes / 1440, minutes % 1440);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minute / 60, minute % 60)
}

/// Returns the date this many days after 1 January 1970. Years are counted from 1 March, so the
/// leap day is the last day of its year.
fn date(days: u64) -> (u64, u64, u64) {
    // 1 March of the year 0 was 719,468 days before; 146,097 days are 400 years.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March: 31 30 31 30 31, twice over, are 153 days each five.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year_of_era + 400 * era + carry, month, day)
}

/// Rounds `value` up to 1, 2 or 5 times a power of ten, for the end of an axis.
pub(super) fn nice(value: f64) -> f64 {
    if !(value.is_finite() && value > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    // Allows for rounding errors: 2.0000001 counts as 2.
    let fits = |step: &&f64| value <= **step * power * 1.000_001;
    steps.iter().find(fits).map_or(10.0, |step| *step) * power
}

/// Returns steps of 1, 2 and 5 times powers of ten, from the last one not above `least` to the
/// first one not below `greatest`: at least two.
pub(super) fn steps(least: f64, greatest: f64) -> Vec<f64> {
    let mut steps = vec![1.0];
    // Exact powers of ten: 1, 2, 5, 10, 20 ... 5e11.
    for power in 0..12 {
        let unit = 10_f64.powi(power);
        steps.extend([2.0 * unit, 5.0 * unit, 10.0 * unit]);
    }
    let before_end = steps.len().saturating_sub(2);
    let from = steps.iter().rposition(|step| *step <= least).unwrap_or(0).min(before_end);
    let to =
        steps.iter().position(|step| *step >= greatest).unwrap_or(before_end + 1).max(from + 1);
    steps.drain(..from);
    steps.truncate(to - from + 1);
    steps
}

/// Returns whether a step is a power of ten.
pub(super) fn is_power_of_ten(step: f64) -> bool {
    step.log10().fract() == 0.0
}

/// Formats a step of nanoseconds, which is whole in its unit.
pub(super) fn whole_time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.0} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.0} ms", ns / 1e6),
        ns if ns >= 1e3 => format!("{:.0} us", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits_and_their_unit() {
        let cases = [
            (digits(0.0), "0"),
            (digits(1.234), "1.23"),
            (digits(9.996), "10.0"),
            (digits(99.96), "100"),
            (digits(0.001_23), "1.2e-3"),
            (digits(f64::NAN), "-"),
            (digits(f64::INFINITY), "-"),
            (scaled(999.6), "1.00 k"),
            (scaled(1_234_567.0), "1.23 M"),
            (scaled(2.5e9), "2.50 G"),
            (count(10_000_000), "10 M"),
            (count(1_500_000), "1.5 M"),
            (count(1_250_000), "1.25 M"),
            (count(1_234_567), "1234567"),
            (count(0), "0"),
            (time(12.0), "12.0 ns"),
            (time(1_500.0), "1.50 us"),
            (time(2.5e6), "2.50 ms"),
            (time(3e9), "3.00 s"),
            (bytes(512.0), "512 B"),
            (bytes(10.25), "10.2 B"),
            (bytes(1.5 * 1024.0 * 1024.0), "1.50 MiB"),
            (size(23), "23 B"),
            (size(32 << 20), "32 MiB"),
            (size((1 << 30) + 1), "1.00 GiB"),
            (ratio(4.2), "4.20x"),
            (ratio(0.9999), "0.999x"),
            (ratio(f64::NAN), "-"),
        ];
        for (found, wanted) in cases {
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn moments_are_dates_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00");
        assert_eq!(moment(951_782_399_000), "2000-02-28 23:59");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00");
        assert_eq!(moment(1_795_272_300_000), "2026-11-21 14:45");
    }

    #[test]
    fn axes_end_at_round_figures() {
        let ends = [1.0, 1.2, 4.3, 9.9].map(|value| nice(value).to_bits());
        assert_eq!(ends, [1.0, 1.5, 5.0, 10.0].map(f64::to_bits));
        assert!((nice(123_456.0) - 150_000.0).abs() < 1e-6);
        assert_eq!((nice(0.0), nice(f64::NAN)), (1.0, 1.0));
        assert_eq!(steps(120.0, 450.0), [100.0, 200.0, 500.0]);
        assert_eq!(steps(100.0, 100.0), [100.0, 200.0]);
        assert_eq!(steps(0.0, 0.0), [1.0, 2.0]);
        assert_eq!(steps(9e99, f64::INFINITY), [5e11, 1e12]);
        assert_eq!(steps(f64::INFINITY, 0.0), [5e11, 1e12]);
        let powers: Vec<f64> =
            steps(1.0, 1e12).into_iter().filter(|s| is_power_of_ten(*s)).collect();
        assert_eq!(powers.len(), 13);
        assert_eq!([20.0, 5e3, 1e6, 2e9].map(whole_time), ["20 ns", "5 us", "1 ms", "2 s"]);
    }
}
