//! The replay buffer: operations recovered from the log that are not in the tree yet.
//!
//! What: puts and deletes of the log go to an ordered table of their keys, in shards. Entries are
//! merged into the tree in batches, with their leaves read together ([`super::replay`]):
//! - all of them at the next checkpoint, compaction or check;
//! - those of a range when it is scanned or deleted;
//! - a single one when its key is next written.
//!
//! Why: a reopened table has its leaves on disk only. Replay into the tree would wait for a disk
//! read for nearly each operation before the table could serve.
//!
//! Invariants:
//! - While a key has an entry here, the tree's version of the key is old. Readers look here first,
//!   and an entry is removed only after the tree has it, under the lock of its shard.
//! - After replay entries are only removed: a range without entries stays so.
//! - No checkpoint claims the replayed operations while there are entries.
//! - Entries take at most an eighth of the budget; beyond that, replay merges some into the tree.
//! - Values that are not inline go to the tree at once: they are written, not read.
//!
//! Threads: any thread. Without entries each access costs one load of a counter. Lock order: a
//! shard, then the checkpointer, the gate and pages. The holder of a checkpointer takes no shard.

mod buffer;
mod key;
mod shard;

pub(super) use buffer::{BTreeReplayBuffer, BUDGET_SHARE, RangeEnd};
pub(super) use shard::BufferShard;
