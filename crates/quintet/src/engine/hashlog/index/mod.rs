//! A hash table of 8-byte slots without keys. It finds entries in the arena of `hashlog`.
//!
//! A slot is 26 bits of hash (the tag) and a 38-bit address. Eight slots are a line of 64 bytes.
//! The low bits of the hash select a group of two to four lines. A full line continues in nodes of
//! four slots, linked from its last slot.
//! A lookup reads one line (1.1 on average) and then the entry. The table takes at most 12 bytes a
//! key, and grows one group at a time, without a pause.
//!
//! Growth is linear hashing with partial expansions (Larson, `SIGMOD` 82). All groups in turn grow
//! from 2 to 3 lines, then from 3 to 4. Then each group of 4 counts as two groups of 2, and the
//! number of groups has doubled. Plain linear hashing (1 to 2) has twice the load in groups not
//! split yet; 11 % of its lookups read a second line at the same size. This table needs 6 to 9 %.
//! A tag holds every hash bit that growth needs, so growth reads no entries ([`tag`]). After
//! removals the table shrinks by the same steps backwards ([`shrink`]).
//!
//! | bits of a slot | meaning |
//! |---|---|
//! | 38 to 63 | tag: bits 6 to 31 of the hash, or others in place of those that its place says |
//! | 0 to 37 | address, never 0; with bits 32 to 37 all set: link to node number bits 0 to 31 |
//!
//! Invariants:
//! - A slot word is 0, an entry, or (in the last slot of a line or node) a link. The slots of a
//!   chain are filled from the start without gaps. A linked node holds at least two words.
//! - A writer holds its group's lock. The lock is also a version, odd while held. A reader that
//!   found nothing is right only if the version was even, and the same before and after.
//! - A group keeps its lock for ever, because growth uses hash bits above those that select locks.
//!
//! Locks: readers take none and store nothing. Writers of different locks run in parallel. Lock
//! order: `growth`, one group, `free_nodes`. No method holds two groups.
//!
//! Start reading at [`SlotTable::find`] and [`GroupGuard`].

mod load;
#[cfg(all(test, model))]
mod models;
mod shape;
mod shrink;
mod tag;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::{cmp::Reverse, collections::BinaryHeap, io, ops::ControlFlow};

pub use self::load::{AddOutcome, Loader};
use self::{
    shape::Shape,
    tag::{Tag, placing, placing_of},
};
use crate::{
    io::Region,
    util::{
        codec::{to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, fence, lock, spin_loop, yield_now},
    },
};

/// Number of hash bits that select a lock. The smallest table has a group for each lock.
const LOCK_BITS: u32 = if cfg!(model) { 0 } else { 6 };
const LOCK_COUNT: u64 = 1 << LOCK_BITS;
/// Slots of a line: a cache line of words.
pub const SLOTS: usize = if cfg!(model) { 2 } else { 8 };
const LINE_SLOTS: u64 = to_u64(SLOTS);
/// Slots of an overflow node. Most chains that overflow need one to three more slots.
const NODE_SLOTS: u64 = if cfg!(model) { 2 } else { 4 };
/// Maximum size of lines and nodes after growth, in hundredths of a byte a key: below the bound of
/// 12 bytes, because the count of keys may lag.
const CENTIBYTES_PER_KEY: u64 = 1170;
/// Bytes above which new lines and nodes are in huge pages. A smaller table would waste them.
const HUGE_ABOVE_BYTES: u64 = 8 << 20;
/// Number of spins of a thread that waits for a group before it yields.
const SPINS: u32 = 64;
/// Maximum number of nodes that a reader follows. Chains are a few nodes long: beyond this, a
/// concurrent change has misled the reader.
const CHAIN_NODES_MAX: u32 = 1 << 12;

const TAG_SHIFT: u32 = 38;
/// Bits of a tag.
pub const TAG_BITS: u32 = 26;
const ADDRESS_MASK: u64 = (1 << TAG_SHIFT) - 1;
const LINK: u64 = 0x3f << 32;
/// Addresses are from 1 to below this.
pub const ADDRESS_END: u64 = LINK;

const fn is_link(word: u64) -> bool {
    word & LINK == LINK
}

const fn link(node: u64) -> u64 {
    LINK | node
}

const fn node_of(word: u64) -> u64 {
    word & 0xffff_ffff
}

/// The verdict of a reader on a candidate address.
#[derive(Debug)]
pub enum Verdict<T> {
    /// The address is the key's.
    Found(T),
    /// The address is another key's.
    Other,
    /// The entry changed during the read: repeat the search.
    Changed,
}

/// A lock and version, alone on its cache line: writers of other groups do not slow its readers.
#[derive(Debug)]
#[repr(align(64))]
struct GroupLock(AtomicU64);

