//! The pool of persistent memory of a table: SLM-DB's own design, as a mode.
//!
//! What: one file for each table ([`crate::pmem`]) with the index ([`index`]), the memtables
//! ([`crate::lsm::memtable::pool_memtables`]), or both (the options `medium`, `index`,
//! `memtable`).
//!
//! Problem: a pool outlives the process and changes word by word, while the shared log makes
//! batches over tables atomic. After a crash the pool may be ahead of the log's durable end, and
//! behind it too.
//! How:
//! - The pool records the LSN to which the table is complete (`complete`), after the log is synced
//!   and every operation below is in the pool or in a run. The log is replayed from there, and
//!   opening removes the entries of memtables from there on. So a checkpoint of the table is one
//!   word, and the replay is at most what was written since the last one.
//! - Flushes sync the log before they change the index, so the index has nothing that the log may
//!   lack. It may have more than `complete` says; replay repeats that.
//!
//! Roots of the pool:
//!
//! | root | meaning |
//! |---|---|
//! | 0 | `QNTSLM`, then a byte of what is in the pool (1 memtables, 2 index), then the format 1; 0 until the pool is made |
//! | 1 | the LSN to which the table is complete |
//! | 2 | link to the tree ([`index`]) |
//! | 3 | link to the list of runs ([`index`]) |
//! | 4 | link to the log of index updates ([`index`]) |
//! | 5 | link to the directory of memtables |
//! | 6 | 1: the index in pages has had a checkpoint |
//!
//! Invariants:
//! - `complete` never falls, and never passes the durable end of the log.
//! - A table that the catalog records as complete is refused if its pool is missing or lost. A
//!   table without a checkpoint is made again, and the log has all of it.
//!
//! Threads: see [`index`]. `complete` is raised by checkpoints and after syncs of the log, under a
//! lock.

pub(super) mod index;
mod inspect;
mod roots;
mod slm_pool;
mod sweep;
mod sweep_state;

pub(crate) use self::inspect::describe_pool;
pub(super) use self::slm_pool::SlmPool;
