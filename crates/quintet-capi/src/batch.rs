//! Batches: writes of several tables that are committed together.

use std::sync::Mutex;

use quintet::{Batch, Database, Durability};

use crate::{
    boundary::{In, Out, Slice, export, required},
    failure::{Code, Failure},
    handles::Handle,
    table::{TableHandle, exclusive},
    write::{self, WriteOptions},
};

/// A batch. One thread at a time uses it.
#[derive(Debug)]
pub struct BatchHandle(Mutex<Batch>);

fn with_batch<T>(
    batch: Handle<BatchHandle>,
    body: impl FnOnce(&mut Batch) -> T,
) -> Result<T, Failure> {
    let batch = batch.get()?;
    let mut batch = exclusive(&batch.0)?;
    Ok(body(&mut batch))
}

export! {
    /// Makes an empty batch.
    ///
    /// Errors: those of every function.
    pub fn quintet_batch_new(database: Handle<Database>, batch: Out<Handle<BatchHandle>>) {
        let out = required(batch, "batch")?;
        out.write(Handle::new(BatchHandle(Mutex::new(database.get()?.batch())))?);
        Ok(())
    }

    /// Adds a put. Of `options` (may be null), the expiry and the type apply. A write that the
    /// table refuses makes `quintet_batch_commit` fail.
    ///
    /// Errors: `QUINTET_UNSUPPORTED` if `table` is of a snapshot or a transaction.
    pub fn quintet_batch_put(
        batch: Handle<BatchHandle>, table: Handle<TableHandle>, key: Slice, value: Slice,
        options: In<WriteOptions>,
    ) {
        let (handle, options) = (table.get()?, write::put(options)?);
        let (table, key, value) = (handle.table()?, key.bytes()?, value.bytes()?);
        with_batch(batch, |batch| {
            batch.put_with(table, key, value, options);
        })
    }

    /// Adds a delete.
    ///
    /// Errors: `QUINTET_UNSUPPORTED` if `table` is of a snapshot or a transaction.
    pub fn quintet_batch_delete(
        batch: Handle<BatchHandle>, table: Handle<TableHandle>, key: Slice,
    ) {
        let handle = table.get()?;
        let (table, key) = (handle.table()?, key.bytes()?);
        with_batch(batch, |batch| {
            batch.delete(table, key);
        })
    }

    /// Adds a merge.
    ///
    /// Errors: `QUINTET_UNSUPPORTED` if `table` is of a snapshot or a transaction.
    pub fn quintet_batch_merge(
        batch: Handle<BatchHandle>, table: Handle<TableHandle>, key: Slice, operand: Slice,
    ) {
        let handle = table.get()?;
        let (table, key, operand) = (handle.table()?, key.bytes()?, operand.bytes()?);
        with_batch(batch, |batch| {
            batch.merge(table, key, operand);
        })
    }

    /// Stores the number of operations and the number of their bytes. Both may be null.
    ///
    /// Errors: those of every function.
    pub fn quintet_batch_size(
        batch: Handle<BatchHandle>, operations: Out<usize>, bytes: Out<u64>,
    ) {
        with_batch(batch, |batch| {
            crate::boundary::give(operations, batch.len());
            crate::boundary::give(bytes, batch.bytes());
        })
    }

    /// Removes all operations, also one that makes the commit fail.
    ///
    /// Errors: those of every function.
    pub fn quintet_batch_clear(batch: Handle<BatchHandle>) {
        with_batch(batch, Batch::clear)
    }

    /// Commits a batch: all of it or nothing. `durability` is 0 as the database has it, 1 for
    /// buffered, 2 for sync. The batch is empty afterwards and can be used again. After an error it
    /// is unchanged.
    ///
    /// Errors: those of a write, `QUINTET_OTHER_DATABASE`, `QUINTET_MERGE_REFUSED`,
    /// `QUINTET_INVALID_OPTION`, `QUINTET_UNSUPPORTED`.
    pub fn quintet_batch_commit(batch: Handle<BatchHandle>, durability: u8) {
        let durability = match durability {
            0 => None,
            1 => Some(Durability::Buffered),
            2 => Some(Durability::Sync),
            _ => return Err(Failure::new(Code::InvalidOption, "durability is 0, 1 or 2")),
        };
        with_batch(batch, |batch| match durability {
            Some(durability) => batch.commit_with(durability),
            None => batch.commit(),
        })?
        .map_err(Failure::from)
    }

    /// Frees a batch and discards what was not committed. Null is allowed.
    ///
    /// Errors: those of every function.
    pub fn quintet_batch_free(batch: Handle<BatchHandle>) {
        batch.free().map(drop)
    }
}
