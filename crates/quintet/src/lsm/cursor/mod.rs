//! Cursors over memtables and SSTs, and the cursor that merges them.

pub(crate) mod merge;
pub(crate) mod source;
