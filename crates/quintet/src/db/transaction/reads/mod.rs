//! Reads of a transaction: by versions of stripes or from a snapshot, and their validation.

mod read_set;

use std::sync::Arc;

use crate::{
    Error, Result,
    contract::{Cursor, Engine as _, KeyRange, Op},
    db::{
        core::{Core, condition::Condition},
        tables::{
            state::{TableState, TableStatus},
            stripes::{StripeIndex, StripesGuard},
            value::{Key, Value},
        },
        versions::SnapshotState,
    },
    io::process::ProcessArc,
    util::{
        mutant::mutant,
        sync::{Backoff, yield_now},
    },
};
use read_set::ReadSet;

/// Maximum number of keys that are read by versions. Each read compares the versions of all.
const VERSIONED_KEYS_MAX: usize = 16;
/// Number of times that a reader waits for a commit that is being applied. Then it takes a
/// snapshot. An apply takes less than a microsecond, unless it reads from a disk.
const APPLY_WAITS_MAX: u32 = 64;

/// Which reads a transaction notes, and where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    /// Validates all reads. Begins with versions, and goes over to a snapshot if it must.
    Versions,
    /// Validates all reads. They come from a snapshot.
    Snapshot,
    /// Validates the writes and the locked keys. Reads come from a snapshot.
    WritesOnly,
}

/// The reads of a transaction.
#[derive(Debug)]
pub(crate) struct TransactionReads {
    mode: ReadMode,
    set: ReadSet,
    /// Taken by the first read that needs it.
    snapshot: Option<ProcessArc<SnapshotState>>,
}

/// The result of a read by versions.
enum VersionedRead {
    /// The value, or that there is none.
    Current(Option<Value>),
    /// A snapshot is needed: for many reads, for a value that expires, or because of a commit that
    /// takes long.
    NeedsSnapshot,
}

/// A key of a table with its hash.
#[derive(Clone, Copy, Debug)]
struct HashedKey<'a> {
    table: &'a ProcessArc<TableState>,
    key: &'a [u8],
    hash: u64,
}

impl TransactionReads {
    /// Creates the state of a transaction that has read nothing.
    pub(crate) fn new(mode: ReadMode) -> Self {
        Self { mode, set: ReadSet::new(), snapshot: None }
    }

    /// Returns the snapshot. `None`: no read has needed one.
    pub(crate) fn snapshot(&self) -> Option<&SnapshotState> {
        self.snapshot.as_ref().map(|snapshot| &***snapshot)
    }

    /// Returns the snapshot, shared.
    pub(crate) fn shared_snapshot(&self) -> Option<ProcessArc<SnapshotState>> {
        self.snapshot.clone()
    }

    /// Reads from another snapshot, which may be older. Only for planted bugs.
    pub(crate) fn replace_snapshot(&mut self, snapshot: ProcessArc<SnapshotState>) {
        self.snapshot = Some(snapshot);
    }

    fn is_versioned(&self) -> bool {
        self.mode == ReadMode::Versions && self.snapshot.is_none()
    }

    /// Returns the value of a key. Fails with [`Error::Conflict`] if it cannot be read as of the
    /// moment of the earlier reads; only with [`ReadMode::Versions`].
    pub(crate) fn get(
        &mut self,
        core: &Core,
        table: &ProcessArc<TableState>,
        key: &[u8],
    ) -> Result<Option<Value>> {
        let hashed = HashedKey { table, key, hash: table.hash.hash(key) };
        if self.is_versioned()
            && let VersionedRead::Current(value) = self.get_versioned(core, hashed)?
        {
            return Ok(value);
        }
        let snapshot = self.ensure_snapshot(core)?;
        let value = core.snapshot_get(&snapshot, table, key)?;
        mutant!(AbsentReadsNotValidated => if value.is_none() {
            return Ok(None);
        });
        if self.mode != ReadMode::WritesOnly {
            let stripe = core.tables.stripes.index(table.id, hashed.hash);
            self.set.add_key(table, (key, hashed.hash), (stripe, 0));
        }
        Ok(value)
    }

