//! The space: a journaled array of words, changed in place, that holds the nodes and lists of a
//! trie.
//!
//! Problem: readers need plain memory, a restart must not read the whole index, and a crash must
//! find the words as of one checkpoint.
//!
//! How: a growing array of 8-byte words in regions of one size ([`word_space`]). Each region has an
//! image in a file ([`images`]), and the redo journal has all changes since that image. The first
//! use of a region loads it and applies its changes ([`residency`]). It may be evicted at any time.
//!
//! A store goes to memory and, as (index, word), to one of 64 lists. A checkpoint takes the lists:
//! they are the changes since the last one, and become a group of the journal ([`changes`]). Memory
//! is never copied to disk. Images are built from the last image and the journaled changes. So
//! writers do not wait, and torn words are not written (CedrusDB, section 3.3, reads blocks back
//! for the same reason). An image goes to a free slot of the file, never over the valid one, so a
//! torn image does no harm.
//!
//! | offset in `nodes` | size | name | meaning |
//! |---|---|---|---|
//! | 0 | 64 | head | see [`crate::journal::FileHead`], magic `QTRIENOD` |
//! | 4096 | | slots | images of regions, one region size each, in any order; which is whose and its CRC32C is part of the state in the journal |
//!
//! Invariants:
//! - Of two stores to a word the later is later in its list: writers of one word exclude one
//!   another, and a word has one list.
//! - `pending` holds exactly the committed changes of each region since its image, `in_flight`
//!   those that checkpoints took and no durable group has, the lists those after that. Image,
//!   `pending`, `in_flight` and lists, in this order, are the content of a region. So it may be
//!   evicted with changes that no checkpoint has.
//! - A word of a region that is not loaded is never written. It may be read, by a reader that found
//!   the region loaded: the evicting thread changes a version that the reader compares afterwards.
//!
//! Thread rules: any thread; writers of one word exclude one another. Checkpoints, commits and
//! images belong to maintenance, one thread at a time. Lock order: `loading`; `disk`; a list.
//!
//! Regions are small, because a lookup in a trie that does not fit in memory reads one. While all
//! of them fit, their memory is in huge pages, which are charged whole. Before the first is
//! evicted, huge pages are split. From then on all pages are ordinary ones.
//!
//! How we differ from the paper: no counted handle keeps a region in memory (each reader would
//! store to a shared line). A writer's lock does, and readers validate afterwards. Eviction is
//! CLOCK: the hand evicts the first region that was not read since it last passed. A reader stores
//! its mark only if the hand has passed since.

mod changes;
mod images;
mod recovery;
mod residency;
mod space_file;
mod word_space;

pub(crate) use self::{
    space_file::{CHANGE_BYTES, NewImages},
    word_space::{SPACE, WordSpace},
};
