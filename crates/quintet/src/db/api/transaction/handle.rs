//! The handle of a transaction: keys, writes, locks, savepoints and the commit.

use std::{cell::RefCell, collections::HashMap, sync::Arc, time::Duration};

use super::options::TransactionOptions;
use crate::{
    Error, Result,
    contract::Op,
    db::{
        api::{
            key_bounds::KeyBounds,
            session::Session,
            snapshot::Snapshot,
            table::Table,
            write_options::{DeleteOptions, PutOptions},
        },
        core::{
            condition::Condition,
            durability::Durability,
            key_locks::{LockKey, LockOutcome},
        },
        encoding::envelope::Envelope,
        limits::{check_key, check_value},
        tables::value::Value,
        transaction::{OwnValue, ReadMode, TransactionReads, WriteSet},
    },
    io::process::ProcessArc,
    util::{mutant::mutant, sync::Ordering},
};

/// Reads of one moment and writes of any tables of one database, committed atomically.
///
/// [`Database::transaction`](crate::db::Database::transaction) runs a closure as a transaction, and
/// runs it again after a conflict. [`Database::begin`](crate::db::Database::begin) leaves that to
/// the caller. Dropping a transaction rolls it back.
///
/// Reads show the moment of the first read, with the transaction's own writes. Until
/// [`Transaction::commit`] no other reader sees these writes. No commit waits for the transaction.
/// Values expire as of that moment.
///
/// Every operation fails with [`Error::OtherDatabase`] for a table of another database, and as the
/// same operation of [`Table`] does. After [`Error::Conflict`], [`Error::Deadlock`] and
/// [`Error::SnapshotExpired`] every operation fails with the same error: the transaction can only
/// be rolled back.
///
/// Limits: it writes at most [`BATCH_BYTES_MAX`](crate::db::BATCH_BYTES_MAX) bytes, and its writes
/// must fit in the memory budget.
pub struct Transaction {
    pub(in crate::db::api) session: ProcessArc<Session>,
    durability: Durability,
    lock_timeout: Duration,
    pub(super) state: RefCell<TransactionState>,
    /// The locked keys with their hashes.
    locks: HashMap<LockKey, u64>,
    /// The number of the transaction, once it needs one.
    owner: Option<u64>,
}

/// What reads change.
#[derive(Debug)]
pub(super) struct TransactionState {
    pub(super) reads: TransactionReads,
    pub(super) writes: WriteSet,
    /// Why the transaction can only be rolled back.
    pub(super) failure: Option<Error>,
}

/// A point of a transaction to which [`Transaction::rollback_to`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    owner: u64,
    number: u64,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operations = self.state.borrow().writes.operations();
        f.debug_struct("Transaction").field("operations", &operations).finish_non_exhaustive()
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        mutant!(RollbackKeepsLocks => return);
        let core = &self.session.core;
        if core.tables.is_forked() {
            return;
        }
        match self.state.get_mut().failure {
            Some(Error::Conflict { .. }) => core.counters.conflicts.fetch_add(1, Ordering::Relaxed),
            Some(Error::Deadlock { .. }) => core.counters.deadlocks.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        if self.locks.is_empty() {
            return;
        }
        let Some(owner) = self.owner else { return };
        for (key, hash) in self.locks.drain() {
            core.key_locks.unlock(owner, (&key, hash));
        }
    }
}

impl TransactionState {
    /// Keeps a failure after which the transaction can only be rolled back.
    pub(super) fn keep_failure<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && is_passing(error)
        {
            self.failure = Some(error.clone());
        }
        result
    }
}

impl Transaction {
    /// Begins a transaction.
    pub(super) fn new(
        session: ProcessArc<Session>,
        options: &TransactionOptions,
        mode: ReadMode,
    ) -> Self {
        Self {
            durability: options.durability.unwrap_or(session.core.durability),
            lock_timeout: options.lock_timeout,
            state: RefCell::new(TransactionState {
                reads: TransactionReads::new(mode),
                writes: WriteSet::new(),
                failure: None,
            }),
            locks: HashMap::new(),
            owner: None,
            session,
        }
    }

