//! The separators that bound a node's keys.

use crate::util::codec::shared_len;

/// The separators between which a leaf's keys lie; `None` means unbounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Included.
    pub lower: Option<Vec<u8>>,
    /// Excluded.
    pub upper: Option<Vec<u8>>,
}

impl Bounds {
    /// Returns the common prefix of the two bounds, at most `longest` bytes.
    pub fn prefix(&self, longest: usize) -> &[u8] {
        let (Some(lower), Some(upper)) = (&self.lower, &self.upper) else { return &[] };
        let shared = shared_len(lower, upper).min(longest);
        lower.get(..shared).unwrap_or(&[])
    }

    /// Returns the bounds on both sides of a separator.
    pub fn divide(self, separator: &[u8]) -> (Self, Self) {
        let low = Self { lower: self.lower, upper: Some(separator.to_vec()) };
        (low, Self { lower: Some(separator.to_vec()), upper: self.upper })
    }
}
