//! The redo journal: makes changes of pages atomic on disk, one group for each checkpoint.
//!
//! Why: the write-ahead log already holds every operation, so pages need consistency only at
//! checkpoints, moments between operations. A group has what changed between two checkpoints, each
//! word or line once however often it changed, in one sequential write. Pages are written back in
//! place later, for many checkpoints together. (CedrusDB journals the page writes of every
//! operation: 224 bytes for a key of 9.)
//!
//! How: a group is a list of patches (space, offset, bytes) that takes effect completely or not at
//! all. [`RedoJournal::commit_group`] writes one and returns when it is durable.
//! [`RedoJournal::open`] returns the groups that are still needed, in order. Groups are appended to
//! a file. When it holds half of the limit, or a write or sync of it failed, the next file begins.
//! A file without a needed group is removed.
//!
//! | offset in a group | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 8 | magic | `QREDOGRP` |
//! | 8 | 4 | format | 1; of a page group ([`page_patches`]) 2 |
//! | 12 | 4 | head crc | CRC32C of bytes 0 to 87 with this field zero |
//! | 16 | 16 | database id | |
//! | 32 | 8 | table id | |
//! | 40 | 8 | sequence | of the group, from 1; never used again |
//! | 48 | 8 | needed | the oldest group that recovery must apply: at most the sequence |
//! | 56 | 8 | lsn | the table is complete to it with this group |
//! | 64 | 8 | size | of the patches, in bytes |
//! | 72 | 8 | follows | sequence of the last durable group before it; 0: none |
//! | 80 | 4 | crc | CRC32C of the patches |
//! | 84 | 4 | index | 0; of a page group see [`page_patches`] |
//! | 88 | | patches | space (1), varint of zigzag(offset - end of the last patch in the group), varint length, bytes |
//!
//! A group starts at a multiple of 4096; the first of a file at 0, the next where the last ended.
//!
//! Invariants:
//! - A group is synced before `commit_group` returns. No file with a group that the newest durable
//!   group needs is removed. So a crash leaves all needed groups and at most one torn one.
//! - A group whose sync failed may be found or not: both states existed. No group that was
//!   committed after it follows it, so it counts only while it is the newest. It is never written
//!   again: the next group, which has its changes too, goes to another file.
//! - A missing group among those that the newest one follows is damage ([`Error::Corruption`]), and
//!   so is a damaged one before another in the newest file. A damaged group at the end was never
//!   committed. The catalog decides whether it should have been: it records the LSN.
//!
//! Threads: one at a time (`&mut self`).
//!
//! Start reading at [`journal`] (commits), then [`recovery`].
//!
//! [`Error::Corruption`]: crate::Error::Corruption

mod file;
mod group;
mod journal;
mod owner;
pub(crate) mod page_patches;
mod recovery;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

pub(crate) use group::{GroupWriter, Patch, RedoGroup};
pub(crate) use journal::RedoJournal;
pub(crate) use owner::Owner;
