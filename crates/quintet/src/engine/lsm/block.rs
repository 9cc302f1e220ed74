//! Blocks: a few entries in key order, read as one.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | crc | CRC32C of what follows, salted with the piece's identity and the block's number |
//! | 4 | 4 | size | bytes of the entries, unpacked; bit 31: they are packed as an LZ4 block, bit 30: as a zstd frame |
//! | 8 | | entries | back to back |
//! | | | filling | zeros, to a multiple of 8 |
//!
//! An entry: varint key length, varint `value length * 2 + tombstone`, key, value.
//!
//! Invariants: no length is trusted before the checksum; decoding never panics. The salt keeps a
//! block of another place, piece or table from being taken for this one.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use ruzstd::{
    decoding::FrameDecoder,
    encoding::{CompressionLevel, compress_to_vec},
};

use crate::codec::{
    Decoder, crc32c, crc32c_append, low_u32, put_u32, put_varint, to_u64, to_usize,
};

/// Bytes before the entries.
pub(crate) const HEAD_BYTES: usize = 8;
/// Blocks begin at multiples of this.
pub(crate) const UNIT_BYTES: u64 = 8;
const LZ4: u32 = 1 << 31;
const ZSTD: u32 = 1 << 30;
const PACKED: u32 = LZ4 | ZSTD;
/// A block is kept as it is where packing saves less than this part of it.
const SAVING_MIN: usize = 8;
/// More than an entry of the longest key and the largest value with its envelope takes.
const ENTRIES_BYTES_MAX: usize = (1 << 30) - 1;

/// How blocks are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Lz4,
    Zstd,
}

impl Packing {
    /// The names of the option `compression`, in the order of the variants.
    pub(crate) const NAMES: [&str; 3] = ["none", "lz4", "zstd"];

    /// The packing that one of the names means.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            _ => Self::None,
        }
    }

    /// The flag of a packed block, and its bytes.
    fn pack(self, entries: &[u8]) -> Option<(u32, Vec<u8>)> {
        match self {
            Self::None => None,
            Self::Lz4 => Some((LZ4, lz4_flex::block::compress(entries))),
            Self::Zstd => Some((ZSTD, compress_to_vec(entries, CompressionLevel::Fastest))),
        }
    }
}

/// Unpacks what `flag` says it is, to exactly as many bytes as `entries` has.
fn unpack(flag: u32, packed: &[u8], entries: &mut [u8]) -> Option<()> {
    let count = match flag {
        LZ4 => lz4_flex::block::decompress_into(packed, entries).ok()?,
        ZSTD => FrameDecoder::new().decode_all(packed, entries).ok()?,
        _ => return None,
    };
    (count == entries.len()).then_some(())
}

/// One entry of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
    pub(crate) tombstone: bool,
}

/// Bytes that an entry takes in a block.
pub(crate) fn entry_bytes(key: usize, value: usize) -> usize {
    let varint = |number: usize| {
        to_usize(u64::from((u64::BITS - to_u64(number).leading_zeros()).max(1).div_ceil(7)))
    };
    varint(key) + varint(value * 2) + key + value
}

/// Appends an entry: `None` is a tombstone.
pub(crate) fn put_entry(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    put_varint(out, to_u64(key.len()));
    let value_bytes = to_u64(value.map_or(0, <[u8]>::len));
    put_varint(out, value_bytes * 2 + u64::from(value.is_none()));
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or(&[]));
}

fn checksum(salt: u32, number: u32, rest: &[u8]) -> u32 {
    crc32c_append(crc32c_append(salt, &number.to_le_bytes()), rest)
}

/// The salt of a piece's blocks.
pub(crate) fn salt_of(database_id: &[u8; 16], table_id: u64, piece: u64) -> u32 {
    let salt = crc32c_append(crc32c(database_id), &table_id.to_le_bytes());
    crc32c_append(salt, &piece.to_le_bytes())
}

/// Appends the block of these entries.
pub(crate) fn put_block(
    out: &mut Vec<u8>,
    entries: &[u8],
    (salt, number): (u32, u32),
    packing: Packing,
) {
    let start = out.len();
    let packed = packing.pack(entries);
    let is_worth_it = |bytes: &[u8]| bytes.len() + bytes.len() / SAVING_MIN < entries.len();
    let packed = packed.filter(|(_, bytes)| is_worth_it(bytes));
    let (flag, stored) = packed.as_ref().map_or((0, entries), |(flag, bytes)| (*flag, bytes));
    let mut rest = Vec::with_capacity(4);
    put_u32(&mut rest, low_u32(to_u64(entries.len())) | flag);
    let sum = crc32c_append(checksum(salt, number, &rest), stored);
    put_u32(out, sum);
    out.extend_from_slice(&rest);
    out.extend_from_slice(stored);
    let filled = (out.len() - start).next_multiple_of(to_usize(UNIT_BYTES));
    // The checksum has no word for the filling: it is not read.
    out.resize(start + filled, 0);
}

/// The entries' bytes of a block: a place in `stored`, or unpacked.
#[derive(Debug)]
pub(crate) enum Entries {
    Plain(Range<usize>),
    Unpacked(Vec<u8>),
}

