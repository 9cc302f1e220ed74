//! The object of a transaction.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quintet::{
    Durability, Isolation, Key, KeyRange, Savepoint, Table, Transaction, TransactionOptions, Value,
};
use quintet_compat::{
    iterator::PageSource,
    keys,
    operations::{Action, Record},
    status::{Code, Status},
};

use crate::core::{Core, Family};

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

#[derive(Debug)]
struct SharedTransaction(Mutex<Open>);

#[derive(Debug)]
struct Open {
    /// `None`: the transaction was committed.
    transaction: Option<Transaction>,
    save_points: Vec<Savepoint>,
}

impl Open {
    fn begin(core: &Core, rules: Rules) -> Result<Self, Status> {
        let options = TransactionOptions::new()
            .isolation(Isolation::Snapshot)
            .durability(rules.durability)
            .lock_timeout(rules.lock_timeout.max(LOCK_TIMEOUT_MIN));
        let transaction = core.store.database.begin(options)?;
        if rules.sets_snapshot {
            // The first read fixes the moment that the transaction shows.
            let family = core.default_family()?;
            transaction.contains(&family.table, keys::stored(&[]))?;
        }
        Ok(Self { transaction: Some(transaction), save_points: Vec::new() })
    }

    fn get(&mut self) -> Result<&mut Transaction, Status> {
        let ended = || Status::new(Code::Expired, "the transaction was committed");
        self.transaction.as_mut().ok_or_else(ended)
    }
}

impl SharedTransaction {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PageSource for SharedTransaction {
    fn page(
        &self,
        table: &Table,
        range: KeyRange,
        is_reverse: bool,
        count: usize,
    ) -> Result<VecDeque<(Key, Value)>, Status> {
        let mut open = self.lock();
        let entries = open.get()?.range(table, range)?;
        let page: quintet::Result<_> = if is_reverse {
            entries.rev().take(count).collect()
        } else {
            entries.take(count).collect()
        };
        Ok(page?)
    }
}

/// Applies a record to a transaction, after the locks or reads that find conflicts.
pub fn apply(
    transaction: &mut Transaction,
    locking: Locking,
    family: &Family,
    record: &Record<'_>,
) -> Result<(), Status> {
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
    match record.action {
        Action::Put => transaction.put(table, key, record.value)?,
        Action::Delete | Action::SingleDelete => transaction.delete(table, key)?,
        Action::Merge => transaction.merge(table, key, family.target().operand(record.value)?)?,
        Action::DeleteRange => {
            transaction.delete_range(table, &*key..&*keys::stored(record.value))?;
        }
        Action::LogData => {}
    }
    Ok(())
}

impl TransactionObject {
    /// Begins a transaction.
    pub fn begin(core: &Arc<Core>, rules: Rules) -> Result<Self, Status> {
        let open = Open::begin(core, rules)?;
        let shared = Arc::new(SharedTransaction(Mutex::new(open)));
        Ok(Self { core: core.clone(), rules, shared })
    }

    /// Returns the entries for iterators.
    pub fn pages(&self) -> Arc<dyn PageSource> {
        self.shared.clone()
    }

    /// Returns the value of a key as the transaction shows it.
    pub fn get(&self, family: &Family, key: &[u8]) -> Result<Option<Value>, Status> {
        Ok(self.shared.lock().get()?.get(&family.table, keys::stored(key))?)
    }

    /// Returns the value of a key after locking it.
    pub fn get_for_update(&self, family: &Family, key: &[u8]) -> Result<Option<Value>, Status> {
        let mut open = self.shared.lock();
        let value = open.get()?.get_for_update(&family.table, keys::stored(key));
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
        apply(self.shared.lock().get()?, self.rules.locking, family, record)
    }

    /// Commits. The transaction takes no operation then.
    pub fn commit(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        open.get()?;
        let transaction = open.transaction.take();
        Ok(transaction.map_or(Ok(()), Transaction::commit)?)
    }

    /// Discards the writes. The transaction begins again.
    pub fn rollback(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        open.get()?;
        *open = Open { transaction: None, save_points: Vec::new() };
        *open = Open::begin(&self.core, self.rules)?;
        Ok(())
    }

    /// Remembers the present writes.
    pub fn set_save_point(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        let save_point = open.get()?.savepoint();
        open.save_points.push(save_point);
        Ok(())
    }

    /// Discards the writes since the last save point, and the save point.
    pub fn rollback_to_save_point(&self) -> Result<(), Status> {
        let mut open = self.shared.lock();
        let none = || Status::new(Code::NotFound, "the transaction has no save point");
        let save_point = open.save_points.pop().ok_or_else(none)?;
        Ok(open.get()?.rollback_to(save_point)?)
    }
}
