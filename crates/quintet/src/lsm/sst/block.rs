//! Blocks: the unit of reads, caching and compression. A block has one or more entries in key
//! order.
//!
//! | offset | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 4 | crc | CRC32C of the rest, salted with the SST's identity and the block's number |
//! | 4 | 4 | size | bytes of the entries, uncompressed; bit 31: they are compressed as an LZ4 block, bit 30: as a zstd frame; both bits: they are short, and these are the stored bytes |
//! | 8 | | entries | back to back |
//! | | | padding | zeros, to a multiple of 8 |
//!
//! An entry: varint key length, varint `value length * 2 + tombstone`, key, value.
//!
//! Short entries lack the prefix that all keys of the block share, which is stored once before
//! them:
//!
//! | size | name | meaning |
//! |---|---|---|
//! | varint | size | bytes of the entries, whole |
//! | varint | head length | at most 255 |
//! | | head | the shared prefix |
//! | | entries | as above, with the rests of the keys |
//!
//! Readers always see whole entries. A block of short entries may have up to twice `block_bytes` of
//! whole entries ([`BlockBuilder`]).
//!
//! Invariants:
//! - No length is trusted before the checksum matched. Decoding never panics.
//! - The salt detects a block of another position, SST or table.
//! - Short entries take at least two bytes each, so whole ones are less than 256 times as large.
//!   The same bound holds for compressed ones.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use ruzstd::{
    decoding::FrameDecoder,
    encoding::{CompressionLevel, compress_to_vec},
};

use crate::{
    contract::Compression,
    util::codec::{Decoder, crc32c, crc32c_append, low_u32, put_u32, put_varint, to_u64, to_usize},
};

/// Bytes before the entries.
pub(crate) const HEAD_BYTES: usize = 8;
/// Alignment of blocks in bytes.
pub(crate) const UNIT_BYTES: u64 = 8;
const LZ4: u32 = 1 << 31;
const ZSTD: u32 = 1 << 30;
const PACKED: u32 = LZ4 | ZSTD;
/// Flag of short entries.
const SHORT: u32 = LZ4 | ZSTD;
/// Maximum bytes of a shared prefix.
const HEAD_KEY_BYTES_MAX: usize = 255;
/// Maximum bytes of the two lengths before short entries.
const SHORT_LENGTHS_BYTES: usize = 7;
/// Entries are stored short if that saves at least this fraction (1/32) of them.
const SHORT_SAVING_MIN: usize = 32;
/// Maximum whole size of a block of short entries, as a multiple of `block_bytes`.
const WHOLE_MAX: usize = 2;
/// A block is stored uncompressed if compression saves less than about this fraction (1/8).
const SAVING_MIN: usize = 8;
/// Maximum bytes of a block's entries: more than the longest key and the largest value with its
/// envelope.
const ENTRIES_BYTES_MAX: usize = (1 << 30) - 1;

/// The compression of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Lz4,
    Zstd,
}

impl Packing {
    /// Returns the compression that the option `compression` chooses.
    pub(crate) fn of(choice: Compression) -> Self {
        match choice {
            Compression::None => Self::None,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
        }
    }

    /// Compresses entries. Returns the flag for the size field, and the bytes.
    fn pack(self, entries: &[u8]) -> Option<(u32, Vec<u8>)> {
        match self {
            Self::None => None,
            Self::Lz4 => Some((LZ4, lz4_flex::block::compress(entries))),
            Self::Zstd => Some((ZSTD, compress_to_vec(entries, CompressionLevel::Fastest))),
        }
    }
}

/// Decompresses into `entries`, which must be filled exactly.
fn unpack(flag: u32, packed: &[u8], entries: &mut [u8]) -> Option<()> {
    let count = match flag {
        LZ4 => lz4_flex::block::decompress_into(packed, entries).ok()?,
        ZSTD => FrameDecoder::new().decode_all(packed, entries).ok()?,
        _ => return None,
    };
    (count == entries.len()).then_some(())
}

