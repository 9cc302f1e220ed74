//! Heads of keys in slots: the skip that they leave out, and the hints that are copies of them.

use super::{layout::HINTS, shape::TreeShape};
use crate::util::codec::shared_len;

/// Largest skip, in bytes: four bytes less than the smallest page holds of a long key.
const SKIP_MAX: usize = TreeShape { page_bytes: 4096, value_bytes: 0 }.key_inline_max() - 4;

/// Returns the number of slots from one hint to the next; 0 if the node has no hints.
#[inline]
pub const fn hint_step(count: usize) -> usize {
    count / (HINTS + 1)
}

/// Returns the number of bytes to skip before the heads of a node with these first and last keys,
/// given after the prefix. It is 0 unless the heads would all be equal. A node holds at least four
/// bytes more of a long key than the skip.
pub fn skip_of(first: &[u8], last: &[u8]) -> usize {
    let shared = shared_len(first, last).min(SKIP_MAX);
    if shared < 4 { 0 } else { shared }
}

/// Whether a leaf that could be packed is better plain: its heads would all be equal, and the plain
/// form fits in a page.
pub const fn is_plain_better(skip: usize, plain_bytes: usize, shape: TreeShape) -> bool {
    skip > 0 && plain_bytes <= shape.page_bytes
}
