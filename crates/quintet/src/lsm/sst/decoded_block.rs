//! The layout of cached blocks: uncompressed, with a directory, so that a get compares one key.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | entries in the directory; 0: there is none, because it would not fit |
//! | 4 | bytes of the entries |
//! | n, filled up to 8 | the lowest byte of each key's hash, in order |
//! | 2n, filled up to 8 | where each entry begins |
//! | | the entries, as in [`crate::lsm::sst::block`] |
//!
//! A get compares eight hash bytes at a time. A seek is a binary search of the offsets.
//!
//! Invariants:
//! - A reader may see the words change and read any lengths. Every access is bounded, and the cache
//!   discards the result.
//! - A block larger than `block_bytes` (one large entry) is cached up to 512 KiB, or 1/16 of the
//!   cache if that is less.
//!
//! Threads: any; reads take no lock.

#![deny(clippy::indexing_slicing)]

use std::{ops::Range, sync::Arc};

use super::block::{self, EntryRef};
use crate::{
    Error, Result,
    contract::{Context, Direction, ValueSink, value_sink::ValueLocation},
    io::prefetch,
    lsm::{
        block_cache::{BlockCache, BlockHandles, BlockRef},
        memtable::Answer,
    },
    util::{
        budget::Reservation,
        codec::{KeyHash, low_u8, low_u32, put_u32, to_u64, to_usize},
        sync::AtomicU64,
        words::{WORD_BYTES, compare_at, copy_out, equals_at, load_at},
    },
};

const HEAD_BYTES: usize = 8;
const CACHE_LINE_WORDS: usize = 8;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// Returns the bytes of a frame for blocks of this size: with room for a directory of entries of 24
/// bytes.
fn payload_bytes(block_bytes: usize) -> usize {
    HEAD_BYTES + block_bytes + block_bytes / 8 + 16
}

/// The block cache of a table, with the layout of this module.
#[derive(Debug)]
pub(crate) struct DecodedBlockCache {
    pub(crate) blocks: Arc<BlockCache>,
    /// Maximum bytes of an ordinary block.
    pub(crate) block_bytes: usize,
    hash: KeyHash,
    hash_mask: u64,
}

/// Returns where the offsets and the entries begin behind a directory of `count` entries.
#[inline]
fn directory_shape(count: usize) -> (usize, usize) {
    let offsets = HEAD_BYTES + count.next_multiple_of(8);
    (offsets, offsets + (count * 2).next_multiple_of(8))
}

impl DecodedBlockCache {
    /// Reserves memory for work in the cache's budget until the result is dropped.
    pub(crate) fn charge(&self, bytes: u64) -> Reservation {
        self.blocks.budget().reserve_transient(bytes)
    }

    /// Creates an empty cache of at most `bytes` for blocks of `block_bytes`, and registers it with
    /// the budget.
    pub(crate) fn new(
        (bytes, block_bytes): (u64, usize),
        context: &Context,
        hash_mask: u64,
    ) -> Result<Self> {
        let payload = payload_bytes(block_bytes);
        let secret = context.hash.hash(b"frames of blocks");
        let blocks = BlockCache::new((bytes, payload), secret, (&context.budget, context.table_id))
            .map_err(|error| Error::address_space("a cache", error))?;
        let blocks = Arc::new(blocks);
        let spare = Arc::downgrade(&blocks);
        context.budget.register_reclaimable(spare);
        Ok(Self { blocks, block_bytes, hash: context.hash, hash_mask })
    }

    /// Creates the handles for the blocks of an SST.
    pub(crate) fn handles(&self, sst: u64) -> BlockHandles {
        BlockHandles::new(&self.blocks, sst << 32)
    }

    /// Caches a block of these entries.
    pub(crate) fn fill(&self, slot: Option<BlockRef<'_>>, entries: &[u8]) {
        let Some(slot) = slot else { return };
        if let Some(head) = self.directory(entries) {
            self.blocks.fill(slot, &[&head, entries]);
        }
    }

    /// Returns the directory of a block; `None` if the block is too large to be cached.
    pub(crate) fn directory(&self, entries: &[u8]) -> Option<Vec<u8>> {
        let most = self.blocks.payload_bytes_max()?;
        directory_of(entries, most, |key| low_u8(self.hash.hash(key) & self.hash_mask))
    }

    /// Caches bytes that are not those of a block.
    pub(crate) fn fill_bytes(&self, slot: Option<BlockRef<'_>>, bytes: &[u8]) {
        let most = self.blocks.payload_bytes_max().unwrap_or(0);
        if let Some(slot) = slot.filter(|_| WORD_BYTES + bytes.len() <= most) {
            self.blocks.fill(slot, &[&to_u64(bytes.len()).to_le_bytes(), bytes]);
        }
    }

