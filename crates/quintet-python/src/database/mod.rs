//! `Database`: opens and closes a database, and creates, renames and drops its tables.
//!
//! `quintet.Database` is a Python class above this one. It adds what needs no speed: the mapping of
//! the default table, and the close at the end of the interpreter.

mod open;

use std::path::PathBuf;

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyDict, PyList, PyTuple},
};
use quintet::{
    CheckLevel, ChildKind, EngineKind, Error, MountOptions, TableInfo, TableOptions, TableTypes,
};

use crate::{
    batch::Batch,
    changes::{self, PyChangeFeed},
    codec::Codecs,
    errors::{OrRaise, raised},
    snapshot::PySnapshot,
    stats,
    table::PyTable,
    transaction::{PyTransaction, transact, transaction_options},
};

/// An open database: a directory of tables that share a log, atomic batches and a memory budget.
#[pyclass(frozen, subclass, weakref, module = "quintet._quintet", name = "Database")]
pub(crate) struct PyDatabase {
    handle: quintet::Database,
    path: PathBuf,
}

/// Reads the options of a new table.
fn table_options(
    engine: &str,
    merge: Option<&str>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<TableOptions> {
    let py = options.map(Bound::py);
    let kind: quintet::Result<EngineKind> = engine.parse();
    let kind = match (kind, py) {
        (Ok(kind), _) => kind,
        (Err(error), Some(py)) => return Err(raised(py, &error)),
        (Err(error), None) => return Err(Python::attach(|py| raised(py, &error))),
    };
    let mut all = TableOptions::new(kind);
    if let Some(operator) = merge {
        all = all.merge(operator);
    }
    for (name, value) in options.into_iter().flatten() {
        // `True` is written as the store's options are.
        let value = value.str()?.to_string();
        let value = match value.as_str() {
            "True" => "true",
            "False" => "false",
            other => other,
        };
        all = all.set(name.extract::<String>()?, value);
    }
    Ok(all)
}

/// Returns the dictionary of a table's name, engine and types.
fn info<'py>(py: Python<'py>, table: &TableInfo) -> PyResult<Bound<'py, PyAny>> {
    let types = table.types.as_ref().map(ToString::to_string);
    let class = py.import("quintet._records")?.getattr("TableInfo")?;
    class.call1((&table.name, table.kind.to_string(), types))
}

fn infos<'py>(py: Python<'py>, tables: &[TableInfo]) -> PyResult<Bound<'py, PyList>> {
    let all = tables.iter().map(|table| info(py, table)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, all)
}

impl PyDatabase {
    /// Returns the Python object of a table.
    fn wrap(
        &self,
        py: Python<'_>,
        path: &str,
        table: quintet::Table,
        keys: Option<&Bound<'_, PyAny>>,
        values: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyTable>> {
        let codecs = Codecs::new(keys, values, table.types().as_ref())?;
        // A table behind a mount is read and written through the mounted database.
        let mounted = if self.handle.mounts().is_empty() {
            None
        } else {
            py.detach(|| self.handle.mounted(path)).ok()
        };
        PyTable::create(py, mounted.as_ref().unwrap_or(&self.handle), table, codecs)
    }

    /// Raises if the database is closed or belongs to the parent process.
    fn check_usable(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.snapshot().map(drop).or_raise(py)
    }
}

#[pymethods]
impl PyDatabase {
    /// Opens the database in the directory `path`, and creates it if it is missing.
    #[new]
    #[pyo3(signature = (path, **options))]
    fn new(path: PathBuf, options: Option<&Bound<'_, PyDict>>, py: Python<'_>) -> PyResult<Self> {
        let options = open::options(options)?;
        let handle = py.detach(|| options.open(&path)).or_raise(py)?;
        Ok(Self { handle, path })
    }

    /// The directory of the database.
    #[getter]
    fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Whether the database was opened for reading only.
    #[getter]
    fn is_read_only(&self) -> bool {
        self.handle.is_read_only()
    }