/// The table. See the module documentation.
#[derive(Debug)]
pub struct SlotTable {
    /// See [`Shape`].
    shape: AtomicU64,
    /// First and second lines of pairs.
    lines: [Region; 2],
    nodes: Region,
    pairs_max: u64,
    nodes_max: u64,
    groups: Box<[GroupLock]>,
    keys: AtomicU64,
    nodes_used: AtomicU64,
    free_nodes: Mutex<FreeNodes>,
    /// Held during growth and shrinking. `true`: new lines are in huge pages.
    growth: Mutex<bool>,
}

#[derive(Debug, Default)]
struct FreeNodes {
    /// Free nodes, the lowest first: the highest stay free and can be discarded.
    free: BinaryHeap<Reverse<u64>>,
    next: u64,
}

/// Returns whether a slot still has `word` after the entry was read.
#[inline]
fn is_still(slot: &AtomicU64, word: u64) -> bool {
    fence(Ordering::Acquire);
    mutant!(FindForgetsItsSlot: true, else slot.load(Ordering::Relaxed) == word)
}

impl SlotTable {
    /// Creates an empty table that can grow to about `keys_max` keys. Beyond, chains get longer.
    /// Fails if the address space cannot be reserved.
    pub fn new(keys_max: u64) -> io::Result<Self> {
        let keys_max = keys_max.clamp(LOCK_COUNT * LINE_SLOTS, 1 << 33);
        let pairs_max = (keys_max / LINE_SLOTS).next_power_of_two();
        let nodes_max = keys_max.clamp(16, 1 << 32);
        let line_bytes = LINE_SLOTS * 8;
        Ok(Self {
            shape: AtomicU64::new(Shape::new(LOCK_BITS).0),
            lines: [
                Region::reserve(pairs_max * line_bytes)?,
                Region::reserve(pairs_max * line_bytes)?,
            ],
            nodes: Region::reserve(nodes_max * NODE_SLOTS * 8)?,
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
        let shape = Shape(self.shape.load(Ordering::Relaxed));
        shape.line_count() * LINE_SLOTS * 8
            + self.nodes_used.load(Ordering::Relaxed) * NODE_SLOTS * 8
    }

    /// Prefetches the line of `hash`.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let shape = Shape(self.shape.load(Ordering::Acquire));
        let (array, pair, _) = shape.line(placing(hash));
        self.lines[array].prefetch(to_usize(pair * LINE_SLOTS));
    }

    /// Returns the line of a hash, and the tag of the hash in that line.
    #[inline]
    fn line(&self, shape: Shape, hash: u64) -> (&[AtomicU64], Tag) {
        let (array, pair, known) = shape.line(placing(hash));
        (self.line_at(array, pair), Tag::new(hash, known))
    }

    #[inline]
    fn line_at(&self, array: usize, pair: u64) -> &[AtomicU64] {
        let first = to_usize(pair * LINE_SLOTS);
        self.lines[array].words().get(first..first + to_usize(LINE_SLOTS)).unwrap_or(&[])
    }

    #[inline]
    fn node(&self, node: u64) -> &[AtomicU64] {
        let first = to_usize(node * NODE_SLOTS);
        self.nodes.words().get(first..first + to_usize(NODE_SLOTS)).unwrap_or(&[])
    }

    /// Calls `check` with each address whose tag matches `hash` until it returns `Found`, and
    /// returns that result. A result counts only if the address is still in its slot afterwards:
    /// otherwise the address may have been another key's during the read. Returns `None` if no
    /// address is the key's.
    #[inline]
    pub fn find<T>(&self, hash: u64, mut check: impl FnMut(u64) -> Verdict<T>) -> Option<T> {
        let mut attempts = 0;
        loop {
            let group = self.group(hash);
            let before = group.0.load(Ordering::Acquire);
            let shape = Shape(self.shape.load(Ordering::Acquire));
            if let ControlFlow::Break(found) = self.search(self.line(shape, hash), &mut check) {
                if found.is_some() {
                    return found;
                }
            } else {
                fence(Ordering::Acquire);
                if before & 1 == 0 && group.0.load(Ordering::Relaxed) == before {
                    return None;
                }
            }
            pause(&mut attempts);
        }
    }

    /// Searches a chain once. `Break(None)`: the search must be repeated.
    #[inline]
    fn search<'a, T>(
        &'a self,
        (mut slots, tag): (&'a [AtomicU64], Tag),
        check: &mut impl FnMut(u64) -> Verdict<T>,
    ) -> ControlFlow<Option<T>> {
        for _ in 0..CHAIN_NODES_MAX {
            let mut word = 0;
            for slot in slots {
                word = slot.load(Ordering::Acquire);
                if tag.matches(word) && word != 0 && !is_link(word) {
                    match check(word & ADDRESS_MASK) {
                        Verdict::Found(found) if is_still(slot, word) => {
                            return ControlFlow::Break(Some(found));
                        }
                        Verdict::Other => {}
                        Verdict::Found(_) | Verdict::Changed => return ControlFlow::Break(None),
                    }
                }
            }
            // The last word may be a link.
            if !is_link(word) {
                return ControlFlow::Continue(());
            }
            slots = self.node(node_of(word));
        }
        ControlFlow::Break(None)
    }

    #[inline]
    fn group(&self, hash: u64) -> &GroupLock {
        // `LOCK_COUNT` groups: the masked number is always in range.
        &self.groups[to_usize(placing(hash) & (LOCK_COUNT - 1))]
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
                // fence in `find`.
                fence(Ordering::Release);
                return GroupGuard { table: self, group, version: version + 1, hash };
            }
            pause(&mut attempts);
        }
    }

    /// Returns after every writer that held a lock at the time of the call has released it.
    pub fn wait_for_writers(&self) {
        for number in 0..LOCK_COUNT {
            drop(self.lock(number << (6 - LOCK_BITS)));
        }
    }

    /// Grows the table by at most `steps` groups, if it has the keys for it. Call it after an
    /// insert, without a group locked. Two steps an insert keep up.
    pub fn grow(&self, steps: u32) {
        if !self.wants_growth() {
            return;
        }
        // Another thread is resizing the table: it does the work.
        let Ok(mut huge) = self.growth.try_lock() else { return };
        for _ in 0..steps {
            let shape = Shape(self.shape.load(Ordering::Relaxed));
            let (group, pair) = shape.next_growth();
            if !self.wants_growth() || pair >= self.pairs_max || !shape.can_grow() {
                break;
            }
            let mut writer = self.lock(group << (6 - LOCK_BITS));
            let entries = writer.drain_lines(shape.lines_of(group), shape.known_in(group));
            let shape = shape.grown();
            self.shape.store(shape.0, Ordering::Release);
            for (word, placing) in entries {
                let (array, pair, _) = shape.line(placing);
                self.add(self.line_at(array, pair), word);
            }
        }
        if !*huge && self.bytes() > HUGE_ABOVE_BYTES {
            *huge = true;
            self.advise_huge();
        }
    }

    fn advise_huge(&self) {
        for lines in &self.lines {
            lines.advise_huge(0..self.pairs_max * LINE_SLOTS * 8);
        }
        self.nodes.advise_huge(0..self.nodes_max * NODE_SLOTS * 8);
    }

    fn wants_growth(&self) -> bool {
        (self.bytes() + LINE_SLOTS * 8) * 100 <= self.len() * CENTIBYTES_PER_KEY
    }

    /// Calls `each` with the addresses of the group at `cursor`, under the group's lock. Cursors
    /// start at 0. Returns the next cursor, or `None` after the last.
    ///
    /// A walk from 0 to the end visits every entry that is present throughout at least once,
    /// also if the table is resized meanwhile. Cursors count in reversed bits, so the groups
    /// that a group splits into are all visited or all still to come.
    pub fn walk(&self, cursor: u64, mut each: impl FnMut(u64)) -> Option<u64> {
        let low = cursor & (LOCK_COUNT - 1);
        let writer = self.lock(low << (6 - LOCK_BITS));
        let shape = Shape(self.shape.load(Ordering::Acquire));
        let mask = (1 << shape.bits()) - 1;
        for (array, pair) in shape.lines_of(cursor & mask) {
            writer.each(self.line_at(array, pair), |word| each(word & ADDRESS_MASK));
        }
        drop(writer);
        let next = ((cursor | !mask).reverse_bits()).wrapping_add(1).reverse_bits();
        (next != 0).then_some(next)
    }

    /// Appends a word to a chain. Returns `false` if there is no free node.
    fn add<'a>(&'a self, mut slots: &'a [AtomicU64], word: u64) -> bool {
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

    fn allocate_node(&self) -> Option<u64> {
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

    fn free_node(&self, node: u64) {
        for slot in self.node(node) {
            slot.store(0, Ordering::Relaxed);
        }
        lock(&self.free_nodes).free.push(Reverse(node));
        self.nodes_used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[inline]
fn pause(attempts: &mut u32) {
    *attempts += 1;
    if *attempts < SPINS && !cfg!(model) {
        spin_loop();
    } else {
        yield_now();
    }
}

/// The position of a word.
struct SlotRef<'a> {
    slots: &'a [AtomicU64],
    index: usize,
}

/// A locked group. Dropping it unlocks the group.
#[derive(Debug)]
pub struct GroupGuard<'a> {
    table: &'a SlotTable,
    group: &'a GroupLock,
    version: u64,
    hash: u64,
}

