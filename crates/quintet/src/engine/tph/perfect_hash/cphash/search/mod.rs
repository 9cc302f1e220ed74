//! The search for parameters: the first candidate that fits.
//!
//! [`Lanes`] chooses between one candidate at a time and eight. Both try the candidates in the same
//! order and have the same result.

#[cfg(all(target_arch = "x86_64", not(model)))]
mod vector;

use super::slot_bitmap::SlotBitmap;

/// Number of candidates that are tried at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lanes {
    /// Eight at once if the processor has AVX2, otherwise one.
    #[default]
    Widest,
    /// One at a time.
    #[cfg(any(test, feature = "testing"))]
    One,
}

/// Returns the index of the first candidate that gives all keys free, distinct slots.
pub(super) fn first(
    slots: &SlotBitmap,
    keys: &[u64],
    candidates: &[u32],
    lanes: Lanes,
) -> Option<usize> {
    #[cfg(all(target_arch = "x86_64", not(model)))]
    if lanes == Lanes::Widest {
        return vector::first(slots, keys, candidates);
    }
    let _ = lanes;
    slots.first_of(keys, candidates)
}
