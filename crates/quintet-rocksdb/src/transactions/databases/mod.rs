//! Databases with transactions. Their objects are those of other databases; here are the functions
//! that differ, and the names of the others.

mod options;

use std::{ffi::c_int, sync::Arc, time::Duration};

use quintet::{Isolation, TransactionOptions};
use quintet_compat::{
    boundary::{Allocated, AllocatedArray, Array, Bytes, Out, OutArray, Text, give, required},
    export, export_fallible,
    operations::{Action, Operations, Record},
    snapshot::{SnapshotCell, SnapshotObject},
    status::Status,
};

use options::{OptimisticOptions, TransactionDbOptions, TransactionOptionsObject};

use super::{
    handle::{Locking, Rules, TransactionObject, apply},
    prepared::recover,
};
use crate::{
    core::{Access, Core, Db, Families, numbered},
    families::{FamilyHandle, create, family_of},
    iterator::{IteratorObject, object},
    open::{FamilyArguments, open_default, open_families},
    options::{
        database::DatabaseOptions,
        reads::ReadOptions,
        writes::{FlushOptions, WriteOptions},
    },
    properties::{default_property, give_number},
    reads::{KeyAndValue, PinnedValue, Results, copied, key_at, multi_get},
};

fn apply_all(
    transaction: &mut quintet::Transaction,
    families: &Families,
    batch: &Operations,
) -> Result<(), Status> {
    for record in batch.records() {
        let record = record?;
        let family = numbered(families, record.family)?;
        if family.history.is_some() {
            let message = "Write operation with user timestamp must go through the transaction API \
                           instead of TransactionDB.";
            return Err(Status::unsupported(message));
        }
        apply(transaction, Locking::Pessimistic, family, &record)?;
    }
    Ok(())
}

/// Writes a batch after locking its keys, so it waits for transactions that have locked them.
fn write(db: &Db, options: Option<&WriteOptions>, batch: &Operations) -> Result<(), Status> {
    batch.check()?;
    let options = TransactionOptions::new()
        .isolation(Isolation::Snapshot)
        .durability(required(options, "the write options")?.durability())
        .lock_timeout(db.lock_timeout.max(Duration::from_millis(1)));
    let families = db.core.families();
    db.core
        .store
        .database
        .transaction_with(options, |transaction| apply_all(transaction, &families, batch))
}

/// Writes one record.
fn write_one(
    db: Option<&Db>,
    options: Option<&WriteOptions>,
    action: Action,
    family: u32,
    (key, value): KeyAndValue<'_>,
) -> Result<(), Status> {
    let mut batch = Operations::default();
    batch.add(Record { action, family, key: key?, value: value? });
    write(required(db, "the database")?, options, &batch)
}

fn id(family: Option<&FamilyHandle>) -> Result<u32, Status> {
    Ok(family_of(family)?.id)
}

/// Makes the object of a database whose transactions lock keys, and locks those of prepared ones.
fn with_locks(core: Arc<Core>, options: &TransactionDbOptions) -> Result<Db, Status> {
    let lock_timeout = options.lock_timeout();
    let begin = |name: &[u8], batch: &Operations| TransactionObject::recover(&core, name, batch);
    if let Err(status) = recover(&core, begin) {
        // The first failure counts.
        let _ = core.store.close();
        return Err(status);
    }
    Ok(Db { lock_timeout, ..Db::new(core) })
}

