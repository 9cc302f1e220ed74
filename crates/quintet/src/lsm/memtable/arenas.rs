//! Recycles the memory of memtables.
//!
//! A memtable uses two regions: one for nodes, one for hash buckets. The kernel clears fresh memory
//! at the first store, which took a fifth of the time of a writer that loads data. So a dropped
//! memtable leaves its regions here, and the next one takes them.
//!
//! Invariants:
//! - Free regions are reserved in the budget, without making other caches shrink. The budget can
//!   reclaim them.
//! - Free buckets are zero. Free nodes have arbitrary contents.
//! - All memtables of one write buffer have regions of the same sizes.
//! - An idle table holds no free regions ([`Arenas::stop_recycling`]).
//!
//! Threads: any; one lock.

use std::{
    io,
    sync::{Arc, Weak},
};

use crate::{
    io::Region,
    lsm::memtable::skiplist::Arena,
    util::{
        budget::{Budget, Reclaimable},
        codec::to_usize,
        mutant::mutant,
        sync::{Mutex, Ordering, lock},
    },
};

/// Address space beyond the nominal size, in bytes: more than the longest key and the largest value
/// with its envelope.
const ENTRY_BYTES_MAX: u64 = 600 << 20;
/// Bytes of a memtable for each byte of its buckets. Entries of 150 bytes make 1.7 entries a
/// bucket.
const BUCKETS_SHARE: u64 = 32;
/// Offset from which nodes use huge pages, which halves the misses of a descent. Below it, a nearly
/// empty memtable stays small.
const HUGE_FROM_BYTES: u64 = 2 << 20;

/// A region of a memtable; `None` after its drop.
#[derive(Debug)]
pub(crate) struct MemtableRegion(Option<Region>);

impl Arena for MemtableRegion {
    #[inline]
    fn words(&self) -> &[crate::util::sync::AtomicU64] {
        self.0.as_ref().map_or(&[], Region::words)
    }
}

/// The regions of a dropped memtable.
#[derive(Debug)]
struct MemtableRegions {
    nodes: Region,
    buckets: Region,
    /// Bytes of both regions that are backed by memory.
    bytes: u64,
}

/// Regions for the next memtables.
#[derive(Debug)]
struct FreeRegions {
    list: Vec<MemtableRegions>,
    /// Maximum length of the list for now: 0 or `Arenas::free_max`.
    max: usize,
}

/// The regions of the memtables of one write buffer. See the module head.
#[derive(Debug)]
pub(crate) struct Arenas {
    /// Approximate bytes of nodes at which a memtable is frozen.
    capacity: u64,
    buckets_bytes: u64,
    /// Maximum number of free memtables, while the table is written to.
    free_max: usize,
    free: Mutex<FreeRegions>,
    budget: Arc<Budget>,
    table_id: u64,
}

impl Arenas {
    /// Creates a pool for memtables of about `capacity` bytes. It keeps at most `free_max` of them.
    pub(crate) fn new(
        (capacity, free_max): (u64, u64),
        budget: &Arc<Budget>,
        table_id: u64,
    ) -> Arc<Self> {
        let free_max = to_usize(free_max);
        let arenas = Arc::new(Self {
            capacity,
            buckets_bytes: (capacity / BUCKETS_SHARE).next_power_of_two().max(64),
            free_max,
            free: Mutex::new(FreeRegions { list: Vec::new(), max: free_max }),
            budget: Arc::clone(budget),
            table_id,
        });
        budget.register_reclaimable(Arc::downgrade(&arenas) as Weak<dyn Reclaimable>);
        arenas
    }

    /// Returns at about how many bytes a memtable is frozen.
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the bytes of a memtable's buckets.
    pub(crate) const fn buckets_bytes(&self) -> u64 {
        self.buckets_bytes
    }

    /// Returns the regions of a new memtable: nodes and buckets. The buckets are zero. Fails if the
    /// system has no address space.
    pub(crate) fn acquire(&self) -> io::Result<(MemtableRegion, MemtableRegion)> {
        let free = lock(&self.free).list.pop();
        if let Some(MemtableRegions { nodes, buckets, bytes }) = free {
            self.budget.release(bytes);
            return Ok((MemtableRegion(Some(nodes)), MemtableRegion(Some(buckets))));
        }
        let nodes = Region::reserve(self.capacity * 2 + ENTRY_BYTES_MAX)?;
        if self.capacity > HUGE_FROM_BYTES {
            nodes.advise_huge(HUGE_FROM_BYTES..self.capacity);
        }
        let buckets = Region::reserve(self.buckets_bytes)?;
        buckets.advise_huge(0..self.buckets_bytes);
        Ok((MemtableRegion(Some(nodes)), MemtableRegion(Some(buckets))))
    }

