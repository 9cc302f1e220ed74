//! Super versions: what a reader sees of a table.
//!
//! A flush or a merge changes memtables and files together. So both are in one value that is
//! replaced as a whole, like RocksDB's super version: a reader loads one and sees a state that
//! belongs together, without a lock.

use std::sync::Arc;

use super::memtable::{Answer, Filter, Memtable};
use crate::contract::ValueSink;

/// What a reader sees: memtables and files that belong together. It is immutable except for inserts
/// into the active memtable.
#[derive(Debug)]
pub(crate) struct SuperVersion<V> {
    /// The memtable that writers insert into.
    pub(crate) active: Arc<Memtable>,
    /// Memtables that wait for a flush, newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    /// The version of the file set.
    pub(crate) version: Arc<V>,
}

impl<V> SuperVersion<V> {
    /// Returns another super version of the same memtables and files.
    pub(crate) fn share(&self) -> Self {
        Self {
            active: Arc::clone(&self.active),
            frozen: self.frozen.clone(),
            version: Arc::clone(&self.version),
        }
    }

    /// Returns whether all memtables are empty.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.active.is_empty() && self.frozen.is_empty()
    }

    /// Iterates over all memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// Returns the number of entries in memory that the next range would order.
    pub(crate) fn unordered_entries(&self) -> u64 {
        self.memtables().map(|memtable| memtable.unordered()).sum()
    }

    /// Orders the nodes of all memtables.
    pub(crate) fn order_memtables(&self) {
        self.memtables().for_each(|memtable| memtable.order_nodes());
    }

    /// Looks a key up in the memtables, newest first.
    #[inline]
    pub(crate) fn in_memory<T: ValueSink>(
        &self,
        hash: u64,
        key: &[u8],
        sink: &mut T,
    ) -> Answer<T::Output> {
        let mut last_filter: Option<(&Arc<Filter>, bool)> = None;
        for memtable in self.memtables() {
            // The active memtable may be empty, and asking its filter costs a cache miss.
            if memtable.is_empty() {
                continue;
            }
            let may_have = memtable.group().is_none_or(|group| match last_filter {
                Some((last, may_have)) if Arc::ptr_eq(last, group) => may_have,
                _ => last_filter.insert((group, group.may_have(hash))).1,
            });
            if may_have {
                match memtable.get(hash, key, sink) {
                    Answer::Nothing => {}
                    answer => return answer,
                }
            }
        }
        Answer::Nothing
    }
}
