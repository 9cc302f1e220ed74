//! Creation with reserved space, opening, checks and the end of a list.

use std::{ops::Range, sync::Arc};

use super::{
    FIRST, HEAD, KEY, LEVELS, ListEntry, MAGIC, NEXT, PREFIX, PersistentList, REPLACED, Stored,
    VALUE, VALUE_HEAD_BYTES, value_crc, words,
};
use crate::{
    Result,
    io::prefetch,
    pmem::{Pool, link, target},
    util::{
        codec::{crc32c, key_prefix, widen},
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// The buffers of a walk over all nodes.
#[derive(Debug, Default)]
struct NodeReader {
    /// The object that has the last node or value.
    run: Range<u64>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl PersistentList {
    /// As [`create`](Self::create), with space for `capacity` bytes of nodes and values. Fails with
    /// [`Error::DiskFull`] if the pool lacks it. Inserts fail only when it is used up.
    pub(crate) fn create_reserved(pool: &Arc<Pool>, capacity: u64) -> Result<Self> {
        let chunk = pool.alloc(capacity)?;
        let list = match Self::create(pool, capacity) {
            Ok(list) => list,
            Err(error) => {
                pool.free(chunk)?;
                return Err(error);
            }
        };
        let mut room = lock(&list.room);
        room.objects.insert(chunk);
        room.chunk = chunk..chunk + capacity;
        drop(room);
        Ok(list)
    }

    /// Opens the list at offset `at` and reads all of it. Removes the values of version `end` and
    /// above: each key returns to its newest value below. Calls `each_key` for every key that is
    /// left. Fails with [`Error::Corruption`] if any part is damaged.
    pub(crate) fn open(
        pool: &Arc<Pool>,
        at: u64,
        capacity: u64,
        end: u64,
        each_key: &mut dyn FnMut(&[u8]),
    ) -> Result<Self> {
        Self::verify_head(pool, at)?;
        let list = Self::with(Arc::clone(pool), at, capacity)?;
        let mut before = Vec::new();
        let mut latest = [HEAD; LEVELS];
        let mut reader = NodeReader::default();
        let mut node = list.follow(at + FIRST)?;
        let mut link_before = at + FIRST;
        let mut steps = pool.bytes() / KEY;
        // No two keys share a value, so the chains of all keys together are bounded.
        let mut values = pool.bytes() / VALUE_HEAD_BYTES;
        while node != 0 {
            if steps == 0 {
                return Err(pool.damage(node, "the nodes of a list form a cycle"));
            }
            steps -= 1;
            if !list.is_within(node, KEY, &mut reader.run) {
                return Err(pool.damage(node, "a node is not within an object"));
            }
            // Nodes and values lie in the order of inserts: each is a cache miss.
            list.prefetch(node + VALUE);
            list.prefetch(node + NEXT);
            if !list.return_below(node, end, &mut values)? {
                // The node was new: unlink it.
                node = list.follow(node + NEXT)?;
                pool.replace(link_before, link(node));
                continue;
            }
            link_before = node + NEXT;
            let used = list.verify(node, &mut reader)?;
            list.used_bytes.fetch_add(used, Ordering::Relaxed);
            if list.keys() > 0 && before >= reader.key {
                return Err(pool.damage(node, "keys of a list are out of order"));
            }
            list.keys.fetch_add(1, Ordering::Relaxed);
            list.add_tower(node, &mut latest);
            each_key(&reader.key);
            std::mem::swap(&mut before, &mut reader.key);
            node = list.follow(node + NEXT)?;
        }
        Ok(list)
    }

    fn verify_head(pool: &Pool, at: u64) -> Result<()> {
        if !pool.is_object(at) || pool.load(at) != MAGIC {
            return Err(pool.damage(at, "no list starts at this offset"));
        }
        Ok(())
    }

    /// Returns whether the list at an offset has never had an entry. Reads no node. Fails with
    /// [`Error::Corruption`](crate::Error::Corruption) if no list is there.
    pub(crate) fn is_empty_at(pool: &Pool, at: u64) -> Result<bool> {
        Self::verify_head(pool, at)?;
        Ok(pool.load(at + FIRST) == 0)
    }

    /// Returns a node to its newest value below version `end`. Returns `false` if it has none.
    /// `steps` limits how many values are skipped.
    fn return_below(&self, node: u64, end: u64, steps: &mut u64) -> Result<bool> {
        let newest = self.follow(node + VALUE)?;
        let mut value = newest;
        mutant!(PersistentListKeepsLater => return Ok(true));
        while value != 0 && self.pool.load(value) >= end {
            if *steps == 0 {
                return Err(self.pool.damage(value, "the values of a key replace one another"));
            }
            *steps -= 1;
            value = self.follow(value + REPLACED)?;
        }
        if value != 0 && value != newest {
            self.pool.replace(node + VALUE, link(value));
        }
        Ok(value != 0)
    }

    /// Brings the target of the link at an offset into the processor's cache.
    fn prefetch(&self, at: u64) {
        if let Some(word) = self.pool.words(target(self.pool.load(at))).first() {
            prefetch(word);
        }
    }

    /// Verifies the checksums of a node and its value, and records the objects that contain them.
    /// Leaves the key in the reader. Returns the bytes of both.
    fn verify(&self, node: u64, reader: &mut NodeReader) -> Result<u64> {
        let NodeReader { run, key, value: bytes } = reader;
        let pool = &*self.pool;
        let damage = |what: &str| Err(pool.damage(node, what));
        if !self.is_within(node, KEY, run) || !self.is_within(node, KEY + self.key_words(node), run)
        {
            return damage("a node is not within an object");
        }
        self.copy_key(ListEntry(node), key);
        let is_true = widen(crc32c(key)) == pool.load(node) >> 32
            && key_prefix(key) == pool.load(node + PREFIX)
            && !key.is_empty();
        if !is_true {
            return damage("a node's checksum is wrong");
        }
        let value = self.follow(node + VALUE)?;
        let stored = Stored(value);
        if !self.is_within(value, VALUE_HEAD_BYTES, run)
            || !self.is_within(value, VALUE_HEAD_BYTES + words(self.value_bytes(stored)), run)
        {
            return damage("its value is not within an object");
        }
        bytes.clear();
        bytes.resize(self.value_bytes(stored), 0);
        self.copy_value(stored, bytes);
        let shape = pool.load(value + 8);
        if widen(value_crc(pool.load(value), shape, &[bytes])) != shape >> 32 {
            return Err(pool.damage(value, "a value's checksum is wrong"));
        }
        Ok(KEY + self.key_words(node) + VALUE_HEAD_BYTES + words(bytes.len()))
    }

    /// Whether a range is within one object of the pool; `run` caches the last object.
    fn is_within(&self, at: u64, bytes: u64, run: &mut Range<u64>) -> bool {
        if !at.is_multiple_of(8) {
            return false;
        }
        if !run.contains(&at) {
            let Some((start, length)) = self.pool.run_of(at) else { return false };
            *run = start..start + length;
            lock(&self.room).objects.insert(start);
        }
        at + bytes <= run.end
    }

    /// Returns the offsets of all objects of the list: for a sweep of the pool.
    pub(crate) fn objects(&self) -> Vec<u64> {
        std::iter::once(self.at).chain(lock(&self.room).objects.iter().copied()).collect()
    }

    /// Marks all objects of the list for a sweep of the pool.
    #[cfg(test)]
    pub(crate) fn mark(&self, marks: &mut crate::pmem::Marks<'_>) -> Result<()> {
        for at in self.objects() {
            if !marks.add(at) {
                return Err(self.pool.damage(at, "a list links to an offset without an object"));
            }
        }
        Ok(())
    }

    /// Frees all objects of the list. No persistent word may link to the list. No reader may
    /// use it.
    pub(crate) fn release(&self) -> Result<()> {
        for at in &lock(&self.room).objects {
            self.pool.free(*at)?;
        }
        self.pool.free(self.at)
    }

    /// Verifies all nodes and values. Fails with [`Error::Corruption`].
    pub(crate) fn check(&self) -> Result<()> {
        let (mut before, mut reader) = (Vec::new(), NodeReader::default());
        let mut node = self.follow(self.at + FIRST)?;
        while node != 0 {
            self.verify(node, &mut reader)?;
            if !before.is_empty() && before >= reader.key {
                return Err(self.pool.damage(node, "keys of a list are out of order"));
            }
            std::mem::swap(&mut before, &mut reader.key);
            node = self.follow(node + NEXT)?;
        }
        Ok(())
    }
}
