//! Ranges of keys.

use quintet::KeyRange;

use crate::{
    boundary::{In, Slice},
    failure::Failure,
};

/// A range of keys. `{0}` and a null pointer are the whole table. A key is in the range if all
/// fields that are set allow it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Only keys that start with these bytes. Absent or empty: all.
    pub prefix: Slice,
    /// The lower bound, in the range unless `start_excluded`. Absent: none.
    pub start: Slice,
    /// The upper bound, not in the range unless `end_included`. Absent: none.
    pub end: Slice,
    /// Not 0: the range begins after `start`.
    pub start_excluded: u8,
    /// Not 0: the range contains `end`.
    pub end_included: u8,
    /// Not 0: from the greatest key to the least.
    pub reverse: u8,
}

/// The key that follows `key` in byte order.
pub fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn bound(slice: &Slice, is_after: bool) -> Result<Option<Vec<u8>>, Failure> {
    Ok(slice.optional()?.map(|key| if is_after { after(key) } else { key.to_vec() }))
}

/// Returns the bounds of a range, and whether it goes backwards.
pub fn bounds(range: In<'_, Range>) -> Result<(KeyRange, bool), Failure> {
    let Some(range) = range else { return Ok((KeyRange { start: None, end: None }, false)) };
    let mut bounds = KeyRange::prefix(range.prefix.bytes()?);
    let start = bound(&range.start, range.start_excluded != 0)?;
    let end = bound(&range.end, range.end_included != 0)?;
    bounds.start = bounds.start.max(start);
    bounds.end = match (bounds.end, end) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    Ok((bounds, range.reverse != 0))
}
