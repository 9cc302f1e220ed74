//! The tph engine: an LSM tree of tables with perfect-hash indexes (CompassDB).
//!
//! Problem: a get from data much larger than memory should cost one disk read and few bytes of
//! memory a key. A merge should write the newer entries and an index, not the whole table.
//!
//! How: writes go to memtables ([`crate::lsm`]), which a flush writes to tables of level 0. A table
//! is a group of immutable SSTs ([`crate::lsm::sst`]) and one index in memory ([`index`]). The
//! index has the block of each key's newest entry. Merges move tables to deeper levels.
//!
//! - put: [`crate::lsm::write_buffer`], after an admission that reserves memory or helps to flush
//!   ([`throttle`]).
//! - get: [`read`] searches memtables, level 0 from the newest, and one table of each level.
//! - Ranges: [`range`], [`cursor`]. Checkpoints: [`flush`].
//! - Merges: [`compaction_picker`], [`compact`], [`merge`].
//! - Versions of the table set: [`version`], made durable in [`manifest`] by [`publish`].
//! - The paper's two hashes: [`two_tiers`], with [`piece_cursor`] and [`order_cursor`].
//! - open: [`recover`]. Options: [`options`]. Locks and their order: [`store`].
//!
//! Invariants:
//! - A reader sees one super version: memtables and a version that is replaced as a whole.
//! - The newest entry of a key is in the active memtable, then frozen ones, level 0 from the
//!   newest, level 1, and so on. Merges keep this order.
//! - A tombstone stays while an older SST of its table or a deeper level may have its key.
//! - A published version has only effects that are durable in the log. It is complete up to its LSN
//!   and may have later effects, which replay repeats.
//! - A failure leaves the version unchanged. A file with a failed sync is not used again. A file is
//!   removed only after a manifest without it is durable.
//!
//! Threads: gets take no lock.
//!
//! Differences from the paper: `sorted` is the default mode, because a range over hash ranges reads
//! every table. The slot has the number of a block of sorted entries: the second tier of hashes is
//! not needed, and scans are sequential. The option `tiers=two` selects the paper's structure
//! ([`two_tiers`]). Perfect hashes are keyed and take 2.1 bits a key.
//! Tombstones are ordinary entries. All data on disk has checksums, and recovery is exact.
//!
//! Start reading at [`store`] and [`read`].

mod check;
mod compact;
mod compaction_picker;
mod cursor;
mod engine;
mod flush;
mod index;
pub mod inspect;
mod manifest;
mod merge;
mod mutants;
pub(crate) mod options;
mod order_cursor;
mod partition;
pub mod perfect_hash;
mod piece_cursor;
mod publish;
mod range;
mod read;
mod recover;
mod stats;
mod store;
mod table;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod throttle;
mod two_tiers;
mod version;

pub use self::engine::Tph;
