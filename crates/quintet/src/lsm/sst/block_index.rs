//! The block index of an SST: fence pointers that map a key to the blocks that may hold it.
//!
//! Blocks are in groups. A group has a fence: a prefix of its first key that is above all keys
//! before it. Each other block of the group has a hint: 16 bits of its first key. A fence for each
//! [`GROUP_BYTES`] and two bytes a block take less memory than fences twice as often. A seek still
//! reads only the blocks it needs, not a whole group.
//!
//! Per group: varint blocks, varint fence length, fence, shared (1 byte), shift (1 byte), hints (2
//! bytes for each block but the first).
//!
//! All keys of the group share `shared` bytes, which the fence has too. The number of a key is its
//! next 8 bytes, big-endian and padded with zeros, minus the number of the fence. A hint is bits
//! `shift` to `shift + 15` of it, counted from the top. `shift` is the number of leading zeros of
//! the last key's number.
//!
//! Invariants: hints ascend with keys. If a block's hint equals that of the searched key, its first
//! key may be above or below that key. So a seek returns the blocks of equal hints and the one
//! before them.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use crate::util::{
    codec::{Decoder, low_u32, put_bytes, put_varint, to_u64, to_usize},
    mutant::mutant,
};

/// A group ends when its blocks have this many bytes, or [`GROUP_ENTRIES`] entries and at least
/// [`GROUP_BYTES_MIN`] bytes.
const GROUP_BYTES: u64 = 64 << 10;
const GROUP_ENTRIES: u64 = 96;
const GROUP_BYTES_MIN: u64 = 16_000;
/// Maximum shared bytes that are counted.
const SHARED_MAX: usize = 255;
const SHIFT_MAX: u32 = 63;

/// Returns the length of the prefix that two keys share.
fn shared(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Returns the eight bytes after the shared prefix as a number.
fn number(key: &[u8], shared: usize) -> u64 {
    let rest = key.get(shared..).unwrap_or(&[]);
    let mut bytes = [0; 8];
    for (target, source) in bytes.iter_mut().zip(rest) {
        *target = *source;
    }
    u64::from_be_bytes(bytes)
}

/// Which bits of the keys of a group its hints have.
#[derive(Clone, Copy, Debug)]
struct HintScale {
    shared: u8,
    shift: u8,
}

impl HintScale {
    /// Returns the scale of a group with this fence and last key.
    fn of(fence: &[u8], shared: usize, last: &[u8]) -> Self {
        let most = number(last, shared).saturating_sub(number(fence, shared));
        let shift = most.leading_zeros().min(SHIFT_MAX);
        Self {
            shared: u8::try_from(shared).unwrap_or(u8::MAX),
            shift: u8::try_from(shift).unwrap_or(0),
        }
    }

    /// Returns the hint of a key that is not below the fence.
    fn hint(self, fence: &[u8], key: &[u8]) -> u16 {
        let shared = usize::from(self.shared);
        if key.get(..shared).unwrap_or(key) > fence.get(..shared).unwrap_or(fence) {
            return u16::MAX;
        }
        let above = number(key, shared).saturating_sub(number(fence, shared));
        if above.leading_zeros() < u32::from(self.shift) {
            return u16::MAX;
        }
        u16::try_from((above << self.shift) >> 48).unwrap_or(u16::MAX)
    }
}

#[derive(Clone, Copy, Debug)]
struct FenceGroup {
    /// Its first block.
    block: u32,
    /// Where its fence begins in `keys`.
    fence: u32,
    scale: HintScale,
}

/// The block index of an SST, in memory. See the module head.
#[derive(Debug, Default)]
pub(crate) struct BlockIndex {
    /// One for each group, and one for the end.
    groups: Vec<FenceGroup>,
    /// The fences of all groups, concatenated.
    keys: Vec<u8>,
    /// One hint for each block; 0 for the first of a group.
    hints: Vec<u16>,
}

impl BlockIndex {
    /// Decodes the index of an SST of `blocks` blocks; `None` if it does not parse.
    pub(crate) fn decode(bytes: &[u8], blocks: u32) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        let (mut found, mut block) = (Self::default(), 0_u32);
        // A damaged count must not allocate much: there are two bytes for each hint.
        found.hints.reserve_exact(to_usize(u64::from(blocks)).min(bytes.len()));
        while !decoder.is_empty() {
            let count = u32::try_from(decoder.varint()?).ok().filter(|count| *count > 0)?;
            let fence = decoder.bytes()?;
            let scale = HintScale { shared: decoder.u8()?, shift: decoder.u8()? };
            let is_sound =
                usize::from(scale.shared) <= fence.len() && u32::from(scale.shift) <= SHIFT_MAX;
            found.groups.push(FenceGroup {
                block,
                fence: u32::try_from(found.keys.len()).ok().filter(|_| is_sound)?,
                scale,
            });
            found.keys.extend_from_slice(fence);
            found.hints.push(0);
            let hints = decoder.take(to_usize(u64::from(count - 1)).checked_mul(2)?)?;
            let (hints, _) = hints.as_chunks::<2>();
            found.hints.extend(hints.iter().map(|bytes| u16::from_le_bytes(*bytes)));
            block = block.checked_add(count)?;
        }
        found.groups.push(FenceGroup {
            block,
            fence: u32::try_from(found.keys.len()).ok()?,
            scale: HintScale { shared: 0, shift: 0 },
        });
        found.groups.shrink_to_fit();
        found.keys.shrink_to_fit();
        found.hints.shrink_to_fit();
        (block == blocks || found.groups.len() == 1).then_some(found)
    }

    fn bounds(&self, group: usize) -> Option<(FenceGroup, FenceGroup)> {
        let [one, next] = self.groups.get(group..)?.first_chunk::<2>()?;
        Some((*one, *next))
    }

    fn fence(&self, group: usize) -> &[u8] {
        let bounds = self.bounds(group);
        bounds.map_or(&[], |(one, next)| {
            let range = to_usize(u64::from(one.fence))..to_usize(u64::from(next.fence));
            self.keys.get(range).unwrap_or(&[])
        })
    }

    /// Returns the last group whose fence is not above `key`, else the first: the only group that
    /// may hold it.
    fn find(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.groups.len().saturating_sub(1));
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.fence(middle) <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }

    /// Returns the blocks, at least one, that may hold `key`. All keys of blocks before them are
    /// below it, and no key of blocks after them is. Returns `None` if there are no fences. O(log
    /// blocks).
    pub(crate) fn seek(&self, key: &[u8]) -> Option<Range<u32>> {
        let group = self.find(key);
        let (one, next) = self.bounds(group)?;
        let all = to_usize(u64::from(one.block))..to_usize(u64::from(next.block));
        let hints = self.hints.get(all).unwrap_or(&[]);
        let fence = self.fence(group);
        let hint = if key < fence { 0 } else { one.scale.hint(fence, key) };
        // The first block of a group has no hint: its keys begin at the fence.
        let others = hints.get(1..).unwrap_or(&[]);
        let reached = others.partition_point(|other| *other <= hint);
        let below = others.partition_point(|other| *other < hint);
        let below = mutant!(TphSeeksPastEqualHints: reached, else below);
        let at = |place: usize| one.block + low_u32(to_u64(place));
        Some(at(below)..at(reached + 1).min(next.block))
    }

    /// Returns the bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        to_u64(self.groups.capacity() * size_of::<FenceGroup>())
            + to_u64(self.keys.capacity() + 2 * self.hints.capacity())
    }
}