    /// Opens the table at `path`, and creates it if it is missing. `engine`, `merge` and `options`
    /// are those of a new table; an existing one keeps its own. With `create=False`, raises
    /// `NoSuchTableError` for a missing table.
    ///
    /// `keys` and `values` choose the codecs: `bytes`, `str`, "json", a `struct.Struct`, or an
    /// object with `encode` and `decode`. Without them, a typed table has those of its types. Any
    /// other table has bytes.
    #[pyo3(signature = (path, *, engine="btree", keys=None, values=None, merge=None, options=None,
        create=true))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn table(
        &self,
        py: Python<'_>,
        path: &str,
        engine: &str,
        keys: Option<&Bound<'_, PyAny>>,
        values: Option<&Bound<'_, PyAny>>,
        merge: Option<&str>,
        options: Option<&Bound<'_, PyDict>>,
        create: bool,
    ) -> PyResult<Py<PyTable>> {
        let table = if create {
            let options = table_options(engine, merge, options)?;
            py.detach(|| self.handle.open_or_create_table(path, options))
        } else {
            py.detach(|| self.handle.table(path))
        };
        self.wrap(py, path, table.or_raise(py)?, keys, values)
    }

    /// Creates a table. Raises `TableExistsError` if there is one. Otherwise as `table`.
    #[pyo3(signature = (path, *, engine="btree", keys=None, values=None, merge=None, options=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn create_table(
        &self,
        py: Python<'_>,
        path: &str,
        engine: &str,
        keys: Option<&Bound<'_, PyAny>>,
        values: Option<&Bound<'_, PyAny>>,
        merge: Option<&str>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyTable>> {
        let options = table_options(engine, merge, options)?;
        let table = py.detach(|| self.handle.create_table(path, options)).or_raise(py)?;
        self.wrap(py, path, table, keys, values)
    }

    /// Opens or creates a typed table. The catalog keeps the types, and every write is checked
    /// against them, also those of programs in other languages. `key` is "u32", "u64", "i64",
    /// "f32", "f64", "string" or "blob", or two to four of them for tuples; `value` is one.
    ///
    /// Raises `TypeMismatchError` if the table exists with other types, or without.
    #[pyo3(signature = (path, key, value, *, engine="btree", merge=None, options=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn typed(
        &self,
        py: Python<'_>,
        path: &str,
        key: &Bound<'_, PyAny>,
        value: &str,
        engine: &str,
        merge: Option<&str>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyTable>> {
        let parts = match key.extract::<String>() {
            Ok(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
            Err(_) => key.extract::<Vec<String>>()?,
        };
        let tags: quintet::Result<Vec<_>> = parts.iter().map(|name| name.parse()).collect();
        let types = tags.and_then(|tags| TableTypes::new(tags, value.parse()?)).or_raise(py)?;
        let options = table_options(engine, merge, options)?.types(types.clone());
        let open = || self.handle.open_or_create_table(path, options);
        let table = py.detach(open).or_raise(py)?;
        if table.types().as_ref() == Some(&types) {
            return self.wrap(py, path, table, None, None);
        }
        let expected =
            table.types().map_or_else(|| "no types".to_owned(), |types| types.to_string());
        let (table, found) = (path.to_owned(), types.to_string());
        Err(raised(py, &Error::TypeMismatch { table, expected, found }))
    }

    /// Returns the tables by path, those behind mounts not included.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.check_usable(py)?;
        infos(py, &self.handle.tables())
    }

    /// Returns every table at or below `path`, those behind mounts included.
    #[pyo3(signature = (path=""))]
    fn walk<'py>(&self, py: Python<'py>, path: &str) -> PyResult<Bound<'py, PyList>> {
        infos(py, &py.detach(|| self.handle.walk(path)).or_raise(py)?)
    }

    /// Returns the names in a directory of tables, each with its kind: "directory", "mount", or the
    /// engine of a table.
    #[pyo3(signature = (path=""))]
    fn children(&self, py: Python<'_>, path: &str) -> PyResult<Vec<(String, String)>> {
        let children = py.detach(|| self.handle.children(path)).or_raise(py)?;
        let named = children.into_iter().map(|child| {
            let kind = match child.kind {
                ChildKind::Directory => "directory".to_owned(),
                ChildKind::Table(kind) => kind.to_string(),
                _ => "mount".to_owned(),
            };
            (child.name, kind)
        });
        Ok(named.collect())
    }

    /// Moves a table or a directory to another path, atomically and durably.
    fn rename(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        py.detach(|| self.handle.rename(source, target)).or_raise(py)
    }

    /// Drops a table, durably. Other handles of it raise `StaleTableError` then.
    fn drop_table(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        py.detach(|| self.handle.drop_table(path)).or_raise(py)
    }

    /// Drops a table, or a directory with all its tables, atomically and durably.
    fn drop_tree(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        py.detach(|| self.handle.drop_tree(path)).or_raise(py)
    }

    /// Shows another database, or its subtree, below `path`.
    #[pyo3(signature = (path, target, *, subtree=None, read_only=false))]
    fn mount(
        &self,
        py: Python<'_>,
        path: &str,
        target: PathBuf,
        subtree: Option<String>,
        read_only: bool,
    ) -> PyResult<()> {
        let mut options = MountOptions::new(target).read_only(read_only);
        if let Some(subtree) = subtree {
            options = options.subtree(subtree);
        }
        py.detach(|| self.handle.mount(path, options)).or_raise(py)
    }

    /// Removes a mount. The other database does not change.
    fn unmount(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        py.detach(|| self.handle.unmount(path)).or_raise(py)
    }

    /// Returns the mounts: path, directory of the other database, its subtree, read-only or not.
    fn mounts(&self, py: Python<'_>) -> PyResult<Vec<(String, PathBuf, String, bool)>> {
        self.check_usable(py)?;
        let mounts = self.handle.mounts().into_iter();
        Ok(mounts.map(|at| (at.name, at.target, at.subtree, at.read_only)).collect())
    }

    /// Returns an empty batch, which commits at the end of its `with` block. `sync` overrides the
    /// durability of the database.
    #[pyo3(signature = (*, sync=None))]
    fn batch(&self, py: Python<'_>, sync: Option<bool>) -> PyResult<Batch> {
        self.check_usable(py)?;
        Ok(Batch::new(self.handle.batch(), sync))
    }

    /// Takes a snapshot of all tables at this moment. Copies nothing.
    fn snapshot(&self, py: Python<'_>) -> PyResult<PySnapshot> {
        self.handle.snapshot().map(PySnapshot::new).or_raise(py)
    }

    /// Opens a feed of the commits from the position `start` on: `Commit.end` or
    /// `ChangeFeed.position` of an earlier feed. `None` is the present end. To copy tables and
    /// follow them, open the feed first, and then take a snapshot.
    ///
    /// `tables` chooses a table, a directory of tables, or several of them, by path or as objects.
    /// The feed returns durable commits; with `unsynced`, also those that a power loss may undo.
    ///
    /// Raises `ChangesLostError` if the log does not have the position, `NoSuchTableError` and
    /// `OtherDatabaseError`.
    #[pyo3(signature = (start=None, *, tables=None, unsynced=false))]
    fn changes(
        &self,
        py: Python<'_>,
        start: Option<u64>,
        tables: Option<&Bound<'_, PyAny>>,
        unsynced: bool,
    ) -> PyResult<PyChangeFeed> {
        let options = changes::options(&self.handle, tables, unsynced)?;
        PyChangeFeed::open(py, &self.handle, start, &options)
    }

    /// Returns the first position of the log that a change feed can begin at, and the present end.
    fn log_range(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.check_usable(py)?;
        let range = py.detach(|| self.handle.log_range());
        Ok((range.start.0, range.end.0))
    }

    /// Begins a transaction, which commits at the end of its `with` block. `isolation` is
    /// "serializable" or "snapshot"; `lock_timeout` in seconds, by default 1.
    #[pyo3(signature = (*, isolation="serializable", sync=None, lock_timeout=None))]
    fn transaction(
        &self,
        py: Python<'_>,
        isolation: &str,
        sync: Option<bool>,
        lock_timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyTransaction> {
        let options = transaction_options(isolation, sync, lock_timeout, None)?;
        self.handle.begin(options).map(PyTransaction::new).or_raise(py)
    }

    /// Calls `function(transaction, *arguments)`, commits, and returns what the function returned.
    /// After a conflict or a deadlock the function runs again, up to `retries` times (64), so it
    /// should have no effect besides the transaction. What it raises rolls back.
    #[pyo3(signature = (function, *arguments, isolation="serializable", sync=None,
        lock_timeout=None, retries=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn transact(
        &self,
        py: Python<'_>,
        function: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyTuple>,
        isolation: &str,
        sync: Option<bool>,
        lock_timeout: Option<&Bound<'_, PyAny>>,
        retries: Option<u32>,
    ) -> PyResult<Py<PyAny>> {
        let options = transaction_options(isolation, sync, lock_timeout, retries)?;
        let (function, arguments) = (function.clone().unbind(), arguments.clone().unbind());
        transact(py, &self.handle, options, &function, &arguments)
    }

    /// Checkpoints every table, then removes the log that no table needs.
    fn persist(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.handle.persist()).or_raise(py)
    }

    /// Makes every earlier commit durable with a sync of the log.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.handle.sync()).or_raise(py)
    }

    /// Verifies the files and returns a report. `deep` reads every entry. Writes nothing.
    #[pyo3(signature = (*, deep=true))]
    fn check<'py>(&self, py: Python<'py>, deep: bool) -> PyResult<Bound<'py, PyAny>> {
        let level = if deep { CheckLevel::Deep } else { CheckLevel::Quick };
        let report = py.detach(|| self.handle.check_with(level)).or_raise(py)?;
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|finding| (&finding.file, finding.offset, &finding.what))
            .collect();
        let class = py.import("quintet._records")?.getattr("Report")?;
        class.call1((findings, report.checked_bytes, report.checked_entries, &report.notes))
    }

    /// Returns the counters and sizes of the database and its tables.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_usable(py)?;
        stats::database(py, &py.detach(|| self.handle.stats()))
    }

    /// Makes every commit durable, and releases the lock of the directory. Later calls raise
    /// `ClosedError`. A second close does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.handle.close()).or_raise(py)
    }

    fn __repr__(&self) -> String {
        format!("<quintet.Database {}>", self.path.display())
    }

    #[staticmethod]
    fn __reduce__() -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a database cannot be pickled or sent to another process; open it there",
        ))
    }
}
