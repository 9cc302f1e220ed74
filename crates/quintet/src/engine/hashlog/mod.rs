//! The hashlog engine: append-only chunks and a hash table in memory (LogKV, sections 2.1 and 3.1).
//!
//! A write appends an entry to the active chunk. A table of 8-byte slots ([`index`]) finds the
//! newest entry of each key. Chunks are written to data files ([`files`]) and stay in memory
//! ([`arena`]) within the budget.
//! Writes are appends and gets read one index line and one entry: for ingest, sessions, caches,
//! counters.
//!
//! - put ([`write`](mod@write)): lock the key's group, find its entry, replace it in place (same
//!   size, not frozen) or append ([`append`]) and swap the slot, unlock. [`memory`] makes room
//!   before that.
//! - get: [`read`](mod@read); from the disk: [`cold`]. Which chunks are in memory: [`residency`].
//! - checkpoint: [`checkpoint`] (steps), [`flush`] (data), [`manifest`]. compact: [`compact`].
//!   When they run: [`wanted_work`]. open: [`recover`].
//!
//! Invariants:
//! - Entries below a chunk's frozen bound never change. Only they are written. A checkpoint
//!   freezes, waits for writers that did not see the freeze, syncs the log, writes, syncs, and
//!   commits in the [`manifest`]. It holds everything applied before it began.
//! - Of two entries of one key, the one in the chunk of higher (order, serial) is newer, or the
//!   later one in the same chunk. The active chunk has an even order. Compaction copies to a chunk
//!   of odd order, between its sources and all that is written later.
//! - A tombstone is kept while an older chunk exists.
//! - Space that a checkpoint drops is freed after the checkpoint is durable.
//! - After a failed sync the table keeps working. The data goes to another file and stays in memory
//!   until it is durable there. The failed sync is never retried.
//! - `collided` is set before a second live key with the same 56 bits of hash is readable. From
//!   then on, opening reads keys instead of hints. All other code resolves equal hashes by the full
//!   key.
//!
//! Locks: gets take none, and store nothing if the entry is in memory. Writers lock a group of the
//! index. Lock order: `maintenance`, group, `roll`, `residency`, `chunks`, `larges`. Maintenance
//! never waits for writers while it holds a later lock.
//!
//! Options: [`options`].
//!
//! How we differ from the paper: the shared log protects the last chunk. Sizes have 32 bits, and
//! versions are LSNs. Chunks have checksums, and the index has a checkpoint. Writers continue
//! during compaction and checkpoints. Cold chunks leave memory. Hot keys are updated in place.

mod append;
mod arena;
mod check;
mod checkpoint;
mod chunk;
mod cold;
mod cold_entry;
mod compact;
mod current_entry;
mod entry;
mod files;
mod flush;
pub(crate) mod index;
pub mod inspect;
mod large_store;
mod large_value;
mod maintenance;
mod manifest;
mod memory;
#[cfg(all(test, model))]
mod models;
mod mutants;
pub(crate) mod options;
mod pack;
mod packed;
mod prefetched;
mod read;
mod read_ahead;
mod recover;
mod residency;
mod table;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod wanted_work;
mod write;

pub use self::table::HashLog;

use std::sync::Arc;

use self::{chunk::Chunk, large_value::LargeValue, wanted_work::WantedWork};
use crate::{
    Result,
    contract::{
        Cursor, Engine, EngineKind, EngineStats, Entry, FoundValue, HashOrder, Hint,
        MaintenanceMode, MemoryUse, MemoryWait, MultiGetSink, Op, OrderedEngine, PendingWork,
        Presence, ValueSink, replay_one_by_one, unordered,
    },
    util::{
        codec::{Lsn, to_u64},
        report::Report,
        sync::{AtomicU64, Ordering, lock, read},
    },
};

impl Drop for HashLog {
    fn drop(&mut self) {
        let held =
            self.arena.frames.memory_bytes() + self.counters.index_charged.load(Ordering::Relaxed);
        let larges = read(&self.larges);
        let in_memory = |large: &Arc<LargeValue>| {
            lock(&large.state).bytes.as_ref().map_or(0, |bytes| bytes.len())
        };
        let larges: usize = larges.values().map(in_memory).sum();
        self.context.budget.release(held + to_u64(larges));
    }
}

impl Engine for HashLog {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        self.read_with(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        match sink {
            MultiGetSink::Append(out) => {
                let first = out.len();
                out.extend(keys.iter().map(|_| None));
                self.read_many(keys, &mut |index, answer| {
                    if let Some(slot) = out.get_mut(first + index) {
                        *slot = answer.map(FoundValue::into_value);
                    }
                    Ok(())
                })
            }
            MultiGetSink::Each(each) => self.read_many(keys, &mut |index, answer| {
                each(index, answer.as_ref().map(FoundValue::bytes))
            }),
        }
    }

