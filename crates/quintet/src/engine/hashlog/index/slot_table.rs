//! The table: its memory, and locks of its groups.

use std::{cmp::Reverse, collections::BinaryHeap, io};

use super::{
    shape::IndexShape,
    slot::{LINE_SLOTS, LOCK_BITS, LOCK_COUNT, NODE_SLOTS, is_link, link, node_of},
    tag::{Tag, placing},
};
use crate::{
    io::{Region, reservation},
    util::{
        codec::to_usize,
        sync::{AtomicU64, Mutex, Ordering, fence, lock, spin_loop, yield_now},
    },
};

/// Maximum size of lines and nodes after growth, in hundredths of a byte a key: below the bound of
/// 12 bytes, because the count of keys may lag.
pub(super) const CENTIBYTES_PER_KEY: u64 = 1170;
/// Bytes above which new lines and nodes are in huge pages. A smaller table would waste them.
pub(super) const HUGE_ABOVE_BYTES: u64 = 8 << 20;
/// Number of spins of a thread that waits for a group before it yields.
const SPINS: u32 = 64;
/// Each of the two arrays of lines, and the nodes, take one part in this many of a limited address
/// space.
const ADDRESS_PARTS: u64 = 8;

/// A lock and version, alone on its cache line: writers of other groups do not slow its readers.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct GroupLock(pub(super) AtomicU64);

/// The table. See the module documentation.
#[derive(Debug)]
pub struct SlotTable {
    /// See [`IndexShape`].
    pub(super) shape: AtomicU64,
    /// First and second lines of pairs.
    pub(super) lines: [Region; 2],
    pub(super) nodes: Region,
    pub(super) pairs_max: u64,
    pub(super) nodes_max: u64,
    pub(super) groups: Box<[GroupLock]>,
    pub(super) keys: AtomicU64,
    pub(super) nodes_used: AtomicU64,
    pub(super) free_nodes: Mutex<FreeNodes>,
    /// Held during growth and shrinking. `true`: new lines are in huge pages.
    pub(super) growth: Mutex<bool>,
}

#[derive(Debug, Default)]
pub(super) struct FreeNodes {
    /// Free nodes, the lowest first: the highest stay free and can be discarded.
    pub(super) free: BinaryHeap<Reverse<u64>>,
    pub(super) next: u64,
}

/// A locked group. Dropping it unlocks the group.
#[derive(Debug)]
pub struct GroupGuard<'a> {
    pub(super) table: &'a SlotTable,
    pub(super) group: &'a GroupLock,
    pub(super) version: u64,
    pub(super) hash: u64,
}

impl SlotTable {
    /// Creates an empty table that can grow to about `keys_max` keys, or fewer if the address space
    /// of the process is limited. Beyond, chains get longer.
    /// Fails if the address space cannot be reserved.
    pub fn new(keys_max: u64) -> io::Result<Self> {
        let keys_max = keys_max.clamp(LOCK_COUNT * LINE_SLOTS, 1 << 33);
        let (line_bytes, node_bytes) = (LINE_SLOTS * 8, NODE_SLOTS * 8);
        let lines_max = (keys_max / LINE_SLOTS).next_power_of_two();
        let lines_within =
            reservation(ADDRESS_PARTS, lines_max * line_bytes, keys_max / 4 * 8) / line_bytes;
        let pairs_max = if lines_within < lines_max {
            1 << lines_within.max(LOCK_COUNT).ilog2()
        } else {
            lines_max
        };
        let nodes_max = keys_max.clamp(16, 1 << 32);
        let nodes_max =
            reservation(ADDRESS_PARTS, nodes_max * node_bytes, nodes_max / 4 * node_bytes)
                / node_bytes;
        Ok(Self {
            shape: AtomicU64::new(IndexShape::new(LOCK_BITS).0),
            lines: [
                Region::reserve(pairs_max * line_bytes)?,
                Region::reserve(pairs_max * line_bytes)?,
            ],
            nodes: Region::reserve(nodes_max * node_bytes)?,
            pairs_max,
            nodes_max,
            groups: (0..LOCK_COUNT).map(|_| GroupLock(AtomicU64::new(0))).collect(),
            keys: AtomicU64::new(0),
            nodes_used: AtomicU64::new(0),
            free_nodes: Mutex::new(FreeNodes::default()),
            growth: Mutex::new(false),
        })
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns whether the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a word that differs after growth or shrinking.
    pub fn size(&self) -> u64 {
        self.shape.load(Ordering::Acquire)
    }

    /// Returns the bytes of lines and nodes in use.
    pub fn bytes(&self) -> u64 {
        let shape = IndexShape(self.shape.load(Ordering::Relaxed));
        shape.line_count() * LINE_SLOTS * 8
            + self.nodes_used.load(Ordering::Relaxed) * NODE_SLOTS * 8
    }

    /// Prefetches the line of `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let shape = IndexShape(self.shape.load(Ordering::Acquire));
        let (array, pair, _) = shape.line(placing(hash));
        self.lines[array].prefetch(to_usize(pair * LINE_SLOTS));
    }

