//! A B+-tree in a pool of persistent memory: FAST & FAIR, as SLM-DB's index (section 3.2).
//!
//! What: byte-string keys in order, each with one word. A leaf entry leads to a *record* of the
//! whole key and the word, so keys of any length are ordered exactly; 8 bytes of the key stand in
//! the entry and decide most comparisons.
//! Why: every store of 8 bytes leaves a tree that can be read, so a change needs neither a log nor
//! a copy of its node, readers need no lock, and a crash at any moment is repaired at opening.
//!
//! **FAST**, inserting by shifts: an entry is valid where its pointer differs from its left
//! neighbour's. Entries move to the right one by one, pointer before prefix, each making a
//! duplicate of its left neighbour; then the place is made a duplicate too, gets its prefix, and
//! last its pointer, which is when the entry is there. Deleting makes an entry a duplicate and
//! moves the others to the left, prefix before pointer. Where a shift leaves a line of 64 bytes,
//! that line is persistent before the next changes.
//!
//! **FAIR**, splitting without a log: the right half is written and persistent, then linked as the
//! left node's sibling, then cut off from the left node, then entered into the parent. Each node
//! has the lowest key of its range, so whoever comes to a node too far left goes on to the sibling.
//!
//! In the pool, in words (a *link* is an offset with a checksum, see [`pmem`](crate::pmem)):
//!
//! | object | offset | size | name | meaning |
//! |---|---|---|---|---|
//! | tree | 0 | 8 | magic | `QNTFAIR\0` |
//! | tree | 8 | 8 | root | link to a node |
//! | node | 0 | 8 | head | bits 0 to 15: `NF`; 16 to 23: level, 0 a leaf; 32 to 47: skip, the bytes that all keys of its range begin with |
//! | node | 8 | 8 | left | link to the first child; of a leaf: 1 |
//! | node | 16 | 8 | sibling | link to the next node of the level; 0: none |
//! | node | 24 | 8 | low | link to the record of the lowest key of its range; 0: from the first key on |
//! | node | 64 | 16 each | entries | prefix (8 bytes of the key behind skip, big-endian, filled up with zeros), then link to record or child; the first link of 0 is the end |
//! | record | 0 | 8 | head | bits 0 to 15: bytes of the key; 16 to 23: `K`; 32 to 63: CRC32C of the key |
//! | record | 8 | 8 | value | the word; 0 in a node's low key |
//! | record | 16 | | key | little-endian words, the last filled up with zeros |
//!
//! Invariants:
//! - `low` and `skip` of a node never change; ranges of a level follow one another without a gap.
//! - What a link leads to was persistent before the link.
//! - Between operations no entry is a duplicate, no node has an entry that its sibling has, and a
//!   node that its parent lacks (there was no room for it, or a crash) is reached through its left
//!   neighbour.
//! - Memory that was unlinked is given back some objects at a time, `releases` before it. A reader
//!   that sees the same `releases` before and after has seen nothing that was used again.
//!
//! Thread rules: readers take no lock and never wait. `turns`, in ordinary memory, are odd while a
//! delete shifts a node to the left: readers then look from the right, so that an entry that moves
//! comes towards them; where a turn changed meanwhile they look again. Writers are one at a time.
//!
//! How we differ from the paper: keys are byte strings; one writer at a time, which no compaction
//! of ours needs more of; nodes are not merged, but a leaf without entries goes unless it is its
//! parent's first child; an interrupted split is finished at opening rather than by whoever comes
//! by.

mod open;
mod read;
mod record;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod write;

use std::{cmp, sync::Arc};

use crate::{
    Result,
    pmem::{Pool, is_link, target},
    util::{
        codec::{low_u8, low_u32, to_usize},
        sync::{AtomicU64, Mutex, Ordering},
    },
};

const MAGIC: u64 = u64::from_le_bytes(*b"QNTFAIR\0");
const TREE_BYTES: u64 = 16;
const ROOT: u64 = 8;
/// Bytes of a node: 28 entries and their end. Smaller in tests, so that nodes split.
const NODE_BYTES: u64 = if cfg!(test) { 256 } else { 512 };
const NODE_MARK: u64 = 0x464e;
const LEFT: u64 = 8;
const SIBLING: u64 = 16;
const LOW: u64 = 24;
const ENTRIES: u64 = 64;
const ENTRY_BYTES: u64 = 16;
/// Places of a node, one of which is the end.
const SLOTS: u64 = (NODE_BYTES - ENTRIES) / ENTRY_BYTES;
/// Entries of a node at most.
const CAPACITY: u64 = SLOTS - 1;
/// What stands left of a leaf's first entry: no link.
const NOWHERE: u64 = 1;
/// Nodes that one descent meets at most, in a tree that is not damaged.
const STEPS_MAX: u32 = 1 << 20;
/// Counters of deletes; a node has one of them.
const TURNS: usize = 64;
/// Unlinked objects that are given back together.
const LIMBO: usize = if cfg!(test) { 4 } else { 64 };

/// The tree. See the module head.
#[derive(Debug)]
pub(crate) struct FairTree {
    pool: Arc<Pool>,
    /// The tree object.
    at: u64,
    /// Held by whoever changes the tree: objects that wait to be given back.
    writer: Mutex<Vec<u64>>,
    releases: AtomicU64,
    turns: [AtomicU64; TURNS],
    keys: AtomicU64,
}

/// Where a descent is to end.
#[derive(Clone, Copy, Debug)]
enum Goal<'k> {
    /// In the range that has this key.
    At(&'k [u8]),
    /// In the last range with keys below this one.
    Below(&'k [u8]),
    /// In the last range.
    End,
}

impl Goal<'_> {
    /// Whether a range whose lowest key compares so with the goal's is not too far right.
    fn is_met(self, low: cmp::Ordering) -> bool {
        match self {
            Self::At(_) => low.is_le(),
            Self::Below(_) => low.is_lt(),
            Self::End => true,
        }
    }
}

