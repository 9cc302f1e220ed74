//! A skip list in persistent memory: a memtable that needs no log (SLM-DB, section 3.1).
//!
//! How: one entry for each key, in key order. The bottom level is in the pool: each node links to
//! its value and to the next node by one word each. The levels above are *towers* in ordinary
//! memory, rebuilt at opening.
//! An insert is persistent when it returns, after two fences: one for everything that the new link
//! points to, one for the link. An update costs the same: it replaces the link to the value.
//!
//! Layout in the pool, in words (the root of a list is its list object):
//!
//! | object | word | bits | name | meaning |
//! |---|---|---|---|---|
//! | list | 0 | | magic | `QNTLIST\0` |
//! | list | 1 | | first | [`link`] to the first node; 0: none |
//! | node | 0 | 0 to 31 | key length | in bytes |
//! | node | 0 | 32 to 63 | crc | CRC32C of the key |
//! | node | 1 | | prefix | first 8 bytes of the key, big-endian, filled up with zeros |
//! | node | 2 | | value | [`link`] to the value; the one word of a node that changes, but for the next |
//! | node | 3 | | next | [`link`] to the next node; 0: none |
//! | node | 4 .. | | key | little-endian words, the last filled up with zeros |
//! | value | 0 | | version | the higher, the newer |
//! | value | 1 | 0 to 29 | length | in bytes |
//! | value | 1 | 30 to 31 | kind | of the owner's choice |
//! | value | 1 | 32 to 63 | crc | CRC32C of word 0, bits 0 to 31 of word 1, and the bytes |
//! | value | 2 | | replaced | [`link`] to the value that it replaced; 0: none |
//! | value | 3 .. | | bytes | likewise |
//!
//! The list allocates nodes and values from chunks of whole slabs and frees all chunks together
//! ([`release`](PersistentList::release)). A replaced value stays until then, so readers need no
//! protection from writers. Opening can return to the values below a version
//! ([`PersistentList::open`]): the shared log may lack the operations from there on.
//!
//! Invariants: keys ascend strictly from node to node. The target of a link was persistent before
//! the link. Of two values of a key, the list keeps the one with the higher version, whichever
//! comes first, and of two with the same version the later one. The values that a value replaced
//! have lower versions or the same.
//!
//! Threads: any thread. Readers take no lock. Writers take turns, so that a node is persistent
//! before another is linked behind it. (With concurrent links, a write that has returned could
//! depend on a link that is still in a cache.)
//!
//! Differences from the paper: an update replaces one word, where the paper inserts a new entry.
//! The upper levels are not in the pool. Keys and values carry checksums, verified when the list is
//! opened. Start reading at [`PersistentList::insert`].

#[cfg(all(test, shuttle))]
mod models;
mod open;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::{cmp, collections::BTreeSet, ops::Range, sync::Arc};

use crate::{
    Error, Result,
    io::Region,
    pmem::{Pool, SLAB_BYTES, is_link, link, target},
    util::{
        codec::{crc32c, crc32c_append, key_prefix, low_u8, low_u32, to_u64, to_usize, widen},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, lock},
        words::{compare_at, copy_out},
    },
};

const MAGIC: u64 = u64::from_le_bytes(*b"QNTLIST\0");
/// Bytes of the list object.
const LIST_BYTES: u64 = 16;
const FIRST: u64 = 8;
const PREFIX: u64 = 8;
const VALUE: u64 = 16;
const NEXT: u64 = 24;
const KEY: u64 = 32;
/// Offset of the link to the replaced value.
const REPLACED: u64 = 16;
/// Bytes of a value's header.
const VALUE_HEAD_BYTES: u64 = 24;
/// Exclusive bound of a value's length: it has 30 bits.
const VALUE_BYTES_END: usize = 1 << 30;
/// Bytes of a chunk, from which small nodes and values are allocated. Larger ones are objects of
/// the pool.
const CHUNK_BYTES: u64 = 4 * SLAB_BYTES;
/// Words of a tower before its links: node and prefix.
const TOWER_HEAD_WORDS: u64 = 2;
/// Number of tower levels.
const LEVELS: usize = if cfg!(model) { 1 } else { 11 };
/// Index of the head tower, before all others.
const HEAD: u64 = 0;

/// A handle of a node; valid for the list that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListEntry(u64);

impl ListEntry {
    /// Returns the entry at an offset that [`offset`](Self::offset) returned.
    pub(crate) const fn at(offset: u64) -> Self {
        Self(offset)
    }

    /// Returns the offset of the entry in the pool.
    pub(crate) const fn offset(self) -> u64 {
        self.0
    }
}

/// A handle of a value; a later update of the key does not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored(u64);

/// The outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The list did not have the key.
    New,
    /// The list had an older version, which was replaced.
    Replaced,
    /// The list has a newer version and did not change.
    Old,
}

