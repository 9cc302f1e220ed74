//! The memtables of a table in a pool of persistent memory: their creation, and the directory by
//! which an opening finds them.
//!
//! Problem: a memtable in persistent memory outlives the process. An opening must find exactly the
//! memtables whose entries no file has. It must find no entry that the shared log may lack.
//!
//! How: a root word of the pool leads to a *directory*: the offsets of the lists, newest first. It
//! is replaced as a whole, by one word, whenever a memtable is frozen or leaves. A flushed memtable
//! leaves when the index that has its entries is durable ([`PoolMemtables::forget`]); until then it
//! is *retiring*. The table records up to which LSN it is complete, and an opening removes the
//! entries from there on: the log is replayed from that LSN.
//!
//! An opening does not read the lists: each takes a millisecond a megabyte. They are *unread* until
//! a background step or the first reader has verified them. Meanwhile the log gives the LSNs of
//! removed entries to new operations. So the directory has the LSN from which on the entries of
//! each unread list are removed, before the first operation is logged. A later opening removes them
//! too, even if its own end is higher.
//!
//! | directory word | meaning |
//! |---|---|
//! | 0 | number of lists in bits 0 to 31, the layout ([`LAYOUT`]) in bits 32 to 63 |
//! | 1, 3, .. | offset of each list ([`super::persistent_list`]), newest first |
//! | 2, 4, .. | the LSN from which on its entries are removed; 2^64 - 1: none is |
//!
//! Invariants: the directory has every memtable of the super version that is in the pool, in its
//! order, before the first insert into it, and behind them the unread lists. A list is freed after
//! the directory has left it out.
//!
//! Threads: the write buffer's `installing` lock orders all changes. Lock order: `installing`,
//! `directory`, the pool's.

use std::sync::Arc;

use super::{
    Filter, Memtable, Storage,
    persistent_list::PersistentList,
    pool_list::{PoolList, PoolTotals},
};
use crate::{
    Error, Result,
    lsm::empty_ranges::EmptyRanges,
    pmem::{Pool, SLAB_BYTES, SlabSweep, is_link, link, target},
    util::{
        budget::Budget,
        codec::{Lsn, to_u64},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

/// Bytes of the directory: one slab. Two halves are written in turn.
const DIRECTORY_BYTES: u64 = SLAB_BYTES;
const HALF_BYTES: u64 = DIRECTORY_BYTES / 2;
/// Maximum number of lists.
const LISTS_MAX: u64 = (HALF_BYTES / 8 - 1) / 2;
/// Layout of the directory. Layout 0 had no LSNs.
const LAYOUT: u64 = 1;

/// A list of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedMemtable {
    /// Offset of the list.
    pub(crate) at: u64,
    /// The entries of this LSN and above are removed.
    pub(crate) end: Lsn,
}

/// Hashes a key.
type HashKey<'h> = dyn Fn(&[u8]) -> u64 + 'h;

/// The directory.
#[derive(Debug)]
struct MemtableDirectory {
    /// Offset of its object.
    at: u64,
    /// Memtables that were flushed while the index with their entries is not durable yet.
    retiring: Vec<Arc<Memtable>>,
    /// Lists that the super version does not have yet. They are the oldest.
    unread: Vec<ListedMemtable>,
}

impl MemtableDirectory {
    /// Returns these memtables and the retiring ones.
    fn all<'m>(&self, memtables: impl Iterator<Item = &'m Arc<Memtable>>) -> Vec<Arc<Memtable>> {
        memtables.cloned().chain(self.retiring.iter().cloned()).collect()
    }
}

/// The memtables of a table in a pool. See the module head.
#[derive(Debug)]
pub(crate) struct PoolMemtables {
    pool: Arc<Pool>,
    /// Number of the pool's root word.
    root: u64,
    totals: Arc<PoolTotals>,
    directory: Mutex<MemtableDirectory>,
    /// Memtables that were created in ordinary memory, because the pool was full.
    fallbacks_total: AtomicU64,
}

