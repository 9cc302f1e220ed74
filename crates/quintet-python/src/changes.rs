//! Change feeds: the commits of a database in their order, as Python objects.
//!
//! Problem: a feed waits for writers without end, and a program must be able to end it with Ctrl-C
//! or from another thread.
//! How: a wait is cut into slices of [`SLICE`], each detached from the interpreter. Between them,
//! the thread checks signals and whether the feed was closed. A commit becomes a tuple of records
//! (`quintet/_records.py`) as a whole.
//!
//! Invariants: a thread that waits for a commit holds no lock of this module, so `close`,
//! `position` and other waits go on. A signal is checked before a commit is taken, never between
//! taking and returning it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pyo3::{
    exceptions::{PyNotImplementedError, PyTypeError, PyValueError},
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyString, PyTuple},
};
use quintet::{
    Change, ChangeFeed, ChangeFeedOptions, CommittedChanges, Database, Lsn, TableChange,
};

use crate::{
    errors::{OrRaise, closed},
    guarded::Guarded,
    options::duration,
    view::TableView,
};

/// Longest wait between two looks at signals. Short for a person who presses Ctrl-C, and long
/// beside the 8 ms after which the store looks for a commit again.
const SLICE: Duration = Duration::from_millis(100);

/// An iterator over the commits of a database, from a position of its log on.
///
/// `Database.changes` opens it. Each item is a `Commit`. The iteration ends at the present end, and
/// can be continued: `for commit in feed` returns what was committed since. `wait` and `follow`
/// wait for new commits. Threads that share a feed get each commit once. An open feed keeps the log
/// from its position on, up to 1 GiB or `log_retention`. As a context manager it closes itself.
///
/// Every read raises `ChangesLostError` if the log at the position was removed.
#[pyclass(frozen, weakref, module = "quintet", name = "ChangeFeed")]
pub(crate) struct PyChangeFeed {
    state: Guarded<State>,
}

enum State {
    Open(Arc<FeedHandle>),
    /// The position at the close.
    Closed(u64),
}

/// A feed that is dropped detached from the interpreter: its end may remove files of the log.
struct FeedHandle(Option<ChangeFeed>);

impl Drop for FeedHandle {
    fn drop(&mut self) {
        let feed = self.0.take();
        // Without an interpreter, the closure is dropped and the feed with it.
        let _ = Python::try_attach(|py| py.detach(|| drop(feed)));
    }
}

impl FeedHandle {
    fn wait(&self, timeout: Duration) -> quintet::Result<Option<CommittedChanges>> {
        self.0.as_ref().map_or(Err(quintet::Error::Closed), |feed| feed.wait(timeout))
    }

    fn position(&self) -> u64 {
        self.0.as_ref().map_or(0, |feed| feed.position().0)
    }
}

impl PyChangeFeed {
    /// Opens a feed. `start` is a position of the log; `None` is its present end.
    pub(crate) fn open(
        py: Python<'_>,
        db: &Database,
        start: Option<u64>,
        options: &ChangeFeedOptions,
    ) -> PyResult<Self> {
        let open = || {
            let start = start.map_or_else(|| db.log_range().end, Lsn);
            db.changes(start, options)
        };
        let feed = py.detach(open).or_raise(py)?;
        Ok(Self { state: Guarded::new(State::Open(Arc::new(FeedHandle(Some(feed))))) })
    }

    /// Returns the feed if it is open.
    fn feed(&self, py: Python<'_>) -> PyResult<Arc<FeedHandle>> {
        match &*self.state.lock(py)? {
            State::Open(feed) => Ok(Arc::clone(feed)),
            State::Closed(_) => Err(closed(py, "change feed")),
        }
    }

    /// Returns the next commit, after a wait of up to `timeout`. `None` waits without end.
    fn next_within<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Duration>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        // A time that no clock reaches is no end.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            py.check_signals()?;
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let slice = left.map_or(SLICE, |left| left.min(SLICE));
            let feed = self.feed(py)?;
            if let Some(commit) = py.detach(move || feed.wait(slice)).or_raise(py)? {
                return record(py, &commit).map(Some);
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
        }
    }
}

#[pymethods]
impl PyChangeFeed {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Returns the next commit. Stops at the present end; a later call continues.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.next_within(py, Some(Duration::ZERO))
    }

    /// Returns the next commit, and waits for it up to `timeout`: seconds, or a `timedelta`.
    /// Returns `None` if there was none. Without a timeout, waits until there is one. Ctrl-C ends
    /// the wait, and so does a close of the feed or the database (`ClosedError`).
    #[pyo3(signature = (timeout=None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.next_within(py, timeout.map(duration).transpose()?)
    }

    /// Returns an endless iterator over the commits, which waits for new ones. Ctrl-C ends it, and
    /// so does a close of the feed or the database (`ClosedError`).
    fn follow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        // Without a timeout, `wait` never returns `None`, at which this iterator would stop.
        py.import("builtins")?.call_method1("iter", (slf.getattr("wait")?, py.None()))
    }

    /// The position behind the commits that were returned or left out. A feed that begins there
    /// continues with the next one. A program that must not miss a commit stores `Commit.end` after
    /// it has processed the commit.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        let feed = match &*self.state.lock(py)? {
            State::Open(feed) => Arc::clone(feed),
            State::Closed(position) => return Ok(*position),
        };
        Ok(py.detach(move || feed.position()))
    }

    /// Whether the feed was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(*self.state.lock(py)?, State::Closed(_)))
    }

    /// Ends the feed, and gives up the log that it keeps. Later reads raise `ClosedError`;
    /// `position` stays. A second close does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let position = self.position(py)?;
        let ended = {
            let mut state = self.state.lock(py)?;
            if let State::Closed(_) = *state {
                return Ok(());
            }
            std::mem::replace(&mut *state, State::Closed(position))
        };
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

    #[staticmethod]
    fn __reduce__() -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a change feed cannot be pickled or sent to another process; send its position",
        ))
    }
}

