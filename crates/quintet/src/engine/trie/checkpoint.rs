//! Checkpoints: make the table's state durable.
//!
//! 1. Regions of the trie whose changes have been in the journal longest get new images in free
//!    slots of `nodes`, which are synced. Only as many as keep the journal within its bounds, so
//!    that each checkpoint pays for a few of them.
//! 2. All subtrees are locked while the lists of changes are swapped, the appended records are
//!    frozen and the state is encoded. That takes microseconds, and some more for each region.
//! 3. The records appended since the last checkpoint are written with their checksums and synced;
//!    so are large values. Nothing durable names them yet.
//! 4. The log is synced past every effect in the checkpoint.
//! 5. The changes and the state go to the journal as one group. From here on the checkpoint is
//!    durable, and the table complete to the requested LSN. Groups older than every change without
//!    an image are no longer needed.
//! 6. Slots, extents and regions that the group no longer names become free.
//!
//! If a step fails, the changes are kept and are part of the next checkpoint. Nothing that the last
//! durable state names was overwritten. If the disk was full, the group is taken back durably, and
//! the new images are discarded.

use super::{
    checkpoint_state::{CHANGES_PART, CheckpointState, STATE, STATE_VERSION},
    record::{copy_words, seal},
    table::Trie,
};
use crate::{
    Error, Result,
    engine::trie::store::{
        extents::ExtentCheckpoint,
        regions::{AppendedUnits, UNIT_BYTES},
        space::{CHANGE_BYTES, NewImages},
    },
    io::AlignedBuffer,
    journal::{
        redo::{GroupWriter, Patch},
        write_back::Writeback,
    },
    util::{
        budget::Reservation,
        codec::{Lsn, put_varint, to_usize},
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

/// Bytes that a change takes in the journal until its image is written. Regions wait in turn, so
/// the journal holds about twice as many changes as wait at a time, of 11 bytes each.
const JOURNALED_BYTES: u64 = 22;
/// Buffers for writing records take at most this part of the budget, and [`WRITES_MAX`].
const WRITES_PART: u64 = 16;
/// Bytes. The largest part of the budget for buffers of records, unless a region is larger.
const WRITES_MAX: u64 = 8 << 20;
/// Bytes. The most that buffers for images take.
const IMAGES_MAX: u64 = 4 << 20;

/// Which images of the trie a checkpoint writes.
#[derive(Clone, Copy, Debug)]
enum Images {
    /// Those whose changes take too much memory or journal.
    Overdue,
    /// All that have changes, so that no changes stay in memory.
    All,
}

/// The state of the table at one moment between operations.
struct TableCheckpoint {
    appended: Vec<AppendedUnits>,
    dead: Vec<u64>,
    extents: ExtentCheckpoint,
    /// End of the words that were ever part of an object of the trie.
    trie_end: u64,
    state: Vec<u8>,
}

impl Trie {
    /// Makes a checkpoint that is complete to `up_to`, unless the files are already. Returns the
    /// LSN up to which they are. Fails with [`Error::ReadOnly`], with [`Error::Io`] and with
    /// [`Error::Corruption`]; the changes then stay for the next checkpoint.
    pub(super) fn checkpoint_to(&self, up_to: Lsn) -> Result<Lsn> {
        if self.context.read_only {
            return Err(Error::ReadOnly);
        }
        self.merge_all()?;
        self.regions.prepare_frames();
        let wanted = self.wanted_bytes.swap(0, Ordering::Relaxed);
        let complete = {
            let mut maintenance = lock(&self.maintenance);
            if up_to < maintenance.complete {
                return Ok(maintenance.complete);
            }
            let images = if wanted > 0 { Images::All } else { Images::Overdue };
            self.checkpoint_locked(&mut maintenance, up_to, images)?
        };
        self.release_wanted(wanted);
        self.enforce_budget(0);
        Ok(complete)
    }

    fn checkpoint_locked(
        &self,
        maintenance: &mut CheckpointState,
        up_to: Lsn,
        images: Images,
    ) -> Result<Lsn> {
        let space = self.index.space();
        let (of_budget, of_journal) =
            (self.context.budget.limit() / CHANGES_PART, maintenance.redo.file_bytes_max());
        let changes_max = match images {
            Images::Overdue => (of_budget / CHANGE_BYTES).min(of_journal / JOURNALED_BYTES),
            Images::All => 0,
        };
        let last = maintenance.redo.overdue_group();
        let buffer_bytes = (self.context.budget.limit() / WRITES_PART).min(IMAGES_MAX);
        let buffers = self.reserve_for_checkpoint(buffer_bytes);
        let env = &*self.context.env;
        let images = match space.write_images(env, changes_max, last, buffer_bytes) {
            // The journal keeps the changes.
            Err(Error::DiskFull { .. }) => space.write_images(env, u64::MAX, 0, buffer_bytes)?,
            images => images?,
        };
        drop(buffers);
        let needed = space.needed_beside(&images);
        self.add_written(images.written_bytes);
        let _work = self.reserve_for_checkpoint(space.work_bytes());
        let checkpoint = self.begin_checkpoint(&images);
        let lsn = mutant!(TrieClaimsTooMuch: Lsn(up_to.0 + 512), else up_to);
        let committed = self.commit_checkpoint(maintenance, &checkpoint, lsn, needed);
        match self.note_space(committed) {
            Ok(group) => {
                for images in maintenance.uncertain_images.drain(..) {
                    space.discard_images(&images);
                }
                space.install_images(images);
                space.commit(group);
                space.drop_beyond(checkpoint.trie_end);
                self.extents.commit(&checkpoint.extents);
                self.regions.end_lives(&checkpoint.dead);
                self.regions.release_file_space(self.was_idle());
                maintenance.complete = lsn;
                self.charge_index();
                self.count_waste();
                self.counters.cuts_total.fetch_add(1, Ordering::Relaxed);
                Ok(lsn)
            }
            Err(error) => {
                if maintenance.is_revoked(&error) {
                    space.discard_images(&images);
                } else {
                    maintenance.uncertain_images.push(images);
                }
                self.extents.abort(checkpoint.extents);
                Err(error)
            }
        }
    }

    /// Notes whether the disk is full, from the outcome of a checkpoint. Returns the outcome.
    fn note_space<T>(&self, outcome: Result<T>) -> Result<T> {
        let is_full = matches!(outcome, Err(Error::DiskFull { .. }));
        self.lacks_space.store(is_full, Ordering::Relaxed);
        outcome
    }

    /// Reserves memory that a checkpoint needs until it is durable, and evicts if the budget is
    /// exceeded. The caller has no subtree locked.
    fn reserve_for_checkpoint(&self, bytes: u64) -> Reservation {
        let charge = self.context.budget.reserve_transient(bytes);
        self.evict_to_budget(0);
        charge
    }

    fn add_written(&self, bytes: u64) {
        self.counters.written_bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes the state: step 2.
    fn begin_checkpoint(&self, images: &NewImages) -> TableCheckpoint {
        let space = self.index.space();
        let writers = self.index.lock_all();
        space.begin_checkpoint();
        let mut appended = self.regions.freeze();
        let dead = self.regions.dead();
        appended.retain(|appended| !dead.contains(&appended.region));
        let extents = self.extents.begin_checkpoint();
        self.counters.appended_units.store(0, Ordering::Relaxed);
        let applied = self.counters.applied.load(Ordering::Relaxed);
        self.counters.applied_at_checkpoint.store(applied, Ordering::Relaxed);
        self.checkpoint_wanted.store(false, Ordering::Relaxed);
        let (mut state, mut rest) = (Vec::new(), Vec::new());
        put_varint(&mut state, STATE_VERSION);
        put_varint(&mut state, self.counters.live_bytes.load(Ordering::Relaxed));
        self.index.encode(&mut state);
        let trie_end = self.index.end();
        self.regions.encode(&dead, &mut rest);
        self.extents.encode(&extents, &mut rest);
        drop(writers);
        // Only a checkpoint changes images.
        space.encode(images, trie_end, &mut state);
        state.append(&mut rest);
        space.coalesce();
        TableCheckpoint { appended, dead, extents, trie_end, state }
    }

    /// Steps 3 to 5. Returns the number of the journal group.
    fn commit_checkpoint(
        &self,
        maintenance: &mut CheckpointState,
        checkpoint: &TableCheckpoint,
        lsn: Lsn,
        needed: u64,
    ) -> Result<u64> {
        self.write_appended(&checkpoint.appended)?;
        self.add_written(self.extents.write(&*self.context.env, &checkpoint.extents)?);
        mutant!(TrieSkipsLogSync: Ok(()), else self.context.host.sync_log())?;
        let mut group = GroupWriter::default();
        self.index.space().journal(&mut group);
        group.patch(Patch { space: STATE, offset: 0, bytes: &checkpoint.state });
        self.add_written(group.bytes());
        maintenance.redo.commit_group(group, lsn, needed)
    }

    /// Writes the appended records and syncs them. Their regions may be evicted then.
    fn write_appended(&self, appended: &[AppendedUnits]) -> Result<()> {
        if appended.is_empty() {
            return Ok(());
        }
        let file = self.regions.file()?;
        let label = self.regions.label();
        let region_bytes = self.regions.segment_bytes();
        let bytes_max = (self.context.budget.limit() / WRITES_PART)
            .clamp(region_bytes, WRITES_MAX.max(region_bytes));
        let _buffers = self.reserve_for_checkpoint(bytes_max.min(appended_bytes(appended)));
        let mut writes = Writeback::bounded(&*self.context.env, bytes_max)?;
        for appended in appended {
            let mut buffer =
                AlignedBuffer::zeroed(to_usize((appended.to - appended.from) * UNIT_BYTES));
            let words = self.regions.words(appended.region, appended.from).unwrap_or(&[]);
            copy_words(words, buffer.as_mut_slice());
            seal(buffer.as_mut_slice(), appended.life, appended.from);
            let length = buffer.len();
            let offset = self.regions.offset(appended.region, appended.from);
            writes.write((&file, &label), offset, buffer, length);
        }
        writes.finish()?;
        mutant!(TrieSkipsDataSync: Ok(()), else file.sync_data())
            .map_err(|error| Error::io(format!("sync {label}"), error))?;
        self.add_written(writes.written_bytes());
        for appended in appended {
            self.regions.set_written(appended.region, appended.to);
        }
        Ok(())
    }

    /// Makes a checkpoint that is complete to no new LSN, so that memory can be evicted. Replay
    /// from the old LSN gives the same result, because it may find effects that are there already.
    pub(super) fn checkpoint_for_memory(&self) -> Result<()> {
        if self.context.read_only {
            return Ok(());
        }
        self.merge_all()?;
        let mut maintenance = lock(&self.maintenance);
        let complete = maintenance.complete;
        let changes = self.index.space().change_bytes();
        let is_small = changes >= self.index.space_bytes() / 2;
        let images = if is_small { Images::All } else { Images::Overdue };
        self.checkpoint_locked(&mut maintenance, complete, images).map(drop)
    }

    /// Writes the appended records so that their memory can be evicted. Makes no checkpoint:
    /// nothing durable names them yet.
    pub(super) fn flush_appended(&self) -> Result<()> {
        if self.context.read_only {
            return Ok(());
        }
        let _maintenance = lock(&self.maintenance);
        let appended = {
            let _writers = self.index.lock_all();
            self.regions.freeze()
        };
        self.write_appended(&appended)
    }
}

/// Bytes of the records that are not in the file.
fn appended_bytes(appended: &[AppendedUnits]) -> u64 {
    appended.iter().map(|appended| (appended.to - appended.from) * UNIT_BYTES).sum()
}