    /// Locks the group of `hash` for changes. Spins, then yields, while another writer holds it.
    pub fn lock(&self, hash: u64) -> GroupGuard<'_> {
        let group = self.group(hash);
        let mut attempts = 0;
        loop {
            let version = group.0.load(Ordering::Relaxed);
            let taken = version & 1 == 0
                && group
                    .0
                    .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if taken {
                // Readers see the odd version before any change under the lock. Pairs with the
                // fence in `Candidates::next`.
                fence(Ordering::Release);
                return GroupGuard { table: self, group, version: version + 1, hash };
            }
            pause(&mut attempts);
        }
    }

    #[inline]
    pub(super) fn group(&self, hash: u64) -> &GroupLock {
        // `LOCK_COUNT` groups: the masked number is always in range.
        &self.groups[to_usize(placing(hash) & (LOCK_COUNT - 1))]
    }

    /// Returns the line of a hash, and the tag of the hash in that line.
    #[inline]
    pub(super) fn line(&self, shape: IndexShape, hash: u64) -> (&[AtomicU64], Tag) {
        let (array, pair, known) = shape.line(placing(hash));
        (self.line_at(array, pair), Tag::new(hash, known))
    }

    /// As [`Self::line`], in the current shape.
    #[inline]
    pub(super) fn current_line(&self, hash: u64) -> (&[AtomicU64], Tag) {
        self.line(IndexShape(self.shape.load(Ordering::Acquire)), hash)
    }

    #[inline]
    pub(super) fn line_at(&self, array: usize, pair: u64) -> &[AtomicU64] {
        let first = to_usize(pair * LINE_SLOTS);
        self.lines[array].words().get(first..first + to_usize(LINE_SLOTS)).unwrap_or(&[])
    }

    #[inline]
    pub(super) fn node(&self, node: u64) -> &[AtomicU64] {
        let first = to_usize(node * NODE_SLOTS);
        self.nodes.words().get(first..first + to_usize(NODE_SLOTS)).unwrap_or(&[])
    }

    /// Appends a word to a chain. Returns `false` if there is no free node.
    pub(super) fn add<'a>(&'a self, mut slots: &'a [AtomicU64], word: u64) -> bool {
        loop {
            let Some(last) = slots.last() else { return false };
            let end = last.load(Ordering::Relaxed);
            if end == 0 {
                let empty = slots.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
                empty.unwrap_or(last).store(word, Ordering::Release);
                return true;
            }
            if is_link(end) {
                slots = self.node(node_of(end));
                continue;
            }
            let Some(node) = self.allocate_node() else { return false };
            let [first, second, ..] = self.node(node) else { return false };
            first.store(end, Ordering::Release);
            second.store(word, Ordering::Release);
            last.store(link(node), Ordering::Release);
            return true;
        }
    }

    pub(super) fn allocate_node(&self) -> Option<u64> {
        let mut nodes = lock(&self.free_nodes);
        let node = nodes.free.pop().map(|Reverse(node)| node).or_else(|| {
            let next = nodes.next;
            (next < self.nodes_max).then(|| {
                nodes.next += 1;
                next
            })
        })?;
        self.nodes_used.fetch_add(1, Ordering::Relaxed);
        Some(node)
    }

    pub(super) fn free_node(&self, node: u64) {
        for slot in self.node(node) {
            slot.store(0, Ordering::Relaxed);
        }
        lock(&self.free_nodes).free.push(Reverse(node));
        self.nodes_used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for GroupGuard<'_> {
    fn drop(&mut self) {
        self.group.0.store(self.version + 1, Ordering::Release);
    }
}

#[inline]
pub(super) fn pause(attempts: &mut u32) {
    *attempts += 1;
    if *attempts < SPINS && !cfg!(model) {
        spin_loop();
    } else {
        yield_now();
    }
}
