//! Transactions.

use std::sync::Arc;

use quintet::{Database, Savepoint};

use crate::{
    boundary::{Buffer, InOut, Out, Slice, export, required},
    failure::{Code, Failure},
    handles::Handle,
    options::{self, OptionList},
    table::{SharedTransaction, Source, TableHandle, give_value},
};

/// A transaction. One thread at a time uses it, with its tables.
#[derive(Debug)]
pub struct TransactionHandle(Arc<SharedTransaction>);

/// A savepoint.
#[derive(Debug)]
pub struct SavepointHandle(Savepoint);

export! {
    /// Begins a transaction. `options` may be null: it is serializable then.
    ///
    /// Errors: those of every function; `QUINTET_CLOSED`, `QUINTET_INVALID_OPTION`.
    pub fn quintet_begin(
        database: Handle<Database>, options: Handle<OptionList>,
        transaction: Out<Handle<TransactionHandle>>,
    ) {
        let out = required(transaction, "transaction")?;
        let transaction = database.get()?.begin(options::of_transaction(options)?)?;
        out.write(Handle::new(TransactionHandle(Arc::new(SharedTransaction::new(transaction))))?);
        Ok(())
    }

    /// Opens a table as a transaction shows it. The handle takes gets, ranges, scans, puts, deletes
    /// and merges. After the end of the transaction it fails with `QUINTET_ENDED`.
    ///
    /// Errors: `QUINTET_UNSUPPORTED` if `table` is of a snapshot or a transaction.
    pub fn quintet_transaction_table(
        transaction: Handle<TransactionHandle>, table: Handle<TableHandle>,
        view: Out<Handle<TableHandle>>,
    ) {
        let source = Source::Transaction(transaction.get()?.0.clone());
        let table = table.get()?.table()?.clone();
        required(view, "view")?.write(Handle::new(TableHandle { table, source })?);
        Ok(())
    }

    /// Locks a key and copies its value. `table` is one of a transaction. `value` and `found` may
    /// be null. Waits for the lock up to option `"lock_timeout"`.
    ///
    /// Errors: those of a write; `QUINTET_UNSUPPORTED` if `table` is not of a transaction.
    pub fn quintet_get_for_update(
        table: Handle<TableHandle>, key: Slice, value: InOut<Buffer>, found: Out<bool>,
    ) {
        let (handle, key) = (table.get()?, key.bytes()?);
        let Source::Transaction(transaction) = &handle.source else {
            return Err(Failure::new(Code::Unsupported, "the table is not of a transaction"));
        };
        give_value(transaction.with(|tx| tx.get_for_update(&handle.table, key))?, value, found)
    }

    /// Marks a point to which the transaction can return.
    ///
    /// Errors: `QUINTET_ENDED`.
    pub fn quintet_savepoint_new(
        transaction: Handle<TransactionHandle>, savepoint: Out<Handle<SavepointHandle>>,
    ) {
        let out = required(savepoint, "savepoint")?;
        let point = transaction.get()?.0.with(|tx| Ok(tx.savepoint()))?;
        out.write(Handle::new(SavepointHandle(point))?);
        Ok(())
    }

    /// Undoes the writes since a savepoint, which can be used again.
    ///
    /// Errors: `QUINTET_ENDED`; `QUINTET_INVALID_OPTION` for a savepoint that is not of this
    /// transaction, or that a rollback to an earlier one has ended.
    pub fn quintet_rollback_to(
        transaction: Handle<TransactionHandle>, savepoint: Handle<SavepointHandle>,
    ) {
        let point = savepoint.get()?.0;
        transaction.get()?.0.with(|tx| tx.rollback_to(point))
    }

    /// Frees a savepoint. Null is allowed. The transaction is not changed.
    ///
    /// Errors: those of every function.
    pub fn quintet_savepoint_free(savepoint: Handle<SavepointHandle>) {
        savepoint.free().map(drop)
    }

    /// Commits a transaction, which ends in any case. After `QUINTET_CONFLICT` or
    /// `QUINTET_DEADLOCK` nothing is committed, and the program should run the transaction again.
    ///
    /// Errors: those of a write, `QUINTET_CONFLICT`, `QUINTET_ENDED`.
    pub fn quintet_commit(transaction: Handle<TransactionHandle>) {
        let ended = || Failure::new(Code::Ended, "the transaction has ended");
        Ok(transaction.get()?.0.end()?.ok_or_else(ended)?.commit()?)
    }

    /// Rolls a transaction back and frees it. Null is allowed. After `quintet_commit` it only frees
    /// the handle.
    ///
    /// Errors: `QUINTET_BUSY` while another call uses the transaction; it is not freed then.
    pub fn quintet_transaction_free(transaction: Handle<TransactionHandle>) {
        if transaction.is_null() {
            return Ok(());
        }
        match transaction.get() {
            Ok(transaction) => drop(transaction.0.end()?),
            // Of the process that forked this one: there is nothing to roll back here.
            Err(failure) if failure.code() == Code::Forked => {}
            Err(failure) => return Err(failure),
        }
        transaction.free().map(drop)
    }
}