/// An entry of a block: the ranges of its key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryRef {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
    pub(crate) tombstone: bool,
}

/// Returns the bytes that an entry takes in a block.
pub(crate) fn entry_bytes(key: usize, value: usize) -> usize {
    let varint = |number: usize| {
        to_usize(u64::from((u64::BITS - to_u64(number).leading_zeros()).max(1).div_ceil(7)))
    };
    varint(key) + varint(value * 2) + key + value
}

/// Appends an entry; a value of `None` is a tombstone.
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

/// Returns the salt of an SST's blocks.
pub(crate) fn salt_of(database_id: &[u8; 16], table_id: u64, sst: u64) -> u32 {
    let salt = crc32c_append(crc32c(database_id), &table_id.to_le_bytes());
    crc32c_append(salt, &sst.to_le_bytes())
}

/// Appends a block of these entries.
pub(crate) fn put_block(out: &mut Vec<u8>, entries: &[u8], place: (u32, u32), packing: Packing) {
    let packed = packing.pack(entries);
    let is_worth_it = |bytes: &[u8]| bytes.len() + bytes.len() / SAVING_MIN < entries.len();
    let packed = packed.filter(|(_, bytes)| is_worth_it(bytes));
    let (flag, stored) = packed.as_ref().map_or((0, entries), |(flag, bytes)| (*flag, bytes));
    put_stored(out, stored, low_u32(to_u64(entries.len())) | flag, place);
}

/// Appends a block with these bytes after its head.
fn put_stored(out: &mut Vec<u8>, stored: &[u8], size: u32, (salt, number): (u32, u32)) {
    let start = out.len();
    let rest = size.to_le_bytes();
    let sum = crc32c_append(checksum(salt, number, &rest), stored);
    put_u32(out, sum);
    out.extend_from_slice(&rest);
    out.extend_from_slice(stored);
    let filled = (out.len() - start).next_multiple_of(to_usize(UNIT_BYTES));
    // The checksum does not cover the padding: readers ignore it.
    out.resize(start + filled, 0);
}

/// The block under construction.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    /// The whole entries, as readers see them.
    entries: Vec<u8>,
    count: usize,
    /// The range of the first key, and the length of the prefix that all keys share.
    first_key: Range<usize>,
    head: usize,
}