    fn exists_hint(&self, _key: &[u8]) -> Result<Presence> {
        Ok(Presence::InValue)
    }

    fn prefetch(&self, hint: Hint<'_, '_>) {
        match hint {
            Hint::Replay(key) => self.index.prefetch(self.hash(key)),
            Hint::Gets(keys) => self.prefetch_gets(keys),
            Hint::Write { .. } | Hint::Batch(_) => {}
        }
    }

    fn admit(&self, op: &Op<'_>, wait: &MemoryWait) -> Result<()> {
        self.admit_memory(op, wait)?;
        match op {
            Op::Put { key, .. } | Op::Delete { key } => {
                // The line arrives while the record is copied into the log.
                self.index.prefetch(self.hash(key));
                self.read_ahead(key)
            }
            Op::DeleteRange { .. } => Ok(()),
        }
    }

    fn admitted_bytes(&self, _op: &Op<'_>) -> u64 {
        0
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            drop(self.read_ahead_entries.remove(self.hash(key)));
        }
    }

    fn make_room(&self, op: &Op<'_>) -> Result<()> {
        self.make_room_for_logged(op)
    }

    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Put { key, head, body } => self.put(lsn, key, [head, body]),
            Op::Delete { key } => self.delete(lsn, key),
            Op::DeleteRange { .. } => Err(unordered(&self.context, EngineKind::HashLog)),
        }
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        self.scan_from(from, limit)
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        replay_one_by_one(self, ops)
    }

    fn hash_order(&self) -> Option<&dyn HashOrder> {
        Some(self)
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        None
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        self.checkpoint_up_to(up_to)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        match mode {
            MaintenanceMode::Step => self.maintain_step(),
            MaintenanceMode::SpaceStep => self.space_step(),
            MaintenanceMode::Full => self.compact_all(),
        }
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.check_all(report)
    }

    fn memory_use(&self) -> MemoryUse {
        self.memory_use()
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        self.reclaim(bytes)
    }

    fn stats(&self) -> EngineStats {
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (waste, _) = self.waste();
        let chunks = read(&self.chunks);
        let resident = chunks.keys().filter(|id| self.arena.is_resident(**id)).count();
        let directories = |chunk: &Arc<Chunk>| -> u64 {
            read(&chunk.packed_extents)
                .iter()
                .map(|packed_extent| packed_extent.blocks.memory_bytes())
                .sum()
        };
        let directories: u64 = chunks.values().map(directories).sum();
        let index_bytes = self.index.bytes() + directories;
        EngineStats {
            keys: self.index.len(),
            live_bytes: load(&counters.live_bytes),
            dead_bytes: waste * 8,
            file_bytes: load(&counters.data_bytes) + load(&counters.manifest_bytes),
            memory_bytes: self.arena.frames.memory_bytes() + index_bytes,
            index_bytes,
            written_bytes_total: load(&counters.written_bytes_total),
            details: vec![
                ("chunks", to_u64(chunks.len())),
                ("chunks_in_memory", to_u64(resident)),
                ("chunks_created_total", counters.chunk_creations.count()),
                ("chunk_creation_micros_total", counters.chunk_creations.micros()),
                ("large_values", to_u64(read(&self.larges).len())),
                ("in_place_updates_total", load(&counters.in_place_total)),
                ("cold_reads_total", load(&counters.cold_reads_total)),
                ("false_reads_total", load(&counters.false_reads_total)),
                ("chunks_compacted_total", load(&counters.compacted_total)),
                ("compactions_total", counters.compactions.count()),
                ("compaction_micros_total", counters.compactions.micros()),
                ("compactions_by_writers_total", load(&counters.writer_compactions_total)),
                ("chunks_evicted_total", load(&counters.evicted_total)),
                ("checkpoints_total", counters.checkpoints.count()),
                ("checkpoint_micros_total", counters.checkpoints.micros()),
                ("cleanup_failures_total", load(&counters.cleanup_failures_total)),
                ("manifest_bytes", load(&counters.manifest_bytes)),
            ],
        }
    }

    fn pending_work(&self) -> PendingWork {
        match self.wanted_work() {
            WantedWork::None => PendingWork::None,
            WantedWork::Checkpoint => PendingWork::Checkpoint,
            WantedWork::Compact(_) => PendingWork::Maintain,
            WantedWork::Later => PendingWork::Later,
        }
    }
}
