//! The direction of a scan.

/// Whether a scan visits keys in ascending or descending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}
