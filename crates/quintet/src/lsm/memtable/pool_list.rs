//! The entries of a memtable in a pool of persistent memory.
//!
//! What: a [`PersistentList`] with the interface of a memtable. An entry is persistent when its
//! insert returns, so the table needs no replay of the log for it ([`super::pool_memtables`]).
//!
//! Invariants: a list is freed only after the persistent directory of memtables has left it out.
//! Puts are reported to the empty ranges before they are linked, so that scans see them, and again
//! afterwards: a range that was recorded meanwhile must not hide them.

use std::sync::Arc;

use super::{
    answer::{Answer, PUT, TOMBSTONE},
    persistent_list::{ListEntry, Outcome, PersistentList},
    skiplist::{InsertOutcome, KeyVersion, Node},
};
use crate::{
    Result,
    contract::ValueSink,
    lsm::empty_ranges::EmptyRanges,
    util::{
        budget::Budget,
        sync::{AtomicBool, AtomicU64, Ordering},
    },
};

/// What the memtables of a table in a pool share.
#[derive(Debug)]
pub(super) struct PoolTotals {
    /// Bytes of entries at which a memtable is frozen.
    pub(super) list_bytes: u64,
    /// Whether the pool counts against the memory budget: an emulated one does.
    pub(super) is_counted: bool,
    /// Bytes of entries since the table recorded how far it is complete.
    pub(super) unmarked_bytes: AtomicU64,
}

/// The entries of a memtable in a pool.
#[derive(Debug)]
pub(super) struct PoolList {
    list: PersistentList,
    ranges: Arc<EmptyRanges>,
    totals: Arc<PoolTotals>,
    /// Whether the directory of memtables leaves the list out for good.
    is_retired: AtomicBool,
}

impl PoolList {
    pub(super) fn new(
        list: PersistentList,
        ranges: &Arc<EmptyRanges>,
        totals: &Arc<PoolTotals>,
    ) -> Self {
        let (ranges, totals) = (Arc::clone(ranges), Arc::clone(totals));
        Self { list, ranges, totals, is_retired: AtomicBool::new(false) }
    }

    /// Returns the offset of the list in the pool.
    pub(super) const fn root(&self) -> u64 {
        self.list.root()
    }

    /// Lets the drop free the list.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Keeps the list when it is dropped: the directory has it.
    pub(super) fn keep(&self) {
        self.is_retired.store(false, Ordering::Relaxed);
    }

    /// Returns the offsets of the objects of the list.
    pub(super) fn objects(&self) -> Vec<u64> {
        self.list.objects()
    }

    /// Returns the bytes at which the memtable is full.
    pub(super) fn capacity(&self) -> u64 {
        self.totals.list_bytes
    }

    fn report(&self, version: &KeyVersion<'_>) {
        if version.kind == PUT
            && let Some(mut report) = self.ranges.puts()
        {
            report.add(version.key);
        }
    }

    /// Inserts a version persistently. An entry that the pool has no room for counts as `Full`.
    pub(super) fn insert(&self, version: &KeyVersion<'_>) -> InsertOutcome {
        self.report(version);
        let outcome = self.list.insert(version.key, version.number, version.kind, &version.ssts);
        self.report(version);
        match outcome {
            Ok(Outcome::New) => InsertOutcome::New,
            Ok(Outcome::Replaced | Outcome::Old) => InsertOutcome::Again,
            Err(_) => InsertOutcome::Full,
        }
    }

    /// Inserts versions in their order. Returns the number of new keys; `None` if the list has no
    /// room for all. It may have some of them then, which a repetition replaces.
    pub(super) fn insert_many(&self, versions: &[KeyVersion<'_>]) -> Option<u64> {
        let mut keys = 0;
        for version in versions {
            match self.insert(version) {
                InsertOutcome::New => keys += 1,
                InsertOutcome::Again => {}
                InsertOutcome::Full => return None,
            }
        }
        Some(keys)
    }

    /// Notes that entries of this cost were inserted. Real persistent memory does not count against
    /// the budget: their reservation ends here.
    pub(super) fn count_inserted(&self, bytes: u64, budget: &Budget) {
        self.totals.unmarked_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !self.totals.is_counted {
            budget.release(bytes);
        }
    }

    /// Releases what the memtable has reserved, and frees the list if it is retired.
    pub(super) fn end(&self, charged: u64, budget: &Budget) {
        if self.totals.is_counted {
            budget.release(charged);
        }
        if self.is_retired.load(Ordering::Relaxed) {
            // If it fails, the next sweep frees the list.
            let _ = self.list.release();
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the numbers of keys and of bytes of nodes and values.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.list.keys(), self.list.used_bytes())
    }

    /// Returns the bytes of ordinary memory, and of the pool if it is counted as memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let in_pool = if self.totals.is_counted { self.list.used_bytes() } else { 0 };
        self.list.memory_bytes() + in_pool
    }

    // Cold, so that a get of a memtable in ordinary memory pays one branch.
    #[cold]
    #[inline(never)]
    pub(super) fn get<T: ValueSink>(&self, key: &[u8], sink: &mut T) -> Answer<T::Output> {
        if self.list.is_empty() {
            return Answer::Nothing;
        }
        let Some(value) = self.list.get(key) else { return Answer::Nothing };
        if self.list.kind(value) == TOMBSTONE {
            return Answer::Deleted;
        }
        let place = (0, self.list.value_bytes(value));
        Answer::Value(sink.of_words(self.list.value_words(value), place))
    }

    pub(super) fn seek(&self, key: &[u8]) -> Option<Node> {
        self.list.seek(key).map(node)
    }

    pub(super) fn seek_before(&self, key: Option<&[u8]>) -> Option<Node> {
        self.list.seek_before(key).map(node)
    }

    pub(super) fn next_key(&self, at: Node) -> Option<Node> {
        self.list.next(entry(at)).map(node)
    }

    pub(super) fn copy_key(&self, at: Node, key: &mut Vec<u8>) {
        self.list.copy_key(entry(at), key);
    }

    pub(super) fn read(&self, at: Node, key: &mut Vec<u8>, value: &mut Vec<u8>) -> bool {
        self.list.copy_key(entry(at), key);
        let stored = self.list.value(entry(at));
        value.clear();
        value.resize(self.list.value_bytes(stored), 0);
        self.list.copy_value(stored, value);
        self.list.kind(stored) == TOMBSTONE
    }

    /// Verifies all entries. Fails with `Corruption`.
    pub(super) fn check(&self) -> Result<()> {
        self.list.check()
    }

    /// Returns the bytes of the pool that the list occupies.
    pub(super) fn pool_bytes(&self) -> u64 {
        self.list.pool_bytes()
    }
}

const fn node(entry: ListEntry) -> Node {
    Node::of_word(entry.offset())
}

const fn entry(node: Node) -> ListEntry {
    ListEntry::at(node.word())
}