impl<'a> GroupGuard<'a> {
    fn first(&self) -> (&'a [AtomicU64], Tag) {
        self.table.line(Shape(self.table.shape.load(Ordering::Acquire)), self.hash)
    }

    /// Calls `check` with each address whose tag matches the hash until it returns a result.
    /// Returns `None` if no address is the key's.
    pub fn find<T>(&self, mut check: impl FnMut(u64) -> Option<T>) -> Option<T> {
        let mut check = |address| check(address).map_or(Verdict::Other, Verdict::Found);
        match self.table.search(self.first(), &mut check) {
            ControlFlow::Break(found) => found,
            ControlFlow::Continue(()) => None,
        }
    }

    /// Adds an entry for the hash. The key must have none. Returns `false` if there is no free
    /// node.
    #[must_use]
    pub fn insert(&mut self, address: u64) -> bool {
        debug_assert!(address != 0 && address < ADDRESS_END);
        let (slots, tag) = self.first();
        let added = self.table.add(slots, tag.slot(address));
        if added {
            self.table.keys.fetch_add(1, Ordering::Relaxed);
        }
        added
    }

    /// Replaces the address `old` by `new`. Returns `false` if `old` is not in the table.
    pub fn replace(&mut self, old: u64, new: u64) -> bool {
        let Some(found) = self.slot_of(old) else { return false };
        found.slots[found.index].store(self.first().1.slot(new), Ordering::Release);
        true
    }

