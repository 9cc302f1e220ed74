//! A concurrent multi-version list with a hash index, in an arena: the core of a memtable.
//!
//! An insert into an ordered list reads some twenty nodes, each a cache miss. Most entries are
//! never scanned before they are flushed. So an insert does not order its node: it prepends the
//! node to the hash chain of its bucket, for gets, and to the list of unordered nodes. The next
//! scan or seek sorts and links the unordered nodes first ([`order`]). A background task does so
//! from time to time, so that the scan finds few of them.
//!
//! Structure: a skip list (Pugh 1990) of nodes in words of an [`Arena`]. For one key, newer
//! versions come first. Nodes refer to each other by word number and never move, so an iterator is
//! one number.
//!
//! Differences from the literature: the list is volatile, because the shared log has its entries,
//! and it is ordered lazily.
//!
//! A node, in words:
//!
//! | word | bits | name | meaning |
//! |---|---|---|---|
//! | 0 | 0 to 19 | key length | in bytes |
//! | 0 | 20 to 23 | height | levels of links, 1 to [`HEIGHT_MAX`] |
//! | 0 | 24 to 31 | kind | of the owner's choice |
//! | 0 | 32 to 63 | value length | in bytes |
//! | 1 | | version | the higher, the newer |
//! | 2 | | prefix | first 8 bytes of the key, big-endian, filled up with zeros |
//! | 3 | 0 to 31 | chain | the next node of the bucket; 0: none |
//! | 3 | 32 to 63 | print | the high half of the key's hash |
//! | 4 .. | | links | word numbers of the next node of each level; 0: none. Before a node is ordered, the first is the one inserted before it |
//! | .. | | key | little-endian words, the last filled up with zeros |
//! | .. | | value | likewise |
//!
//! Word 0 of the arena is unused; the words after it are the links of the head. A bucket is a word:
//! the low half names its newest node. The high half is a small filter with one bit, chosen by the
//! hash, for each node of the chain.
//!
//! Invariants:
//! - A node is complete before the release stores that publish it in its bucket and at level 0.
//! - A link only changes to a node that is between its two ends. Levels above 0 are shortcuts.
//! - Of nodes with equal key and version, the one inserted later comes first.
//! - Of a key, the newest version that is ordered is linked. Older ones may be missing.
//! - A scan finds every entry whose insert returned before the scan began.
//! - A put is reported to the table's empty ranges before its node counts as ordered.
//!
//! Threads: any. The caller orders inserts of one key (stripe locks do). One thread at a time links
//! nodes; readers follow links meanwhile.

#[cfg(all(test, model))]
mod models;
mod order;
mod scan;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod versions;

use std::{cmp, sync::Arc};

use crate::{
    io::{Region, prefetch},
    lsm::empty_ranges::EmptyRanges,
    util::{
        codec::{key_prefix, low_u8, low_u32, to_u64, to_usize},
        sync::{AtomicU64, Mutex, Ordering},
        words::{WORD_BYTES, copy_out, store_bytes},
    },
};

/// Maximum height. With one node in four a level higher, 12 levels are enough for 4^12 nodes.
const HEIGHT_MAX: usize = if cfg!(model) { 2 } else { 12 };
const NODE_HEAD_WORDS: usize = 4;
/// Maximum words of an arena: chains refer to nodes with half a word.
const WORDS_MAX: u64 = 1 << 32;
/// The half of a bucket, or of a node's chain word, that refers to a node.
const NODE_MASK: u64 = WORDS_MAX - 1;
/// The number that stands for the head of the list.
const HEAD: u64 = 0;

/// Memory for nodes. It does not move while a list uses it.
pub(crate) trait Arena {
    /// Returns all words.
    fn words(&self) -> &[AtomicU64];
}

impl Arena for Region {
    fn words(&self) -> &[AtomicU64] {
        Self::words(self)
    }
}

/// The list. See the module head.
#[derive(Debug)]
pub(crate) struct SkipList<A> {
    arena: A,
    /// The hash buckets; a power of two of them is used.
    buckets: A,
    /// The first free word.
    end: AtomicU64,
    /// The node that was inserted last.
    newest: AtomicU64,
    /// The newest node that is ordered. All nodes that were inserted before it are, too.
    ordered: AtomicU64,
    /// Number of nodes that are ordered, all versions counted.
    ordered_count: AtomicU64,
    /// Held by the thread that orders nodes.
    ordering: Mutex<()>,
    /// Where puts are reported as they are ordered, and the kind of their nodes.
    reports_to: Option<(Arc<EmptyRanges>, u8)>,
}

