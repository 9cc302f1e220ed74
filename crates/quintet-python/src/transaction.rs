//! Transactions: reads and writes of any number of tables that take effect at one moment, or not at
//! all.

use std::sync::Arc;

use pyo3::{
    exceptions::{PyKeyError, PyTypeError},
    prelude::*,
    types::{PyDict, PyMapping, PySlice, PyTuple},
};
use quintet::{Isolation, Savepoint, Transaction, TransactionOptions};

use crate::{
    errors::{OrRaise, closed, missing, raised},
    guarded::Guarded,
    options::{PutArguments, delete_options, durability, duration},
    range::Part,
    source::{SharedTransaction, Source, with_transaction},
    table::PyTable,
    view::TableView,
};

/// Reads and writes of any number of tables of one database that take effect together.
///
/// As a context manager it commits at the end of the block, and rolls back if the block raises. A
/// commit raises `ConflictError` if another commit changed what the transaction has read; then
/// nothing is written, and the transaction can be run again. `Database.transact` runs a function
/// again by itself. `transaction[table]` is a mapping of the table in the transaction.
#[pyclass(frozen, weakref, module = "quintet", name = "Transaction")]
pub(crate) struct PyTransaction {
    shared: SharedTransaction,
}

/// A point of a transaction to which `Transaction.rollback_to` returns.
#[pyclass(frozen, module = "quintet", name = "Savepoint")]
pub(crate) struct PySavepoint {
    savepoint: Savepoint,
}

/// Reads the options of a transaction.
pub(crate) fn transaction_options(
    isolation: &str,
    sync: Option<bool>,
    lock_timeout: Option<&Bound<'_, PyAny>>,
    retries: Option<u32>,
) -> PyResult<TransactionOptions> {
    let mut options = TransactionOptions::new().isolation(match isolation {
        "serializable" => Isolation::Serializable,
        "snapshot" => Isolation::Snapshot,
        _ => {
            return Err(pyo3::exceptions::PyValueError::new_err(
                "isolation is \"serializable\" or \"snapshot\"",
            ));
        }
    });
    if let Some(sync) = sync {
        options = options.durability(durability(sync));
    }
    if let Some(timeout) = lock_timeout {
        options = options.lock_timeout(duration(timeout)?);
    }
    Ok(match retries {
        Some(retries) => options.retries(retries),
        None => options,
    })
}

/// An error of a transaction that a function of the caller runs in.
enum Failure {
    Store(quintet::Error),
    Python(PyErr),
}

impl From<quintet::Error> for Failure {
    fn from(error: quintet::Error) -> Self {
        Self::Store(error)
    }
}

impl PyTransaction {
    pub(crate) fn new(transaction: Transaction) -> Self {
        Self { shared: Arc::new(Guarded::new(Some(transaction))) }
    }

    fn source(&self) -> Source {
        Source::Transaction(Arc::clone(&self.shared))
    }

    fn end(&self, py: Python<'_>) -> PyResult<Option<Transaction>> {
        Ok(self.shared.lock(py)?.take())
    }
}

/// Runs `function(transaction, *arguments)` in a transaction and commits it; again after a
/// conflict.
pub(crate) fn transact(
    py: Python<'_>,
    db: &quintet::Database,
    options: TransactionOptions,
    function: &Py<PyAny>,
    arguments: &Py<PyTuple>,
) -> PyResult<Py<PyAny>> {
    let outcome = py.detach(|| {
        db.transaction_with(options, |tx| {
            // Python gets the transaction itself; what is left here is rolled back or replaced.
            let mut other = db.begin(options)?;
            std::mem::swap(tx, &mut other);
            Python::attach(|py| {
                let (result, returned) = run_attempt(py, other, function, arguments)?;
                match (result, returned) {
                    (result, Some(own)) => {
                        *tx = own;
                        result
                    }
                    (Ok(_), None) => Err(closed(py, "transaction")),
                    (Err(error), None) => Err(error),
                }
            })
            .map_err(Failure::Python)
        })
    });
    match outcome {
        Ok(result) => Ok(result),
        Err(Failure::Store(error)) => Err(raised(py, &error)),
        Err(Failure::Python(error)) => Err(error),
    }
}

/// Calls the function once. Returns its outcome, and the transaction unless the function ended it.
fn run_attempt(
    py: Python<'_>,
    transaction: Transaction,
    function: &Py<PyAny>,
    arguments: &Py<PyTuple>,
) -> PyResult<(PyResult<Py<PyAny>>, Option<Transaction>)> {
    py.check_signals()?;
    let handle = Bound::new(py, PyTransaction::new(transaction))?;
    let mut all = vec![handle.clone().into_any()];
    all.extend(arguments.bind(py).iter());
    let result = function.bind(py).call1(PyTuple::new(py, all)?).map(Bound::unbind);
    Ok((result, handle.get().end(py)?))
}

