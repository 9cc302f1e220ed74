//! Where reads come from: a table now, a snapshot, or a transaction.
//!
//! A transaction is behind a mutex, because Python may use it from several threads. The mutex is
//! held while a call runs detached from the interpreter; see [`Guarded`].

use std::sync::Arc;

use pyo3::prelude::*;
use quintet::{Database, Snapshot, Table, Transaction, Value};

use crate::{
    errors::{OrRaise, closed},
    guarded::Guarded,
};

/// A snapshot until it is closed.
pub(crate) type SharedSnapshot = Arc<Guarded<Option<Snapshot>>>;
/// A transaction until it is committed or rolled back.
pub(crate) type SharedTransaction = Arc<Guarded<Option<Transaction>>>;

/// Where the entries of a table are read.
#[derive(Clone)]
pub(crate) enum Source {
    /// The table as it is at the time of each call. The database takes snapshots for ranges.
    Now(Database),
    Snapshot(SharedSnapshot),
    Transaction(SharedTransaction),
}

impl Source {
    /// Returns the value of a key.
    #[inline]
    pub(crate) fn get(&self, py: Python<'_>, table: &Table, key: &[u8]) -> PyResult<Option<Value>> {
        match self {
            Self::Now(_) => py.detach(|| table.get(key)).or_raise(py),
            Self::Snapshot(shared) => {
                let snapshot = open_snapshot(py, shared)?;
                py.detach(|| snapshot.get(table, key)).or_raise(py)
            }
            Self::Transaction(shared) => with_transaction(py, shared, |tx| tx.get(table, key)),
        }
    }

    /// Returns whether a key has a value.
    pub(crate) fn contains(&self, py: Python<'_>, table: &Table, key: &[u8]) -> PyResult<bool> {
        match self {
            Self::Now(_) => py.detach(|| table.contains(key)).or_raise(py),
            Self::Snapshot(shared) => {
                let snapshot = open_snapshot(py, shared)?;
                py.detach(|| snapshot.contains(table, key)).or_raise(py)
            }
            Self::Transaction(shared) => with_transaction(py, shared, |tx| tx.contains(table, key)),
        }
    }

    /// Returns the values of keys, in their order.
    pub(crate) fn multi_get(
        &self,
        py: Python<'_>,
        table: &Table,
        keys: &[&[u8]],
    ) -> PyResult<Vec<Option<Value>>> {
        match self {
            Self::Now(_) => py.detach(|| table.multi_get(keys)).or_raise(py),
            Self::Snapshot(shared) => {
                let snapshot = open_snapshot(py, shared)?;
                py.detach(|| snapshot.multi_get(table, keys)).or_raise(py)
            }
            Self::Transaction(shared) => {
                with_transaction(py, shared, |tx| tx.multi_get(table, keys))
            }
        }
    }
}

/// Returns a snapshot that is not closed.
pub(crate) fn open_snapshot(py: Python<'_>, shared: &SharedSnapshot) -> PyResult<Snapshot> {
    shared.lock(py)?.clone().ok_or_else(|| closed(py, "snapshot"))
}

/// Runs `operation` on a transaction that has not ended, detached from the interpreter.
pub(crate) fn with_transaction<T: Send>(
    py: Python<'_>,
    shared: &SharedTransaction,
    operation: impl FnOnce(&mut Transaction) -> quintet::Result<T> + Send,
) -> PyResult<T> {
    let mut guard = shared.lock(py)?;
    let transaction = guard.as_mut().ok_or_else(|| closed(py, "transaction"))?;
    py.detach(|| operation(transaction)).or_raise(py)
}
