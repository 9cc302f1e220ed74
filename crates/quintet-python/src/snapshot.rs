//! Snapshots: all tables of a database at one moment.

use std::sync::Arc;

use pyo3::{prelude::*, types::PyTuple};

use crate::{
    guarded::Guarded,
    source::{SharedSnapshot, Source, open_snapshot},
    table::PyTable,
    view::TableView,
};

/// All tables of a database at one moment between two commits.
///
/// As a context manager it closes itself. `snapshot[table]` is a read-only mapping. An open
/// snapshot keeps earlier values in memory or in files; see `Database.open` for its limits.
#[pyclass(frozen, weakref, module = "quintet", name = "Snapshot")]
pub(crate) struct PySnapshot {
    shared: SharedSnapshot,
    lsn: u64,
}

impl PySnapshot {
    pub(crate) fn new(snapshot: quintet::Snapshot) -> Self {
        let lsn = snapshot.lsn().0;
        Self { shared: Arc::new(Guarded::new(Some(snapshot))), lsn }
    }

    fn source(&self) -> Source {
        Source::Snapshot(Arc::clone(&self.shared))
    }
}

#[pymethods]
impl PySnapshot {
    /// Returns the table as the snapshot shows it.
    fn __getitem__(&self, py: Python<'_>, table: &Bound<'_, PyTable>) -> PyResult<TableView> {
        open_snapshot(py, &self.shared)?;
        Ok(table.as_super().get().within(self.source()))
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

    /// The position in the log: the snapshot shows the commits below it.
    #[getter]
    fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Whether the snapshot was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.shared.lock(py)?.is_none())
    }

    /// Ends the snapshot. Later reads raise `ClosedError`; iterators that have begun go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let ended = self.shared.lock(py)?.take();
        py.detach(|| drop(ended));
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