impl BlockBuilder {
    pub(crate) fn entries(&self) -> &[u8] {
        &self.entries
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the length of the shared prefix once `key` is added.
    fn head_with(&self, key: &[u8]) -> usize {
        let first = self.entries.get(self.first_key.clone()).unwrap_or(&[]);
        let first = first.get(..self.head).unwrap_or(&[]);
        first.iter().zip(key).take_while(|(one, other)| one == other).count()
    }

    /// Returns whether another entry fits a block of `block_bytes`. An empty block accepts any
    /// entry.
    pub(crate) fn has_room(
        &self,
        (key, value_bytes): (&[u8], usize),
        block_bytes: usize,
        packing: Packing,
    ) -> bool {
        let most = block_bytes - HEAD_BYTES;
        let whole = self.entries.len() + entry_bytes(key.len(), value_bytes);
        if self.is_empty() || whole <= most {
            return true;
        }
        packing == Packing::None
            && whole <= most * WHOLE_MAX
            && short_bytes(whole, self.count + 1, self.head_with(key))
                .is_some_and(|bytes| bytes <= most)
    }

    /// Adds an entry. Returns its offset among the block's whole entries.
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> usize {
        let at = self.entries.len();
        put_entry(&mut self.entries, key, value);
        if self.is_empty() {
            let key_end = self.entries.len() - value.map_or(0, <[u8]>::len);
            self.first_key = key_end - key.len()..key_end;
            self.head = key.len().min(HEAD_KEY_BYTES_MAX);
        } else {
            self.head = self.head_with(key);
        }
        self.count += 1;
        at
    }

    /// Appends the encoded block to `out`.
    pub(crate) fn put(&self, out: &mut Vec<u8>, place: (u32, u32), packing: Packing) {
        let is_short = packing == Packing::None
            && short_bytes(self.entries.len(), self.count, self.head).is_some();
        match is_short.then(|| self.encode_short()).flatten() {
            Some(short) => {
                let size = low_u32(to_u64(short.len())) | SHORT;
                put_stored(out, &short, size, place);
            }
            None => put_block(out, &self.entries, place, packing),
        }
    }

    /// Returns the short entries, after their shared prefix.
    fn encode_short(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(self.entries.len());
        put_varint(&mut out, to_u64(self.entries.len()));
        put_varint(&mut out, to_u64(self.head));
        let start = self.first_key.start;
        out.extend_from_slice(self.entries.get(start..start + self.head)?);
        let mut at = 0;
        while at < self.entries.len() {
            let (entry, next) = entry_at(&self.entries, at)?;
            let rest = self.entries.get(entry.key.start + self.head..entry.key.end)?;
            let value = self.entries.get(entry.value)?;
            put_entry(&mut out, rest, (!entry.tombstone).then_some(value));
            at = next;
        }
        Some(out)
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        (self.count, self.first_key, self.head) = (0, 0..0, 0);
    }
}

/// Returns the maximum bytes of `count` entries of `whole` bytes that are stored without a shared
/// prefix of `head` bytes; `None` if that saves too little.
fn short_bytes(whole: usize, count: usize, head: usize) -> Option<usize> {
    let saved = (count * head).checked_sub(head + SHORT_LENGTHS_BYTES)?;
    (saved > 0 && saved * SHORT_SAVING_MIN >= whole).then(|| whole - saved)
}

/// Decodes short entries to whole ones; `None` if they do not parse.
fn decode_short(short: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = Decoder::new(short);
    let size = to_usize(decoder.varint()?);
    let head_bytes = to_usize(decoder.varint()?);
    if size > ENTRIES_BYTES_MAX || head_bytes > HEAD_KEY_BYTES_MAX {
        return None;
    }
    let head = decoder.take(head_bytes)?;
    let mut entries = Vec::with_capacity(size.min(short.len() * WHOLE_MAX));
    while !decoder.rest().is_empty() {
        let rest_bytes = decoder.varint()?;
        let word = decoder.varint()?;
        let tail = decoder.take(to_usize(rest_bytes.checked_add(word >> 1)?))?;
        put_varint(&mut entries, rest_bytes + to_u64(head_bytes));
        put_varint(&mut entries, word);
        entries.extend_from_slice(head);
        entries.extend_from_slice(tail);
        if entries.len() > size {
            return None;
        }
    }
    (entries.len() == size).then_some(entries)
}

/// A block's whole entries: a range of the stored bytes, or a decoded copy.
#[derive(Debug)]
pub(crate) enum BlockEntries {
    Plain(Range<usize>),
    Unpacked(Vec<u8>),
}

/// Verifies the block at the beginning of `stored`, which ends where the next block begins. Returns
/// a description of the damage if there is one.
pub(crate) fn open(stored: &[u8], place: (u32, u32)) -> Result<BlockEntries, &'static str> {
    let mut decoder = Decoder::new(stored);
    let (Some(sum), Some(size)) = (decoder.u32(), decoder.u32()) else {
        return Err("the block is cut off");
    };
    let size_bytes = to_usize(u64::from(size & !PACKED));
    if size_bytes > ENTRIES_BYTES_MAX {
        return Err("the block's size is impossible");
    }
    let body = decoder.rest();
    if size & PACKED == 0 || size & PACKED == SHORT {
        let summed = stored.get(4..HEAD_BYTES + size_bytes).ok_or("the block is cut off")?;
        if checksum(place.0, place.1, summed) != sum {
            return Err("the block's checksum does not match");
        }
        if size & PACKED == 0 {
            return Ok(BlockEntries::Plain(HEAD_BYTES..HEAD_BYTES + size_bytes));
        }
        let entries = decode_short(body.get(..size_bytes).unwrap_or(&[]));
        return entries.map(BlockEntries::Unpacked).ok_or("the block's short entries do not parse");
    }
    // The length of the compressed bytes is known only up to the padding before the next block.
    for filling in 0..to_usize(UNIT_BYTES).min(body.len()) {
        let packed = body.get(..body.len() - filling).unwrap_or(&[]);
        let summed = stored.get(4..HEAD_BYTES + packed.len()).unwrap_or(&[]);
        if checksum(place.0, place.1, summed) != sum {
            continue;
        }
        let mut entries = vec![0; size_bytes];
        let unpacked = unpack(size & PACKED, packed, &mut entries);
        return match unpacked {
            Some(()) => Ok(BlockEntries::Unpacked(entries)),
            None => Err("the block does not unpack"),
        };
    }
    Err("the block's checksum does not match")
}