impl PoolMemtables {
    /// Opens the memtables of a pool, without its lists. Creates the directory if the root word is
    /// 0.
    pub(crate) fn open(
        pool: &Arc<Pool>,
        root: u64,
        list_bytes: u64,
        is_counted: bool,
    ) -> Result<Arc<Self>> {
        let at = match pool.root(root) {
            0 => {
                let at = pool.alloc(DIRECTORY_BYTES)?;
                pool.store(at, LAYOUT << 32);
                pool.flush(at, 8);
                pool.publish(Pool::root_at(root), link(at));
                at
            }
            word if is_link(word) => {
                let run = pool.run_of(target(word));
                let of_size = run.filter(|(_, bytes)| *bytes == DIRECTORY_BYTES);
                let damage = || pool.damage(target(word), "no directory of memtables is there");
                of_size.ok_or_else(damage)?.0
            }
            _ => return Err(pool.damage(0, "the link to the directory of memtables is damaged")),
        };
        let unmarked_bytes = AtomicU64::new(0);
        Ok(Arc::new(Self {
            pool: Arc::clone(pool),
            root,
            totals: Arc::new(PoolTotals { list_bytes, is_counted, unmarked_bytes }),
            directory: Mutex::new(MemtableDirectory {
                at,
                retiring: Vec::new(),
                unread: Vec::new(),
            }),
            fallbacks_total: AtomicU64::new(0),
        }))
    }

    /// Returns the lists in the directory that are not empty, newest first.
    pub(crate) fn lists(&self) -> Result<Vec<ListedMemtable>> {
        let pool = &*self.pool;
        let at = target(pool.root(self.root));
        let (layout, count) = (pool.load(at) >> 32, pool.load(at) & 0xffff_ffff);
        if layout != LAYOUT || count > LISTS_MAX {
            let what = format!("a directory of {count} memtables in layout {layout}");
            return Err(pool.damage(at, what));
        }
        let listed = (0..count).map(|number| at + 8 + number * 16);
        let mut lists = Vec::new();
        for at in listed {
            let list = ListedMemtable { at: pool.load(at), end: Lsn(pool.load(at + 8)) };
            if !PersistentList::is_empty_at(pool, list.at)? {
                lists.push(list);
            }
        }
        Ok(lists)
    }

    /// Notes the lists that the super version does not have yet: the next
    /// [`publish`](Self::publish) puts them behind its memtables.
    pub(crate) fn set_unread(&self, lists: Vec<ListedMemtable>) {
        lock(&self.directory).unread = lists;
    }

