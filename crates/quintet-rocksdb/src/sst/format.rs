//! Constants of the format, whose layout is in the head of `sst`.

/// The first bytes of a file: a name and the version of the format.
pub const MAGIC: [u8; 8] = *b"QNTSST\0\x01";
/// The first bytes of a file whose keys end in timestamps.
pub const MAGIC_WITH_TIMESTAMPS: [u8; 8] = *b"QNTSST\0\x02";
/// In the place of the size of a block, after the last one.
pub const END: u32 = u32::MAX;
/// Size in bytes at which a block is written. One write for hundreds of entries.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Size of the largest block in bytes: an entry of the greatest size, and a block before it.
pub const BLOCK_BYTES_MAX: u32 = 1 << 30;