/// Returns the options of a feed: of all tables, of one, or of several. A table is given by its
/// path, the path of a directory, or as an object.
pub(crate) fn options(
    db: &Database,
    tables: Option<&Bound<'_, PyAny>>,
    unsynced: bool,
) -> PyResult<ChangeFeedOptions> {
    let mut options = ChangeFeedOptions::new().unsynced(unsynced);
    let Some(tables) = tables else { return Ok(options) };
    if let Some(path) = path(db, tables)? {
        return Ok(options.path(path));
    }
    let mut is_empty = true;
    for table in tables.try_iter()? {
        let wrong = || PyTypeError::new_err("expected a table, or its path as a str");
        options = options.path(path(db, &table?)?.ok_or_else(wrong)?);
        is_empty = false;
    }
    if is_empty {
        // To the library, no path means all tables.
        return Err(PyValueError::new_err("give at least one table, or None for all tables"));
    }
    Ok(options)
}

/// Returns the path of a table, or `None` for an object that is neither a table nor a path. Raises
/// `OtherDatabaseError` for a table of another database, also of a mounted one.
fn path(db: &Database, table: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = table.py();
    if let Ok(path) = table.cast::<PyString>() {
        return path.extract().map(Some);
    }
    let Ok(view) = table.cast::<TableView>() else { return Ok(None) };
    let view = view.get();
    view.check_open(py)?;
    // Reads nothing: a snapshot refuses tables of other databases.
    let check = || db.snapshot()?.multi_get::<&[u8]>(&view.table, &[]);
    py.detach(check).or_raise(py)?;
    Ok(Some(view.table.name()))
}

/// What a change has beyond its table.
#[derive(Default)]
struct Fields<'a> {
    kind: &'static str,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    start: Option<&'a [u8]>,
    end: Option<&'a [u8]>,
    expires_at: Option<f64>,
    type_tag: Option<&'static str>,
}

impl<'a> Fields<'a> {
    fn new(change: TableChange<'a>) -> PyResult<Self> {
        Ok(match change {
            TableChange::Begin => Self { kind: "begin", ..Self::default() },
            TableChange::Put { key, value, expires_at_unix_millis, type_tag } => Self {
                kind: "put",
                key: Some(key),
                value: Some(value),
                expires_at: expires_at_unix_millis
                    .map(|millis| Duration::from_millis(millis).as_secs_f64()),
                type_tag: type_tag.map(quintet::TypeTag::name),
                ..Self::default()
            },
            TableChange::Delete { key } => {
                Self { kind: "delete", key: Some(key), ..Self::default() }
            }
            TableChange::DeleteRange { start, end } => {
                let end = (!end.is_empty()).then_some(end);
                Self { kind: "delete_range", start: Some(start), end, ..Self::default() }
            }
            _ => return Err(PyNotImplementedError::new_err("a kind of change without a name")),
        })
    }
}

/// Returns a commit as a `quintet.Commit`.
fn record<'py>(py: Python<'py>, commit: &CommittedChanges) -> PyResult<Bound<'py, PyAny>> {
    static CLASSES: PyOnceLock<[Py<PyAny>; 2]> = PyOnceLock::new();
    let [commit_class, change_class] = CLASSES.get_or_try_init(py, || {
        let records = py.import("quintet._records")?;
        let class = |name| records.getattr(name).map(Bound::unbind);
        PyResult::Ok([class("Commit")?, class("Change")?])
    })?;
    let change_class = change_class.bind(py);
    let changes = commit.iter().map(|change| record_change(change_class, &change));
    let changes = PyTuple::new(py, changes.collect::<PyResult<Vec<_>>>()?)?;
    commit_class.bind(py).call1((changes, commit.lsn().0, commit.end().0))
}

fn record_change<'py>(
    class: &Bound<'py, PyAny>,
    change: &Change<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    let bytes = |bytes: Option<&[u8]>| bytes.map(|bytes| PyBytes::new(py, bytes));
    let Fields { kind, key, value, start, end, expires_at, type_tag } = Fields::new(change.change)?;
    let kind = PyString::intern(py, kind);
    let (key, value, start, end) = (bytes(key), bytes(value), bytes(start), bytes(end));
    let (table, number) = (change.table, change.table_number);
    class.call1((table, number, kind, key, value, start, end, expires_at, type_tag))
}