/// Builds the block index while an SST is written.
#[derive(Debug, Default)]
pub(crate) struct BlockIndexBuilder {
    /// First keys of the blocks of the current group.
    first_keys: Vec<Box<[u8]>>,
    /// Length of the shortest prefix of the first key that is above all keys before it.
    separator: usize,
    bytes: u64,
    entries: u64,
    out: Vec<u8>,
}

impl BlockIndexBuilder {
    /// Begins a block whose first key is `key`; the last key before it is `before`.
    pub(crate) fn begin_block(&mut self, before: &[u8], key: &[u8]) {
        if self.first_keys.is_empty() {
            self.separator = (shared(before, key) + 1).min(key.len());
        }
        self.first_keys.push(key.into());
    }

    /// Ends a block of `bytes` and `entries` whose last key is `last`.
    pub(crate) fn end_block(&mut self, bytes: u64, entries: u64, last: &[u8]) {
        self.bytes += bytes;
        self.entries += entries;
        let is_full = self.entries >= GROUP_ENTRIES && self.bytes >= GROUP_BYTES_MIN;
        if is_full || self.bytes >= GROUP_BYTES {
            self.end_group(last);
        }
    }

    /// Ends the group, whose last key is `last`.
    fn end_group(&mut self, last: &[u8]) {
        let Some(first) = self.first_keys.first() else { return };
        let shared = shared(first, last).min(SHARED_MAX);
        let fence = first.get(..self.separator.max(shared)).unwrap_or(first);
        let scale = HintScale::of(fence, shared, last);
        put_varint(&mut self.out, to_u64(self.first_keys.len()));
        put_bytes(&mut self.out, fence);
        self.out.extend([scale.shared, scale.shift]);
        for key in self.first_keys.iter().skip(1) {
            self.out.extend(scale.hint(fence, key).to_le_bytes());
        }
        self.first_keys.clear();
        (self.bytes, self.entries) = (0, 0);
    }