    /// Removes the entry at `address`. Returns `false` if there is none.
    pub fn remove(&mut self, address: u64) -> bool {
        let Some(found) = self.slot_of(address) else { return false };
        self.fill_from_end(&found);
        self.table.keys.fetch_sub(1, Ordering::Relaxed);
        true
    }

    fn slot_of(&self, address: u64) -> Option<SlotRef<'a>> {
        let (mut slots, tag) = self.first();
        loop {
            let mut next = None;
            for (index, slot) in slots.iter().enumerate() {
                let found = slot.load(Ordering::Relaxed);
                if found & ADDRESS_MASK == address && tag.matches(found) {
                    return Some(SlotRef { slots, index });
                }
                if is_link(found) {
                    next = Some(node_of(found));
                }
            }
            slots = self.table.node(next?);
        }
    }

    /// Moves the chain's last word to `hole`. Frees a node left with one word: the word replaces
    /// the link.
    fn fill_from_end(&self, hole: &SlotRef<'a>) {
        let (mut slots, _) = self.first();
        let mut parent: Option<(&AtomicU64, u64)> = None;
        while let Some(last) = slots.last().filter(|last| is_link(last.load(Ordering::Relaxed))) {
            let node = node_of(last.load(Ordering::Relaxed));
            parent = Some((last, node));
            slots = self.table.node(node);
        }
        let count = slots.iter().take_while(|slot| slot.load(Ordering::Relaxed) != 0).count();
        let Some(end) = count.checked_sub(1).and_then(|index| slots.get(index)) else { return };
        hole.slots[hole.index].store(end.load(Ordering::Relaxed), Ordering::Release);
        end.store(0, Ordering::Release);
        if let (Some((link, node)), 2) = (parent, count) {
            link.store(slots[0].load(Ordering::Relaxed), Ordering::Release);
            self.table.free_node(node);
        }
    }

    fn each(&self, mut slots: &'a [AtomicU64], mut visit: impl FnMut(u64)) {
        loop {
            let mut next = None;
            for slot in slots {
                match slot.load(Ordering::Relaxed) {
                    0 => {}
                    word if is_link(word) => next = Some(node_of(word)),
                    word => visit(word),
                }
            }
            match next {
                Some(node) => slots = self.table.node(node),
                None => return,
            }
        }
    }

    /// Removes all words from the lines of a group, whose position determines `known` placing bits.
    /// Returns each word with all of its placing bits.
    fn drain_lines(
        &mut self,
        lines: impl Iterator<Item = (usize, u64)>,
        known: u32,
    ) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        for (array, pair) in lines {
            let line = self.table.line_at(array, pair);
            self.each(line, |word| entries.push((word, placing_of(word, pair, known))));
            let mut end = line.last().map_or(0, |last| last.load(Ordering::Relaxed));
            for slot in line {
                slot.store(0, Ordering::Release);
            }
            while is_link(end) {
                let node = node_of(end);
                end = self.table.node(node).last().map_or(0, |last| last.load(Ordering::Relaxed));
                self.table.free_node(node);
            }
        }
        entries
    }
}

impl Drop for GroupGuard<'_> {
    fn drop(&mut self) {
        self.group.0.store(self.version + 1, Ordering::Release);
    }
}
