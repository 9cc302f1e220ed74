//! Compressed extents: entries in blocks of about 16 KiB, so that a get from disk is one read.
//!
//! The entries of an extent are cut between entries into blocks. Each block is compressed alone
//! (LZ4 block format), or stored as it is if compression saves less than an eighth. A directory of
//! the blocks stands before them. A copy stands before the extent's hints in the manifest; opening
//! keeps it in memory.
//! A single entry is mostly too short to contain repetitions, and a whole extent would cost a get 2
//! MiB. The test `block_sizes_compared` prints the ratios of other sizes.
//!
//! | part | meaning |
//! |---|---|
//! | directory | for each block: varint units, varint `stored bytes * 2 + is_raw` |
//! | blocks | back to back, the stored bytes of each |
//!
//! Invariants: a block holds whole entries with the checksums of their uncompressed form, so no
//! entry of a damaged block passes. A length is checked against the extent's file range before it
//! is used.
//!
//! How we differ from the paper: it promises compression in its abstract and has none.

#![deny(clippy::indexing_slicing)]

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::{
    arena::EXTENT_HEAD_UNITS,
    entry::{StoredEntry, UNIT_BYTES},
    files::{EXTENT_HEAD_BYTES, FileRange},
};
use crate::util::codec::{Decoder, low_u32, put_varint, to_u64, to_usize};

/// Size at which a block of entries ends, in bytes.
const BLOCK_BYTES: usize = 16 << 10;

/// A block of a packed extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedBlock {
    /// First unit, in the chunk.
    pub(super) start: u64,
    /// End, in units.
    pub(super) end: u64,
    /// Offset in the extent's file range, in bytes.
    pub(super) from: u64,
    /// Size on disk in bytes.
    pub(super) bytes: usize,
    /// The block is not compressed.
    pub(super) is_raw: bool,
}

impl PackedBlock {
    /// Returns the size of the decompressed block in bytes.
    pub(super) fn unpacked_bytes(&self) -> usize {
        to_usize(self.end - self.start) * UNIT_BYTES
    }

    /// Decompresses the block at the start of `stored` into `out`, of [`Self::unpacked_bytes`].
    /// Returns `None` if it is damaged.
    pub(super) fn unpack(&self, stored: &[u8], out: &mut [u8]) -> Option<()> {
        let stored = stored.get(..self.bytes)?;
        if self.is_raw {
            (stored.len() == out.len()).then(|| out.copy_from_slice(stored))
        } else {
            let count = lz4_flex::block::decompress_into(stored, out).ok()?;
            (count == out.len()).then_some(())
        }
    }
}

/// The directory of an extent: its blocks, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockDirectory {
    /// First unit, and twice the offset in the file range plus one for an uncompressed block. The
    /// last pair is the end of the last block.
    bounds: Vec<(u32, u32)>,
}

impl BlockDirectory {
    fn push(&mut self, start: u64, from: u64, is_raw: bool) {
        self.bounds.push((low_u32(start), low_u32(from) << 1 | u32::from(is_raw)));
    }

