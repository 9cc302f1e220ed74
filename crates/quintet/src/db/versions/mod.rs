//! The version store: earlier values of keys, for open snapshots.
//!
//! Problem: engines update in place and drop old versions, and a snapshot must show the state at
//! one LSN. How: while a snapshot is open, a write first saves the value that it replaces (or that
//! there was none), with its own LSN: a *version*. A read of a snapshot takes the oldest version
//! that was replaced at the snapshot's LSN or later. If there is none, the key has not been written
//! since, and the engine's value is the one.
//!
//! Structure: versions are in a list of [`run`]s. A run is a [`segment`] in memory, a skip list of
//! all tables, filled until it is full; or a [`file`] that took the place of segments. It is freed
//! as a whole when every version in it was replaced before the oldest open snapshot.
//!
//! | module | content |
//! |---|---|
//! | [`open_snapshots`] | the open snapshots, in the order in which they were taken |
//! | [`store`] | taking and ending snapshots, saving versions, freeing runs |
//! | [`lookup`], [`earlier`] | the version of a key, and the next key with a version, for a snapshot |
//! | [`loaded_ranges`] | sorted loads, which bypass the log: their keys are absent before |
//! | [`merge`], [`compaction`] | dropping versions that no open snapshot needs |
//! | [`spill`], [`spill_state`] | moving versions to files, and the limits |
//! | [`file`], [`cursor`] | files of versions; keys of a run in order |
//! | [`segment`], [`version_key`] | the skip lists and their keys |
//!
//! Invariants:
//! - A write reserves its LSN before it reads which snapshot is the newest; a snapshot announces
//!   itself before it reads its LSN from the log. So a write with an LSN at or above a snapshot's
//!   sees the snapshot.
//! - A version is in the store before the engine applies the write that replaces it. A reader that
//!   asks the engine first and the store afterwards misses nothing.
//! - A key has a version for each open snapshot after which it was written. It may have more.
//! - Versions of one key are saved in the order of its writes, under the key's stripe. Runs have
//!   them in this order, files before segments.
//! - A snapshot whose versions may be missing has ended first: a read checks that last.
//!
//! Cost without an open snapshot: a write loads one word.
//!
//! Locks: `compaction`, then `open`, then `rotation`: leaves of the order in `ARCHITECTURE.md`. A
//! writer takes them with its stripes and its in-flight slot. Readers take none.

mod compaction;
mod cursor;
mod earlier;
mod file;
mod loaded_ranges;
mod lookup;
mod merge;
mod mutants;
mod open_snapshots;
mod run;
mod segment;
mod snapshot_state;
mod spill;
mod spill_state;
#[cfg(test)]
#[cfg(not(model))]
mod spill_tests;
mod store;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod version_key;

pub(crate) use self::{
    earlier::{Earlier, NextVersion},
    file::remove_versions,
    snapshot_state::SnapshotState,
    store::{SnapshotLimits, VersionStore},
    version_key::{POSITION_BYTES, high_half},
};
