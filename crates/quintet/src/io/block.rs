//! Sizes of the units of a disk.

/// Bytes of a sector: the smallest unit that a disk writes atomically.
pub const SECTOR_BYTES: u64 = 512;
/// Bytes of a block: the alignment of direct I/O, and the page size of the page cache.
pub const BLOCK_BYTES: u64 = 4096;