    fn block(&self, index: usize) -> Option<PackedBlock> {
        let [first, next] = self.bounds.get(index..)?.first_chunk::<2>()?;
        Some(PackedBlock {
            start: u64::from(first.0),
            end: u64::from(next.0),
            from: u64::from(first.1 >> 1),
            bytes: to_usize(u64::from((next.1 >> 1).saturating_sub(first.1 >> 1))),
            is_raw: first.1 & 1 != 0,
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = PackedBlock> {
        (0..).map_while(|index| self.block(index))
    }

    /// Returns the block that holds a unit of the chunk.
    pub(super) fn find(&self, unit: u64) -> Option<PackedBlock> {
        let after = self.bounds.partition_point(|(start, _)| u64::from(*start) <= unit);
        self.block(after.checked_sub(1)?)
    }

    /// Returns the size in memory in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        to_u64(self.bounds.len()) * 8
    }

    /// Returns the offset of the end of the last block in the file range.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.bounds.last().map_or(0, |(_, from)| u64::from(from >> 1))
    }

    /// Decodes the directory of the extent of units `start` to `end` in a file range of
    /// `range_bytes`. Returns `None` for bytes that no writer produces.
    pub(super) fn decode(directory: &[u8], start: u64, end: u64, range_bytes: u64) -> Option<Self> {
        let mut decoder = Decoder::new(directory);
        let mut blocks = Self::default();
        let mut unit = start + EXTENT_HEAD_UNITS;
        let mut from = to_u64(EXTENT_HEAD_BYTES + directory.len());
        while !decoder.is_empty() {
            let units = decoder.varint()?;
            let word = decoder.varint()?;
            let (bytes, is_raw) = (word >> 1, word & 1 != 0);
            let sound = units > 0 && bytes > 0 && (!is_raw || bytes == units.checked_mul(8)?);
            blocks.push(unit, from, is_raw);
            (unit, from) = (unit.checked_add(units)?, from.checked_add(bytes)?);
            if !sound || unit > end || from > range_bytes {
                return None;
            }
        }
        blocks.push(unit, from, false);
        (unit == end && blocks.bounds.len() > 1).then_some(blocks)
    }
}

/// A packed extent: its units, its file range, its blocks.
#[derive(Debug)]
pub(super) struct PackedExtent {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) file_range: FileRange,
    pub(super) blocks: BlockDirectory,
}

/// The entries of an extent, compressed.
pub(super) struct PackedBody {
    /// The directory.
    pub(super) directory: Vec<u8>,
    /// Directory and blocks, as stored.
    pub(super) body: Vec<u8>,
}

/// Compresses the entries behind the head of an extent's `image`.
pub(super) fn pack(image: &[u8]) -> PackedBody {
    pack_in(image, BLOCK_BYTES)
}

fn pack_in(image: &[u8], block_bytes_max: usize) -> PackedBody {
    let mut directory = Vec::new();
    let mut blocks = Vec::with_capacity(image.len() / 2);
    let mut table = CompressTable::small();
    let mut scratch = Vec::new();
    let mut rest = image.get(EXTENT_HEAD_BYTES..).unwrap_or(&[]);
    while !rest.is_empty() {
        let (block, behind) =
            rest.split_at_checked(block_bytes(rest, block_bytes_max)).unwrap_or((rest, &[]));
        scratch.resize(get_maximum_output_size(block.len()), 0);
        let packed = compress_into_with_table(block, &mut scratch, &mut table)
            .ok()
            .and_then(|count| scratch.get(..count))
            .filter(|packed| packed.len() <= block.len() / 8 * 7);
        let stored = packed.unwrap_or(block);
        put_varint(&mut directory, to_u64(block.len() / UNIT_BYTES));
        put_varint(&mut directory, to_u64(stored.len()) << 1 | u64::from(packed.is_none()));
        blocks.extend_from_slice(stored);
        rest = behind;
    }
    let mut body = directory.clone();
    body.append(&mut blocks);
    PackedBody { directory, body }
}

/// Returns the bytes of the next block: as many whole entries as fit in `most`, at least one.
fn block_bytes(entries: &[u8], most: usize) -> usize {
    let mut at = 0;
    while let Some(head) = entries.get(at..).and_then(StoredEntry::head) {
        let next = at + head.units() * UNIT_BYTES;
        if at > 0 && next > most {
            return at;
        }
        at = next;
    }
    at.min(entries.len()).max(UNIT_BYTES)
}

/// Compresses a value. Returns `None` if that saves less than an eighth.
pub(super) fn pack_value(value: &[u8]) -> Option<Vec<u8>> {
    let packed = lz4_flex::block::compress(value);
    (packed.len() <= value.len() / 8 * 7).then_some(packed)
}