/// A reference to a node: one version of a key. Valid only for the list that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node(u64);

impl Node {
    /// Returns a reference to the node of another list, which that list encodes as a word.
    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// Returns the word of a node of another list.
    pub(crate) const fn word(self) -> u64 {
        self.0
    }
}

/// The state of a search that descends from the highest level.
#[derive(Debug)]
pub(crate) struct Descent {
    prefix: u64,
    /// The last node visited; it is before the searched position.
    node: u64,
    level: usize,
    /// The node that follows it at this level; 0: none.
    next: u64,
    /// A node that is known not to be before the position; 0: none.
    beyond: u64,
}

impl Descent {
    /// Returns the node that the search found.
    pub(crate) fn node(&self) -> Option<Node> {
        (self.next != 0).then_some(Node(self.next))
    }
}

/// A version of a key to insert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyVersion<'a> {
    /// Fewer than 2^20 bytes.
    pub(crate) key: &'a [u8],
    pub(crate) hash: u64,
    /// The higher, the newer.
    pub(crate) number: u64,
    /// Chosen by the owner.
    pub(crate) kind: u8,
    /// The value, in two parts that are concatenated; fewer than 2^32 bytes.
    pub(crate) ssts: [&'a [u8]; 2],
}

impl KeyVersion<'_> {
    /// Returns the words of a node of this height.
    fn words(&self, height: usize) -> usize {
        let value_bytes = self.ssts.iter().map(|sst| sst.len()).sum();
        NODE_HEAD_WORDS + height + words_of(self.key.len()) + words_of(value_bytes)
    }
}

/// The outcome of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsertOutcome {
    /// The key had no version.
    New,
    /// The key had another version already.
    Again,
    /// The arena has no room. Nothing was inserted.
    Full,
}

/// Returns the maximum words of a node.
#[cfg(test)]
pub(crate) fn node_words(key_bytes: usize, value_bytes: usize) -> usize {
    NODE_HEAD_WORDS + HEIGHT_MAX + words_of(key_bytes) + words_of(value_bytes)
}

fn words_of(bytes: usize) -> usize {
    bytes.div_ceil(WORD_BYTES)
}

impl<A: Arena> SkipList<A> {
    /// Creates an empty list. The words of `buckets` are zero; the largest power of two of them is
    /// used.
    pub(crate) fn new(arena: A, buckets: A) -> Self {
        for word in arena.words().iter().take(1 + HEIGHT_MAX) {
            word.store(0, Ordering::Relaxed);
        }
        Self {
            arena,
            buckets,
            end: AtomicU64::new(1 + to_u64(HEIGHT_MAX)),
            newest: AtomicU64::new(0),
            ordered: AtomicU64::new(0),
            ordered_count: AtomicU64::new(0),
            ordering: Mutex::new(()),
            reports_to: None,
        }
    }

    /// Reports nodes of this kind as they are ordered.
    pub(crate) fn reporting_to(self, ranges: &Arc<EmptyRanges>, kind: u8) -> Self {
        Self { reports_to: Some((Arc::clone(ranges), kind)), ..self }
    }

    /// Returns the arenas of nodes and of buckets.
    pub(crate) const fn arenas_mut(&mut self) -> [&mut A; 2] {
        [&mut self.arena, &mut self.buckets]
    }

    /// Returns the number of words in use.
    pub(crate) fn used_words(&self) -> u64 {
        self.end.load(Ordering::Relaxed).min(to_u64(self.arena.words().len()))
    }

    /// Returns the number of nodes that are ordered, all versions counted.
    pub(crate) fn ordered_count(&self) -> u64 {
        self.ordered_count.load(Ordering::Relaxed)
    }

