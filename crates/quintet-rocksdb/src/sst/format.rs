//! Constants of the format, whose layout is in the head of `sst`.

use quintet_compat::timestamps::TimestampOrder;

/// What the keys of a file end in: no timestamp, or one in a byte order.
pub const KINDS: [Option<TimestampOrder>; 3] =
    [None, Some(TimestampOrder::Little), Some(TimestampOrder::Big)];

/// Returns the first bytes of a file: a name, and a number of what its keys end in.
pub const fn magic(timestamps: Option<TimestampOrder>) -> [u8; 8] {
    match timestamps {
        None => *b"QNTSST\0\x01",
        Some(TimestampOrder::Little) => *b"QNTSST\0\x02",
        Some(TimestampOrder::Big) => *b"QNTSST\0\x03",
    }
}

/// In the place of the size of a block, after the last one.
pub const END: u32 = u32::MAX;
/// Size in bytes at which a block is written. One write for hundreds of entries.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Size of the largest block in bytes: an entry of the greatest size, and a block before it.
pub const BLOCK_BYTES_MAX: u32 = 1 << 30;