    /// Reads and verifies a list, without the entries that are removed.
    pub(crate) fn read_list(
        &self,
        ListedMemtable { at, end }: ListedMemtable,
        (group, hash): (Option<&Arc<Filter>>, &HashKey<'_>),
        (ranges, budget): (&Arc<EmptyRanges>, &Arc<Budget>),
    ) -> Result<Arc<Memtable>> {
        let mut add = |key: &[u8]| {
            if let Some(group) = group {
                group.add(hash(key));
            }
        };
        let capacity = self.totals.list_bytes;
        let list = PersistentList::open(&self.pool, at, capacity, end.0, &mut add)?;
        let memtable = self.memtable(list, group, (ranges, budget));
        let (keys, bytes) = memtable.pool_list().map_or((0, 0), PoolList::size);
        memtable.entries.store(keys, Ordering::Relaxed);
        memtable.keys.store(keys, Ordering::Relaxed);
        memtable.payload_bytes.store(bytes, Ordering::Relaxed);
        memtable.charged.store(bytes, Ordering::Relaxed);
        if self.totals.is_counted {
            budget.reserve_unchecked(bytes);
        }
        Ok(Arc::new(memtable))
    }

    /// Creates an empty memtable. Fails with [`Error::DiskFull`] if the pool has no room.
    pub(crate) fn create(
        &self,
        group: Option<&Arc<Filter>>,
        (ranges, budget): (&Arc<EmptyRanges>, &Arc<Budget>),
    ) -> Result<Arc<Memtable>> {
        // An entry in the pool takes a few bytes more than it counts in a memtable. Writers that
        // were admitted may exceed the size at which the memtable is frozen.
        let capacity = self.totals.list_bytes / 4 * 5 + SLAB_BYTES;
        let list = PersistentList::create_reserved(&self.pool, capacity);
        let list = list.inspect_err(|_| {
            self.fallbacks_total.fetch_add(1, Ordering::Relaxed);
        })?;
        let memtable = self.memtable(list, group, (ranges, budget));
        // Until it is published, a drop frees it.
        memtable.pool_list().inspect(|list| list.retire());
        Ok(Arc::new(memtable))
    }

    fn memtable(
        &self,
        list: PersistentList,
        group: Option<&Arc<Filter>>,
        (ranges, budget): (&Arc<EmptyRanges>, &Arc<Budget>),
    ) -> Memtable {
        let storage = Storage::Pool(PoolList::new(list, ranges, &self.totals));
        Memtable::with(storage, group, budget)
    }

    /// Replaces the directory: these memtables, newest first, and the retiring ones. Persistent on
    /// return. The caller holds the write buffer's `installing` lock.
    pub(crate) fn publish<'m>(
        &self,
        memtables: impl Iterator<Item = &'m Arc<Memtable>>,
    ) -> Result<()> {
        let directory = lock(&self.directory);
        self.write(&directory, &directory.all(memtables))
    }

    /// As [`publish`](Self::publish), with the memtables that were unread.
    pub(crate) fn publish_read<'m>(
        &self,
        memtables: impl Iterator<Item = &'m Arc<Memtable>>,
    ) -> Result<()> {
        let mut directory = lock(&self.directory);
        let unread = std::mem::take(&mut directory.unread);
        let outcome = self.write(&directory, &directory.all(memtables));
        if outcome.is_err() {
            directory.unread = unread;
        }
        outcome
    }

    fn write(&self, directory: &MemtableDirectory, memtables: &[Arc<Memtable>]) -> Result<()> {
        let pool = &*self.pool;
        let lists: Vec<&PoolList> = memtables.iter().filter_map(|one| one.pool_list()).collect();
        let read = lists.iter().map(|list| (list.root(), u64::MAX));
        let end = |list: &ListedMemtable| mutant!(SlmPoolForgetsEnds: u64::MAX, else list.end.0);
        let unread = directory.unread.iter().map(|list| (list.at, end(list)));
        let listed: Vec<(u64, u64)> = read.chain(unread).collect();
        let count = to_u64(listed.len());
        if count > LISTS_MAX {
            return Err(Error::DiskFull { doing: format!("list {count} memtables in a pool") });
        }
        let is_first = target(pool.root(self.root)) == directory.at;
        let half = directory.at + if is_first { HALF_BYTES } else { 0 };
        pool.store(half, count | LAYOUT << 32);
        for (number, (at, end)) in (0..).zip(listed) {
            pool.store(half + 8 + number * 16, at);
            pool.store(half + 16 + number * 16, end);
        }
        pool.flush(half, 8 + count * 16);
        pool.publish(Pool::root_at(self.root), link(half));
        for list in lists {
            list.keep();
        }
        Ok(())
    }

    /// Notes flushed memtables: they stay in the directory until [`forget`](Self::forget). The
    /// caller holds the write buffer's `installing` lock.
    pub(crate) fn retire(&self, flushed: &[Arc<Memtable>]) {
        let in_pool = flushed.iter().filter(|one| one.is_in_pool()).cloned();
        let mut directory = lock(&self.directory);
        let older = std::mem::replace(&mut directory.retiring, in_pool.collect());
        directory.retiring.extend(older);
    }

    /// Leaves the retiring memtables out of the directory: a durable index has their entries.
    /// `memtables` are those of the super version. The caller holds the write buffer's `installing`
    /// lock.
    pub(crate) fn forget<'m>(
        &self,
        memtables: impl Iterator<Item = &'m Arc<Memtable>>,
    ) -> Result<()> {
        let mut directory = lock(&self.directory);
        let retired = std::mem::take(&mut directory.retiring);
        if retired.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.write(&directory, &directory.all(memtables)) {
            directory.retiring = retired;
            return Err(error);
        }
        retired.iter().filter_map(|one| one.pool_list()).for_each(PoolList::retire);
        Ok(())
    }

    /// Marks the directory, and the lists of these memtables and of the retiring ones, for a sweep.
    /// No list may be unread. The caller holds the write buffer's `installing` lock.
    pub(crate) fn mark<'m>(
        &self,
        pool: &Pool,
        sweep: &mut SlabSweep,
        memtables: impl Iterator<Item = &'m Arc<Memtable>>,
    ) -> Result<()> {
        let directory = lock(&self.directory);
        let all = directory.all(memtables);
        let lists = all.iter().filter_map(|one| one.pool_list());
        let objects: Vec<u64> = lists.flat_map(PoolList::objects).chain([directory.at]).collect();
        pool.mark(sweep, |marks| match objects.iter().find(|at| !marks.add(**at)) {
            None => Ok(()),
            Some(at) => Err(pool.damage(*at, "a memtable is in no object of the pool")),
        })
    }

    /// Returns the bytes of entries at which a memtable is frozen.
    pub(crate) fn list_bytes(&self) -> u64 {
        self.totals.list_bytes
    }

    /// Returns the bytes of entries since the table recorded how far it is complete.
    pub(crate) fn unmarked_bytes(&self) -> u64 {
        self.totals.unmarked_bytes.load(Ordering::Relaxed)
    }

    /// Notes that the table has recorded that it is complete up to entries before this count of
    /// [`unmarked_bytes`](Self::unmarked_bytes).
    pub(crate) fn subtract_marked(&self, bytes: u64) {
        self.totals.unmarked_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns how many memtables were created in ordinary memory because the pool was full.
    pub(crate) fn fallbacks_total(&self) -> u64 {
        self.fallbacks_total.load(Ordering::Relaxed)
    }
}