/// What a node's head says.
#[derive(Clone, Copy, Debug)]
struct Head {
    level: u8,
    skip: usize,
}

const fn slot_at(node: u64, slot: u64) -> u64 {
    node + ENTRIES + slot * ENTRY_BYTES
}

const fn pointer_at(node: u64, slot: u64) -> u64 {
    slot_at(node, slot) + 8
}

/// Eight bytes of a key from `skip` on, filled up with zeros.
fn prefix_at(key: &[u8], skip: usize) -> u64 {
    let mut bytes = [0; 8];
    for (place, byte) in bytes.iter_mut().zip(key.get(skip..).unwrap_or(&[])) {
        *place = *byte;
    }
    u64::from_be_bytes(bytes)
}

fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl FairTree {
    /// Where it is in the pool: what a root leads to.
    pub(crate) const fn root(&self) -> u64 {
        self.at
    }

    /// Keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    fn turn(&self, node: u64) -> &AtomicU64 {
        let index = to_usize(node / NODE_BYTES) % TURNS;
        self.turns.get(index).unwrap_or(&self.releases)
    }

    /// Where the word at a place leads, once its checksum is seen to be right; 0: nowhere.
    fn follow(&self, at: u64) -> Result<u64> {
        let word = self.pool.load(at);
        if is_link(word) { Ok(target(word)) } else { Err(self.pool.damage(at, "no link")) }
    }

    fn head(&self, node: u64) -> Result<Head> {
        let head = self.pool.load(node);
        if node == 0 || head & 0xffff != NODE_MARK {
            return Err(self.pool.damage(node, "no node of the index is here"));
        }
        Ok(Head { level: low_u8(head >> 16), skip: to_usize(u64::from(low_u32(head >> 32))) })
    }

    /// How the lowest key of a node's range compares with a goal's.
    fn compare_low(&self, node: u64, goal: Goal<'_>) -> Result<cmp::Ordering> {
        let (Goal::At(key) | Goal::Below(key)) = goal else { return Ok(cmp::Ordering::Less) };
        match self.follow(node + LOW)? {
            0 => Ok(cmp::Ordering::Less),
            low => self.compare_key(low, key),
        }
    }

    /// From a node that is not too far right to the one of its level that meets the goal.
    fn move_right(&self, mut node: u64, goal: Goal<'_>, steps: &mut u32) -> Result<u64> {
        loop {
            let sibling = self.follow(node + SIBLING)?;
            if sibling == 0 || !goal.is_met(self.compare_low(sibling, goal)?) {
                return Ok(node);
            }
            node = sibling;
            self.count_step(node, steps)?;
        }
    }

    fn count_step(&self, node: u64, steps: &mut u32) -> Result<()> {
        *steps += 1;
        if *steps < STEPS_MAX {
            Ok(())
        } else {
            Err(self.pool.damage(node, "the index has no end"))
        }
    }

    /// The child of an inner node that meets the goal, or one to the left of it; beside a writer it
    /// may also be too far right, which the child's lowest key tells.
    fn child_for(&self, node: u64, skip: usize, goal: Goal<'_>) -> Result<u64> {
        let prefix = match goal {
            Goal::At(key) | Goal::Below(key) => Some(prefix_at(key, skip)),
            Goal::End => None,
        };
        let mut child = self.pool.load(node + LEFT);
        for slot in 0..SLOTS {
            let pointer = self.pool.load(pointer_at(node, slot));
            if pointer == 0 {
                break;
            }
            if pointer == child {
                continue;
            }
            let theirs = self.pool.load(slot_at(node, slot));
            let is_met = match prefix.map_or(cmp::Ordering::Less, |prefix| theirs.cmp(&prefix)) {
                cmp::Ordering::Less => true,
                cmp::Ordering::Equal => {
                    goal.is_met(self.compare_low(self.checked(pointer, node)?, goal)?)
                }
                cmp::Ordering::Greater => false,
            };
            if !is_met {
                break;
            }
            child = pointer;
        }
        self.checked(child, node)
    }

    fn checked(&self, pointer: u64, node: u64) -> Result<u64> {
        let is_good = is_link(pointer) && pointer != 0;
        if is_good {
            Ok(target(pointer))
        } else {
            Err(self.pool.damage(node, "no link to a child"))
        }
    }

    /// The node of a level whose range meets the goal; `None`: the tree is not that high.
    fn find_node(&self, level: u8, goal: Goal<'_>) -> Result<Option<u64>> {
        let mut steps = 0;
        let mut node = self.follow(self.at + ROOT)?;
        if self.head(node)?.level < level {
            return Ok(None);
        }
        loop {
            node = self.move_right(node, goal, &mut steps)?;
            let head = self.head(node)?;
            if head.level == level {
                return Ok(Some(node));
            }
            let child = self.child_for(node, head.skip, goal)?;
            let is_below = self.head(child)?.level + 1 == head.level;
            if is_below && goal.is_met(self.compare_low(child, goal)?) {
                node = child;
            } else {
                // A writer has changed the node meanwhile.
                node = self.follow(self.at + ROOT)?;
            }
            self.count_step(node, &mut steps)?;
        }
    }

    fn find_leaf(&self, goal: Goal<'_>) -> Result<u64> {
        let leaf = self.find_node(0, goal)?;
        leaf.ok_or_else(|| self.pool.damage(self.at, "the index has no leaf"))
    }
}

const _: () = assert!(NODE_BYTES.is_power_of_two() && SLOTS >= 4);
