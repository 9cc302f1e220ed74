//! Conversions between numbers. No other file of this crate uses `as`.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the benchmarks address memory with 64-bit offsets and need a 64-bit target");

/// Widens a length or an index. Lossless: targets are 64-bit.
#[inline]
pub const fn to_u64(value: usize) -> u64 {
    value as u64
}

/// Narrows an offset or length to an index. Lossless: targets are 64-bit.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "usize is 64 bits wide, asserted above")]
pub const fn to_usize(value: u64) -> usize {
    value as usize
}

/// Converts a count to a figure or a probability. Rounds beyond 2^53.
#[inline]
#[expect(clippy::cast_precision_loss, reason = "figures are shown with a few digits")]
pub const fn to_f64(value: u64) -> f64 {
    value as f64
}

/// Rounds towards zero. Negative numbers and NaN give 0.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what a clamped rank needs"
)]
pub const fn truncate(value: f64) -> u64 {
    value as u64
}

/// Rounds `value` up to a multiple of `unit`, a power of two.
#[inline]
pub const fn round_up(value: u64, unit: u64) -> u64 {
    (value + (unit - 1)) & !(unit - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_saturates() {
        assert_eq!(truncate(-1.0), 0);
        assert_eq!(truncate(f64::NAN), 0);
        assert_eq!(truncate(3.99), 3);
        assert_eq!(truncate(f64::INFINITY), u64::MAX);
    }

    #[test]
    fn rounding_up_keeps_multiples() {
        assert_eq!(round_up(0, 8), 0);
        assert_eq!(round_up(1, 8), 8);
        assert_eq!(round_up(8, 8), 8);
    }
}