/// A value to write.
#[derive(Clone, Copy, Debug)]
struct ListValue<'v> {
    version: u64,
    kind: u8,
    pieces: &'v [&'v [u8]],
    length: usize,
}

/// The allocation state of the list.
#[derive(Debug, Default)]
struct Room {
    /// The free range of the newest chunk.
    chunk: Range<u64>,
    /// All pool objects of the list, without the list object.
    objects: BTreeSet<u64>,
}

/// The list. See the module documentation.
#[derive(Debug)]
pub(crate) struct PersistentList {
    pool: Arc<Pool>,
    /// Offset of the list object.
    at: u64,
    /// The writer lock.
    room: Mutex<Room>,
    towers: Region,
    /// Index of the first unused word of `towers`.
    towers_end: AtomicU64,
    keys: AtomicU64,
    /// Bytes of nodes and values, replaced ones included.
    used_bytes: AtomicU64,
}

const fn words(bytes: usize) -> u64 {
    to_u64(bytes.next_multiple_of(8))
}

fn value_crc(version: u64, shape: u64, pieces: &[&[u8]]) -> u32 {
    let mut head = version.to_le_bytes().to_vec();
    head.extend_from_slice(&low_u32(shape).to_le_bytes());
    pieces.iter().fold(crc32c(&head), |crc, piece| crc32c_append(crc, piece))
}

