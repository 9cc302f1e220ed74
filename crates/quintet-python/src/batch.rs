//! Batches: writes to any number of tables that are committed atomically.

use std::sync::Arc;

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyTuple};

use crate::{
    errors::OrRaise,
    guarded::Guarded,
    options::{PutArguments, durability},
    source::Source,
    view::TableView,
};

/// A batch that several objects fill.
pub(crate) type SharedBatch = Arc<Guarded<quintet::Batch>>;

/// Writes to any number of tables of one database, committed atomically.
///
/// As a context manager it commits at the end of the block, and discards everything if the block
/// raises. Operations apply in the order of addition. An operation that is refused, for example for
/// its size, is reported by the commit.
#[pyclass(frozen, module = "quintet", name = "Batch")]
pub(crate) struct Batch {
    shared: SharedBatch,
    sync: Option<bool>,
}

impl Batch {
    pub(crate) fn new(batch: quintet::Batch, sync: Option<bool>) -> Self {
        Self { shared: Self::shared(batch), sync }
    }

    pub(crate) fn shared(batch: quintet::Batch) -> SharedBatch {
        Arc::new(Guarded::new(batch))
    }
}

fn commit(py: Python<'_>, shared: &SharedBatch, sync: Option<bool>) -> PyResult<()> {
    let mut batch = shared.lock(py)?;
    let batch = &mut *batch;
    py.detach(|| match sync {
        Some(sync) => batch.commit_with(durability(sync)),
        None => batch.commit(),
    })
    .or_raise(py)
}

/// Commits if the block ended without an exception; else discards everything.
fn leave(
    py: Python<'_>,
    shared: &SharedBatch,
    sync: Option<bool>,
    exception: &Bound<'_, PyTuple>,
) -> PyResult<()> {
    if exception.iter().all(|part| part.is_none()) {
        return commit(py, shared, sync);
    }
    shared.lock(py)?.clear();
    Ok(())
}

/// Raises unless the table is open and can be written to.
fn check(py: Python<'_>, view: &TableView) -> PyResult<()> {
    view.check_open(py)?;
    match &view.source {
        Source::Now(_) => Ok(()),
        _ => Err(PyTypeError::new_err("a batch writes to a Table, not to a view of one")),
    }
}

fn add_put(
    shared: &SharedBatch,
    view: &TableView,
    (key, value): (&Bound<'_, PyAny>, &Bound<'_, PyAny>),
    arguments: &PutArguments<'_, '_>,
) -> PyResult<()> {
    let py = key.py();
    check(py, view)?;
    let (key, value) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(value)?);
    let mut batch = shared.lock(py)?;
    if arguments.is_plain() {
        batch.put(&view.table, &*key, &*value);
    } else {
        batch.put_with(&view.table, &*key, &*value, arguments.options()?);
    }
    Ok(())
}

fn add_delete(shared: &SharedBatch, view: &TableView, key: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = key.py();
    check(py, view)?;
    let key = view.codecs.keys.encode(key)?;
    shared.lock(py)?.delete(&view.table, &*key);
    Ok(())
}

fn add_merge(
    shared: &SharedBatch,
    view: &TableView,
    key: &Bound<'_, PyAny>,
    operand: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = key.py();
    check(py, view)?;
    let (key, operand) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(operand)?);
    shared.lock(py)?.merge(&view.table, &*key, &*operand);
    Ok(())
}

/// Returns the arguments of a put that can only expire.
fn expiring<'a, 'py>(
    ttl: Option<&'a Bound<'py, PyAny>>,
    expires_at: Option<&'a Bound<'py, PyAny>>,
) -> PutArguments<'a, 'py> {
    PutArguments { ttl, expires_at, if_absent: false, if_present: false, sync: None }
}

#[pymethods]
impl Batch {
    /// Adds a put.
    #[pyo3(signature = (table, key, value, *, ttl=None, expires_at=None))]
    fn put(
        &self,
        table: &Bound<'_, TableView>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let view = table.get();
        add_put(&self.shared, view, (key, value), &expiring(ttl, expires_at))
    }

    /// Adds a delete.
    fn delete(&self, table: &Bound<'_, TableView>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        add_delete(&self.shared, table.get(), key)
    }

    /// Adds a merge by the table's merge operator.
    fn merge(
        &self,
        table: &Bound<'_, TableView>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        add_merge(&self.shared, table.get(), key, operand)
    }

    /// Returns a view of this batch for one table: `batch[table][key] = value`.
    fn __getitem__(&self, py: Python<'_>, table: &Bound<'_, TableView>) -> PyResult<TableBatch> {
        TableBatch::new(py, &self.shared, table)
    }

    /// Commits all operations, or none, and empties the batch. After an error the batch is
    /// unchanged.
    #[pyo3(signature = (*, sync=None))]
    fn commit(&self, py: Python<'_>, sync: Option<bool>) -> PyResult<()> {
        commit(py, &self.shared, sync.or(self.sync))
    }

    /// Removes all operations.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.lock(py)?.clear();
        Ok(())
    }

    /// Returns the number of operations.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared.lock(py)?.len())
    }

    /// The size of the encoded operations in bytes. The limit is 1 GiB.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared.lock(py)?.bytes())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(py, &self.shared, self.sync, exception)
    }
}

/// The part of a batch that writes to one table: `batch[key] = value`, `del batch[key]`.
#[pyclass(frozen, generic, module = "quintet", name = "TableBatch")]
pub(crate) struct TableBatch {
    shared: SharedBatch,
    table: Py<TableView>,
}

impl TableBatch {
    pub(crate) fn new(
        py: Python<'_>,
        shared: &SharedBatch,
        table: &Bound<'_, TableView>,
    ) -> PyResult<Self> {
        check(py, table.get())?;
        Ok(Self { shared: Arc::clone(shared), table: table.clone().unbind() })
    }

    fn view(&self) -> &TableView {
        self.table.get()
    }
}

#[pymethods]
impl TableBatch {
    /// Adds a put.
    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        add_put(&self.shared, self.view(), (key, value), &expiring(None, None))
    }

    /// Adds a delete. The key need not have a value.
    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        add_delete(&self.shared, self.view(), key)
    }

    /// Adds a put.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let arguments = expiring(ttl, expires_at);
        add_put(&self.shared, self.view(), (key, value), &arguments)
    }

    /// Adds a delete.
    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        add_delete(&self.shared, self.view(), key)
    }

    /// Adds a merge by the table's merge operator.
    fn merge(&self, key: &Bound<'_, PyAny>, operand: &Bound<'_, PyAny>) -> PyResult<()> {
        add_merge(&self.shared, self.view(), key, operand)
    }

    /// Commits all operations of the batch, or none, and empties it.
    #[pyo3(signature = (*, sync=None))]
    fn commit(&self, py: Python<'_>, sync: Option<bool>) -> PyResult<()> {
        commit(py, &self.shared, sync)
    }

    /// Removes all operations of the batch.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.lock(py)?.clear();
        Ok(())
    }

    /// Returns the number of operations of the batch.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared.lock(py)?.len())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        leave(py, &self.shared, None, exception)
    }
}
