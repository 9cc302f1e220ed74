//! The parts that the log-structured engines share: memory for recent writes, immutable sorted
//! files behind it.
//!
//! - Writes: [`write_buffer`] admits them and inserts them into [`memtable`]s. [`rate_limiter`]
//!   slows writers down before memory runs out.
//! - Files: [`sst`] is the format of sorted string tables, with its writer and its block index.
//! - Reads: [`block_cache`] holds hot blocks. [`cursor`] scans memtables and files and merges them.
//!   [`range`] reads ranges from both ends, and [`empty_ranges`] lets it skip deleted keys.
//!   [`read_buffers`] recycles the buffers of disk reads.
//!
//! `tph` groups such files into tables of levels. `slm` has one level of them under an index.
//! Neither engine imports the other.
//!
//! Start reading at [`write_buffer`] (writes) and [`cursor`] (scans).

pub(crate) mod block_cache;
pub(crate) mod cursor;
mod delete_range;
pub(crate) mod empty_ranges;
mod installation;
mod make_room;
pub(crate) mod memtable;
mod pooled_writes;
pub(crate) mod range;
pub(crate) mod rate_limiter;
pub(crate) mod read_buffers;
mod remaining_range;
pub(crate) mod sst;
pub(crate) mod super_version;
pub(crate) mod table_hasher;
mod tombstone_run;
pub(crate) mod write_buffer;