/// Verifies the block at the front of `stored`, which ends where the next one begins. Says what is
/// wrong with one that is damaged.
pub(crate) fn open(stored: &[u8], place: (u32, u32)) -> Result<Entries, &'static str> {
    let mut decoder = Decoder::new(stored);
    let (Some(sum), Some(size)) = (decoder.u32(), decoder.u32()) else {
        return Err("the block is cut off");
    };
    let size_bytes = to_usize(u64::from(size & !PACKED));
    if size_bytes > ENTRIES_BYTES_MAX {
        return Err("the block's size is impossible");
    }
    let body = decoder.rest();
    if size & PACKED == 0 {
        let summed = stored.get(4..HEAD_BYTES + size_bytes).ok_or("the block is cut off")?;
        if checksum(place.0, place.1, summed) != sum {
            return Err("the block's checksum does not match");
        }
        return Ok(Entries::Plain(HEAD_BYTES..HEAD_BYTES + size_bytes));
    }
    // How long the packed bytes are, only the place of the next block tells, up to the filling.
    for filling in 0..to_usize(UNIT_BYTES).min(body.len()) {
        let packed = body.get(..body.len() - filling).unwrap_or(&[]);
        let summed = stored.get(4..HEAD_BYTES + packed.len()).unwrap_or(&[]);
        if checksum(place.0, place.1, summed) != sum {
            continue;
        }
        let mut entries = vec![0; size_bytes];
        let unpacked = unpack(size & PACKED, packed, &mut entries);
        return match unpacked {
            Some(()) => Ok(Entries::Unpacked(entries)),
            None => Err("the block does not unpack"),
        };
    }
    Err("the block's checksum does not match")
}

/// Decodes the entry at `at` of a block's entries, and where the next one begins; `None` at the
/// end, and for what no writer makes.
pub(crate) fn entry_at(entries: &[u8], at: usize) -> Option<(EntryRef, usize)> {
    let mut decoder = Decoder::new(entries.get(at..)?);
    let key_bytes = to_usize(decoder.varint()?);
    let word = decoder.varint()?;
    let value_bytes = to_usize(word >> 1);
    let key = entries.len() - decoder.rest().len();
    decoder.take(key_bytes)?;
    decoder.take(value_bytes)?;
    let value = key + key_bytes;
    let end = value + value_bytes;
    Some((EntryRef { key: key..value, value: value..end, tombstone: word & 1 != 0 }, end))
}

/// All entries of a block; an error for what no writer makes.
pub(crate) fn all_entries(entries: &[u8], out: &mut Vec<EntryRef>) -> Result<(), &'static str> {
    let mut at = 0;
    while at < entries.len() {
        let (entry, next) = entry_at(entries, at).ok_or("an entry does not parse")?;
        out.push(entry);
        at = next;
    }
    Ok(())
}

/// The entry of a key.
pub(crate) fn find(entries: &[u8], key: &[u8]) -> Option<EntryRef> {
    let mut at = 0;
    while let Some((entry, next)) = entry_at(entries, at) {
        if entries.get(entry.key.clone()) == Some(key) {
            return Some(entry);
        }
        at = next;
    }
    None
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn sample(count: u8) -> Vec<u8> {
        let mut entries = Vec::new();
        for number in 0..count {
            let value = vec![number; usize::from(number) * 3];
            let value = (number % 5 != 0).then_some(&value[..]);
            let before = entries.len();
            put_entry(&mut entries, &[b'k', number], value);
            let taken = entries.len() - before;
            assert_eq!(taken, entry_bytes(2, value.map_or(0, <[u8]>::len)));
        }
        entries
    }

    #[test]
    fn blocks_come_back_and_any_flipped_bit_is_found() {
        for packing in [Packing::None, Packing::Lz4, Packing::Zstd] {
            let entries = sample(40);
            let mut out = Vec::new();
            put_block(&mut out, &entries, (7, 3), packing);
            assert_eq!(out.len() < entries.len(), packing != Packing::None);
            assert_eq!(out.len() % 8, 0);
            let bytes = match open(&out, (7, 3)).unwrap() {
                Entries::Plain(range) => out[range].to_vec(),
                Entries::Unpacked(bytes) => bytes,
            };
            assert_eq!(bytes, entries);
            assert!(open(&out, (7, 4)).is_err() && open(&out, (8, 3)).is_err());
            let found = find(&bytes, &[b'k', 7]).unwrap();
            assert_eq!(&bytes[found.value], [7; 21]);
            assert!(find(&bytes, &[b'k', 5]).unwrap().tombstone);
            assert_eq!(find(&bytes, b"other"), None);
            for byte in 0..out.len() {
                let mut damaged = out.clone();
                damaged[byte] ^= 1 << (byte % 8);
                match open(&damaged, (7, 3)) {
                    Err(_) => {}
                    Ok(Entries::Plain(range)) => assert_eq!(damaged[range], entries),
                    Ok(Entries::Unpacked(bytes)) => assert_eq!(bytes, entries),
                }
                assert!(open(&out[..byte & !7], (7, 3)).is_err() || byte & !7 == out.len());
            }
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        let mut entries = Vec::new();
        put_entry(&mut entries, b"key", Some(b"value"));
        put_entry(&mut entries, b"z", None);
        assert_eq!(entries, b"\x03\x0akeyvalue\x01\x01z");
        let mut out = Vec::new();
        put_block(&mut out, &entries, (1, 2), Packing::None);
        assert_eq!(out[4..8], [13, 0, 0, 0]);
        assert_eq!(out[8..21], entries);
        assert_eq!(out.len(), 24);
    }
}
