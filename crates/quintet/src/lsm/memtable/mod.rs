//! Memtables: what the log has and the files do not.
//!
//! Invariants: what a memtable draws from the budget is given back when it goes, which an iterator
//! may delay. Writers hold the table's `writing` lock shared; with it held alone, nothing is on
//! the way into the memtable, and it can be frozen. A key's bits are in the filter of its group
//! before it is in the list.

pub(crate) mod arenas;
pub(crate) mod skiplist;

use std::{io, sync::Arc};

use crate::{
    contract::{Op, Value, ValueSink},
    io::Region,
    lsm::memtable::{
        arenas::{Arenas, Words},
        skiplist::{Descent, Inserted, Node, SkipList, Version},
    },
    util::{
        budget::Budget,
        codec::{KeyHash, Lsn, key_prefix, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{AtomicU64, Ordering},
    },
};

const PUT: u8 = 0;
/// Number of keys that an estimate counts one by one.
const ESTIMATE_KEYS_MAX: u64 = 1024;

const TOMBSTONE: u8 = 1;
/// Words of a node beside key and value: head and, on average, links.
const NODE_BYTES: u64 = 6 * 8;

/// What a memtable, or a block, says of a key.
#[derive(Debug)]
pub(crate) enum Answer<T = Value> {
    /// It has no entry of it.
    Nothing,
    Deleted,
    /// What was made of the value.
    Value(T),
}

impl<T> Answer<T> {
    /// What was made of the value, if there is one.
    #[inline]
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Nothing | Self::Deleted => None,
        }
    }
}

/// Bytes of a memtable for each byte of its filter: at 150 bytes an entry, 27 bits an entry.
const FILTER_SHARE: u64 = 64;

/// Keys that a group of memtables may have: most gets of keys that they have not end here, instead
/// of with a look at each.
///
/// Three bits of one word each, set before the entry is in the list.
#[derive(Debug)]
pub(crate) struct Filter {
    words: Region,
    /// Of a word's number.
    mask: u64,
    /// Memtables that it was made for, ever.
    members: AtomicU64,
    budget: Arc<Budget>,
}

impl Filter {
    fn bytes(capacity: u64) -> u64 {
        (capacity / FILTER_SHARE).next_power_of_two().max(64)
    }

    /// An empty one for keys of about so many bytes of memtables.
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

    /// Memtables that share it or did.
    pub(crate) fn members(&self) -> u64 {
        self.members.load(Ordering::Relaxed)
    }

    fn memory_bytes(&self) -> u64 {
        (self.mask + 1) * 8
    }

    #[inline]
    fn place(&self, hash: u64) -> (Option<&AtomicU64>, u64) {
        let bits = 1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63);
        (self.words.words().get(to_usize(hash >> 18 & self.mask)), bits)
    }

    fn add(&self, hash: u64) {
        let (word, bits) = self.place(hash);
        if let Some(word) = word.filter(|word| word.load(Ordering::Relaxed) & bits != bits) {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }

    /// Whether a key of this hash may have been added.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let (word, bits) = self.place(hash);
        word.is_none_or(|word| word.load(Ordering::Relaxed) & bits == bits)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.budget.release(self.memory_bytes());
    }
}

/// See the module head.
#[derive(Debug)]
pub(crate) struct Memtable {
    list: SkipList<Words>,
    /// Where its memory comes from and goes.
    arenas: Arc<Arenas>,
    /// One for all memtables of a group: it answers for those that are not asked then. None where
    /// a memtable is alone.
    group: Option<Arc<Filter>>,
    budget: Arc<Budget>,
    /// Drawn from the budget.
    charged: AtomicU64,
    /// Entries, the keys among them that are new, and bytes of keys and values.
    entries: AtomicU64,
    keys: AtomicU64,
    payload_bytes: AtomicU64,
}

