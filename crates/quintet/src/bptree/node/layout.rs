//! Kinds of pages, and sizes of the parts of a node.

/// Page kind of a leaf.
pub const LEAF: u8 = 1;
/// Page kind of an inner node.
pub const INNER: u8 = 2;
/// Page kind of a page of an extent.
pub const EXTENT: u8 = 3;
/// Page kind of the meta page.
pub const META: u8 = 4;
/// Page kind of a map of free pages.
pub const MAP: u8 = 5;
/// Page kind of a packed leaf: all its values have one length.
pub const PACKED: u8 = 6;

/// Size of header and hints, in bytes; the prefix follows.
pub const HEAD_BYTES: usize = 96;
/// Number of hints: heads of evenly spaced slots. Header and hints fill two cache lines.
pub const HINTS: usize = 16;
/// Index of the first word of the hints.
pub const HINT_WORD: usize = 4;
/// Size of a slot in bytes.
pub const SLOT_BYTES: usize = 8;
/// Number of key bytes in a slot (its head).
pub const SLOT_KEY_BYTES: usize = 4;
/// Size of a reference to an extent, in bytes.
pub const REFERENCE_BYTES: usize = 8;
/// Size of the header of a page of a cached extent, in bytes.
pub const EXTENT_HEAD_BYTES: usize = 16;
