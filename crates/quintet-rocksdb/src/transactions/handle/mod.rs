//! The object of a transaction.

mod timestamps;
mod versions;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quintet::{
    Durability, Isolation, KeyRange, Savepoint, Table, Transaction, TransactionOptions, Value,
};
use quintet_compat::{
    boundary::assert_shared,
    iterator::{Direction, Page, PageSource},
    keys,
    operations::{Action, Operations, Record},
    snapshot::SnapshotCell,
    status::{Code, Status},
};

use timestamps::{TransactionTimestamps, apply_versions};

use super::prepared;
use crate::{
    core::{Core, Family, NamedObject, ReadValue},
    indexed::IndexedCell,
    options::reads::ReadOptions,
    perf::Stopwatch,
};

/// Shortest wait for a lock: a transaction that must not wait.
const LOCK_TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// How a transaction handles conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// It locks the keys that it writes.
    Pessimistic,
    /// Its commit fails if another commit has changed a key that it writes.
    Optimistic,
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How it handles conflicts.
    pub locking: Locking,
    /// Whether it reads the moment of its begin.
    pub sets_snapshot: bool,
    /// Durability of the commit.
    pub durability: Durability,
    /// Longest wait for a lock.
    pub lock_timeout: Duration,
}

/// `rocksdb_transaction_t`.
#[derive(Debug)]
pub struct TransactionObject {
    pub(super) core: Arc<Core>,
    rules: Rules,
    shared: Arc<SharedTransaction>,
}

const _: () = assert_shared::<TransactionObject>();

/// A transaction that objects and iterators share.
#[derive(Debug)]
pub struct SharedTransaction {
    open: Mutex<Open>,
    rules: Rules,
    /// The moment of the begin, if the transaction reads that.
    snapshot: Arc<SnapshotCell>,
    /// The operations.
    batch: Arc<IndexedCell>,
}

/// What a transaction may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Writes,
    Prepared,
}

#[derive(Debug, Default)]
struct Open {
    /// `None`: the transaction was committed.
    transaction: Option<Transaction>,
    save_points: Vec<Savepoint>,
    name: Option<Vec<u8>>,
    phase: Phase,
    timestamps: TransactionTimestamps,
}

impl Open {
    fn get(&mut self) -> Result<&mut Transaction, Status> {
        let ended = || Status::new(Code::Expired, "the transaction was committed");
        self.transaction.as_mut().ok_or_else(ended)
    }
}

/// Begins a transaction of the library.
fn begin(core: &Core, rules: Rules, snapshot: &SnapshotCell) -> Result<Transaction, Status> {
    let options = TransactionOptions::new()
        .isolation(Isolation::Snapshot)
        .durability(rules.durability)
        .lock_timeout(rules.lock_timeout.max(LOCK_TIMEOUT_MIN));
    let transaction = core.store.database.begin(options)?;
    let mut moment = None;
    if rules.sets_snapshot {
        // The first read fixes the moment that the transaction shows.
        let family = core.default_family()?;
        transaction.contains(&family.table, keys::stored(&[]))?;
        moment = Some(transaction.snapshot()?);
    }
    snapshot.set(moment);
    Ok(transaction)
}

impl SharedTransaction {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageSource for SharedTransaction {
    fn page(
        &self,
        table: &Table,
        range: KeyRange,
        direction: Direction,
        count: usize,
    ) -> Result<Page, Status> {
        let mut open = self.lock();
        Page::of(open.get()?.range(table, range.clone())?, range, direction, count)
    }
}

/// Applies a record to a transaction, after the locks or reads that find conflicts.
pub fn apply(
    transaction: &mut Transaction,
    locking: Locking,
    family: &Family,
    record: &Record<'_>,
) -> Result<(), Status> {
    family.check_plain()?;
    let (table, key) = (&family.table, keys::stored(record.key));
    if matches!(record.action, Action::LogData) {
        return Ok(());
    }
    if !matches!(record.action, Action::DeleteRange) {
        match locking {
            Locking::Pessimistic => drop(transaction.get_for_update(table, &key)?),
            Locking::Optimistic => drop(transaction.contains(table, &key)?),
        }
    }
    family.target().apply(transaction, record)
}

impl TransactionObject {
    /// Begins a transaction.
    pub fn begin(core: &Arc<Core>, rules: Rules) -> Result<Self, Status> {
        let snapshot = Arc::new(SnapshotCell::default());
        let transaction = Some(begin(core, rules, &snapshot)?);
        let open = Open { transaction, ..Open::default() };
        let batch = Arc::default();
        let shared = Arc::new(SharedTransaction { open: Mutex::new(open), rules, snapshot, batch });
        Ok(Self { core: core.clone(), rules, shared })
    }