    /// Reads a key by versions, if that is possible.
    fn get_versioned(&mut self, core: &Core, hashed: HashedKey<'_>) -> Result<VersionedRead> {
        let HashedKey { table, key, hash } = hashed;
        if self.set.key_count() >= VERSIONED_KEYS_MAX || table.status() != TableStatus::Open {
            return Ok(VersionedRead::NeedsSnapshot);
        }
        let stripe = core.tables.stripes.index(table.id, hash);
        let Some(version) = stable_version(core, stripe) else {
            return Ok(VersionedRead::NeedsSnapshot);
        };
        let stored = table.engine.get(key)?;
        let value = match stored {
            None => None,
            Some(stored) => {
                let value = Value::open(stored).ok_or_else(|| core.tables.bad_envelope(table))?;
                if value.expires_at_unix_millis().is_some() {
                    return Ok(VersionedRead::NeedsSnapshot);
                }
                Some(value)
            }
        };
        self.set.add_key(table, (key, hash), (stripe, version));
        self.check_versions(core)?;
        Ok(VersionedRead::Current(value))
    }

    /// Fails with [`Error::Conflict`] unless all reads by versions are current.
    fn check_versions(&self, core: &Core) -> Result<()> {
        mutant!(ReadsAtTwoMoments => return Ok(()));
        match self.set.find_new_version(&core.tables.stripes) {
            Some(changed) => Err(changed.conflict(core)),
            // A sorted load adds keys without a stripe. The next run reads from a snapshot.
            None => self.set.check_tables(core).map_err(|error| match error {
                Error::Loading { table } => Error::Conflict { table, key: Vec::new() },
                other => other,
            }),
        }
    }

    /// Returns the snapshot, and takes it if there is none. Fails with [`Error::Conflict`] if
    /// earlier reads by versions are not current any more.
    pub(crate) fn ensure_snapshot(&mut self, core: &Core) -> Result<ProcessArc<SnapshotState>> {
        if let Some(snapshot) = &self.snapshot {
            return Ok(snapshot.clone());
        }
        let snapshot = ProcessArc::new(Arc::new(core.take_snapshot()?));
        if self.is_versioned() && !self.set.is_empty() {
            // Unchanged after the snapshot was taken: the snapshot shows the same.
            self.check_versions(core)?;
        }
        self.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// Begins to read a range of an ordered table. Returns the snapshot, and the number under which
    /// [`TransactionReads::extend_range`] notes what was read of the range.
    pub(crate) fn range(
        &mut self,
        core: &Core,
        table: &ProcessArc<TableState>,
        range: KeyRange,
    ) -> Result<(ProcessArc<SnapshotState>, usize)> {
        let snapshot = self.ensure_snapshot(core)?;
        let number = match self.mode {
            ReadMode::WritesOnly => usize::MAX,
            _ => self.set.add_range(table, range),
        };
        Ok((snapshot, number))
    }

    /// Notes that the iterator over a range has returned a key, or (`None`) has ended.
    pub(crate) fn extend_range(&mut self, number: usize, key: Option<&[u8]>, is_front: bool) {
        self.set.extend_range(number, key, is_front);
    }

    /// Returns a page of a scan of an unordered table.
    pub(crate) fn scan(
        &mut self,
        core: &Core,
        table: &ProcessArc<TableState>,
        (cursor, count): (&Cursor, usize),
    ) -> Result<(Vec<(Key, Value)>, Cursor)> {
        let snapshot = self.ensure_snapshot(core)?;
        if self.mode != ReadMode::WritesOnly {
            self.set.add_table(table);
        }
        let (stored, next) = core.snapshot_scan(&snapshot, table, cursor, count)?;
        let mut entries = Vec::with_capacity(stored.len());
        for (key, stored) in stored {
            if let Some(value) = core.visible_in(&snapshot, table, stored)? {
                entries.push((key, value));
            }
        }
        Ok((entries, next))
    }

    /// Returns the current value of a key that the transaction has locked. Moves the snapshot
    /// forward if a commit has changed the key since it was taken. Fails with [`Error::Conflict`]
    /// if earlier reads are not current then, or (`WritesOnly`) if there were any.
    pub(crate) fn get_locked(
        &mut self,
        core: &Core,
        table: &ProcessArc<TableState>,
        key: &[u8],
    ) -> Result<Option<Value>> {
        mutant!(LockedReadIsStale => return self.get(core, table, key));
        let hash = table.hash.hash(key);
        let stripe = core.tables.stripes.index(table.id, hash);
        if let Some(snapshot) = self.snapshot.clone() {
            let is_changed = {
                let _held = core.tables.stripes.hold(stripe);
                core.is_key_changed(&snapshot, table, key)?
            };
            if is_changed {
                self.renew_snapshot(core, table, key)?;
            }
        }
        let value = self.get(core, table, key)?;
        if self.mode == ReadMode::WritesOnly {
            self.set.add_key(table, (key, hash), (stripe, 0));
        }
        Ok(value)
    }

    /// Replaces the snapshot by a new one, unless a read would see something else in it. `key` is
    /// the key for which a new snapshot is needed.
    fn renew_snapshot(&mut self, core: &Core, table: &TableState, key: &[u8]) -> Result<()> {
        if self.mode == ReadMode::WritesOnly {
            // It does not know what it has read.
            let table = core.tables.name_of(table);
            return Err(Error::Conflict { table, key: key.to_vec() });
        }
        let newer = ProcessArc::new(Arc::new(core.take_snapshot()?));
        let mut indexes = Vec::new();
        let every = self.add_stripes(core, &mut indexes);
        let _held = hold(core, every, &mut indexes);
        // What is unchanged now was unchanged when the newer snapshot was taken.
        self.check_reads(core)?;
        self.snapshot = Some(newer);
        Ok(())
    }

    /// Adds the stripes of all reads to `indexes`. Returns whether all stripes are needed instead.
    pub(crate) fn add_stripes(&self, core: &Core, indexes: &mut Vec<StripeIndex>) -> bool {
        mutant!(TransactionLocksWritesOnly => return false);
        self.set.add_stripes(&core.tables.stripes, indexes)
    }

    /// Fails with [`Error::Conflict`] unless everything that the transaction depends on is current.
    /// `writes` are its operations. The caller holds the stripes of reads and writes.
    pub(crate) fn validate<'a>(
        &self,
        core: &Core,
        mut writes: impl Iterator<Item = (&'a TableState, Op<'a>)>,
    ) -> Result<()> {
        self.check_reads(core)?;
        // Time for another commit between validation and application.
        mutant!(TransactionLocksWritesOnly => (0..100).for_each(|_| yield_now()));
        let Some(snapshot) = self.snapshot().filter(|_| self.mode == ReadMode::WritesOnly) else {
            return Ok(());
        };
        mutant!(SnapshotIsolationSkipsWrites => return Ok(()));
        writes.try_for_each(|(table, op)| {
            let changed = match op {
                Op::Put { key, .. } | Op::Delete { key } => {
                    core.is_key_changed(snapshot, table, key)?.then(|| key.to_vec())
                }
                Op::DeleteRange { start, end } => {
                    let end = (!end.is_empty()).then(|| end.to_vec());
                    let range = KeyRange { start: Some(start.to_vec()), end };
                    core.changed_key_in(snapshot, table, &range)?
                }
            };
            let table = || core.tables.name_of(table);
            changed.map_or(Ok(()), |key| Err(Error::Conflict { table: table(), key }))
        })
    }

