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
    /// Makes an empty batch. Free it with `quintet_batch_free`.
    pub fn quintet_batch_new(database: Handle<Database>, batch: Out<Handle<BatchHandle>>) {
        let out = required(batch, "batch")?;
        out.write(Handle::new(BatchHandle(Mutex::new(database.get()?.batch())))?);
        Ok(())
    }

    /// Adds a put. `options` (may be null) have an expiry and a type only. A refused operation makes
    /// `quintet_batch_commit` fail.
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
    pub fn quintet_batch_merge(
        batch: Handle<BatchHandle>, table: Handle<TableHandle>, key: Slice, operand: Slice,
    ) {
        let handle = table.get()?;
        let (table, key, operand) = (handle.table()?, key.bytes()?, operand.bytes()?);
        with_batch(batch, |batch| {
            batch.merge(table, key, operand);
        })
    }

    /// Stores the number of operations and of bytes (each may be null).
    pub fn quintet_batch_size(
        batch: Handle<BatchHandle>, operations: Out<usize>, bytes: Out<u64>,
    ) {
        with_batch(batch, |batch| {
            crate::boundary::give(operations, batch.len());
            crate::boundary::give(bytes, batch.bytes());
        })
    }

    /// Removes all operations, and a refusal.
    pub fn quintet_batch_clear(batch: Handle<BatchHandle>) {
        with_batch(batch, Batch::clear)
    }

    /// Commits a batch: all of it or nothing. `durability`: 0 as the database, 1 buffered, 2 sync.
    /// The batch is empty afterwards and may be used again; after a failure it is unchanged.
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

    /// Frees a batch. Null is allowed. What was not committed is discarded.
    pub fn quintet_batch_free(batch: Handle<BatchHandle>) {
        batch.free().map(drop)
    }
}
