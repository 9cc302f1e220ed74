//! Memtables: entries that are in the log and not yet in a file.
//!
//! A memtable is a [`SkipList`] with a hash index, in memory of [`Arenas`], or a list in a pool of
//! persistent memory ([`pool_list`]). Memtables that are
//! flushed together are a group and share one [`Filter`], so a get of an absent key does not look
//! into each of them.
//!
//! An insert does not order its entry. A memtable with many unordered entries queues itself as a
//! [`MemoryTask`] that orders them, so that the next range has few to order. A frozen memtable is
//! ordered for the flush in any case.
//!
//! Invariants:
//! - A memtable releases its budget when it is dropped. An iterator that holds it delays that.
//! - Writers hold the write buffer's `writing` lock shared. While a thread holds it exclusively, no
//!   insert is under way and the memtable can be frozen.
//! - A key's bits are in the filter of its group before its entry is in the list.
//!
//! Threads: any; gets and inserts take no lock of the memtable.

mod answer;
pub(crate) mod arenas;
mod estimate;
mod mutants;
pub(crate) mod persistent_list;
mod pool_list;
pub(crate) mod pool_memtables;
pub(crate) mod skiplist;

pub(crate) use self::answer::Answer;
use self::answer::{PUT, TOMBSTONE};

use std::{
    io,
    sync::{Arc, Weak},
};