    /// Copies bytes that [`Self::fill_bytes`] has cached to `out`. Returns `None` if they are not
    /// cached.
    pub(crate) fn copy_bytes(&self, slot: Option<BlockRef<'_>>, out: &mut Vec<u8>) -> Option<()> {
        let copied = self.blocks.read(slot?, |words| {
            let bytes = to_usize(load_at(words, 0));
            if bytes > (words.len() * WORD_BYTES).saturating_sub(WORD_BYTES) {
                return None;
            }
            out.resize(bytes, 0);
            copy_out(words, WORD_BYTES, out);
            Some(())
        });
        copied.flatten()
    }

    /// Looks a key up in a block. Returns `None` if the block is not cached.
    #[inline]
    pub(crate) fn find<T: ValueSink>(
        &self,
        slot: Option<BlockRef<'_>>,
        (hash, key): (u64, &[u8]),
        sink: &mut T,
    ) -> Option<Answer<T::Output>> {
        self.blocks.read(slot?, |words| find_key(words, (low_u8(hash), key), sink))
    }

    /// Calls `each` with the value of a key in place, in a pinned block. Returns `None` if the
    /// block is not cached or cannot be pinned.
    pub(crate) fn with_pinned_value<T>(
        &self,
        slot: Option<BlockRef<'_>>,
        (hash, key): (u64, &[u8]),
        each: impl FnOnce(&[u8]) -> T,
    ) -> Option<Answer<T>> {
        let pinned = self.blocks.pin(slot?)?;
        match find_key(pinned.words(), (low_u8(hash), key), &mut ValueLocation) {
            Answer::Value((at, bytes)) => {
                pinned.bytes(at..at.saturating_add(bytes)).map(|value| Answer::Value(each(value)))
            }
            Answer::Deleted => Some(Answer::Deleted),
            Answer::Nothing => Some(Answer::Nothing),
        }
    }

    /// Gives the value of the entry that begins in a range of the block's entries to `sink`, and
    /// replaces the contents of `key` by its key. Returns `None` if the block is not cached, the
    /// range is not that of one entry, or the entry is a tombstone.
    #[inline]
    pub(crate) fn find_at<T: ValueSink>(
        &self,
        slot: Option<BlockRef<'_>>,
        at: Range<usize>,
        key: &mut Vec<u8>,
        sink: &mut T,
    ) -> Option<T::Output> {
        let found = self.blocks.read(slot?, |words| {
            let entry = entry_at(words, at)?;
            key.resize(entry.key.len(), 0);
            copy_out(words, entry.key.start, key);
            Some(sink.of_words(words, (entry.value.start, entry.value.len())))
        });
        found.flatten()
    }

    /// Like [`Self::find_at`], if the entry has this key; else returns `None`.
    #[inline]
    pub(crate) fn find_key_at<T: ValueSink>(
        &self,
        slot: Option<BlockRef<'_>>,
        at: Range<usize>,
        key: &[u8],
        sink: &mut T,
    ) -> Option<T::Output> {
        let found = self.blocks.read(slot?, |words| {
            let LiveEntry { key: there, value } = entry_at(words, at)?;
            let is_it = there.len() == key.len() && equals_at(words, there.start, key);
            is_it.then(|| sink.of_words(words, (value.start, value.len())))
        });
        found.flatten()
    }

    /// Calls `each` with key and value in place, of the entry that [`Self::find_at`] finds.
    pub(crate) fn show_at<T>(
        &self,
        slot: Option<BlockRef<'_>>,
        at: Range<usize>,
        each: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> Option<T> {
        let pinned = self.blocks.pin(slot?)?;
        let entry = entry_at(pinned.words(), at)?;
        let (start, middle) = (entry.key.start, entry.value.start);
        let bytes = pinned.bytes(start..entry.value.end)?;
        let (key, value) = bytes.split_at_checked(middle - start)?;
        Some(each(key, value))
    }

    /// Prefetches what [`find`] reads.
    #[inline]
    pub(crate) fn prefetch(&self, slot: Option<BlockRef<'_>>) {
        if let Some(slot) = slot {
            self.blocks.prefetch(slot);
        }
    }

    /// Prefetches what [`Self::find`] reads, for an entry at about offset `at` of a block of about
    /// `entries` entries.
    #[inline]
    pub(crate) fn prefetch_entry(&self, slot: Option<BlockRef<'_>>, (entries, at): (usize, usize)) {
        if let Some(slot) = slot {
            self.blocks.prefetch_near(slot, directory_shape(entries).1 + at);
        }
    }

    /// Returns whether a block is cached.
    pub(crate) fn has(&self, slot: Option<BlockRef<'_>>) -> bool {
        slot.is_some_and(|slot| self.blocks.has(slot))
    }

    /// An entry of block `old` is obsolete, and block `new` may have its successor. If the entry is
    /// alone in its block, evicts that block and counts a use of the new one if the old one was
    /// used. Uses of a block with several entries are not known by entry.
    pub(crate) fn replace(&self, old: Option<BlockRef<'_>>, new: Option<BlockRef<'_>>) {
        let is_alone = |old: &BlockRef<'_>| {
            self.blocks.first_word(*old).is_some_and(|word| word & 0xffff_ffff == 1)
        };
        let Some(old) = old.filter(is_alone) else { return };
        if let Some(new) = new.filter(|_| self.blocks.is_used(old)) {
            self.blocks.touch(new);
        }
        self.blocks.evict_block(old);
    }

