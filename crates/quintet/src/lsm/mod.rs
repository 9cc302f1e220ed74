//! What the log-structured engines share: memory in front, immutable files of blocks behind.
//!
//! What: memtables ([`memtable`]) in memory that serves again ([`arenas`]), behind a front that
//! writers insert into ([`front`]) and that slows them down in time ([`pace`]); files of entries in
//! key order ([`piece`]) made of blocks ([`block`]), their keys apart from the values for merges
//! ([`keys`]), hot blocks in memory ([`cached`]), walks over all of them ([`cursor`], [`walk`]),
//! values given out in one copy ([`take`]), buffers of reads that serve again ([`buffers`]).
//! Why: `tph` groups such files into tables of levels, `slm` has one level of them under an index;
//! neither knows the other.

pub(crate) mod block_cache;
pub(crate) mod cursor;
pub(crate) mod memtable;
pub(crate) mod rate_limiter;
pub(crate) mod read_buffers;
pub(crate) mod sst;
pub(crate) mod write_buffer;