    /// Returns the value of `key`, or `None` if it is absent, expired, or deleted by this
    /// transaction.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        check_key(key)?;
        let table = &*table.current();
        self.check(table)?;
        let core = &self.session.core;
        let state = &mut *self.state.borrow_mut();
        match state.writes.find(table.state.id, key) {
            OwnValue::Unwritten => {
                let value = state.reads.get(core, &table.state, key);
                state.keep_failure(value)
            }
            own => own_value(table, &state.writes, own),
        }
    }

    /// Copies the value of `key` into `out` and replaces its content. Returns whether the key has a
    /// value; otherwise, and after an error, `out` is empty.
    pub fn get_into(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        out.clear();
        self.get(table, key).map(|value| Value::copy_to(value.as_ref(), out))
    }

    /// Returns the values of `keys` in the same order.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: &[K],
    ) -> Result<Vec<Option<Value>>> {
        keys.iter().map(|key| self.get(table, key)).collect()
    }

    /// Returns whether `key` has a value.
    pub fn contains(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.get(table, key).map(|value| value.is_some())
    }

    /// Returns a snapshot of the moment that the transaction reads now, without its writes. Fixes
    /// that moment if nothing was read before. The snapshot stays when the transaction ends. Fails
    /// with [`Error::Conflict`] if an earlier read would be different in a snapshot of now.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let core = &self.session.core;
        core.tables.check_process()?;
        let state = &mut *self.state.borrow_mut();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let snapshot = state.reads.ensure_snapshot(core);
        let snapshot = state.keep_failure(snapshot)?;
        Ok(Snapshot::of_transaction(self.session.clone(), snapshot))
    }

    /// Returns the value of `key` after locking the key, so that the commit will not fail because
    /// of another transaction that locks the same key. For keys that many transactions change.
    ///
    /// The lock is held until the transaction ends. It does not keep out writes that take no lock;
    /// the commit is validated against those. If the key has changed since the first read, the
    /// transaction's moment moves forward to now. It fails with [`Error::Conflict`] if an earlier
    /// read would be different then. With
    /// [`Isolation::Snapshot`](crate::Isolation::Snapshot) it fails if there was one.
    ///
    /// Waits up to [`TransactionOptions::lock_timeout`], then fails with [`Error::LockTimeout`].
    /// Fails with [`Error::Deadlock`] if the holder of the lock waits for this transaction.
    pub fn get_for_update(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Value>> {
        let key = key.as_ref();
        check_key(key)?;
        let table = &*table.current();
        self.check(table)?;
        self.session.core.tables.check_writable()?;
        let locked = self.lock_key(table, key);
        let core = &self.session.core;
        let state = self.state.get_mut();
        state.keep_failure(locked)?;
        match state.writes.find(table.state.id, key) {
            OwnValue::Unwritten => {
                let value = state.reads.get_locked(core, &table.state, key);
                state.keep_failure(value)
            }
            own => own_value(table, &state.writes, own),
        }
    }

    fn lock_key(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let owner = self.owner();
        let core = &self.session.core;
        let hash = table.state.hash.hash(key);
        let lock = LockKey { table_id: table.state.id, key: key.into() };
        if self.locks.contains_key(&lock) {
            return Ok(());
        }
        let is_open = || core.tables.check_usable(&table.state);
        let wait = (&*core.env, self.lock_timeout);
        let outcome = core.key_locks.lock(owner, (&lock, hash), wait, &is_open)?;
        let (table, key) = (table.name(), key.to_vec());
        match outcome {
            LockOutcome::Granted => {
                self.locks.insert(lock, hash);
                Ok(())
            }
            LockOutcome::Deadlock => Err(Error::Deadlock { table, key }),
            LockOutcome::TimedOut => Err(Error::LockTimeout { table, key }),
        }
    }

    fn owner(&mut self) -> u64 {
        *self.owner.get_or_insert_with(|| self.session.core.key_locks.new_owner())
    }

    /// Sets the value of `key`, at commit. Fails as [`Table::put`] does, with
    /// [`Error::TypeMismatch`] at once. Fails with [`Error::Limit`] and [`Error::OutOfMemory`] if
    /// the transaction would be too large; it can go on without the write.
    pub fn put(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_with(table, key, value, PutOptions::new()).map(drop)
    }

    /// Sets the value of `key` as `options` say. Returns `false`, and writes nothing, if a
    /// condition does not hold for what the transaction reads. A condition counts as a read of the
    /// key. A ttl counts from this call. A durability fails with [`Error::InvalidOption`]; the
    /// durability of a transaction is one of [`TransactionOptions`].
    pub fn put_with(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: PutOptions,
    ) -> Result<bool> {
        let (key, body) = (key.as_ref(), value.as_ref());
        check_key(key)?;
        check_value(body)?;
        let core = &self.session.core;
        core.tables.check_process()?;
        let expires_at = options.expiry(|| core.host.clock.now())?;
        let envelope = Envelope { expires_at, type_tag: options.type_tag }.encode();
        let op = Op::Put { key, head: envelope.as_slice(), body };
        self.write(table, &op, (options.condition, options.durability))
    }

    /// Removes `key`, present or not, at commit.
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(table, key, DeleteOptions::new()).map(drop)
    }

    /// Removes `key` as `options` say; see [`Transaction::put_with`].
    pub fn delete_with(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        options: DeleteOptions,
    ) -> Result<bool> {
        let key = key.as_ref();
        check_key(key)?;
        self.write(table, &Op::Delete { key }, (options.condition, options.durability))
    }

    /// Removes all keys of a range, at commit. The range does not count as read. The commit locks
    /// out all other commits while it is applied. Fails with [`Error::Unordered`] on an engine
    /// without key order.
    pub fn delete_range(&mut self, table: &Table, range: impl KeyBounds) -> Result<()> {
        let table = &*table.current();
        self.check(table)?;
        table.check_ordered()?;
        let range = range.into_key_range();
        if range.is_empty() {
            return Ok(());
        }
        let start = range.start.as_deref().unwrap_or(&[]);
        let end = range.end.as_deref().unwrap_or(&[]);
        for bound in [start, end].into_iter().filter(|bound| !bound.is_empty()) {
            check_key(bound)?;
        }
        self.write(table, &Op::DeleteRange { start, end }, (Condition::Always, None)).map(drop)
    }

    /// Adds a write if its condition holds.
    pub(in crate::db::api) fn write(
        &mut self,
        table: &Table,
        op: &Op<'_>,
        (condition, durability): (Condition, Option<Durability>),
    ) -> Result<bool> {
        let table = &*table.current();
        self.check(table)?;
        let tables = &self.session.core.tables;
        tables.check_writable()?;
        tables.check_types(&table.state, op)?;
        if durability.is_some() {
            return Err(Error::InvalidOption {
                name: "transaction".to_owned(),
                what: "a write in a transaction has no durability; the transaction has one"
                    .to_owned(),
            });
        }
        if let Op::Put { key, .. } | Op::Delete { key } = op
            && condition != Condition::Always
        {
            let is_present = mutant!(ConditionNotValidated: table.contains(key)?, else
                self.contains(table, key)?);
            if is_present != (condition == Condition::Present) {
                return Ok(false);
            }
        }
        let core = &self.session.core;
        self.state.get_mut().writes.add(&core.budget, &table.state, op)?;
        Ok(true)
    }

    /// Marks a point to which [`Transaction::rollback_to`] returns.
    pub fn savepoint(&mut self) -> Savepoint {
        let owner = self.owner();
        Savepoint { owner, number: self.state.get_mut().writes.save() }
    }

    /// Undoes the writes since `savepoint`, which can be used again. Later savepoints end. What was
    /// read since still counts as read, and keys stay locked. Costs a look at the writes that
    /// remain.
    ///
    /// Fails with [`Error::InvalidOption`] if the savepoint has ended or is of another transaction.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.session.core.tables.check_process()?;
        let state = self.state.get_mut();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let is_own = self.owner == Some(savepoint.owner);
        if is_own && state.writes.roll_back_to(savepoint.number) {
            return Ok(());
        }
        Err(Error::InvalidOption {
            name: "savepoint".to_owned(),
            what: "it is not one of this transaction, or a rollback to an earlier one has ended it"
                .to_owned(),
        })
    }

    /// Commits. The transaction takes effect as a whole, at one moment, as one record of the log.
    /// If it has written nothing and no read of it has failed, it takes no lock and does not fail.
    ///
    /// Fails with [`Error::Conflict`] if a commit since has changed what this transaction depends
    /// on; see [`Isolation`](crate::Isolation). Otherwise fails as
    /// [`Batch::commit`](crate::db::Batch::commit) does.
    /// Nothing is committed then.
    pub fn commit(mut self) -> Result<()> {
        self.finish()
    }

    /// Discards all writes and releases the locks. The same as dropping the transaction.
    pub fn rollback(self) {
        drop(self);
    }

    /// Commits.
    pub(super) fn finish(&mut self) -> Result<()> {
        let core = &self.session.core;
        core.tables.check_process()?;
        let TransactionState { reads, writes, failure } = self.state.get_mut();
        if let Some(failure) = failure {
            return Err(failure.clone());
        }
        let committed = core.commit_transaction(writes, reads, self.durability);
        match &committed {
            Ok(()) if writes.is_empty() => {}
            Ok(()) => drop(core.counters.transactions.fetch_add(1, Ordering::Relaxed)),
            Err(error) if is_passing(error) => *failure = Some(error.clone()),
            Err(_) => {}
        }
        committed
    }

    /// Fails unless the transaction can go on and may use the table.
    pub(super) fn check(&self, table: &Table) -> Result<()> {
        let core = &self.session.core;
        if !Arc::ptr_eq(core, &table.session.core) {
            return Err(Error::OtherDatabase { table: table.name() });
        }
        core.tables.check_usable(&table.state)?;
        let mut state = self.state.borrow_mut();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let created_at = table.state.created_at();
        if state.reads.snapshot().is_some_and(|snapshot| snapshot.precedes(created_at)) {
            // The table was cleared after the transaction began.
            let conflict = Error::Conflict { table: table.name(), key: Vec::new() };
            return state.keep_failure(Err(conflict));
        }
        Ok(())
    }
}

/// Returns whether the transaction must be rolled back, and may succeed if it is run again.
pub(super) fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. } | Error::Deadlock { .. } | Error::SnapshotExpired { .. })
}

/// Returns the value of a key that the transaction has written.
pub(super) fn own_value(table: &Table, writes: &WriteSet, own: OwnValue) -> Result<Option<Value>> {
    let OwnValue::Stored(place) = own else { return Ok(None) };
    let value = Value::open(writes.stored(place));
    value.map(Some).ok_or_else(|| table.session.core.tables.bad_envelope(&table.state))
}
