//! A chained hash table whose scans survive growth and shrinking.
//!
//! Buckets are chains, their number a power of two. A cursor visits them in the order of their
//! *reversed* bucket numbers (Noordhuis's scheme, as in Redis `SCAN`).
//! In this order, the buckets that one bucket splits into are neighbours, and so are the buckets
//! that merge into one. A cursor therefore stays valid at any other size:
//! - A scan visits every entry that is present throughout at least once.
//! - It may visit an entry again only if the table shrank meanwhile.
//! - It ends, because the reversed cursor only grows.
//!
//! Invariants: the number of buckets is zero or a power of two of at least [`BUCKETS_MIN`]. Entries
//! of a chain share the low bits of their hash. At most one entry has a given key.
//!
//! Locks: none. The caller holds the shard's lock.

use crate::util::{
    codec::{to_u64, to_usize},
    mutant::mutant,
};

/// Minimum number of buckets of a table with entries: one cache line of chain heads.
const BUCKETS_MIN: usize = 8;
/// The table shrinks when it has fewer entries than one in this many buckets. It grows at one entry
/// a bucket; the distance keeps a load that swings about one size from resizing at each swing.
const SHRINK_FACTOR: usize = 8;

/// An entry of the table.
pub(crate) trait Keyed {
    /// Returns the key. It must not change while the entry is in a table.
    fn key(&self) -> &[u8];
}

#[derive(Debug)]
struct ChainNode<E> {
    hash: u64,
    entry: E,
    next: Link<E>,
}

type Link<E> = Option<Box<ChainNode<E>>>;

/// The table. Callers pass the hash of the key. Equal keys must have equal hashes.
#[derive(Debug)]
pub(crate) struct HashTable<E> {
    buckets: Vec<Link<E>>,
    entries: usize,
}

/// Bytes that the table allocates for each entry beside the size of the entry.
pub(crate) const NODE_BYTES: u64 = 16;

impl<E> Default for HashTable<E> {
    fn default() -> Self {
        Self { buckets: Vec::new(), entries: 0 }
    }
}

impl<E: Keyed> HashTable<E> {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Returns the size of the bucket array in bytes.
    pub(crate) fn bucket_bytes(&self) -> u64 {
        to_u64(self.buckets.len() * size_of::<Link<E>>())
    }

    /// Returns the entry of `key`.
    #[inline]
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<&E> {
        let mut link = self.buckets.get(self.bucket(hash))?;
        while let Some(node) = link {
            if node.hash == hash && node.entry.key() == key {
                return Some(&node.entry);
            }
            link = &node.next;
        }
        None
    }

    /// Inserts an entry. Returns the entry of the same key that it replaced.
    pub(crate) fn insert(&mut self, hash: u64, entry: E) -> Option<E> {
        let bucket = self.bucket(hash);
        let mut link = self.buckets.get_mut(bucket);
        while let Some(Some(node)) = link {
            if node.hash == hash && node.entry.key() == entry.key() {
                return Some(std::mem::replace(&mut node.entry, entry));
            }
            link = Some(&mut node.next);
        }
        if self.entries == self.buckets.len() {
            self.resize((self.buckets.len() * 2).max(BUCKETS_MIN));
        }
        self.entries += 1;
        self.link(Box::new(ChainNode { hash, entry, next: None }));
        None
    }

    /// Removes and returns the entry of `key`. May shrink the table.
    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<E> {
        let bucket = self.bucket(hash);
        let mut link = self.buckets.get_mut(bucket)?;
        while link.as_ref().is_some_and(|node| node.hash != hash || node.entry.key() != key) {
            link = &mut link.as_mut()?.next;
        }
        let node = link.take()?;
        *link = node.next;
        self.entries -= 1;
        self.shrink();
        Some(node.entry)
    }

    /// Visits the entries of the bucket at `cursor`, which starts at 0. Returns the cursor of the
    /// next bucket, or 0 after the last. Any cursor is valid at any time.
    pub(crate) fn scan(&self, cursor: u64, mut visit: impl FnMut(&E)) -> u64 {
        let Some(mask) = self.mask() else { return 0 };
        let mut link = self.buckets.get(to_usize(cursor & mask));
        while let Some(Some(node)) = link {
            visit(&node.entry);
            link = Some(&node.next);
        }
        advance(cursor, mask)
    }

    /// Removes the entries of the bucket at `cursor` for which `dead` returns true, and passes them
    /// to `removed`. Returns the next cursor, as [`HashTable::scan`]. Does not shrink the table.
    pub(crate) fn sweep(
        &mut self,
        cursor: u64,
        dead: impl Fn(&E) -> bool,
        mut removed: impl FnMut(E),
    ) -> u64 {
        let Some(mask) = self.mask() else { return 0 };
        let mut chain = self.buckets.get_mut(to_usize(cursor & mask)).and_then(Option::take);
        while let Some(mut node) = chain {
            chain = node.next.take();
            if dead(&node.entry) {
                self.entries -= 1;
                removed(node.entry);
            } else {
                self.link(node);
            }
        }
        advance(cursor, mask)
    }

    /// Halves the number of buckets as often as [`SHRINK_FACTOR`] demands. An empty table keeps
    /// none.
    pub(crate) fn shrink(&mut self) {
        let mut target = self.buckets.len();
        while target > BUCKETS_MIN && self.entries * SHRINK_FACTOR < target {
            target /= 2;
        }
        if self.entries == 0 {
            self.buckets = Vec::new();
        } else if target < self.buckets.len() {
            self.resize(target);
        }
    }

    fn mask(&self) -> Option<u64> {
        to_u64(self.buckets.len()).checked_sub(1)
    }

    fn bucket(&self, hash: u64) -> usize {
        to_usize(hash & self.mask().unwrap_or(0))
    }

    fn link(&mut self, mut node: Box<ChainNode<E>>) {
        let bucket = self.bucket(node.hash);
        if let Some(link) = self.buckets.get_mut(bucket) {
            node.next = link.take();
            *link = Some(node);
        }
    }

    fn resize(&mut self, count: usize) {
        debug_assert!(count.is_power_of_two());
        let mut buckets = Vec::new();
        buckets.resize_with(count, || None);
        for mut chain in std::mem::replace(&mut self.buckets, buckets) {
            while let Some(mut node) = chain {
                chain = node.next.take();
                self.link(node);
            }
        }
    }
}

/// Returns the next cursor: adds one to the reversed bucket number.
fn advance(cursor: u64, mask: u64) -> u64 {
    mutant!(ScanSkipsOnGrowth => return (cursor + 1) & mask);
    (cursor | !mask).reverse_bits().wrapping_add(1).reverse_bits()
}

#[cfg(test)]
mod tests;