export_fallible! {
    /// Opens a database whose transactions lock keys.
    pub fn rocksdb_transactiondb_open(
        options: Option<&DatabaseOptions>, locks: Option<&TransactionDbOptions>, name: Text,
    ) -> Option<Box<Db>>, None, {
        let locks = required(locks, "options of transactions")?;
        Ok(Some(Box::new(with_locks(open_default(options, name, None, Access::Write)?, locks)?)))
    }

    /// Opens a database whose transactions lock keys, with all its column families.
    pub fn rocksdb_transactiondb_open_column_families(
        options: Option<&DatabaseOptions>, locks: Option<&TransactionDbOptions>, name: Text,
        count: c_int, names: Array<Text>, family_options: Array<Option<&DatabaseOptions>>,
        handles: OutArray<Option<Box<FamilyHandle>>>,
    ) -> Option<Box<Db>>, None, {
        let locks = required(locks, "options of transactions")?;
        let arguments =
            FamilyArguments { count, names, options: family_options, ttls: None, handles };
        let core = open_families(options, name, arguments, Access::Write)?;
        Ok(Some(Box::new(with_locks(core, locks)?)))
    }

    /// Opens a database whose transactions find conflicts at the commit.
    pub fn rocksdb_optimistictransactiondb_open(
        options: Option<&DatabaseOptions>, name: Text,
    ) -> Option<Box<Db>>, None, {
        Ok(Some(Box::new(Db::new(open_default(options, name, None, Access::Write)?))))
    }

    /// Opens a database whose transactions find conflicts at the commit, with all its column
    /// families.
    pub fn rocksdb_optimistictransactiondb_open_column_families(
        options: Option<&DatabaseOptions>, name: Text, count: c_int, names: Array<Text>,
        family_options: Array<Option<&DatabaseOptions>>,
        handles: OutArray<Option<Box<FamilyHandle>>>,
    ) -> Option<Box<Db>>, None, {
        let arguments =
            FamilyArguments { count, names, options: family_options, ttls: None, handles };
        Ok(Some(Box::new(Db::new(open_families(options, name, arguments, Access::Write)?))))
    }

    /// Creates a column family.
    pub fn rocksdb_transactiondb_create_column_family(
        db: Option<&Db>, options: Option<&DatabaseOptions>, name: Text,
    ) -> Option<Box<FamilyHandle>>, None, {
        create(&required(db, "the database")?.core, options, name, None)
    }

    /// Stores a value under a key, after waiting for its lock.
    pub fn rocksdb_transactiondb_put(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
        value: Bytes, size: usize,
    ) {
        write_one(db, options, Action::Put, 0, (key.items(key_size), value.items(size)))
    }

    /// Stores a value under a key of a column family, after waiting for its lock.
    pub fn rocksdb_transactiondb_put_cf(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        let record = (key.items(key_size), value.items(size));
        write_one(db, options, Action::Put, id(family)?, record)
    }

    /// Merges an operand into the value of a key, after waiting for its lock.
    pub fn rocksdb_transactiondb_merge(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
        value: Bytes, size: usize,
    ) {
        write_one(db, options, Action::Merge, 0, (key.items(key_size), value.items(size)))
    }

    /// Merges an operand into the value of a key of a column family, after waiting for its lock.
    pub fn rocksdb_transactiondb_merge_cf(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        let record = (key.items(key_size), value.items(size));
        write_one(db, options, Action::Merge, id(family)?, record)
    }

    /// Deletes a key, after waiting for its lock.
    pub fn rocksdb_transactiondb_delete(
        db: Option<&Db>, options: Option<&WriteOptions>, key: Bytes, key_size: usize,
    ) {
        write_one(db, options, Action::Delete, 0, (key.items(key_size), Ok(&[])))
    }

    /// Deletes a key of a column family, after waiting for its lock.
    pub fn rocksdb_transactiondb_delete_cf(
        db: Option<&Db>, options: Option<&WriteOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize,
    ) {
        write_one(db, options, Action::Delete, id(family)?, (key.items(key_size), Ok(&[])))
    }

    /// Writes a batch: all of it or nothing, after waiting for the locks of its keys.
    pub fn rocksdb_transactiondb_write(
        db: Option<&Db>, options: Option<&WriteOptions>, batch: Option<&Operations>,
    ) {
        write(required(db, "the database")?, options, required(batch, "the batch")?)
    }

    /// Writes a batch: all of it or nothing.
    pub fn rocksdb_optimistictransactiondb_write(
        db: Option<&Db>, options: Option<&WriteOptions>, batch: Option<&Operations>,
    ) {
        let (db, batch) = (required(db, "the database")?, required(batch, "the batch")?);
        db.core.write(required(options, "the write options")?, batch)
    }

    /// Returns the value of a key, to be released by `rocksdb_free`.
    pub fn rocksdb_transactiondb_get(
        db: Option<&Db>, options: Option<&ReadOptions>, key: Bytes, key_size: usize,
        size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        let family = required(db, "the database")?.core.default_family()?;
        copied(key.items(key_size).and_then(|key| family.get(options, key)), size)
    }

    /// Returns the value of a key of a column family, to be released by `rocksdb_free`.
    pub fn rocksdb_transactiondb_get_cf(
        _db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize, size: Out<'_, usize>,
    ) -> Allocated, Allocated::NULL, {
        copied((|| family_of(family)?.get(options, key.items(key_size)?))(), size)
    }

    /// Returns the value of a key without a copy.
    pub fn rocksdb_transactiondb_get_pinned(
        db: Option<&Db>, options: Option<&ReadOptions>, key: Bytes, key_size: usize,
    ) -> Option<Box<PinnedValue>>, None, {
        let family = required(db, "the database")?.core.default_family()?;
        Ok(PinnedValue::of(family.get(options, key.items(key_size)?)?))
    }

    /// Returns the value of a key of a column family without a copy.
    pub fn rocksdb_transactiondb_get_pinned_cf(
        _db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
        key: Bytes, key_size: usize,
    ) -> Option<Box<PinnedValue>>, None, {
        let value = family_of(family)?.get(options, key.items(key_size)?)?;
        Ok(PinnedValue::of(value))
    }

    /// Checkpoints the default column family.
    pub fn rocksdb_transactiondb_flush(db: Option<&Db>, _options: Option<&FlushOptions>) {
        Ok(required(db, "the database")?.core.default_family()?.table.persist()?)
    }

    /// Checkpoints a column family.
    pub fn rocksdb_transactiondb_flush_cf(
        _db: Option<&Db>, _options: Option<&FlushOptions>, family: Option<&FamilyHandle>,
    ) {
        Ok(family_of(family)?.table.persist()?)
    }

    /// Syncs the log if `sync` is not 0.
    pub fn rocksdb_transactiondb_flush_wal(db: Option<&Db>, sync: u8) {
        let db = required(db, "the database")?;
        if sync == 0 { Ok(()) } else { Ok(db.core.store.database.sync()?) }
    }
}

