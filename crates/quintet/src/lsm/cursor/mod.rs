//! Cursors over memtables and SSTs, and the cursor that merges them.
//!
//! [`memtable_cursor`] and [`sst_cursor`] each return the entries of one source in key order, as
//! [`sorted_cursor`] demands. [`merge`] merges them: of entries with one key it returns the newest,
//! tombstones included. The engine's range skips tombstones.
//!
//! Start reading at [`merge`].

mod memtable_cursor;
pub(crate) mod merge;
mod sorted_cursor;
mod sst_cursor;
