//! The trie engine: a lazy-trie over append-only regions of records (CedrusDB).
//!
//! Problem: an in-memory hash index gives point access at the speed of memory, but has to be
//! rebuilt when a table is opened. Here the index is on disk at all times, so the time to open a
//! table does not depend on its size (except for replay of the log).
//!
//! How: records are appended to regions of a data file ([`store::regions`]). A trie over the hashes
//! of their keys ([`index`]), in a journaled array of words ([`store::space`]), maps each key to
//! its record. Both are used in memory. On disk they are as of the last checkpoint. Put: lock the
//! subtree of the key's hash, find its record, overwrite it in place (same size, not in a
//! checkpoint) or append and exchange the record's word, unlock. Get: [`read`]. Checkpoint:
//! [`checkpoint`]. Space reclamation: [`compact`]. Open: [`recover`].
//!
//! Files: `nodes` (images of the trie), `data` (regions), `extents` (large values), `redo-*` (the
//! journal: what each checkpoint changed, and the state below).
//!
//! | state, varints in order | meaning |
//! |---|---|
//! | version | 1 |
//! | live bytes | of keys and values |
//! | trie | tail, free objects, counts: `trie::index` |
//! | images | slot and CRC32C of each region of `nodes`: `trie::store::space` |
//! | regions | life, units, sealed, live units, span of each: `trie::store::regions` |
//! | extents | tail and holes: `trie::store::extents` |
//!
//! Invariants:
//! - Every change of a record, of the trie and of the counts happens with the key's subtree locked.
//!   With all subtrees locked no operation is in progress: a checkpoint takes its state there.
//! - A record that is in a checkpoint is never changed. A region is reused only after a state
//!   without it is durable.
//! - Operations that the log replays enter regions at once and the trie later: [`replay_buffer`].
//! - `admit` reads what applying a write needs from disk: into memory, or into `prefetched`. A
//!   failed read refuses the write before it is logged.
//! - A checkpoint commits its journal group after its records are durable and the log is durable
//!   past all its effects.
//!
//! Thread rules: gets take no lock, and store nothing while the record is in memory. Lock order:
//! `maintenance`, subtrees, `roll`, locks of the store.
//!
//! How we differ from the paper: the shared log holds the operations, so the journal holds what a
//! checkpoint changed, coalesced, and not every write of every operation. A record that is in a
//! checkpoint moves when it is updated; regions are emptied and reused whole, where the paper
//! updates in place and fills holes. Readers take no locks. A record's head has 16 bytes, not 72.

mod append;
mod batch;
mod check;
mod checkpoint;
mod checkpoint_state;
mod cold;
mod compact;
mod current_record;
mod hash;
pub(crate) mod index;
pub mod inspect;
mod lookup;
mod memory;
mod mutants;
pub(crate) mod options;
mod read;
mod read_ahead;
mod record;
mod recover;
mod replay;
mod replay_buffer;
mod scan;
mod statistics;
pub(crate) mod store;
mod switch;
#[cfg(test)]
#[cfg(not(model))]
mod switch_tests;
mod table;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod wanted_work;
mod write;
#[cfg(test)]
#[cfg(not(model))]
mod write_tests;

pub use self::table::Trie;

use crate::{
    Result,
    contract::{
        Context, Cursor, Engine, EngineKind, EngineStats, Entry, FoundValue, HashOrder, Hint,
        MaintenanceMode, MemoryUse, MemoryWait, MultiGetSink, Op, OrderedEngine, PendingWork,
        Presence, TableOptions, ValueSink, replay_one_by_one, unordered,
    },
    engine::trie::index::LookupStep,
    util::{codec::Lsn, report::Report, sync::Ordering},
};

impl Trie {
    /// Opens a table, or creates one in an empty directory. Returns it and the LSN up to which its
    /// files are complete.
    ///
    /// Fails with `InvalidOption`, with `Corruption` where a file is damaged, and with `Io`.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        Self::open_with_mask(options, context, u64::MAX)
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        let charged = self.counters.index_charged.load(Ordering::Relaxed);
        let buffer_bytes = self.replay_buffer.memory_bytes();
        self.context.budget.release(self.regions.frames.memory_bytes() + charged + buffer_bytes);
    }
}

impl Engine for Trie {
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

    #[inline]
    fn prefetch(&self, hint: Hint<'_, '_>) {
        let (key, hash, step) = match hint {
            Hint::Write { key, hash, step } => (key, hash, step),
            Hint::Gets(keys) => return self.prefetch_records(keys),
            Hint::Replay(_) | Hint::Batch(_) => return,
        };
        let path = if self.hash.is_siphash() {
            hash & self.hash_mask
        } else if self.hash.is_none() {
            self.path(key).hash
        } else {
            return;
        };
        let mut lookup = self.index.begin_lookup(path);
        for _ in 0..step {
            match self.index.step(&mut lookup) {
                LookupStep::Pending => {}
                LookupStep::Switched => self.index.follow_keyed(&mut lookup, key),
                LookupStep::Candidate(_) | LookupStep::Ended => break,
            }
        }
        if let Some(address) = lookup.candidate() {
            self.regions.prefetch(address);
        }
    }

    fn admit(&self, op: &Op<'_>, wait: &MemoryWait) -> Result<()> {
        let needed = self.bytes_needed(op);
        if needed > 0 {
            self.compact_for_writer();
            let make_room = || self.ensure_room_for(op, needed);
            self.context.reserve_with_retry(wait, needed, make_room)?;
        }
        match op {
            Op::Put { key, .. } | Op::Delete { key } if self.is_cold.load(Ordering::Relaxed) => {
                if matches!(op, Op::Delete { .. }) {
                    self.bound_changes_to_free()?;
                } else {
                    self.bound_changes()?;
                }
                self.prefetch_record(key)
            }
            _ => Ok(()),
        }
    }

    fn admitted_bytes(&self, _op: &Op<'_>) -> u64 {
        0
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            drop(self.take_prefetched(self.path(key)));
        }
    }

    fn make_room(&self, op: &Op<'_>) -> Result<()> {
        self.make_room_for_logged(op)
    }

    fn apply(&self, _lsn: Lsn, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Put { .. } | Op::Delete { .. } if self.replay_buffer.is_replaying() => {
                self.replay_op(op)
            }
            Op::Put { key, head, body } => self.put(key, [head, body]),
            Op::Delete { key } => self.delete(key),
            Op::DeleteRange { .. } => Err(unordered(&self.context, EngineKind::Trie)),
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
        self.checkpoint_to(up_to)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        match mode {
            MaintenanceMode::Step => self.compact_step().map(drop),
            MaintenanceMode::SpaceStep => self.space_step(),
            MaintenanceMode::Full => {
                while self.compact_step()? {}
                Ok(())
            }
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
        self.statistics()
    }

    fn pending_work(&self) -> PendingWork {
        self.wanted_work()
    }
}