fn begin(
    db: Option<&Db>,
    rules: Result<Rules, Status>,
    old: Option<Box<TransactionObject>>,
) -> Option<Box<TransactionObject>> {
    // The interface returns the old object, whose transaction ends here.
    drop(old);
    TransactionObject::begin(&db?.core, rules.ok()?).ok().map(Box::new)
}

fn snapshot(db: Option<&Db>) -> Option<Box<SnapshotObject>> {
    let snapshot = db?.core.store.database.snapshot().ok()?;
    Some(SnapshotObject::new(SnapshotCell::new(snapshot)))
}

fn property_int(db: Option<&Db>, name: Text, out: Out<'_, u64>) -> c_int {
    let give = || {
        let core = &required(db, "the database")?.core;
        give_number(core, core.default_family()?, name, out)
    };
    give().unwrap_or(-1)
}

export! {
    /// Closes a database.
    pub fn rocksdb_transactiondb_close(db: Option<Box<Db>>) {
        if let Some(db) = db {
            db.close();
        }
    }

    /// Closes a database.
    pub fn rocksdb_optimistictransactiondb_close(db: Option<Box<Db>>) {
        if let Some(db) = db {
            db.close();
        }
    }

    /// Returns an object for operations outside transactions.
    pub fn rocksdb_optimistictransactiondb_get_base_db(
        db: Option<&Db>,
    ) -> Option<Box<Db>>, None, {
        db.map(|db| Box::new(Db { is_owner: false, ..Db::new(db.core.clone()) }))
    }

    /// Frees the object of `rocksdb_optimistictransactiondb_get_base_db`.
    pub fn rocksdb_optimistictransactiondb_close_base_db(db: Option<Box<Db>>) {
        drop(db);
    }

    /// Returns the transactions that are prepared, also those that were when the database was
    /// opened. The array is to be released by `rocksdb_free`, each transaction to be destroyed.
    pub fn rocksdb_transactiondb_get_prepared_transactions(
        db: Option<&Db>, count: Out<'_, usize>,
    ) -> AllocatedArray<Box<TransactionObject>>, AllocatedArray::NULL, {
        let prepared = db.map(|db| TransactionObject::prepared(&db.core)).unwrap_or_default();
        let number = prepared.len();
        let list = AllocatedArray::of(prepared.into_iter().map(Box::new).collect());
        give(count, if list.is_null() { 0 } else { number });
        list
    }

    /// Begins a transaction that locks the keys that it writes. The old object is freed.
    pub fn rocksdb_transaction_begin(
        db: Option<&Db>, options: Option<&WriteOptions>,
        rules: Option<&TransactionOptionsObject>, old: Option<Box<TransactionObject>>,
    ) -> Option<Box<TransactionObject>>, None, {
        let timeout = db.map_or(Duration::ZERO, |db| db.lock_timeout);
        let rules = required(options, "the write options").map(|options| Rules {
            locking: Locking::Pessimistic,
            sets_snapshot: rules.is_some_and(TransactionOptionsObject::sets_snapshot),
            durability: options.durability(),
            lock_timeout: rules.and_then(TransactionOptionsObject::lock_timeout).unwrap_or(timeout),
        });
        begin(db, rules, old)
    }

    /// Begins a transaction whose commit finds conflicts. The old object is freed.
    pub fn rocksdb_optimistictransaction_begin(
        db: Option<&Db>, options: Option<&WriteOptions>, rules: Option<&OptimisticOptions>,
        old: Option<Box<TransactionObject>>,
    ) -> Option<Box<TransactionObject>>, None, {
        let rules = required(options, "the write options").map(|options| Rules {
            locking: Locking::Optimistic,
            sets_snapshot: rules.is_some_and(OptimisticOptions::sets_snapshot),
            durability: options.durability(),
            lock_timeout: Duration::ZERO,
        });
        begin(db, rules, old)
    }

    /// Takes a snapshot of all column families.
    pub fn rocksdb_transactiondb_create_snapshot(
        db: Option<&Db>,
    ) -> Option<Box<SnapshotObject>>, None, {
        snapshot(db)
    }

    /// Releases a snapshot.
    pub fn rocksdb_transactiondb_release_snapshot(
        _db: Option<&Db>, snapshot: Option<Box<SnapshotObject>>,
    ) {
        drop(snapshot);
    }

    /// Returns the text of a property, to be released by `rocksdb_free`.
    pub fn rocksdb_transactiondb_property_value(
        db: Option<&Db>, name: Text,
    ) -> Allocated, Allocated::NULL, {
        db.map_or(Allocated::NULL, |db| default_property(&db.core, name))
    }

    /// Returns the text of a property, to be released by `rocksdb_free`.
    pub fn rocksdb_optimistictransactiondb_property_value(
        db: Option<&Db>, name: Text,
    ) -> Allocated, Allocated::NULL, {
        db.map_or(Allocated::NULL, |db| default_property(&db.core, name))
    }

    /// Stores a property that is a number. Returns 0, or -1 if there is none.
    pub fn rocksdb_transactiondb_property_int(
        db: Option<&Db>, name: Text, out: Out<'_, u64>,
    ) -> c_int, -1, {
        property_int(db, name, out)
    }

    /// Stores a property that is a number. Returns 0, or -1 if there is none.
    pub fn rocksdb_optimistictransactiondb_property_int(
        db: Option<&Db>, name: Text, out: Out<'_, u64>,
    ) -> c_int, -1, {
        property_int(db, name, out)
    }

    /// Makes an iterator of the default column family.
    pub fn rocksdb_transactiondb_create_iterator(
        db: Option<&Db>, options: Option<&ReadOptions>,
    ) -> Option<Box<IteratorObject>>, None, {
        let new = || {
            let core = &required(db, "the database")?.core;
            IteratorObject::new(core, options, core.default_family()?)
        };
        Some(object(new()))
    }

    /// Makes an iterator of a column family.
    pub fn rocksdb_transactiondb_create_iterator_cf(
        db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
    ) -> Option<Box<IteratorObject>>, None, {
        let new = || {
            let core = &required(db, "the database")?.core;
            IteratorObject::new(core, options, family_of(family)?)
        };
        Some(object(new()))
    }

    /// Gets several keys. Values and messages are to be released by `rocksdb_free`.
    pub fn rocksdb_transactiondb_multi_get(
        db: Option<&Db>, options: Option<&ReadOptions>, count: usize, keys: Array<Bytes>,
        key_sizes: Array<usize>, values: OutArray<Allocated>, sizes: OutArray<usize>,
        errors: OutArray<Allocated>,
    ) {
        multi_get(count, Results { values, sizes, errors }, |index| {
            let key = key_at(&keys, key_sizes, count, index)?;
            required(db, "the database")?.core.default_family()?.get(options, key)
        });
    }

    /// Gets several keys, each of its column family.
    pub fn rocksdb_transactiondb_multi_get_cf(
        _db: Option<&Db>, options: Option<&ReadOptions>, families: Array<Option<&FamilyHandle>>,
        count: usize, keys: Array<Bytes>, key_sizes: Array<usize>, values: OutArray<Allocated>,
        sizes: OutArray<usize>, errors: OutArray<Allocated>,
    ) {
        multi_get(count, Results { values, sizes, errors }, |index| {
            let family = families.items(count)?.get(index).copied().flatten();
            family_of(family)?.get(options, key_at(&keys, key_sizes, count, index)?)
        });
    }
}