    /// Copies up to `most` entries of a cached block: from `look` on upwards, or those before it
    /// downwards.
    pub(crate) fn copy_entries(
        &self,
        slot: Option<BlockRef<'_>>,
        (look, way, most): (CopyStart<'_>, Direction, usize),
        out: &mut Vec<u8>,
    ) -> Option<CopiedEntries> {
        let copied = self.blocks.read(slot?, |words| copy_range(words, (look, way, most), out));
        copied.flatten()
    }
}

/// Where a copy of entries begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopyStart<'k> {
    /// At the first entry whose key is not below this one.
    Key(&'k [u8]),
    /// At the entry with this index, or the end.
    Entry(usize),
}

/// The entries that were copied out of a block.
#[derive(Debug)]
pub(crate) struct CopiedEntries {
    /// Their indexes, and the number of entries of the block.
    pub(crate) entries: Range<usize>,
    pub(crate) count: usize,
    /// Whether the block has an entry below the searched key.
    pub(crate) has_below: bool,
    /// Whether all entries were copied, because the block has no directory.
    pub(crate) is_whole: bool,
}

fn copy_range(
    words: &[AtomicU64],
    (look, way, most): (CopyStart<'_>, Direction, usize),
    out: &mut Vec<u8>,
) -> Option<CopiedEntries> {
    let head = load_at(words, 0);
    let room = words.len() * WORD_BYTES;
    let (count, bytes) = (to_usize(head & 0xffff_ffff).min(room), to_usize(head >> 32));
    let (offsets, first) = directory_shape(count);
    if first.saturating_add(bytes) > room {
        return None;
    }
    let offset = |entry: usize| {
        if entry >= count {
            return bytes;
        }
        to_usize(load_at(words, offsets + entry * 2) & 0xffff).min(bytes)
    };
    let is_below_at = |offset: usize, key: &[u8]| {
        let (start, key_bytes, _) = decode_lengths(words, first + offset);
        compare_at(words, (start, key_bytes.min(room)), key).is_lt()
    };
    let is_below = |entry: usize, key: &[u8]| is_below_at(offset(entry), key);
    let at = match look {
        CopyStart::Entry(number) => number.min(count),
        CopyStart::Key(key) if count == 0 || !is_below(0, key) => 0,
        CopyStart::Key(key) => {
            let (mut low, mut high) = (1, count);
            while low < high {
                let middle = usize::midpoint(low, high);
                if is_below(middle, key) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        }
    };
    let has_below = match look {
        CopyStart::Key(key) if count == 0 => bytes > 0 && is_below_at(0, key),
        _ => at > 0,
    };
    let entries = match way {
        Direction::Up => at..at.saturating_add(most).min(count),
        Direction::Down => at.saturating_sub(most)..at,
    };
    let (from, to) =
        if count == 0 { (0, bytes) } else { (offset(entries.start), offset(entries.end)) };
    out.resize(to.checked_sub(from)?, 0);
    copy_out(words, first + from, out);
    Some(CopiedEntries { entries, count, has_below, is_whole: count == 0 })
}

/// Returns the directory of entries in a frame of `most` bytes, with a byte of each key's hash.
fn directory_of(entries: &[u8], most: usize, print: impl Fn(&[u8]) -> u8) -> Option<Vec<u8>> {
    if entries.len() + HEAD_BYTES > most {
        return None;
    }
    let mut found: Vec<EntryRef> = Vec::new();
    block::all_entries(entries, &mut found).ok()?;
    let (mut prints, mut offsets) = (Vec::new(), Vec::new());
    let mut at = 0;
    for entry in &found {
        prints.push(print(entries.get(entry.key.clone()).unwrap_or(&[])));
        let offset = u16::try_from(at).unwrap_or(u16::MAX);
        offsets.extend_from_slice(&offset.to_le_bytes());
        at = entry.value.end;
    }
    let (_, start) = directory_shape(found.len());
    let is_small = start + entries.len() <= most && at < usize::from(u16::MAX);
    let mut head = Vec::with_capacity(start);
    put_u32(&mut head, if is_small { low_u32(to_u64(found.len())) } else { 0 });
    put_u32(&mut head, low_u32(to_u64(entries.len())));
    if is_small {
        head.extend_from_slice(&prints);
        head.resize(head.len().next_multiple_of(8), 0);
        head.extend_from_slice(&offsets);
        head.resize(head.len().next_multiple_of(8), 0);
    }
    Some(head)
}

#[inline]
fn find_key<T: ValueSink>(
    words: &[AtomicU64],
    (print, key): (u8, &[u8]),
    sink: &mut T,
) -> Answer<T::Output> {
    let head = load_at(words, 0);
    let count = to_usize(head & 0xffff_ffff).min(words.len() * 8);
    let (offsets, first) = directory_shape(count);
    if count == 0 {
        return find_linear(words, to_usize(head >> 32), key, sink);
    }
    let wanted = ONES * u64::from(print);
    for group in 0..count.div_ceil(8) {
        let differs = load_at(words, HEAD_BYTES + group * 8) ^ wanted;
        // Bytes that are zero. The borrow may mark a byte above one as well: keys are compared
        // anyway.
        let mut zeros = differs.wrapping_sub(ONES) & !differs & HIGHS;
        while zeros != 0 {
            let entry = group * 8 + to_usize(u64::from(zeros.trailing_zeros() / 8));
            zeros &= zeros - 1;
            let at = first + to_usize(load_at(words, offsets + entry * 2) & 0xffff);
            if let Some(answer) = entry_of(words, at, key, sink).filter(|_| entry < count) {
                return answer;
            }
        }
    }
    Answer::Nothing
}

/// The offsets of a live entry's key and value in a block's words.
struct LiveEntry {
    key: Range<usize>,
    value: Range<usize>,
}

/// Returns the entry that begins in a range of a block's entries, if exactly one does.
#[inline]
fn entry_at(words: &[AtomicU64], wanted: Range<usize>) -> Option<LiveEntry> {
    let head = load_at(words, 0);
    let room = words.len() * WORD_BYTES;
    let count = to_usize(head & 0xffff_ffff).min(room);
    let (offsets, first) = directory_shape(count);
    let offset = |entry: usize| to_usize(load_at(words, offsets + entry * 2) & 0xffff);
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if offset(middle) < wanted.start {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // Without a directory, only the first entry can be meant.
    let at = if low < count { offset(low) } else { 0 };
    if !wanted.contains(&at) {
        return None;
    }
    for line in 1..=2 {
        words
            .get((first + at) / WORD_BYTES + line * CACHE_LINE_WORDS)
            .into_iter()
            .for_each(prefetch);
    }
    let (start, key_bytes, value) = decode_lengths(words, first + at);
    let middle = start.checked_add(key_bytes)?;
    let end = middle.checked_add(to_usize(value >> 1))?;
    // The last entry of a directory is alone wherever the range ends.
    let is_alone = end - first >= wanted.end
        || low + 1 == count
        || (low + 1 < count && offset(low + 1) >= wanted.end);
    let is_live = value & 1 == 0 && is_alone && end <= room;
    is_live.then_some(LiveEntry { key: start..middle, value: middle..end })
}

/// Decodes the lengths of the entry at an offset: where its key begins, the key's length, and the
/// value word.
#[inline]
fn decode_lengths(words: &[AtomicU64], at: usize) -> (usize, usize, u64) {
    let mut word = load_at(words, at);
    let mut next = || {
        // The varint of a key length has up to three bytes, that of a value five: eight bytes are
        // enough.
        let ends = (!word & HIGHS).trailing_zeros().min(55) + 1;
        let mut value = 0;
        for byte in 0..ends / 8 {
            value |= (word >> (byte * 8) & 0x7f) << (byte * 7);
        }
        word = word.checked_shr(ends).unwrap_or(0);
        (value, to_usize(u64::from(ends / 8)))
    };
    let (key, first) = next();
    let (value, second) = next();
    (at + first + second, to_usize(key), value)
}

/// Returns the answer of the entry at an offset, if it has this key.
#[inline]
fn entry_of<T: ValueSink>(
    words: &[AtomicU64],
    at: usize,
    key: &[u8],
    sink: &mut T,
) -> Option<Answer<T::Output>> {
    // Prefetch the next cache lines at once instead of missing on each.
    for line in 1..=2 {
        words.get(at / WORD_BYTES + line * CACHE_LINE_WORDS).into_iter().for_each(prefetch);
    }
    let (start, key_bytes, value) = decode_lengths(words, at);
    if key_bytes != key.len() || !equals_at(words, start, key) {
        return None;
    }
    if value & 1 != 0 {
        return Some(Answer::Deleted);
    }
    let bytes = to_usize(value >> 1);
    if bytes > words.len() * 8 {
        return None;
    }
    Some(Answer::Value(sink.of_words(words, (start + key_bytes, bytes))))
}

/// Searches a block without a directory, entry by entry.
#[cold]
fn find_linear<T: ValueSink>(
    words: &[AtomicU64],
    bytes: usize,
    key: &[u8],
    sink: &mut T,
) -> Answer<T::Output> {
    let end = HEAD_BYTES + bytes.min(words.len() * 8);
    let mut at = HEAD_BYTES;
    while at < end {
        if let Some(answer) = entry_of(words, at, key, sink) {
            return answer;
        }
        let (start, key_bytes, value) = decode_lengths(words, at);
        at = start.saturating_add(key_bytes).saturating_add(to_usize(value >> 1));
    }
    Answer::Nothing
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::words::store_bytes;

    #[test]
    fn an_entry_is_found_where_it_begins_alone() {
        let (mut entries, mut starts) = (Vec::new(), Vec::new());
        for number in 0..30_u8 {
            starts.push(entries.len());
            block::put_entry(&mut entries, &[b'k', number], Some(&vec![number; number.into()]));
        }
        let head = directory_of(&entries, 4096, |_| 0).unwrap();
        let words: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
        store_bytes(&words, &[&head, &entries]);
        for from in 0..=entries.len() {
            for to in [from + 1, from + 7, from + 40, usize::MAX] {
                let begin: Vec<usize> =
                    (0..30).filter(|entry| (from..to).contains(&starts[*entry])).collect();
                let found = entry_at(&words, from..to).map(|entry| entry.value.len());
                let expected = <[usize; 1]>::try_from(begin).ok().map(|[entry]| entry);
                assert_eq!(found, expected, "{from}..{to}");
            }
        }
    }

    #[test]
    fn parts_are_what_was_asked_for() {
        let (mut entries, mut keys) = (Vec::new(), Vec::new());
        for number in (2..=60_u8).step_by(2) {
            let key = vec![b'k'; usize::from(number % 13)].into_iter().chain([number]);
            keys.push(key.collect::<Vec<u8>>());
        }
        keys.sort();
        for key in &keys {
            let value = vec![key.len().try_into().unwrap(); key.len()];
            block::put_entry(&mut entries, key, (key.len() % 5 > 0).then_some(&value[..]));
        }
        for most in [entries.len() + HEAD_BYTES, 4096] {
            let head = directory_of(&entries, most, |_| 0).unwrap();
            let is_listed = head.len() > HEAD_BYTES;
            assert_eq!(is_listed, most == 4096);
            let words: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
            store_bytes(&words, &[&head, &entries]);
            let mut sought = keys.clone();
            sought.extend(keys.iter().map(|key| [key, &[0][..]].concat()));
            sought.extend([b"".to_vec(), b"z".to_vec()]);
            for (key, count) in sought.iter().flat_map(|key| [1, 3, 100].map(|count| (key, count)))
            {
                let at = keys.partition_point(|one| one < key);
                for (way, expected) in [
                    (Direction::Up, at..(at + count).min(keys.len())),
                    (Direction::Down, at.saturating_sub(count)..at),
                ] {
                    for look in [CopyStart::Key(key), CopyStart::Entry(at)] {
                        let mut out = Vec::new();
                        let part = copy_range(&words, (look, way, count), &mut out).unwrap();
                        assert_eq!(part.is_whole, !is_listed);
                        if matches!(look, CopyStart::Key(_)) {
                            assert_eq!(part.has_below, at > 0);
                        }
                        let mut found = Vec::new();
                        block::all_entries(&out, &mut found).unwrap();
                        let found: Vec<_> = found.into_iter().map(|one| &out[one.key]).collect();
                        if is_listed {
                            assert_eq!((part.entries, part.count), (expected.clone(), keys.len()));
                            assert_eq!(found, &keys[expected.clone()]);
                        } else {
                            assert_eq!(found, keys);
                        }
                    }
                }
            }
        }
    }
}