    /// Returns the encoded groups, the last of which ends with the key `last`.
    pub(crate) fn finish(&mut self, last: &[u8]) -> Vec<u8> {
        self.end_group(last);
        std::mem::take(&mut self.out)
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::util::mutant::{self, Bug};

    /// The fences of blocks with these keys.
    fn build(blocks: &[Vec<Vec<u8>>], block_bytes: u64) -> BlockIndex {
        let mut builder = BlockIndexBuilder::default();
        let mut last: &[u8] = &[];
        for block in blocks {
            builder.begin_block(last, block.first().expect("a key"));
            last = block.last().expect("a key");
            builder.end_block(block_bytes, to_u64(block.len()), last);
        }
        let bytes = builder.finish(last);
        BlockIndex::decode(&bytes, low_u32(to_u64(blocks.len()))).expect("what was built")
    }

    /// Where a seek has to come by: the block of the last key below, and of the first not below.
    fn assert_finds(fences: &BlockIndex, blocks: &[Vec<Vec<u8>>], key: &[u8]) {
        let found = fences.seek(key).expect("a fence");
        let found = to_usize(u64::from(found.start))..to_usize(u64::from(found.end));
        assert!(!found.is_empty() && found.end <= blocks.len(), "{found:?} for {key:?}");
        for (number, block) in blocks.iter().enumerate() {
            if number < found.start {
                assert!(block.last().expect("a key").as_slice() < key, "{number} {key:?}");
            }
            if number >= found.end {
                assert!(block.first().expect("a key").as_slice() >= key, "{number} {key:?}");
            }
        }
    }

    /// Keys that share much, little, or more bytes than a number has.
    fn keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let letter = prop::sample::select(vec![0_u8, b'0', b'1', b'9', 255]);
        let key = (
            prop::sample::select(vec!["", "user", "a-rather-long-prefix-"]),
            prop::collection::vec(letter, 0..14),
        );
        let key = key.prop_map(|(prefix, rest)| [prefix.as_bytes(), &rest].concat());
        prop::collection::btree_set(key, 1..200).prop_map(|keys| keys.into_iter().collect())
    }

    proptest! {
        #[test]
        fn seeks_find_the_blocks_of_any_key(
            keys in keys(),
            others in keys(),
            of_block in 1_usize..5,
            block_bytes in prop::sample::select(vec![500_u64, 9_000, 70_000]),
        ) {
            let blocks: Vec<Vec<Vec<u8>>> = keys.chunks(of_block).map(<[_]>::to_vec).collect();
            let fences = build(&blocks, block_bytes);
            for key in keys.iter().chain(&others) {
                assert_finds(&fences, &blocks, key);
            }
            assert_finds(&fences, &blocks, &[]);
            assert_finds(&fences, &blocks, &[255; 32]);
        }
    }

    /// Blocks whose first keys differ after the bytes that hints are of.
    fn alike() -> Vec<Vec<Vec<u8>>> {
        let middle = (0..20).map(|number| format!("b0000000000{number:04}").into_bytes());
        let mut keys = vec![b"a".to_vec()];
        keys.extend(middle);
        keys.push(b"z".to_vec());
        keys.chunks(2).map(<[_]>::to_vec).collect()
    }

    fn seek_among_equal_hints() {
        let blocks = alike();
        let fences = build(&blocks, 100);
        for key in blocks.iter().flatten() {
            assert_finds(&fences, &blocks, key);
        }
    }

    #[test]
    fn seeks_among_equal_hints_take_them_all() {
        seek_among_equal_hints();
    }

    #[test]
    fn seeks_past_equal_hints_are_caught() {
        mutant::finds(Bug::TphSeeksPastEqualHints, seek_among_equal_hints);
    }

    #[test]
    fn a_seek_among_even_keys_reads_one_block_or_two() {
        let keys: Vec<Vec<u8>> = (0..3_000_u64)
            .map(|number| format!("user{:016}", number * 2_654_435_761).into_bytes())
            .collect();
        let blocks: Vec<Vec<Vec<u8>>> = keys.chunks(3).map(<[_]>::to_vec).collect();
        let fences = build(&blocks, 3_200);
        let read: usize =
            keys.iter().filter_map(|key| fences.seek(key)).map(|found| found.len()).sum();
        // The first keys of blocks, every third here, take the block before too.
        assert!(read < 3_000 * 3 / 2, "{read} blocks for 3,000 keys");
        assert!(fences.memory_bytes() < 3_000 * 3 / 2, "{} bytes", fences.memory_bytes());
    }
}