/// Returns the number of tower levels of the node at an offset, which may be none.
fn height_of(node: u64) -> usize {
    let mixed = (node >> 3 ^ node >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    to_usize(u64::from(low_u32(mixed >> 32).trailing_zeros() / 2)).min(LEVELS)
}

impl PersistentList {
    fn with(pool: Arc<Pool>, at: u64, capacity: u64) -> Result<Self> {
        // A node has at least 48 bytes. One node in four has a tower, of 27 bytes on average.
        let bytes = capacity / 4 + 4096;
        let towers =
            Region::reserve(bytes).map_err(|error| Error::address_space("a memtable", error))?;
        Ok(Self {
            pool,
            at,
            room: Mutex::default(),
            towers,
            towers_end: AtomicU64::new(1 + to_u64(LEVELS)),
            keys: AtomicU64::new(0),
            used_bytes: AtomicU64::new(0),
        })
    }

    /// Creates an empty list for about `capacity` bytes; beyond that it becomes slower. The caller
    /// must publish [`root`](Self::root).
    pub(crate) fn create(pool: &Arc<Pool>, capacity: u64) -> Result<Self> {
        let at = pool.alloc(LIST_BYTES)?;
        let list = Self::with(Arc::clone(pool), at, capacity)?;
        pool.store(at, MAGIC);
        pool.store(at + FIRST, 0);
        pool.flush(at, LIST_BYTES);
        Ok(list)
    }

    /// Returns the offset that the link at an offset points to. Fails with [`Error::Corruption`] if
    /// its checksum is wrong.
    fn follow(&self, at: u64) -> Result<u64> {
        let word = self.pool.load(at);
        if is_link(word) { Ok(target(word)) } else { Err(self.pool.damage(at, "no link")) }
    }

    /// Returns the node after a node, or after the list object; 0 if there is none.
    #[inline]
    fn after(&self, node: u64) -> u64 {
        target(self.pool.load(self.link_at(node)))
    }

    /// Returns the offset of the list object, for a root word.
    pub(crate) const fn root(&self) -> u64 {
        self.at
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the bytes of nodes and values, with those replaced since the list was opened.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether the list is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.pool.load(self.at + FIRST) == 0
    }

    fn tower_word(&self, index: u64) -> u64 {
        let word = self.towers.words().get(to_usize(index));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn tower_link(&self, tower: u64, level: usize) -> Option<&AtomicU64> {
        let first = if tower == HEAD { 1 } else { tower + TOWER_HEAD_WORDS };
        self.towers.words().get(to_usize(first) + level)
    }

    fn tower_next(&self, tower: u64, level: usize) -> u64 {
        self.tower_link(tower, level).map_or(0, |link| link.load(Ordering::Acquire))
    }

    /// Returns the offset of the link from a node, or from the list object, to the next node.
    const fn link_at(&self, node: u64) -> u64 {
        if node == self.at { node + FIRST } else { node + NEXT }
    }

    fn key_bytes(&self, node: u64) -> usize {
        to_usize(self.pool.load(node) & 0xffff_ffff)
    }

    fn key_words(&self, node: u64) -> u64 {
        words(self.key_bytes(node))
    }

    /// Compares a node's key, which has this prefix, with `key`.
    #[inline]
    fn compare(&self, node: u64, theirs: u64, key: &[u8], prefix: u64) -> cmp::Ordering {
        let full = || compare_at(self.pool.words(node + KEY), (0, self.key_bytes(node)), key);
        theirs.cmp(&prefix).then_with(full)
    }

    /// Returns the last tower of each level whose key is below `key`, the last node below `key`,
    /// and its successor. A node that is linked between the two meanwhile may be below `key`.
    fn find(&self, key: &[u8]) -> ([u64; LEVELS], u64, u64) {
        let prefix = key_prefix(key);
        let (mut towers, mut tower) = ([HEAD; LEVELS], HEAD);
        for (level, slot) in towers.iter_mut().enumerate().rev() {
            loop {
                let next = self.tower_next(tower, level);
                let (node, theirs) = (self.tower_word(next), self.tower_word(next + 1));
                if next == HEAD || self.compare(node, theirs, key, prefix).is_ge() {
                    break;
                }
                tower = next;
            }
            *slot = tower;
        }
        let mut node = if tower == HEAD { self.at } else { self.tower_word(tower) };
        loop {
            let next = self.after(node);
            let theirs = self.pool.load(next + PREFIX);
            if next == 0 || self.compare(next, theirs, key, prefix).is_ge() {
                return (towers, node, next);
            }
            node = next;
        }
    }

    /// Adds the tower of a node behind `before`, the predecessors on each level, and updates them.
    fn add_tower(&self, node: u64, before: &mut [u64; LEVELS]) {
        let height = height_of(node);
        let end = self.towers_end.load(Ordering::Relaxed);
        let after = end + TOWER_HEAD_WORDS + to_u64(height);
        if height == 0 || after > to_u64(self.towers.words().len()) {
            return;
        }
        self.towers_end.store(after, Ordering::Relaxed);
        let head = [node, self.pool.load(node + PREFIX)];
        for (word, value) in self.towers.words().iter().skip(to_usize(end)).zip(head) {
            word.store(value, Ordering::Relaxed);
        }
        for (level, before) in before.iter_mut().enumerate().take(height) {
            let next = self.tower_next(*before, level);
            if let Some(link) = self.tower_link(end, level) {
                link.store(next, Ordering::Relaxed);
            }
            if let Some(link) = self.tower_link(*before, level) {
                link.store(end, Ordering::Release);
            }
            *before = end;
        }
    }

    /// Allocates `bytes` from the newest chunk, or an object of the pool for larger ones.
    fn alloc(&self, room: &mut Room, bytes: u64) -> Result<u64> {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        let left = room.chunk.end - room.chunk.start;
        if bytes > CHUNK_BYTES / 4 && bytes > left {
            let at = self.pool.alloc(bytes)?;
            room.objects.insert(at);
            return Ok(at);
        }
        if left < bytes {
            let at = self.pool.alloc(CHUNK_BYTES)?;
            room.objects.insert(at);
            room.chunk = at..at + CHUNK_BYTES;
        }
        room.chunk.start += bytes;
        Ok(room.chunk.start - bytes)
    }

    fn write_value(&self, (at, replaced): (u64, u64), value: &ListValue<'_>) {
        let &ListValue { version, kind, pieces, length } = value;
        let shape = to_u64(length) | u64::from(kind & 3) << 30;
        self.pool.store(at, version);
        let crc = value_crc(version, shape, pieces);
        self.pool.store(at + 8, shape | widen(crc) << 32);
        self.pool.store(at + REPLACED, link(replaced));
        self.pool.store_bytes(at + VALUE_HEAD_BYTES, pieces);
    }

    /// Sets the value of a key to the concatenation of `pieces`, unless the list has a newer
    /// version. Persistent when this returns. `kind` is 0 to 3. Keys have at most 65,535
    /// bytes, values fewer than 2^30.
    ///
    /// Fails with [`Error::DiskFull`] if the pool is full, and with [`Error::Limit`] on longer keys
    /// and values; nothing has changed then.
    pub(crate) fn insert(
        &self,
        key: &[u8],
        version: u64,
        kind: u8,
        pieces: &[&[u8]],
    ) -> Result<Outcome> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        if key.is_empty() || key.len() > 0xffff || length >= VALUE_BYTES_END {
            let what = format!("an entry of {} and {length} bytes", key.len());
            return Err(Error::Limit { what });
        }
        let new = ListValue { version, kind, pieces, length };
        let mut room = lock(&self.room);
        let (mut towers, before, after) = self.find(key);
        let (pool, value_bytes) = (&*self.pool, VALUE_HEAD_BYTES + words(length));
        if after != 0
            && compare_at(pool.words(after + KEY), (0, self.key_bytes(after)), key).is_eq()
        {
            let before = self.value(ListEntry(after));
            let is_older = self.version(before) <= version;
            if mutant!(PersistentListTakesOlder: false, else !is_older) {
                return Ok(Outcome::Old);
            }
            let value = self.alloc(&mut room, value_bytes)?;
            self.write_value((value, before.0), &new);
            mutant!(PersistentListSkipsValue: (), else pool.flush(value, value_bytes));
            pool.publish(after + VALUE, link(value));
            return Ok(Outcome::Replaced);
        }
        let node_bytes = KEY + words(key.len());
        let node = self.alloc(&mut room, node_bytes + value_bytes)?;
        let value = node + node_bytes;
        pool.store(node, to_u64(key.len()) | widen(crc32c(key)) << 32);
        pool.store(node + PREFIX, key_prefix(key));
        pool.store(node + VALUE, link(value));
        pool.store(node + NEXT, link(after));
        pool.store_bytes(node + KEY, &[key]);
        self.write_value((value, 0), &new);
        mutant!(PersistentListSkipsNode: (), else pool.flush(node, node_bytes + value_bytes));
        pool.publish(self.link_at(before), link(node));
        self.add_tower(node, &mut towers);
        self.keys.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::New)
    }

    const fn entry(node: u64) -> Option<ListEntry> {
        if node == 0 { None } else { Some(ListEntry(node)) }
    }

    /// Returns the first entry whose key is not below `key`.
    pub(crate) fn seek(&self, key: &[u8]) -> Option<ListEntry> {
        let (_, before, after) = self.find(key);
        mutant!(PersistentListLooksAgain => return Self::entry(self.after(before)));
        Self::entry(after)
    }

    /// Returns the entry with the lowest key.
    pub(crate) fn first(&self) -> Option<ListEntry> {
        Self::entry(self.after(self.at))
    }

    /// Returns the last entry whose key is below `key`; with `None`, the last of all.
    pub(crate) fn seek_before(&self, key: Option<&[u8]>) -> Option<ListEntry> {
        let node = match key {
            Some(key) => self.find(key).1,
            None => self.last(),
        };
        if node == self.at { None } else { Some(ListEntry(node)) }
    }

    fn last(&self) -> u64 {
        let mut tower = HEAD;
        for level in (0..LEVELS).rev() {
            loop {
                match self.tower_next(tower, level) {
                    HEAD => break,
                    next => tower = next,
                }
            }
        }
        let mut node = if tower == HEAD { self.at } else { self.tower_word(tower) };
        loop {
            match self.after(node) {
                0 => return node,
                next => node = next,
            }
        }
    }

    /// Returns the value of this key.
    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<Stored> {
        let ListEntry(node) = self.seek(key)?;
        let found = compare_at(self.pool.words(node + KEY), (0, self.key_bytes(node)), key);
        found.is_eq().then(|| self.value(ListEntry(node)))
    }

    /// Returns the next entry.
    pub(crate) fn next(&self, entry: ListEntry) -> Option<ListEntry> {
        Self::entry(self.after(entry.0))
    }

    /// Returns the current value of an entry.
    #[inline]
    pub(crate) fn value(&self, entry: ListEntry) -> Stored {
        Stored(target(self.pool.load(entry.0 + VALUE)))
    }

    /// Copies the key into `out`.
    pub(crate) fn copy_key(&self, entry: ListEntry, out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.key_bytes(entry.0), 0);
        copy_out(self.pool.words(entry.0 + KEY), 0, out);
    }

    /// Returns the version of a value.
    pub(crate) fn version(&self, value: Stored) -> u64 {
        self.pool.load(value.0)
    }

    /// Returns the kind that the owner gave the value.
    pub(crate) fn kind(&self, value: Stored) -> u8 {
        low_u8(self.pool.load(value.0 + 8) >> 30 & 3)
    }

    /// Returns the words that hold a value's bytes, and those behind them.
    #[inline]
    pub(crate) fn value_words(&self, value: Stored) -> &[AtomicU64] {
        self.pool.words(value.0 + VALUE_HEAD_BYTES)
    }

    /// Returns the bytes of the pool that the list occupies.
    pub(crate) fn pool_bytes(&self) -> u64 {
        let room = lock(&self.room);
        room.objects.iter().filter_map(|at| self.pool.run_of(*at)).map(|(_, bytes)| bytes).sum()
    }

    /// Returns the bytes of ordinary memory that the list uses.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.towers_end.load(Ordering::Relaxed) * 8
    }

    /// Returns the bytes of a value.
    pub(crate) fn value_bytes(&self, value: Stored) -> usize {
        to_usize(self.pool.load(value.0 + 8)) & (VALUE_BYTES_END - 1)
    }

    /// Copies a value, or the prefix of it that fits.
    pub(crate) fn copy_value(&self, value: Stored, out: &mut [u8]) {
        let count = self.value_bytes(value).min(out.len());
        if let Some(out) = out.get_mut(..count) {
            copy_out(self.pool.words(value.0 + VALUE_HEAD_BYTES), 0, out);
        }
    }
}