/// Decompresses a value of exactly `out`'s length. Returns `None` if it is damaged.
pub(super) fn unpack_value(stored: &[u8], out: &mut [u8]) -> Option<()> {
    let count = lz4_flex::block::decompress_into(stored, out).ok()?;
    (count == out.len()).then_some(())
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::{
        super::entry::{EntryHead, EntryKind, seal},
        *,
    };
    use crate::util::{
        codec::low_u8,
        sync::{AtomicU64, Ordering},
    };

    /// An extent's image with entries of these values.
    fn image(values: &[Vec<u8>]) -> Vec<u8> {
        let mut out = vec![0; EXTENT_HEAD_BYTES];
        for (number, value) in values.iter().enumerate() {
            let key = format!("key{number}").into_bytes();
            let (key_bytes, value_bytes) = (key.len(), value.len());
            let head =
                EntryHead { kind: EntryKind::Put, key_bytes, value_bytes, lsn: to_u64(number) };
            let words: Vec<AtomicU64> = (0..head.units()).map(|_| AtomicU64::new(0)).collect();
            head.store(&words, &key, [value, &[]]);
            let unit = out.len() / UNIT_BYTES;
            let from = out.len();
            for word in &words {
                out.extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            seal(&mut out[from..], 9, unit);
        }
        out
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            low_u8(state >> 33)
        };
        (0..bytes).map(next).collect()
    }

    #[test]
    fn blocks_round_trip_and_hold_whole_entries() {
        let values: Vec<Vec<u8>> = (0..900)
            .map(|number| match number % 90 {
                0 => vec![7; 40_000],
                1 => noise(20_000),
                _ => format!("row {number}, of some length, and again row {number}").into_bytes(),
            })
            .collect();
        let image = image(&values);
        let packed = pack(&image);
        assert!(packed.body.len() < image.len() * 3 / 4);
        let range_bytes = to_u64(EXTENT_HEAD_BYTES + packed.body.len());
        let end = to_u64(image.len() / UNIT_BYTES);
        let blocks = BlockDirectory::decode(&packed.directory, 0, end, range_bytes).unwrap();
        assert_eq!(blocks.stored_bytes(), range_bytes);
        assert!(blocks.iter().any(|block| block.is_raw));
        let mut unit = EXTENT_HEAD_UNITS;
        for block in blocks.iter() {
            assert_eq!(block.start, unit);
            let mut out = vec![0; block.unpacked_bytes()];
            let from = to_usize(block.from) - EXTENT_HEAD_BYTES;
            block.unpack(&packed.body[from..], &mut out).unwrap();
            let at = to_usize(block.start) * UNIT_BYTES;
            assert_eq!(out, image[at..at + out.len()]);
            assert!(
                StoredEntry::verify(&out, 9, to_usize(block.start)).is_some(),
                "not at an entry"
            );
            assert_eq!(blocks.find(block.start), Some(block));
            assert_eq!(blocks.find(block.end - 1), Some(block));
            unit = block.end;
        }
        assert_eq!(unit, end);
        assert_eq!(blocks.find(end), None);
        assert_eq!(blocks.find(0), None);
    }

    #[test]
    fn a_directory_that_no_writer_makes_is_refused() {
        let packed = pack(&image(&[vec![1; 100], noise(30_000)]));
        let bytes = to_u64(EXTENT_HEAD_BYTES + packed.body.len());
        let units = 16 + (16_u64 + 4 + 100).div_ceil(8) + (16_u64 + 4 + 30_000).div_ceil(8);
        assert!(BlockDirectory::decode(&packed.directory, 0, units, bytes).is_some());
        assert_eq!(BlockDirectory::decode(&packed.directory, 0, units, bytes - 1), None);
        assert_eq!(BlockDirectory::decode(&packed.directory, 0, units - 1, bytes), None);
        assert_eq!(BlockDirectory::decode(&packed.directory, 0, units + 1, bytes), None);
        assert_eq!(BlockDirectory::decode(&[], 0, 16, 4096), None);
        for cut in 0..packed.directory.len() {
            assert_eq!(BlockDirectory::decode(&packed.directory[..cut], 0, units, bytes), None);
        }
    }

    /// What `docs/benchmarks.md` says of block sizes.
    #[test]
    #[ignore = "prints figures: run it with --nocapture"]
    fn block_sizes_compared() {
        let text = include_str!("../../../../../examples/data/characters.csv");
        let names: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
        let lines: Vec<&str> = text.lines().collect();
        let pages: Vec<Vec<u8>> =
            lines.chunks(12).map(|lines| lines.join("\n").into_bytes()).collect();
        let half: Vec<Vec<u8>> = (0..8000_usize)
            .map(|number| {
                let mut value = noise(64 + number % 8);
                value.rotate_left(number % 60);
                for byte in &mut value {
                    *byte ^= low_u8(to_u64(number) * 151);
                }
                value.extend_from_within(..64);
                value
            })
            .collect();
        for (what, values) in [("rows of text", names), ("a dozen rows", pages), ("half", half)] {
            let image = image(&values);
            for bytes in [1, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 2 << 20] {
                let start = std::time::Instant::now();
                let packed = pack_in(&image, bytes);
                let packing = start.elapsed();
                let range_bytes = to_u64(EXTENT_HEAD_BYTES + packed.body.len());
                let end = to_u64(image.len() / UNIT_BYTES);
                let blocks =
                    BlockDirectory::decode(&packed.directory, 0, end, range_bytes).unwrap();
                let start = std::time::Instant::now();
                let count = blocks.iter().count();
                for block in blocks.iter() {
                    let mut out = vec![0; block.unpacked_bytes()];
                    let from = to_usize(block.from) - EXTENT_HEAD_BYTES;
                    block.unpack(&packed.body[from..], &mut out).unwrap();
                }
                let unpacking = start.elapsed() / u32::try_from(count).unwrap();
                println!(
                    "{what}, blocks of {bytes}: {} of {} bytes, packed in {packing:?}, a block \
                     unpacked in {unpacking:?}",
                    packed.body.len(),
                    image.len(),
                );
            }
        }
    }

    #[test]
    fn the_layout_is_pinned() {
        // Two blocks: 20 units in 13 bytes of LZ4 (40 literal bytes would be more), 1 kept.
        let directory = [20, 26, 1, 17];
        let blocks = BlockDirectory::decode(&directory, 0, 37, 4096).unwrap();
        let found: Vec<PackedBlock> = blocks.iter().collect();
        let first = PackedBlock { start: 16, end: 36, from: 132, bytes: 13, is_raw: false };
        let second = PackedBlock { start: 36, end: 37, from: 145, bytes: 8, is_raw: true };
        assert_eq!(found, [first, second]);
        // One literal, a match at distance 1 of 4 + 15 + 135 bytes, and five last literals.
        let stored = [0x1f, b'q', 1, 0, 135, 0x50, b'q', b'q', b'q', b'q', b'q'];
        let block = PackedBlock { bytes: stored.len(), ..first };
        let mut out = [0; 160];
        block.unpack(&stored, &mut out).unwrap();
        assert_eq!(out, [b'q'; 160]);
    }

    #[test]
    fn values_round_trip_or_stay_as_they_are() {
        let value = b"again and ".repeat(5000);
        let packed = pack_value(&value).unwrap();
        let mut out = vec![0; value.len()];
        unpack_value(&packed, &mut out).unwrap();
        assert_eq!(out, value);
        assert_eq!(unpack_value(&packed, &mut out[1..]), None);
        assert_eq!(unpack_value(&packed[1..], &mut out), None);
        assert_eq!(pack_value(&noise(50_000)), None);
    }
}