    /// Returns whether nothing was inserted.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Acquire) == 0
    }

    /// Returns the bucket of a hash.
    #[inline]
    fn bucket(&self, hash: u64) -> Option<&AtomicU64> {
        let words = self.buckets.words();
        let count = 1 << words.len().checked_ilog2()?;
        words.get(to_usize(hash) & (count - 1))
    }

    /// Prefetches the bucket that an insert or a get of this hash reads first. A hint.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.bucket(hash).into_iter().for_each(prefetch);
    }

    #[inline]
    fn word(&self, index: u64) -> u64 {
        let word = self.arena.words().get(to_usize(index));
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn link_word(&self, node: u64, level: usize) -> Option<&AtomicU64> {
        let first = if node == HEAD { 1 } else { to_usize(node) + NODE_HEAD_WORDS };
        self.arena.words().get(first + level)
    }

    #[inline]
    fn link(&self, node: u64, level: usize) -> u64 {
        self.link_word(node, level).map_or(0, |link| link.load(Ordering::Acquire))
    }

    fn key_bytes(&self, node: u64) -> usize {
        to_usize(self.word(node) & 0xf_ffff)
    }

    fn key_at(&self, node: u64) -> usize {
        let height = to_usize(self.word(node) >> 20 & 0xf);
        to_usize(node) + NODE_HEAD_WORDS + height
    }

    /// Compares a node's key with `key`, whose first 8 bytes are `prefix`.
    #[inline]
    fn compare(&self, node: u64, key: &[u8], prefix: u64) -> cmp::Ordering {
        let order = self.word(node + 2).cmp(&prefix);
        if order.is_ne() {
            return order;
        }
        let length = self.key_bytes(node);
        if length.min(key.len()) > 8 {
            // Both sides are padded with zeros. Where only the padding differs, the lengths decide.
            let first = to_u64(self.key_at(node));
            let count = words_of(length.min(key.len()));
            for index in 1..count {
                let theirs = self.word(first + to_u64(index)).swap_bytes();
                let ours = key_prefix(key.get(index * 8..).unwrap_or(&[]));
                let shared = (length.min(key.len()) - index * 8).min(8);
                let shift = 64 - shared * 8;
                let order = (theirs >> shift).cmp(&(ours >> shift));
                if order.is_ne() {
                    return order;
                }
            }
        }
        length.cmp(&key.len())
    }

    /// Returns whether a node is before the position of this version of a key.
    #[inline]
    fn is_before(&self, node: u64, key: &[u8], prefix: u64, version: u64) -> bool {
        match self.compare(node, key, prefix) {
            cmp::Ordering::Less => true,
            cmp::Ordering::Equal => self.word(node + 1) > version,
            cmp::Ordering::Greater => false,
        }
    }

    /// Advances on a level from `node`, which is before the position. Returns the last node that is
    /// before it, and the node that follows. `beyond` is a node that is known not to be before it,
    /// or 0.
    #[inline]
    fn advance_on_level(
        &self,
        (mut node, beyond): (u64, u64),
        level: usize,
        (key, prefix): (&[u8], u64),
        version: u64,
    ) -> (u64, u64) {
        loop {
            let next = self.link(node, level);
            if next == beyond || next == 0 || !self.is_before(next, key, prefix, version) {
                return (node, next);
            }
            node = next;
        }
    }

    /// Inserts a version of a key. Costs one chain walk and no search of the list.
    pub(crate) fn insert(&self, version: &KeyVersion<'_>) -> InsertOutcome {
        let Some(node) = self.reserve(std::slice::from_ref(version)) else {
            return InsertOutcome::Full;
        };
        self.write(node, version);
        let inserted = self.link_in_bucket(node, (version.key, version.hash), version.number);
        self.push_unordered(node, node);
        inserted
    }

    /// Inserts versions in their order, with the shared stores of a single insert. Returns how many
    /// of their keys are new; `None` if there is no room for all: then none was inserted.
    pub(crate) fn insert_many(&self, versions: &[KeyVersion<'_>]) -> Option<u64> {
        let first = self.reserve(versions)?;
        for version in versions {
            self.prefetch(version.hash);
        }
        let (mut node, mut before, mut count) = (first, 0, 0);
        for version in versions {
            let end = node + to_u64(self.write(node, version));
            let inserted = self.link_in_bucket(node, (version.key, version.hash), version.number);
            count += u64::from(inserted == InsertOutcome::New);
            if let Some(link) = self.link_word(node, 0).filter(|_| before != 0) {
                link.store(before, Ordering::Relaxed);
            }
            before = node;
            node = end;
        }
        if before != 0 {
            self.push_unordered(first, before);
        }
        Some(count)
    }

    /// Prepends nodes that are linked from the last to the first to the list of unordered nodes.
    fn push_unordered(&self, first: u64, last: u64) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        while let Some(link) = self.link_word(first, 0) {
            link.store(newest, Ordering::Relaxed);
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            match self.newest.compare_exchange_weak(newest, last, success, failure) {
                Ok(_) => break,
                Err(now) => newest = now,
            }
        }
    }

    /// Prepends a complete node to its bucket's chain, unless the chain has a newer version.
    fn link_in_bucket(&self, node: u64, (key, hash): (&[u8], u64), version: u64) -> InsertOutcome {
        let Some(bucket) = self.bucket(hash) else { return InsertOutcome::New };
        let mut head = bucket.load(Ordering::Acquire);
        loop {
            let found = self.find(head, key, hash);
            if found.is_some_and(|found| self.word(found + 1) > version) {
                return InsertOutcome::Again;
            }
            if let Some(chain) = self.arena.words().get(to_usize(node) + 3) {
                chain.store(hash & !NODE_MASK | head & NODE_MASK, Ordering::Relaxed);
            }
            let bits = head & !NODE_MASK | bit_of(hash);
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match bucket.compare_exchange_weak(head, bits | node, success, failure) {
                Ok(_) => {
                    return if found.is_some() { InsertOutcome::Again } else { InsertOutcome::New };
                }
                Err(now) => head = now,
            }
        }
    }

    /// Returns the first node of a key in the chain that begins with the bucket word `head`.
    #[inline]
    fn find(&self, head: u64, key: &[u8], hash: u64) -> Option<u64> {
        if head & bit_of(hash) == 0 {
            return None;
        }
        self.find_in_chain(head & NODE_MASK, key, hash)
    }

    /// Returns the first node of a key in the rest of a chain that begins with `node`; 0: the end.
    #[inline]
    fn find_in_chain(&self, mut node: u64, key: &[u8], hash: u64) -> Option<u64> {
        let prefix = key_prefix(key);
        while node != 0 {
            let chain = self.word(node + 3);
            if chain >> 32 == hash >> 32 && self.compare(node, key, prefix).is_eq() {
                return Some(node);
            }
            node = chain & NODE_MASK;
        }
        None
    }

    /// Reserves consecutive words for nodes. Returns the number of the first word.
    fn reserve(&self, versions: &[KeyVersion<'_>]) -> Option<u64> {
        let most = to_u64(self.arena.words().len()).min(WORDS_MAX);
        let after = |end: u64| {
            let add = |end: u64, version: &KeyVersion<'_>| {
                end.checked_add(to_u64(version.words(height_of(end)))).filter(|end| *end <= most)
            };
            versions.iter().try_fold(end, add)
        };
        self.end.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).ok()
    }

    /// Writes a node that is not published yet. Returns how many words it takes.
    fn write(&self, node: u64, version: &KeyVersion<'_>) -> usize {
        // The height is a function of the position. A caller cannot choose it: concurrent inserts,
        // sizes and heights of earlier nodes decide the position.
        let height = height_of(node);
        let total = version.words(height);
        let words = self.arena.words().get(to_usize(node)..to_usize(node) + total);
        let Some((head, rest)) = words.and_then(|space| space.split_at_checked(NODE_HEAD_WORDS))
        else {
            return total;
        };
        let KeyVersion { key, kind, ssts, .. } = version;
        let value_bytes: usize = ssts.iter().map(|sst| sst.len()).sum();
        let shape = to_u64(key.len()) | to_u64(height) << 20 | u64::from(*kind) << 24;
        let shape = shape | to_u64(value_bytes) << 32;
        for (word, value) in head.iter().zip([shape, version.number, key_prefix(key), 0]) {
            word.store(value, Ordering::Relaxed);
        }
        let (links, rest) = rest.split_at_checked(height).unwrap_or_default();
        for link in links {
            link.store(0, Ordering::Relaxed);
        }
        let (key_space, value_space) =
            rest.split_at_checked(words_of(key.len())).unwrap_or_default();
        store_bytes(key_space, &[key]);
        store_bytes(value_space, ssts);
        total
    }

    fn node(number: u64) -> Option<Node> {
        (number != 0).then_some(Node(number))
    }

    /// Returns the newest version of the first key that is not below `key`.
    pub(crate) fn seek(&self, key: &[u8]) -> Option<Node> {
        let mut descent = self.descend(key);
        while !self.step(&mut descent, key) {}
        descent.node()
    }

    /// Begins a search for the newest version of the first key that is not below `key`.
    pub(crate) fn descend(&self, key: &[u8]) -> Descent {
        self.order_nodes();
        let level = HEIGHT_MAX - 1;
        let next = self.link(HEAD, level);
        Descent { prefix: key_prefix(key), node: HEAD, level, next, beyond: 0 }
    }

    /// Advances a search for `key` until it needs another node, and prefetches that node. Returns
    /// whether the search has ended. A caller with several lists takes a step in each in turn, so
    /// that the cache misses overlap.
    #[inline]
    pub(crate) fn step(&self, descent: &mut Descent, key: &[u8]) -> bool {
        let at = descent;
        loop {
            let is_known = at.next == 0 || at.next == at.beyond;
            if !is_known && self.is_before(at.next, key, at.prefix, u64::MAX) {
                at.node = at.next;
            } else {
                at.beyond = at.next;
                let Some(below) = at.level.checked_sub(1) else { return true };
                at.level = below;
            }
            at.next = self.link(at.node, at.level);
            if at.next != 0 && at.next != at.beyond {
                for line in 0..2 {
                    let word = self.arena.words().get(to_usize(at.next) + 2 + line * 8);
                    word.into_iter().for_each(prefetch);
                }
                return false;
            }
        }
    }

    /// Returns the newest version of the last key below `key`; without a key, of the last key of
    /// all.
    pub(crate) fn seek_before(&self, key: Option<&[u8]>) -> Option<Node> {
        self.order_nodes();
        let mut node = HEAD;
        for level in (0..HEIGHT_MAX).rev() {
            match key {
                Some(key) => {
                    let prefix = key_prefix(key);
                    (node, _) = self.advance_on_level((node, 0), level, (key, prefix), u64::MAX);
                }
                None => loop {
                    let next = self.link(node, level);
                    if next == 0 {
                        break;
                    }
                    node = next;
                },
            }
        }
        // The search ends at the key's oldest version.
        let last = Self::node(node)?;
        let mut key = Vec::new();
        self.copy_key(last, &mut key);
        self.seek(&key)
    }

    /// Returns the newest version of exactly this key, which has this hash. Takes no lock.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], hash: u64) -> Option<Node> {
        let head = self.bucket(hash)?.load(Ordering::Acquire);
        self.find(head, key, hash).map(Node)
    }

    /// Replaces the contents of `out` by the key.
    pub(crate) fn copy_key(&self, node: Node, out: &mut Vec<u8>) {
        out.clear();
        out.resize(self.key_bytes(node.0), 0);
        copy_out(self.arena.words().get(self.key_at(node.0)..).unwrap_or(&[]), 0, out);
    }

    /// Returns the kind that the owner chose.
    pub(crate) fn kind(&self, node: Node) -> u8 {
        low_u8(self.word(node.0) >> 24)
    }

    /// Returns the bytes of the value.
    pub(crate) fn value_bytes(&self, node: Node) -> usize {
        to_usize(self.word(node.0) >> 32)
    }

    /// Returns the words from the value's first byte on, and the bytes of the value.
    #[inline]
    pub(crate) fn value(&self, node: Node) -> (&[AtomicU64], usize) {
        let first = self.key_at(node.0) + words_of(self.key_bytes(node.0));
        (self.arena.words().get(first..).unwrap_or(&[]), self.value_bytes(node))
    }

    /// Copies the value, or as much of it as `out` has room for.
    pub(crate) fn copy_value(&self, node: Node, out: &mut [u8]) {
        let first = self.key_at(node.0) + words_of(self.key_bytes(node.0));
        let count = self.value_bytes(node).min(out.len());
        let words = self.arena.words().get(first..).unwrap_or(&[]);
        if let Some(out) = out.get_mut(..count) {
            copy_out(words, 0, out);
        }
    }
}

/// Returns the bucket's filter bit for this hash.
#[inline]
fn bit_of(hash: u64) -> u64 {
    1 << (32 + (hash >> 27 & 31))
}

/// Returns the height of a node at this position: one node in four is a level higher than the level
/// below.
fn height_of(place: u64) -> usize {
    let mixed = (place ^ place >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let zeros = low_u32(mixed >> 32).trailing_zeros() / 2;
    (1 + to_usize(u64::from(zeros))).min(HEIGHT_MAX)
}
