//! Write batches.

use quintet_compat::{
    boundary::{Bytes, Context, View},
    export,
    operations::{Action, Operations, Record},
    status::Status,
};

/// Gets a put of a batch.
pub type PutFunction =
    extern "C-unwind" fn(state: Context, key: View, key_size: usize, value: View, size: usize);
/// Gets a delete of a batch.
pub type DeletedFunction = extern "C-unwind" fn(state: Context, key: View, key_size: usize);

/// Adds a record. An unsuitable address makes the write of the batch fail.
fn add(
    batch: Option<&mut Operations>,
    action: Action,
    key: Result<&[u8], Status>,
    value: Result<&[u8], Status>,
) {
    let Some(batch) = batch else { return };
    match (key, value) {
        (Ok(key), Ok(value)) => batch.add(Record { action, family: 0, key, value }),
        (Err(status), _) | (_, Err(status)) => batch.refuse(status),
    }
}

export! {
    /// Makes an empty batch.
    pub fn leveldb_writebatch_create() -> Option<Box<Operations>>, None, {
        Some(Box::default())
    }

    /// Frees a batch.
    pub fn leveldb_writebatch_destroy(batch: Option<Box<Operations>>) {
        drop(batch);
    }

    /// Removes the operations of a batch.
    pub fn leveldb_writebatch_clear(batch: Option<&mut Operations>) {
        if let Some(batch) = batch {
            batch.clear();
        }
    }

    /// Adds a put.
    pub fn leveldb_writebatch_put(
        batch: Option<&mut Operations>, key: Bytes, key_size: usize, value: Bytes, size: usize,
    ) {
        add(batch, Action::Put, key.items(key_size), value.items(size));
    }

    /// Adds a delete.
    pub fn leveldb_writebatch_delete(
        batch: Option<&mut Operations>, key: Bytes, key_size: usize,
    ) {
        add(batch, Action::Delete, key.items(key_size), Ok(&[]));
    }

    /// Calls a callback for each operation, in order.
    pub fn leveldb_writebatch_iterate(
        batch: Option<&Operations>, state: Context, put: Option<PutFunction>,
        deleted: Option<DeletedFunction>,
    ) {
        for record in batch.iter().flat_map(|batch| batch.records()).flatten() {
            let key = (View::of(record.key), record.key.len());
            let value = (View::of(record.value), record.value.len());
            match record.action {
                Action::Put => {
                    if let Some(put) = put {
                        put(state, key.0, key.1, value.0, value.1);
                    }
                }
                _ => {
                    if let Some(deleted) = deleted {
                        deleted(state, key.0, key.1);
                    }
                }
            }
        }
    }

    /// Adds the operations of `source`.
    pub fn leveldb_writebatch_append(
        destination: Option<&mut Operations>, source: Option<&Operations>,
    ) {
        if let (Some(destination), Some(source)) = (destination, source) {
            destination.append(source);
        }
    }
}