use crate::{
    contract::{Host, MemoryTask, Op, ValueSink},
    io::Region,
    lsm::{
        empty_ranges::EmptyRanges,
        memtable::{
            arenas::{Arenas, MemtableRegion},
            mutants::hide,
            pool_list::PoolList,
            skiplist::{Descent, InsertOutcome, KeyVersion, Node, SkipList},
        },
    },
    util::{
        budget::Budget,
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Bytes of a node besides key and value: the head and two links, more than the average of 4/3.
const NODE_BYTES: u64 = 6 * 8;

/// Number of entries after which a memtable checks how many are unordered. Ordering this many takes
/// about 0.2 ms.
const ORDER_STEP: u64 = if cfg!(test) { 64 } else { 1024 };
/// A memtable is ordered when more than this fraction (1/64) of its entries are unordered. The more
/// entries are linked at once, the closer they are to each other, and the fewer cache misses each
/// takes.
const UNORDERED_FRACTION: u64 = 64;

/// Bytes of a memtable for each byte of its filter. Entries of 150 bytes get 27 bits each.
const FILTER_SHARE: u64 = 64;

/// A Bloom filter over the keys of a group of memtables. Most gets of absent keys end here instead
/// of looking into each memtable.
///
/// A key sets three bits of one word (a blocked Bloom filter), before its entry is in the list.
#[derive(Debug)]
pub(crate) struct Filter {
    words: Region,
    /// Mask of a word's index.
    mask: u64,
    /// Number of memtables that joined the group, dropped ones included.
    members: AtomicU64,
    budget: Arc<Budget>,
}

impl Filter {
    fn bytes(capacity: u64) -> u64 {
        (capacity / FILTER_SHARE).next_power_of_two().max(64)
    }

    /// Creates an empty filter for the keys of about `capacity` bytes of memtables. Fails if the
    /// system has no address space.
    pub(crate) fn new(capacity: u64, budget: &Arc<Budget>) -> io::Result<Self> {
        let bytes = Self::bytes(capacity);
        let words = Region::reserve(bytes)?;
        words.advise_huge(0..bytes);
        budget.reserve_unchecked(bytes);
        Ok(Self {
            words,
            mask: bytes / 8 - 1,
            members: AtomicU64::new(0),
            budget: Arc::clone(budget),
        })
    }

    /// Returns how many memtables joined the group, dropped ones included.
    pub(crate) fn members(&self) -> u64 {
        self.members.load(Ordering::Relaxed)
    }

    fn memory_bytes(&self) -> u64 {
        (self.mask + 1) * 8
    }

    #[inline]
    fn word_and_bits(&self, hash: u64) -> (Option<&AtomicU64>, u64) {
        let bits = 1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63);
        (self.words.words().get(to_usize(hash >> 18 & self.mask)), bits)
    }

    fn add(&self, hash: u64) {
        let (word, bits) = self.word_and_bits(hash);
        if let Some(word) = word.filter(|word| word.load(Ordering::Relaxed) & bits != bits) {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Returns whether a key of this hash may have been added.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let (word, bits) = self.word_and_bits(hash);
        word.is_none_or(|word| word.load(Ordering::Relaxed) & bits == bits)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.budget.release(self.memory_bytes());
    }
}

/// The entries of a memtable.
#[derive(Debug)]
enum Storage {
    /// In ordinary memory, which comes from `arenas` and returns to them.
    Memory { list: SkipList<MemtableRegion>, arenas: Arc<Arenas> },
    /// In a pool of persistent memory.
    Pool(PoolList),
}

/// One memtable. See the module head.
#[derive(Debug)]
pub(crate) struct Memtable {
    storage: Storage,
    /// The filter of its group; `None` if it is in no group.
    group: Option<Arc<Filter>>,
    budget: Arc<Budget>,
    /// Bytes that are reserved in the budget for its entries.
    charged: AtomicU64,
    /// Number of entries, number of distinct keys, and bytes of keys and values.
    entries: AtomicU64,
    keys: AtomicU64,
    payload_bytes: AtomicU64,
    /// Whether the memtable waits in the queue of the database's tasks.
    is_queued: AtomicBool,
}

/// Returns how many bytes of the budget an entry takes.
pub(crate) fn cost(op: &Op<'_>) -> u64 {
    let words = |bytes: usize| to_u64(bytes.next_multiple_of(8));
    match op {
        Op::Put { key, head, body } => {
            NODE_BYTES + words(key.len()) + words(head.len() + body.len())
        }
        Op::Delete { key } => NODE_BYTES + words(key.len()),
        Op::DeleteRange { .. } => 0,
    }
}

impl Memtable {
    /// Creates an empty memtable that joins `group` and reports its puts to `ranges`. Fails if the
    /// system has no address space.
    pub(crate) fn new(
        arenas: &Arc<Arenas>,
        group: Option<&Arc<Filter>>,
        ranges: &Arc<EmptyRanges>,
        budget: &Arc<Budget>,
    ) -> io::Result<Self> {
        let (nodes, buckets) = arenas.acquire()?;
        budget.reserve_unchecked(arenas.buckets_bytes());
        let storage = Storage::Memory {
            list: SkipList::new(nodes, buckets).reporting_to(ranges, PUT),
            arenas: Arc::clone(arenas),
        };
        Ok(Self::with(storage, group, budget))
    }

    /// Returns a memtable without entries that joins `group`.
    fn with(storage: Storage, group: Option<&Arc<Filter>>, budget: &Arc<Budget>) -> Self {
        if let Some(group) = group {
            group.members.fetch_add(1, Ordering::Relaxed);
        }
        Self {
            storage,
            group: group.cloned(),
            budget: Arc::clone(budget),
            charged: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            is_queued: AtomicBool::new(false),
        }
    }

    /// Returns whether its entries are in a pool of persistent memory.
    pub(crate) const fn is_in_pool(&self) -> bool {
        matches!(self.storage, Storage::Pool(_))
    }

    fn pool_list(&self) -> Option<&PoolList> {
        match &self.storage {
            Storage::Pool(list) => Some(list),
            Storage::Memory { .. } => None,
        }
    }

    /// Inserts an operation on one key with this hash. The caller has reserved [`cost`] in the
    /// budget. Returns the number of entries, or `None` if the memtable has no room.
    pub(crate) fn insert(&self, lsn: u64, op: &Op<'_>, hash: u64) -> Option<u64> {
        let Some(version) = self.key_version(lsn, op, hash) else { return Some(self.entries()) };
        let inserted = match &self.storage {
            Storage::Memory { list, .. } => list.insert(&version),
            Storage::Pool(list) => list.insert(&version),
        };
        if inserted == InsertOutcome::Full {
            return None;
        }
        Some(self.count_inserted(
            std::slice::from_ref(&version),
            cost(op),
            u64::from(inserted == InsertOutcome::New),
        ))
    }

    /// Inserts operations, each on one key, in their order. The caller has reserved `bytes` in the
    /// budget. Returns `false` if the memtable has no room for all of them: then it has inserted
    /// none.
    pub(crate) fn insert_many(
        &self,
        ops: &[(Lsn, Op<'_>)],
        bytes: u64,
        hash: impl Fn(&[u8]) -> u64,
    ) -> bool {
        let mut versions = Vec::with_capacity(ops.len());
        for (lsn, op) in ops {
            if let Op::Put { key, .. } | Op::Delete { key } = op {
                versions.extend(self.key_version(lsn.0, op, hash(key)));
            }
        }
        let keys = match &self.storage {
            Storage::Memory { list, .. } => list.insert_many(&versions),
            Storage::Pool(list) => list.insert_many(&versions),
        };
        let Some(keys) = keys else { return false };
        self.count_inserted(&versions, bytes, keys);
        true
    }

    /// Adds inserted versions to the counters. Returns the number of entries.
    #[inline]
    fn count_inserted(&self, versions: &[KeyVersion<'_>], bytes: u64, keys: u64) -> u64 {
        let payload = |one: &KeyVersion<'_>| one.key.len() + one.ssts[0].len() + one.ssts[1].len();
        let count = to_u64(versions.len());
        if let Some(list) = self.pool_list() {
            list.count_inserted(bytes, &self.budget);
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        self.keys.fetch_add(keys, Ordering::Relaxed);
        let payload = versions.iter().map(payload).sum();
        self.payload_bytes.fetch_add(to_u64(payload), Ordering::Relaxed);
        self.entries.fetch_add(count, Ordering::Relaxed) + count
    }

    /// Returns the version to insert for an operation on one key, and adds the key to the group's
    /// filter. Returns `None` for a range delete.
    #[inline]
    fn key_version<'a>(&self, lsn: u64, op: &Op<'a>, hash: u64) -> Option<KeyVersion<'a>> {
        let (key, kind, ssts) = match *op {
            Op::Put { key, head, body } => (key, PUT, [head, body]),
            Op::Delete { key } => (key, TOMBSTONE, [&[][..]; 2]),
            Op::DeleteRange { .. } => return None,
        };
        let version = KeyVersion { key, hash, number: lsn, kind, ssts };
        mutant!(TphFilterForgetsTombstones => if kind != PUT { return Some(hide(version)) });
        if let Some(group) = &self.group {
            group.add(hash);
        }
        Some(version)
    }

    /// Orders the nodes of the list: reports the puts that were inserted since the last scan.
    pub(crate) fn order_nodes(&self) {
        if let Storage::Memory { list, .. } = &self.storage {
            list.order_nodes();
        }
    }

    /// Returns the number of entries that the next range would order.
    pub(crate) fn unordered(&self) -> u64 {
        match &self.storage {
            Storage::Memory { list, .. } => self.entries().saturating_sub(list.ordered_count()),
            Storage::Pool(_) => 0,
        }
    }

    /// Requests background work after an insert that returned this number of entries.
    #[inline]
    pub(crate) fn request_work(self: &Arc<Self>, entries: u64, host: &dyn Host) {
        if entries == 1 {
            // The background thread must check from now on whether the table is idle.
            host.wake();
        } else if entries.is_multiple_of(ORDER_STEP) {
            self.order_soon(false, host);
        }
    }

    /// Queues the ordering of the entries if many are unordered, or any and the memtable is frozen.
    pub(crate) fn order_soon(self: &Arc<Self>, is_frozen: bool, host: &dyn Host) {
        let most = (self.entries() / UNORDERED_FRACTION).max(ORDER_STEP);
        let is_due = self.unordered() >= if is_frozen { 1 } else { most };
        if is_due && !self.is_queued.swap(true, Ordering::Relaxed) {
            host.run_soon(Arc::downgrade(self) as Weak<dyn MemoryTask>);
        }
    }

    /// Returns whether it has no entries.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match &self.storage {
            Storage::Memory { list, .. } => list.is_empty(),
            Storage::Pool(list) => list.is_empty(),
        }
    }

    /// Returns whether it has reached the size that it was made for.
    pub(crate) fn is_full(&self) -> bool {
        let capacity = match &self.storage {
            Storage::Memory { arenas, .. } => arenas.capacity(),
            Storage::Pool(list) => list.capacity(),
        };
        self.charged() >= capacity
    }

    /// Returns how many bytes are reserved in the budget for its entries.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Returns the number of entries, all versions counted.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns the number of distinct keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the bytes of keys and values.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes.load(Ordering::Relaxed)
    }

    /// Returns the filter of its group.
    #[inline]
    pub(crate) fn group(&self) -> Option<&Arc<Filter>> {
        self.group.as_ref()
    }

    /// Prefetches the bucket that an insert or a get of this hash reads first. A hint.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Storage::Memory { list, .. } = &self.storage {
            list.prefetch(hash);
        }
    }

    /// Looks a key up and gives its newest value to the sink.
    #[inline]
    pub(crate) fn get<T: ValueSink>(
        &self,
        hash: u64,
        key: &[u8],
        sink: &mut T,
    ) -> Answer<T::Output> {
        let list = match &self.storage {
            Storage::Memory { list, .. } => list,
            Storage::Pool(list) => return list.get(key, sink),
        };
        if list.is_empty() {
            return Answer::Nothing;
        }
        let Some(node) = list.get(key, hash) else { return Answer::Nothing };
        if list.kind(node) == TOMBSTONE {
            return Answer::Deleted;
        }
        let (words, bytes) = list.value(node);
        Answer::Value(sink.of_words(words, (0, bytes)))
    }

    /// Returns, for each memtable, the node of its first key that is not below `key`. The searches
    /// in ordinary memory advance in turn so that their cache misses overlap.
    pub(crate) fn seek_all(all: &[Arc<Self>], key: &[u8]) -> Vec<Option<Node>> {
        let descent = |one: &Arc<Self>| match &one.storage {
            Storage::Memory { list, .. } => Some(list.descend(key)),
            Storage::Pool(_) => None,
        };
        let mut descents: Vec<_> = all.iter().map(descent).collect();
        loop {
            let mut arrived = 0;
            for (one, descent) in all.iter().zip(&mut descents) {
                let has_arrived = match (&one.storage, descent) {
                    (Storage::Memory { list, .. }, Some(descent)) => list.step(descent, key),
                    _ => true,
                };
                arrived += usize::from(has_arrived);
            }
            if arrived == all.len() {
                let node = |(one, descent): (&Arc<Self>, &Option<Descent>)| match descent {
                    Some(descent) => descent.node(),
                    None => one.seek(key),
                };
                return all.iter().zip(&descents).map(node).collect();
            }
        }
    }

    /// Returns the node of the first key that is not below `key`.
    fn seek(&self, key: &[u8]) -> Option<Node> {
        match &self.storage {
            Storage::Memory { list, .. } => list.seek(key),
            Storage::Pool(list) => list.seek(key),
        }
    }

    /// Returns the node of the last key below `key`, or of the last key of all.
    pub(crate) fn seek_before(&self, key: Option<&[u8]>) -> Option<Node> {
        match &self.storage {
            Storage::Memory { list, .. } => list.seek_before(key),
            Storage::Pool(list) => list.seek_before(key),
        }
    }

    /// Returns the node of the key that follows `node`, whose key is `key`.
    pub(crate) fn next_key(&self, node: Node, key: &[u8]) -> Option<Node> {
        match &self.storage {
            Storage::Memory { list, .. } => list.next_key(node, key),
            Storage::Pool(list) => list.next_key(node),
        }
    }

    /// Prefetches the node that follows, for a scan that reads it next. A hint.
    #[inline]
    pub(crate) fn prefetch_next(&self, node: Node) {
        if let Storage::Memory { list, .. } = &self.storage {
            list.prefetch_next(node);
        }
    }

    /// Copies a node's key out.
    fn copy_key(&self, node: Node, key: &mut Vec<u8>) {
        match &self.storage {
            Storage::Memory { list, .. } => list.copy_key(node, key),
            Storage::Pool(list) => list.copy_key(node, key),
        }
    }

    /// Copies a node's key and value out. Returns whether it is a tombstone.
    pub(crate) fn read(&self, node: Node, key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
        let list = match &self.storage {
            Storage::Memory { list, .. } => list,
            Storage::Pool(list) => return list.read(node, key, value),
        };
        list.copy_key(node, key);
        value.clear();
        value.resize(list.value_bytes(node), 0);
        list.copy_value(node, value);
        list.kind(node) == TOMBSTONE
    }

    /// Returns the bytes of memory it uses.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Memory { list, arenas } => list.used_words() * 8 + arenas.buckets_bytes(),
            Storage::Pool(list) => list.memory_bytes(),
        }
    }
}

impl MemoryTask for Memtable {
    /// Orders the entries.
    fn run(&self) {
        mutant!(MemtableStaysQueued => return self.order_nodes());
        // Before the entries are ordered: a writer that comes later queues the memtable again.
        self.is_queued.store(false, Ordering::Relaxed);
        self.order_nodes();
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        let charged = self.charged();
        match &mut self.storage {
            Storage::Memory { list, arenas } => {
                self.budget.release(charged + arenas.buckets_bytes());
                let used_bytes = list.used_words() * 8;
                let [nodes, buckets] = list.arenas_mut();
                arenas.release(nodes, buckets, used_bytes);
            }
            Storage::Pool(list) => list.end(charged, &self.budget),
        }
    }
}