#[pymethods]
impl PyTransaction {
    /// Returns the table as the transaction sees it: its moment, with its own writes.
    fn __getitem__(
        &self,
        py: Python<'_>,
        table: &Bound<'_, PyTable>,
    ) -> PyResult<Py<TransactionTable>> {
        let view = table.as_super().get();
        view.check_open(py)?;
        let view = view.within(self.source());
        let shared = Arc::clone(&self.shared);
        Py::new(py, PyClassInitializer::from(view).add_subclass(TransactionTable { shared }))
    }

    /// Returns the value of `key` in `table`, or `default`.
    #[pyo3(signature = (table, key, default=None))]
    fn get<'py>(
        &self,
        table: &Bound<'py, PyTable>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(table.as_super().get().within(self.source()).read(key)?.or(default))
    }

    /// Returns the value of `key` after locking the key, so that no other transaction that locks it
    /// makes the commit fail. Raises `LockTimeoutError` and `DeadlockError`.
    #[pyo3(signature = (table, key, default=None))]
    fn get_for_update<'py>(
        &self,
        table: &Bound<'py, PyTable>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, view) = (table.py(), table.as_super().get());
        let encoded = view.codecs.keys.encode(key)?;
        let key: &[u8] = &encoded;
        let found = with_transaction(py, &self.shared, |tx| tx.get_for_update(&view.table, key))?;
        match found {
            Some(value) => view.codecs.values.decode(py, &value).map(Some),
            None => Ok(default),
        }
    }

    /// Sets the value of `key` in `table`, at commit. Returns whether the condition holds.
    #[pyo3(signature = (table, key, value, *, ttl=None, expires_at=None, if_absent=false,
        if_present=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn put(
        &self,
        table: &Bound<'_, PyTable>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
        if_absent: bool,
        if_present: bool,
    ) -> PyResult<bool> {
        let arguments = PutArguments { ttl, expires_at, if_absent, if_present, sync: None };
        write(&self.shared, table.as_super().get(), (key, value), &arguments)
    }

    /// Deletes `key` of `table`, at commit. With `if_present`, returns whether it had a value.
    #[pyo3(signature = (table, key, *, if_present=false))]
    fn delete(
        &self,
        table: &Bound<'_, PyTable>,
        key: &Bound<'_, PyAny>,
        if_present: bool,
    ) -> PyResult<bool> {
        erase(&self.shared, table.as_super().get(), key, if_present)
    }

    /// Merges `operand` into the value of `key` in `table`, at commit. Counts as a read of the key.
    fn merge(
        &self,
        table: &Bound<'_, PyTable>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        fold(&self.shared, table.as_super().get(), key, operand)
    }

    /// Marks a point to which `rollback_to` returns.
    fn savepoint(&self, py: Python<'_>) -> PyResult<PySavepoint> {
        let savepoint = with_transaction(py, &self.shared, |tx| Ok(tx.savepoint()))?;
        Ok(PySavepoint { savepoint })
    }

    /// Undoes the writes since `savepoint`, which can be used again.
    fn rollback_to(&self, py: Python<'_>, savepoint: &PySavepoint) -> PyResult<()> {
        let savepoint = savepoint.savepoint;
        with_transaction(py, &self.shared, |tx| tx.rollback_to(savepoint))
    }

    /// Commits. The transaction has ended then, also if the commit raises.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let transaction = self.end(py)?.ok_or_else(|| closed(py, "transaction"))?;
        py.detach(|| transaction.commit()).or_raise(py)
    }

    /// Discards all writes. Does nothing if the transaction has ended.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let ended = self.end(py)?;
        py.detach(|| drop(ended));
        Ok(())
    }

    /// Whether the transaction was committed or rolled back.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.shared.lock(py)?.is_none())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if exception.iter().any(|part| !part.is_none()) {
            return self.rollback(py);
        }
        match self.end(py)? {
            Some(transaction) => py.detach(|| transaction.commit()).or_raise(py),
            None => Ok(()),
        }
    }
}

fn write(
    shared: &SharedTransaction,
    view: &TableView,
    (key, value): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    arguments: &PutArguments<'_, '_>,
) -> PyResult<bool> {
    let py = key.py();
    view.check_open(py)?;
    let options = arguments.options()?;
    let (key, value) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(value)?);
    let (key, value): (&[u8], &[u8]) = (&key, &value);
    with_transaction(py, shared, |tx| tx.put_with(&view.table, key, value, options))
}

fn erase(
    shared: &SharedTransaction,
    view: &TableView,
    key: &Bound<'_, PyAny>,
    if_present: bool,
) -> PyResult<bool> {
    let py = key.py();
    view.check_open(py)?;
    let key = view.codecs.keys.encode(key)?;
    let (key, options): (&[u8], _) = (&key, delete_options(if_present, None));
    with_transaction(py, shared, |tx| tx.delete_with(&view.table, key, options))
}