/// A memtable in a pool, for descriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolListSummary {
    /// Offset of the list.
    pub(crate) at: u64,
    pub(crate) keys: u64,
    /// Bytes of nodes and current values.
    pub(crate) bytes: u64,
    /// The lowest and the highest LSN of a current value; `None` if the list is empty.
    pub(crate) lsns: Option<(Lsn, Lsn)>,
}

impl PoolListSummary {
    /// Reads and verifies a list of the directory. Fails with `Corruption`. The pool is a copy.
    pub(crate) fn read(
        pool: &Arc<Pool>,
        ListedMemtable { at, end }: ListedMemtable,
    ) -> Result<Self> {
        let list = PersistentList::open(pool, at, DIRECTORY_BYTES, end.0, &mut |_| {})?;
        let (mut lsns, mut entry) = (None::<(Lsn, Lsn)>, list.first());
        while let Some(one) = entry {
            let lsn = Lsn(list.version(list.value(one)));
            let (low, high) = lsns.unwrap_or((lsn, lsn));
            lsns = Some((low.min(lsn), high.max(lsn)));
            entry = list.next(one);
        }
        Ok(Self { at, keys: list.keys(), bytes: list.used_bytes(), lsns })
    }
}

impl Memtable {
    /// Verifies the entries that are in a pool. Fails with `Corruption`.
    pub(crate) fn check(&self) -> Result<()> {
        self.pool_list().map_or(Ok(()), PoolList::check)
    }

    /// Lets the drop free its list in the pool: the directory has left it out.
    pub(crate) fn leave_directory(&self) {
        self.pool_list().inspect(|list| list.retire());
    }

    /// Returns the bytes of a pool that it occupies.
    pub(crate) fn pool_bytes(&self) -> u64 {
        self.pool_list().map_or(0, PoolList::pool_bytes)
    }
}