    /// Takes the regions of a dropped memtable that used `used_bytes` of its nodes. Frees them if
    /// the pool is full, the memtable was much larger than usual, or the budget has no free memory.
    pub(crate) fn release(
        &self,
        nodes: &mut MemtableRegion,
        buckets: &mut MemtableRegion,
        used_bytes: u64,
    ) {
        let (Some(nodes), Some(buckets)) = (nodes.0.take(), buckets.0.take()) else { return };
        let bytes = used_bytes + self.buckets_bytes;
        // More than twice the capacity: one large value.
        if used_bytes > 2 * self.capacity || !lock(&self.free).has_room() {
            return;
        }
        clear(&buckets);
        if self.budget.try_reserve(bytes).is_err() {
            return;
        }
        let mut free = lock(&self.free);
        if free.has_room() {
            free.list.push(MemtableRegions { nodes, buckets, bytes });
        } else {
            self.budget.release(bytes);
        }
    }

    /// Keeps the regions of dropped memtables from now on: the table is written to.
    pub(crate) fn start_recycling(&self) {
        lock(&self.free).max = self.free_max;
    }

    /// Frees all regions, and from now on those of memtables that are dropped: the table is idle.
    pub(crate) fn stop_recycling(&self) {
        lock(&self.free).max = 0;
        self.reclaim(u64::MAX);
    }
}

/// Sets all words of a region to zero.
fn clear(region: &Region) {
    mutant!(ArenaKeepsBuckets => return);
    for word in region.words() {
        word.store(0, Ordering::Relaxed);
    }
}

impl FreeRegions {
    fn has_room(&self) -> bool {
        self.list.len() < self.max
    }
}

impl Reclaimable for Arenas {
    fn table_id(&self) -> u64 {
        self.table_id
    }

    fn reclaimable_bytes(&self) -> u64 {
        lock(&self.free).list.iter().map(|regions| regions.bytes).sum()
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        let mut freed = 0;
        while freed < bytes {
            let Some(regions) = lock(&self.free).list.pop() else { break };
            freed += regions.bytes;
            self.budget.release(regions.bytes);
        }
        freed
    }
}

impl Drop for Arenas {
    fn drop(&mut self) {
        self.reclaim(u64::MAX);
    }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;
    use crate::util::mutant::{self, Bug};

    fn arenas(limit: u64) -> (Arc<Arenas>, Arc<Budget>) {
        let budget = Arc::new(Budget::new(limit));
        (Arenas::new((1 << 17, 2), &budget, 1), budget)
    }

    fn store(words: &MemtableRegion, index: usize, value: u64) {
        words.words()[index].store(value, Ordering::Relaxed);
    }

    fn memory_serves_again() {
        let (arenas, budget) = arenas(1 << 20);
        let (mut nodes, mut buckets) = arenas.acquire().unwrap();
        store(&nodes, 5, 7);
        store(&buckets, 5, 7);
        arenas.release(&mut nodes, &mut buckets, 800);
        assert_eq!((arenas.reclaimable_bytes(), budget.used()), (800 + 4096, 800 + 4096));
        let (nodes, buckets) = arenas.acquire().unwrap();
        assert_eq!((arenas.reclaimable_bytes(), budget.used()), (0, 0));
        assert_eq!(nodes.words()[5].load(Ordering::Relaxed), 7, "the same memory");
        assert!(buckets.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn memory_serves_again_with_empty_buckets_and_is_counted() {
        memory_serves_again();
        mutant::finds(Bug::ArenaKeepsBuckets, memory_serves_again);
    }

    #[test]
    fn no_more_is_kept_than_was_said_and_than_there_is_room_for() {
        let (arenas, budget) = arenas(10_000);
        let mut all: Vec<_> = (0..4).map(|_| arenas.acquire().unwrap()).collect();
        for (nodes, buckets) in &mut all {
            arenas.release(nodes, buckets, 100);
        }
        assert_eq!(arenas.reclaimable_bytes(), 2 * 4196);
        budget.reserve(9000).unwrap();
        assert_eq!((arenas.reclaimable_bytes(), budget.used()), (0, 9000));
        let (mut nodes, mut buckets) = arenas.acquire().unwrap();
        arenas.release(&mut nodes, &mut buckets, 100);
        assert_eq!((arenas.reclaimable_bytes(), budget.used()), (0, 9000), "no room");
    }

    #[test]
    fn idle_arenas_free_their_regions_and_those_of_memtables_dropped_later() {
        let (arenas, budget) = arenas(1 << 20);
        let mut all: Vec<_> = (0..3).map(|_| arenas.acquire().unwrap()).collect();
        let mut drop_one = || {
            let (mut nodes, mut buckets) = all.pop().unwrap();
            arenas.release(&mut nodes, &mut buckets, 100);
            (arenas.reclaimable_bytes(), budget.used())
        };
        assert_eq!(drop_one(), (4196, 4196));
        arenas.stop_recycling();
        assert_eq!((arenas.reclaimable_bytes(), budget.used()), (0, 0));
        assert_eq!(drop_one(), (0, 0));
        arenas.start_recycling();
        assert_eq!(drop_one(), (4196, 4196));
    }
}