fn fold(
    shared: &SharedTransaction,
    view: &TableView,
    key: &Bound<'_, PyAny>,
    operand: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = key.py();
    view.check_open(py)?;
    let (key, operand) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(operand)?);
    let (key, operand): (&[u8], &[u8]) = (&key, &operand);
    with_transaction(py, shared, |tx| tx.merge(&view.table, key, operand))
}

/// A table in a transaction: a `MutableMapping` whose writes take effect at the commit.
#[pyclass(frozen, extends = TableView, module = "quintet", name = "TransactionTable")]
pub(crate) struct TransactionTable {
    shared: SharedTransaction,
}

/// Returns the arguments of a put that only has a condition.
fn plain<'a, 'py>() -> PutArguments<'a, 'py> {
    PutArguments { ttl: None, expires_at: None, if_absent: false, if_present: false, sync: None }
}

#[pymethods]
impl TransactionTable {
    fn __setitem__(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        write(&slf.get().shared, slf.as_super().get(), (key, value), &plain()).map(drop)
    }

    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let view = slf.as_super().get();
        if let Ok(slice) = key.cast::<PySlice>() {
            return view.slice(slice)?.delete(slf.py());
        }
        let deleted = erase(&slf.get().shared, view, key, true)?;
        if deleted { Ok(()) } else { Err(missing(key)) }
    }

    /// Deletes `key` and returns its value; `default`, or `KeyError`, without one.
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let view = slf.as_super().get();
        if default.len() > 1 {
            return Err(PyTypeError::new_err("pop takes a key and at most one default"));
        }
        let Some(value) = view.find(key)? else {
            return default.get_item(0).map_err(|_| missing(key));
        };
        erase(&slf.get().shared, view, key, false)?;
        view.codecs.values.decode(slf.py(), &value)
    }

    /// Deletes an entry and returns it. Raises `KeyError` if the table is empty.
    fn popitem<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, view) = (slf.py(), slf.as_super().get());
        let reverse = view.table.kind().is_ordered();
        let mut items = view.whole(py)?.iterate(py, Part::Items, reverse)?.try_iter()?;
        let Some(entry) = items.next().transpose()? else {
            return Err(PyKeyError::new_err("the table is empty"));
        };
        let entry = entry.cast_into::<PyTuple>()?;
        erase(&slf.get().shared, view, &entry.get_item(0)?, false)?;
        Ok(entry)
    }

    /// Returns the value of `key`. If it has none, sets it to `default` and returns that.
    #[pyo3(signature = (key, default, /))]
    fn setdefault<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let view = slf.as_super().get();
        if let Some(value) = view.find(key)? {
            return view.codecs.values.decode(slf.py(), &value);
        }
        write(&slf.get().shared, view, (key, default), &plain())?;
        Ok(default.clone())
    }

    /// Writes all entries of a mapping or of an iterable of pairs.
    #[pyo3(signature = (other=None, /, **kwargs))]
    fn update(
        slf: &Bound<'_, Self>,
        other: Option<&Bound<'_, PyAny>>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        if let Some(other) = other {
            let is_mapping = other.cast::<PyMapping>().is_ok() || other.hasattr("keys")?;
            let pairs = if is_mapping { other.call_method0("items")? } else { other.clone() };
            for pair in pairs.try_iter()? {
                let (key, value) = pair?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
                Self::__setitem__(slf, &key, &value)?;
            }
        }
        for (key, value) in kwargs.into_iter().flatten() {
            Self::__setitem__(slf, &key, &value)?;
        }
        Ok(())
    }

    /// Deletes all entries.
    fn clear(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, view) = (slf.py(), slf.as_super().get());
        let whole = view.whole(py)?;
        if view.table.kind().is_ordered() {
            return whole.delete(py);
        }
        let keys = whole.iterate(py, Part::Keys, false)?;
        for key in keys.try_iter()?.collect::<PyResult<Vec<_>>>()? {
            erase(&slf.get().shared, view, &key, false)?;
        }
        Ok(())
    }

    /// Sets the value of `key`. Returns whether the condition holds.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None, if_absent=false,
        if_present=false))]
    fn put(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
        if_absent: bool,
        if_present: bool,
    ) -> PyResult<bool> {
        let arguments = PutArguments { ttl, expires_at, if_absent, if_present, sync: None };
        write(&slf.get().shared, slf.as_super().get(), (key, value), &arguments)
    }

    /// Deletes `key`. With `if_present`, returns whether it had a value.
    #[pyo3(signature = (key, *, if_present=false))]
    fn delete(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, if_present: bool) -> PyResult<bool> {
        erase(&slf.get().shared, slf.as_super().get(), key, if_present)
    }

    /// Merges `operand` into the value of `key`.
    fn merge(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        fold(&slf.get().shared, slf.as_super().get(), key, operand)
    }
}