    /// Fails with [`Error::Conflict`] unless all reads are current. The caller holds their stripes.
    fn check_reads(&self, core: &Core) -> Result<()> {
        self.set.check_tables(core)?;
        let changed = match self.snapshot() {
            Some(snapshot) => self.set.find_changed(core, snapshot)?,
            None => self.set.find_new_version(&core.tables.stripes),
        };
        changed.map_or(Ok(()), |changed| Err(changed.conflict(core)))
    }

    /// Ends the snapshot. The transaction reads no more.
    pub(crate) fn end(&mut self) {
        self.snapshot = None;
    }

    /// Returns the condition under which one write of a key is valid, if a condition says it all.
    pub(crate) fn condition(&self, table: &TableState, stripe: StripeIndex) -> Option<Condition> {
        if self.snapshot.is_some() {
            return None;
        }
        if self.set.is_empty() {
            return Some(Condition::Always);
        }
        let (read, version) = self.set.only_stripe(table)?;
        (read == stripe).then_some(Condition::Unchanged { stripe, version })
    }
}

/// Locks some or all stripes.
fn hold<'a>(core: &'a Core, every: bool, indexes: &mut Vec<StripeIndex>) -> StripesGuard<'a> {
    if every { core.tables.stripes.hold_every() } else { core.tables.stripes.hold_all_of(indexes) }
}

/// Returns the version of a stripe on which no commit is being applied. `None`: a commit takes too
/// long.
fn stable_version(core: &Core, stripe: StripeIndex) -> Option<u64> {
    let mut backoff = Backoff::default();
    loop {
        let version = core.tables.stripes.version(stripe);
        if version.is_multiple_of(2) {
            return Some(version);
        }
        if backoff.count() >= APPLY_WAITS_MAX {
            return None;
        }
        backoff.wait();
    }
}
