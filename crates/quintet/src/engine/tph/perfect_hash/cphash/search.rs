//! The search for parameters: the first candidate that fits.
//!
//! [`Lanes`] chooses between one candidate at a time and eight; both look at the candidates in the
//! same order and come to the same.

use super::slots::SlotBitmap;

/// How candidates are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// Eight at once where the processor has AVX2, else one.
    #[default]
    Widest,
    /// One at a time.
    #[cfg(any(test, feature = "testing"))]
    One,
}

/// The index of the first candidate with which all keys come to free, distinct slots.
pub(super) fn first(
    slots: &SlotBitmap,
    keys: &[u64],
    candidates: &[u32],
    lanes: Lanes,
) -> Option<usize> {
    #[cfg(all(target_arch = "x86_64", not(model)))]
    if lanes == Lanes::Widest {
        return super::vector::first(slots, keys, candidates);
    }
    let _ = lanes;
    slots.first_of(keys, candidates)
}