    /// Begins the transaction that was prepared under a name, with its locks.
    pub fn recover(core: &Arc<Core>, name: &[u8], batch: &Operations) -> Result<(), Status> {
        let rules = Rules {
            locking: Locking::Pessimistic,
            sets_snapshot: false,
            durability: Durability::Sync,
            lock_timeout: LOCK_TIMEOUT_MIN,
        };
        let transaction = Self::begin(core, rules)?;
        for record in batch.records() {
            let record = record?;
            transaction.write(core.family(record.family)?.as_ref(), &record)?;
        }
        let mut open = transaction.shared.lock();
        open.name = Some(name.to_vec());
        open.phase = Phase::Prepared;
        core.named.prepare(name, transaction.shared.clone());
        Ok(())
    }

    /// Returns objects of the transactions that are prepared.
    pub fn prepared(core: &Arc<Core>) -> Vec<Self> {
        let prepared = core.named.prepared().into_iter();
        let prepared = prepared.filter_map(|object| object.downcast::<SharedTransaction>().ok());
        prepared.map(|shared| Self { core: core.clone(), rules: shared.rules, shared }).collect()
    }

    fn named(&self) -> Arc<NamedObject> {
        self.shared.clone()
    }

    /// Returns the entries for iterators.
    pub fn pages(&self) -> Arc<dyn PageSource> {
        self.shared.clone()
    }

    /// Returns where the snapshot of the begin is.
    pub fn snapshot(&self) -> &Arc<SnapshotCell> {
        &self.shared.snapshot
    }

    /// Returns the operations.
    pub fn batch(&self) -> &Arc<IndexedCell> {
        &self.shared.batch
    }

    /// Returns the name.
    pub fn name(&self) -> Option<Vec<u8>> {
        self.shared.lock().name.clone()
    }

    /// Names the transaction.
    pub fn set_name(&self, name: &[u8]) -> Result<(), Status> {
        let mut open = self.shared.lock();
        open.get()?;
        if open.name.is_some() {
            return Err(Status::invalid("Transaction has already been named."));
        }
        self.core.named.add(name, &self.named())?;
        open.name = Some(name.to_vec());
        Ok(())
    }

    /// Stores the operations durably. Later ones are lost if the process ends before the commit.
    pub fn prepare(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        open.get()?;
        if open.phase == Phase::Prepared {
            return Err(Status::invalid("the transaction is prepared"));
        }
        if self.rules.locking == Locking::Optimistic {
            let message = "Two phase commit not supported for optimistic transactions.";
            return Err(Status::invalid(message));
        }
        let Some(name) = open.name.clone() else {
            let message = "Cannot prepare a transaction that has not been named.";
            return Err(Status::invalid(message));
        };
        prepared::store(&self.core, &name, self.batch().lock().operations())?;
        open.phase = Phase::Prepared;
        self.core.named.prepare(&name, self.shared.clone());
        Ok(())
    }

    /// Returns how the transaction handles conflicts.
    pub fn locking(&self) -> Locking {
        self.rules.locking
    }

    /// Reads or sets the timestamps.
    pub fn timestamps<T>(&self, access: impl FnOnce(&mut TransactionTimestamps) -> T) -> T {
        access(&mut self.shared.lock().timestamps)
    }

    /// Returns the value of a key as the transaction shows it.
    pub fn get(
        &self,
        family: &Family,
        options: Option<&ReadOptions>,
        key: &[u8],
    ) -> Result<Option<ReadValue>, Status> {
        if family.history.is_some() {
            self.shared.lock().get()?;
            return self.get_version(family, options, key);
        }
        family.check_reads_plain(options)?;
        let value = self.shared.lock().get()?.get(&family.table, keys::stored(key))?;
        Ok(value.map(ReadValue::from))
    }

