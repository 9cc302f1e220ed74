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
//! Start reading at [`SlotTable::candidates`] and [`GroupGuard`].

mod candidates;
mod group;
mod grow;
mod load;
#[cfg(all(test, model))]
mod models;
mod shape;
mod shrink;
mod slot;
mod slot_table;
mod tag;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

pub use self::{
    load::{AddOutcome, IndexLoader},
    slot::{ADDRESS_END, SLOTS},
    slot_table::{GroupGuard, SlotTable},
};