/// What an entry draws from the budget.
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
    /// An empty one.
    pub(crate) fn new(
        arenas: &Arc<Arenas>,
        group: Option<&Arc<Filter>>,
        budget: &Arc<Budget>,
    ) -> io::Result<Self> {
        let (nodes, buckets) = arenas.take()?;
        budget.reserve_unchecked(arenas.buckets_bytes());
        if let Some(group) = group {
            group.members.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Self {
            list: SkipList::new(nodes, buckets),
            arenas: Arc::clone(arenas),
            group: group.cloned(),
            budget: Arc::clone(budget),
            charged: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
        })
    }

    /// Adds an operation on one key (and its hash), for which `cost` was drawn from the budget;
    /// `false` where it has no room.
    pub(crate) fn insert(&self, lsn: u64, op: &Op<'_>, hash: u64) -> bool {
        let Some(version) = self.version_of(lsn, op, hash) else { return true };
        let inserted = self.list.insert(&version);
        if inserted == Inserted::Full {
            return false;
        }
        self.note(std::slice::from_ref(&version), cost(op), u64::from(inserted == Inserted::New));
        true
    }

    /// Adds operations, each on one key, in their order, for which `bytes` were drawn from the
    /// budget; `false` where it has no room for all: then it has none.
    pub(crate) fn insert_many(&self, ops: &[(Lsn, Op<'_>)], bytes: u64, hash: &KeyHash) -> bool {
        let mut versions = Vec::with_capacity(ops.len());
        for (lsn, op) in ops {
            if let Op::Put { key, .. } | Op::Delete { key } = op {
                versions.extend(self.version_of(lsn.0, op, hash.hash(key)));
            }
        }
        let Some(keys) = self.list.insert_many(&versions) else { return false };
        self.note(&versions, bytes, keys);
        true
    }

    /// Counts what was added.
    #[inline]
    fn note(&self, versions: &[Version<'_>], bytes: u64, keys: u64) {
        let payload = |one: &Version<'_>| one.key.len() + one.pieces[0].len() + one.pieces[1].len();
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        self.entries.fetch_add(to_u64(versions.len()), Ordering::Relaxed);
        self.keys.fetch_add(keys, Ordering::Relaxed);
        let payload = versions.iter().map(payload).sum();
        self.payload_bytes.fetch_add(to_u64(payload), Ordering::Relaxed);
    }

    /// What is inserted of an operation on one key, after its bits are in the group's filter.
    #[inline]
    fn version_of<'a>(&self, lsn: u64, op: &Op<'a>, hash: u64) -> Option<Version<'a>> {
        let (key, kind, pieces) = match *op {
            Op::Put { key, head, body } => (key, PUT, [head, body]),
            Op::Delete { key } => (key, TOMBSTONE, [&[][..]; 2]),
            Op::DeleteRange { .. } => return None,
        };
        let is_forgotten = kind != PUT && mutant::active(Bug::TphFilterForgetsTombstones);
        if let Some(group) = self.group.as_ref().filter(|_| !is_forgotten) {
            group.add(hash);
        }
        // Of the seeded bug: in the bucket of another hash, where no get comes by.
        let hash = if is_forgotten { !hash } else { hash };
        Some(Version { key, hash, number: lsn, kind, pieces })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether it has as much as its buckets were made for.
    pub(crate) fn is_full(&self) -> bool {
        self.charged() >= self.arenas.capacity()
    }

    /// What it draws from the budget, in bytes.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Entries of all versions.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Keys that it has entries of.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Bytes of keys and values.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes.load(Ordering::Relaxed)
    }

    /// The filter of its group.
    #[inline]
    pub(crate) fn group(&self) -> Option<&Arc<Filter>> {
        self.group.as_ref()
    }

    /// Starts loading what an insert or a get of this hash looks at first. A hint.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.list.prefetch(hash);
    }

    /// What it says of a key.
    #[inline]
    pub(crate) fn get<T: ValueSink>(
        &self,
        hash: u64,
        key: &[u8],
        take: &mut T,
    ) -> Answer<T::Output> {
        if self.list.is_empty() {
            return Answer::Nothing;
        }
        let Some(node) = self.list.get(key, hash) else { return Answer::Nothing };
        if self.list.kind(node) == TOMBSTONE {
            return Answer::Deleted;
        }
        let (words, bytes) = self.list.value(node);
        Answer::Value(take.of_words(words, (0, bytes)))
    }

    /// The first key that is not below `key` in each of some memtables, looked for side by side.
    pub(crate) fn seek_all(all: &[Arc<Self>], key: &[u8]) -> Vec<Option<Node>> {
        let mut descents: Vec<_> = all.iter().map(|one| one.list.descend(key)).collect();
        loop {
            let mut arrived = 0;
            for (one, descent) in all.iter().zip(&mut descents) {
                arrived += usize::from(one.list.step(descent, key));
            }
            if arrived == all.len() {
                return descents.iter().map(Descent::arrived).collect();
            }
        }
    }

    /// The last key below `key`, or of all.
    pub(crate) fn seek_before(&self, key: Option<&[u8]>) -> Option<Node> {
        self.list.seek_before(key)
    }

    /// The key after that of a node, `key`.
    pub(crate) fn next_key(&self, node: Node, key: &[u8]) -> Option<Node> {
        self.list.next_key(node, key)
    }

    /// Returns about how many keys from `start` (included) to `end` (excluded) the memtable holds,
    /// tombstones included. Counts up to [`ESTIMATE_KEYS_MAX`] keys and extrapolates behind them.
    pub(crate) fn estimate_count(&self, start: Option<&[u8]>, end: Option<&[u8]>) -> u64 {
        let mut node = match start {
            None => self.list.seek(&[]),
            Some(key) => self.list.seek(key),
        };
        let (mut count, mut key, mut first) = (0, Vec::new(), Vec::new());
        while let Some(one) = node {
            self.list.copy_key(one, &mut key);
            if end.is_some_and(|end| *key >= *end) {
                break;
            }
            if count == 0 {
                first.clone_from(&key);
            }
            count += 1;
            if count == ESTIMATE_KEYS_MAX {
                let last = match self.list.seek_before(end) {
                    None => break,
                    Some(last) => {
                        let mut bytes = Vec::new();
                        self.list.copy_key(last, &mut bytes);
                        bytes
                    }
                };
                return extrapolate(count, (&first, &key, &last)).min(self.keys());
            }
            node = self.list.next_key(one, &key);
        }
        count
    }

    /// Copies key and value out; whether it is a tombstone.
    pub(crate) fn read(&self, node: Node, key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
        self.list.copy_key(node, key);
        value.clear();
        value.resize(self.list.value_bytes(node), 0);
        self.list.copy_value(node, value);
        self.list.kind(node) == TOMBSTONE
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.list.used_words() * 8 + self.arenas.buckets_bytes()
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.budget.release(self.charged() + self.arenas.buckets_bytes());
        let used_bytes = self.list.used_words() * 8;
        let [nodes, buckets] = self.list.arenas_mut();
        self.arenas.put(nodes, buckets, used_bytes);
    }
}

/// Scales `count` keys between `first` and `reached` to the interval from `first` to `last`, as if
/// keys were spread evenly behind their common prefix.
fn extrapolate(count: u64, (first, reached, last): (&[u8], &[u8], &[u8])) -> u64 {
    let shared = first.iter().zip(last).take_while(|(one, other)| one == other).count();
    let number = |key: &[u8]| u128::from(key_prefix(key.get(shared..).unwrap_or(&[])));
    let counted = number(reached).saturating_sub(number(first)).max(1);
    let whole = number(last).saturating_sub(number(first)).max(counted);
    u64::try_from(u128::from(count) * whole / counted).unwrap_or(u64::MAX)
}