/// Decodes the entry at offset `at` of a block's entries. Returns it and the offset of the next
/// one; `None` at the end, or if it does not parse.
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

/// Appends all entries of a block to `out`. Fails if one does not parse.
pub(crate) fn all_entries(entries: &[u8], out: &mut Vec<EntryRef>) -> Result<(), &'static str> {
    let mut at = 0;
    while at < entries.len() {
        let (entry, next) = entry_at(entries, at).ok_or("an entry does not parse")?;
        out.push(entry);
        at = next;
    }
    Ok(())
}

/// Returns the entry of a key. Costs a linear search.
pub(crate) fn find(entries: &[u8], key: &[u8]) -> Option<EntryRef> {
    find_from(entries, 0, key)
}

/// As [`find`], from the entry at offset `at` on.
pub(super) fn find_from(entries: &[u8], mut at: usize, key: &[u8]) -> Option<EntryRef> {
    while let Some((entry, next)) = entry_at(entries, at) {
        if entries.get(entry.key.clone()) == Some(key) {
            return Some(entry);
        }
        at = next;
    }
    None
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::codec::low_u8;

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
                BlockEntries::Plain(range) => out[range].to_vec(),
                BlockEntries::Unpacked(bytes) => bytes,
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
                    Ok(BlockEntries::Plain(range)) => assert_eq!(damaged[range], entries),
                    Ok(BlockEntries::Unpacked(bytes)) => assert_eq!(bytes, entries),
                }
                assert!(open(&out[..byte & !7], (7, 3)).is_err() || byte & !7 == out.len());
            }
        }
    }

    /// Entries of some keys in order.
    fn filled(keys: &[&[u8]], value_bytes: usize) -> BlockBuilder {
        let mut filling = BlockBuilder::default();
        for (number, key) in keys.iter().enumerate() {
            let value = vec![low_u8(to_u64(number)); value_bytes];
            let at = filling.entries().len();
            assert_eq!(filling.add(key, (number % 5 != 3).then_some(&value)), at);
        }
        filling
    }

    fn unpacked(stored: &[u8]) -> Vec<u8> {
        match open(stored, (7, 3)).unwrap() {
            BlockEntries::Plain(range) => stored[range].to_vec(),
            BlockEntries::Unpacked(bytes) => bytes,
        }
    }

    #[test]
    fn short_entries_come_back_whole_and_any_flipped_bit_is_found() {
        let keys: Vec<Vec<u8>> =
            (0..40_u8).map(|number| [&b"common head "[..], &[number; 9]].concat()).collect();
        let mut keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        keys.insert(0, b"common head ");
        let filling = filled(&keys, 20);
        let mut out = Vec::new();
        filling.put(&mut out, (7, 3), Packing::None);
        let bound = short_bytes(filling.entries().len(), 41, 12).unwrap();
        assert!(out.len() <= (HEAD_BYTES + bound).next_multiple_of(8), "{} of {bound}", out.len());
        assert!(out.len() < filling.entries().len() - 36 * 12);
        assert_eq!(unpacked(&out), filling.entries());
        for byte in 0..out.len() {
            let mut damaged = out.clone();
            damaged[byte] ^= 1 << (byte % 8);
            match open(&damaged, (7, 3)) {
                Err(_) => {}
                Ok(BlockEntries::Unpacked(bytes)) => assert_eq!(bytes, filling.entries()),
                Ok(BlockEntries::Plain(_)) => panic!("byte {byte}: taken for a plain block"),
            }
            assert!(open(&out[..byte & !7], (7, 3)).is_err() || byte & !7 == out.len());
        }
    }

    #[test]
    fn blocks_are_as_full_as_they_may_be_and_never_fuller() {
        let mut random = 0x5eed_u64;
        let mut below = |end: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % end
        };
        for (block_bytes, value_most, alphabet) in
            [(512_usize, 9, 2), (4096, 200, 2), (4096, 200, 200), (4096, 3000, 3), (1024, 1, 1)]
        {
            let mut keys: Vec<Vec<u8>> = (0..2000)
                .map(|_| {
                    let length = 1 + below(60);
                    (0..length).map(|_| b'a'.wrapping_add(low_u8(below(alphabet)))).collect()
                })
                .collect();
            keys.sort();
            keys.dedup();
            let (mut filling, mut out, mut expected) =
                (BlockBuilder::default(), Vec::new(), Vec::new());
            let mut check = |filling: &mut BlockBuilder| {
                out.clear();
                filling.put(&mut out, (7, 3), Packing::None);
                assert!(out.len() <= block_bytes.next_multiple_of(8) || filling.count == 1);
                assert!(filling.entries().len() <= WHOLE_MAX * block_bytes || filling.count == 1);
                assert_eq!(unpacked(&out), filling.entries());
                expected.extend_from_slice(filling.entries());
                filling.clear();
            };
            let mut all = Vec::new();
            for key in &keys {
                let value = vec![0; to_usize(below(value_most))];
                if !filling.has_room((key, value.len()), block_bytes, Packing::None) {
                    check(&mut filling);
                }
                filling.add(key, Some(&value));
                put_entry(&mut all, key, Some(&value));
            }
            check(&mut filling);
            assert_eq!(expected, all);
        }
    }

    #[test]
    fn short_entries_that_no_writer_makes_are_refused() {
        let refused = |short: &[u8]| {
            let mut out = Vec::new();
            put_stored(&mut out, short, low_u32(to_u64(short.len())) | SHORT, (7, 3));
            open(&out, (7, 3)).unwrap_err()
        };
        let sound: &[u8] = b"\x0c\x02he\x02\x02adv\x01\x01x";
        let mut out = Vec::new();
        put_stored(&mut out, sound, low_u32(to_u64(sound.len())) | SHORT, (7, 3));
        assert_eq!(unpacked(&out), b"\x04\x02headv\x03\x01hex");
        for cut in 0..sound.len() {
            refused(&sound[..cut]);
        }
        let with = |at: usize, bytes: &[u8]| [&sound[..at], bytes, &sound[at + 1..]].concat();
        // A size that is not that of the entries, or beyond all sizes; a head that is too long;
        // lengths that go over the end, or over all numbers.
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        for (at, bytes) in
            [(0, &[11][..]), (0, &[13]), (0, &huge), (1, &[0x80, 2]), (1, &huge), (4, &huge)]
        {
            refused(&with(at, bytes));
        }
        refused(&with(5, &huge));
        refused(&[&[0x80, 2, 0x80, 2][..], &[b'h'; 256]].concat());
    }

    #[test]
    fn the_layout_is_pinned() {
        let short = filled(&[b"common-a", b"common-b", b"common-c"], 2);
        let mut out = Vec::new();
        short.put(&mut out, (1, 2), Packing::None);
        assert_eq!(out[4..8], [24, 0, 0, 0xc0]);
        assert_eq!(&out[8..32], b"\x24\x07common-\x01\x04a\0\0\x01\x04b\x01\x01\x01\x04c\x02\x02");

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
