//! Frame descriptors: eight words for each frame, one cache line.
//!
//! | word | name | meaning |
//! |---|---|---|
//! | 0 | latch | version of the page's seqlock ([`super::latch`]) |
//! | 1 | page | number of the page in the frame, or [`NO_PAGE`] |
//! | 2 | next | link to the next frame of the bucket's chain, or of the free list |
//! | 3 | mask | changed units |
//! | 4 | epoch | checkpoint epoch in which the page became dirty; 0: clean |
//! | 5 | used | reference bit of the clock |
//! | 6 | pending | units that are in the journal and not in the file |
//! | 7 | pins | number of pins, and the flag [`SAVED`] |

use crate::util::codec::to_usize;

/// Number of words of a frame descriptor: one cache line.
pub(super) const FRAME_WORDS: usize = 8;
pub(super) const LATCH: usize = 0;
pub(super) const PAGE: usize = 1;
pub(super) const NEXT: usize = 2;
/// Word: units that changed since the last checkpoint; if the page is clean, the units that the
/// overlay changed when the page was read.
pub(super) const MASK: usize = 3;
pub(super) const EPOCH: usize = 4;
pub(super) const USED: usize = 5;
/// Word: units that are in the journal and not in the file.
pub(super) const PENDING: usize = 6;
/// Word: number of pins ([`super::pin`]); the highest bit says that an unfinished checkpoint has
/// saved units of the page ([`super::checkpoint`]).
pub(super) const PINS: usize = 7;
/// The page number of a frame without a page.
pub(super) const NO_PAGE: u64 = u64::MAX;
/// Flag in the pin word: the unfinished checkpoint has saved units of the page.
pub(super) const SAVED: u64 = 1 << 63;

/// Returns a frame or page number as an index.
pub(super) fn index_of(number: u32) -> usize {
    to_usize(u64::from(number))
}
