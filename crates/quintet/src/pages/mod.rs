//! Memory in pages that index structures change in place, and what makes it safe on disk.
//!
//! What: reserved regions of anonymous memory ([`Region`]), the redo journal ([`redo`]) and block
//! writes on their way ([`writeback`]). Index structures import nothing below this layer.

pub(crate) mod redo;
pub(crate) mod writeback;

pub(crate) use crate::disk::Region;