    /// Returns the value of a key after locking it.
    pub fn get_for_update(
        &self,
        family: &Family,
        options: Option<&ReadOptions>,
        key: &[u8],
    ) -> Result<Option<ReadValue>, Status> {
        if family.history.is_some() {
            return self.get_version_for_update(family, options, key);
        }
        family.check_reads_plain(options)?;
        let value = self.lock_key(family, &keys::stored(key))?;
        Ok(value.map(ReadValue::from))
    }

    /// Locks a key of the table of a family, and returns its value.
    pub(super) fn lock_key(&self, family: &Family, key: &[u8]) -> Result<Option<Value>, Status> {
        let mut open = self.shared.lock();
        let value = open.get()?.get_for_update(&family.table, key);
        value.map_err(|error| self.conflict(error))
    }

    /// Returns the failure of an operation. A lock that an optimistic transaction does not get is a
    /// conflict.
    fn conflict(&self, error: quintet::Error) -> Status {
        let status = Status::from(error);
        if status.code() == Code::TimedOut && self.rules.locking == Locking::Optimistic {
            return Status::new(Code::Busy, "another transaction has locked the key");
        }
        status
    }

    /// Applies a record.
    pub fn write(&self, family: &Family, record: &Record<'_>) -> Result<(), Status> {
        if family.history.is_some() {
            return self.write_version(family, record);
        }
        let mut open = self.shared.lock();
        apply(open.get()?, self.rules.locking, family, record)?;
        self.batch().lock().edit(|batch| batch.add(*record));
        Ok(())
    }

    /// Applies the records of a batch. Its records of families with timestamps have one already,
    /// so they are refused.
    pub fn write_batch(&self, batch: &Operations) -> Result<(), Status> {
        batch.check()?;
        for record in batch.records() {
            let record = record?;
            let family = self.core.family(record.family)?;
            if record.action != Action::LogData {
                family.check_plain()?;
            }
            self.write(&family, &record)?;
        }
        Ok(())
    }

    /// Commits. The transaction takes no operation then. A prepared one stays if that fails, and so
    /// does one without a commit timestamp that needs one.
    pub fn commit(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        open.get()?;
        let stamped = open.timestamps.stamped(&self.core, self.batch().lock().operations())?;
        if let (Phase::Prepared, Some(name)) = (open.phase, &open.name) {
            // The locks keep out other transactions until the batch is committed.
            let batch = stamped.unwrap_or_else(|| self.batch().lock().operations().clone());
            prepared::commit(&self.core, self.rules.durability, &batch, name)?;
            open.transaction = None;
        } else if let Some(stamped) = stamped {
            apply_versions(&self.core, open.get()?, &stamped)?;
        }
        let watch = Stopwatch::start();
        let committed = open.transaction.take().map_or(Ok(()), Transaction::commit);
        watch.stop(|counters, time| counters.write_time += time);
        if let Some(name) = open.name.take() {
            self.core.named.remove(&name);
        }
        self.shared.snapshot.set(None);
        Ok(committed?)
    }

    /// Discards the writes. The transaction begins again, without a name.
    pub fn rollback(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        open.get()?;
        if let Some(name) = &open.name {
            if open.phase == Phase::Prepared {
                prepared::remove(&self.core, name)?;
            }
            self.core.named.remove(name);
        }
        self.batch().lock().edit(Operations::clear);
        // Ends the old one, and its locks, first.
        *open = Open { timestamps: open.timestamps, ..Open::default() };
        open.transaction = Some(begin(&self.core, self.rules, &self.shared.snapshot)?);
        Ok(())
    }

    /// Remembers the present writes.
    pub fn set_save_point(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        let save_point = open.get()?.savepoint();
        open.save_points.push(save_point);
        self.batch().lock().edit(Operations::set_save_point);
        Ok(())
    }

    /// Discards the writes since the last save point, and the save point.
    pub fn rollback_to_save_point(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        open.get()?;
        let none = || Status::new(Code::NotFound, "the transaction has no save point");
        let save_point = open.save_points.pop().ok_or_else(none)?;
        self.batch().lock().edit(Operations::rollback_to_save_point)?;
        Ok(open.get()?.rollback_to(save_point)?)
    }
}
