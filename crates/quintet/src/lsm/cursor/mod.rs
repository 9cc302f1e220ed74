//! Cursors over memtables and SSTs, and the cursor that merges them.
//!
//! Start reading at [`merge`].

mod memtable_cursor;
pub(crate) mod merge;
mod sorted_cursor;
mod sst_cursor;
