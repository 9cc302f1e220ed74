//! Turns the errors of the library into Python exceptions.
//!
//! The classes are in `quintet/_errors.py`: one for each variant of [`quintet::Error`], with the
//! fields of the variant as attributes. An error is rare, so a lookup by name costs nothing that
//! matters.

use std::{cell::Cell, path::Path};

use pyo3::{
    exceptions::{PyException, PyKeyError, PyRuntimeError},
    prelude::*,
    types::{PyBytes, PyDict},
};
use quintet::{Error, LockHolder};

/// The module of the exception classes.
const CLASSES: &str = "quintet._errors";

/// Turns a result of the library into one of Python.
pub(crate) trait OrRaise<T> {
    /// Returns the value, or the exception of the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for quintet::Result<T> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error))
    }
}

/// Returns the `KeyError` of a mapping without this key.
#[cold]
pub(crate) fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err(key.clone().unbind())
}

/// Returns an exception of the class `name` of the package without further fields.
#[cold]
pub(crate) fn named(py: Python<'_>, name: &str, message: &str) -> PyErr {
    build(py, name, message, &PyDict::new(py)).unwrap_or_else(|failure| failure)
}

/// Returns the exception of a handle that was closed.
#[cold]
pub(crate) fn closed(py: Python<'_>, what: &str) -> PyErr {
    named(py, "ClosedError", &format!("the {what} is closed"))
}

thread_local! {
    /// What a merge operator in Python has raised. The library passes only its text on. The
    /// operator runs in the thread of the call that fails because of it.
    static MERGE_FAILURE: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Keeps what a merge operator has raised, and returns its text.
pub(crate) fn keep_merge_failure(failure: PyErr) -> String {
    let text = failure.to_string();
    MERGE_FAILURE.set(Some(failure));
    text
}

/// Returns the exception of an error.
///
/// That of a refused merge has the exception of the operator as its cause. An exception that asks
/// the program to end, such as `KeyboardInterrupt`, is returned itself.
#[cold]
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let exception = exception(py, error);
    let Error::MergeRefused { .. } = error else { return exception };
    match MERGE_FAILURE.take() {
        Some(failure) if failure.is_instance_of::<PyException>(py) => {
            exception.set_cause(py, Some(failure));
            exception
        }
        Some(failure) => failure,
        None => exception,
    }
}

fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let (name, fields) = describe(error);
    let set = || -> PyResult<PyErr> {
        let named = PyDict::new(py);
        for (field, value) in fields {
            match value {
                Field::Text(text) => named.set_item(field, text)?,
                Field::Number(number) => named.set_item(field, number)?,
                Field::Bytes(bytes) => named.set_item(field, PyBytes::new(py, bytes))?,
                Field::Path(path) => named.set_item(field, path)?,
                Field::Absent => named.set_item(field, py.None())?,
            }
        }
        build(py, name, &error.to_string(), &named)
    };
    set().unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, name: &str, message: &str, fields: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let class = py.import(CLASSES)?.getattr(name)?;
    Ok(PyErr::from_value(class.call((message,), Some(fields))?))
}

/// The value of a field of an error.
enum Field<'a> {
    Text(&'a str),
    Number(i64),
    Bytes(&'a [u8]),
    Path(&'a Path),
    Absent,
}

/// The class of an exception, and its fields by name.
type Description<'a> = (&'static str, Vec<(&'static str, Field<'a>)>);

/// Returns a number as Python shows it. All of ours are far below the limit.
fn number<'a>(value: impl TryInto<i64>) -> Field<'a> {
    Field::Number(value.try_into().unwrap_or(i64::MAX))
}

fn describe(error: &Error) -> Description<'_> {
    use Field::{Absent, Bytes, Path as Directory, Text};

    match error {
        Error::Locked { path, holder } => {
            let (pid, program) = match holder {
                LockHolder::ThisProcess => (number(std::process::id()), Absent),
                LockHolder::Process { id, name } => {
                    (number(*id), name.as_deref().map_or(Absent, Text))
                }
                _ => (Absent, Absent),
            };
            let path = ("path", Directory(path));
            ("LockedError", vec![path, ("pid", pid), ("program", program)])
        }
        Error::NotADatabase { path, what } => {
            ("NotADatabaseError", vec![("path", Directory(path)), ("what", Text(what))])
        }
        Error::Io { doing, source } => {
            let errno = source.raw_os_error().map_or(Absent, number);
            ("IoError", vec![("doing", Text(doing)), ("errno", errno)])
        }
        Error::DiskFull { doing } => ("DiskFullError", vec![("doing", Text(doing))]),
        Error::Corruption { file, offset, what } => {
            let place = [("file", Text(file)), ("offset", number(*offset))];
            ("CorruptionError", place.into_iter().chain([("what", Text(what))]).collect())
        }
        Error::NewerFormat { file, found, supported } => {
            let versions = [("found", number(*found)), ("supported", number(*supported))];
            ("NewerFormatError", versions.into_iter().chain([("file", Text(file))]).collect())
        }
        Error::LogFailed { reason } => ("LogFailedError", vec![("reason", Text(reason))]),
        Error::OutOfMemory { budget, needed } => {
            let bytes = vec![("budget", number(*budget)), ("needed", number(*needed))];
            ("OutOfMemoryError", bytes)
        }
        Error::Limit { what } => ("LimitError", vec![("what", Text(what))]),
        Error::InvalidOption { name, what } => {
            ("InvalidOptionError", vec![("name", Text(name)), ("what", Text(what))])
        }
        Error::OutOfOrder { key, after } => {
            ("OutOfOrderError", vec![("key", Bytes(key)), ("after", Bytes(after))])
        }
        Error::SnapshotExpired { reason } => {
            ("SnapshotExpiredError", vec![("reason", Text(reason))])
        }
        Error::ChangesLost { position, start, end } => {
            let range = [("start", number(start.0)), ("end", number(end.0))];
            let position = ("position", number(position.0));
            ("ChangesLostError", range.into_iter().chain([position]).collect())
        }
        Error::Mount { path, what } => {
            ("MountError", vec![("path", Text(path)), ("what", Text(what))])
        }
        Error::UnknownEngine { name, available } => {
            ("UnknownEngineError", vec![("name", Text(name)), ("available", Text(available))])
        }
        Error::NotEncodable { value, reason } => {
            ("NotEncodableError", vec![("value", Text(value)), ("reason", Text(reason))])
        }
        Error::ReadOnly => ("ReadOnlyError", Vec::new()),
        Error::Closed => ("ClosedError", Vec::new()),
        Error::Forked => ("ForkedError", Vec::new()),
        of_table => describe_of_table(of_table),
    }
}

/// Describes an error that names a table.
fn describe_of_table(error: &Error) -> Description<'_> {
    use Field::{Bytes, Text};

    match error {
        Error::TableFailed { table, reason } => {
            ("TableFailedError", vec![("table", Text(table)), ("reason", Text(reason))])
        }
        Error::Loading { table } => ("LoadingError", vec![("table", Text(table))]),
        Error::NoSuchTable { name } => ("NoSuchTableError", vec![("name", Text(name))]),
        Error::TableExists { name } => ("TableExistsError", vec![("name", Text(name))]),
        Error::StaleTable { name } => ("StaleTableError", vec![("name", Text(name))]),
        Error::TypeMismatch { table, expected, found } => {
            let types = [("expected", Text(expected)), ("found", Text(found))];
            ("TypeMismatchError", types.into_iter().chain([("table", Text(table))]).collect())
        }
        Error::OtherDatabase { table } => ("OtherDatabaseError", vec![("table", Text(table))]),
        Error::Unordered { table, engine } => {
            ("UnorderedError", vec![("table", Text(table)), ("engine", Text(engine))])
        }
        Error::MergeOperatorMissing { table, operator } => {
            let fields = vec![("table", Text(table)), ("operator", Text(operator))];
            ("MergeOperatorMissingError", fields)
        }
        Error::MergeRefused { table, key, operator, reason } => {
            let place = [("table", Text(table)), ("key", Bytes(key))];
            let refusal = [("operator", Text(operator)), ("reason", Text(reason))];
            ("MergeRefusedError", place.into_iter().chain(refusal).collect())
        }
        Error::Conflict { table, key } => ("ConflictError", key_of_table(table, key)),
        Error::Deadlock { table, key } => ("DeadlockError", key_of_table(table, key)),
        Error::LockTimeout { table, key } => ("LockTimeoutError", key_of_table(table, key)),
        // A variant that is newer than this function.
        _ => ("QuintetError", Vec::new()),
    }
}

fn key_of_table<'a>(table: &'a str, key: &'a [u8]) -> Vec<(&'static str, Field<'a>)> {
    vec![("table", Field::Text(table)), ("key", Field::Bytes(key))]
}

/// Returns the exception of a handle of the parent of a forked process.
#[cold]
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    exception(py, &Error::Forked)
}

/// Returns the exception of a lock that another thread left broken by a panic.
#[cold]
pub(crate) fn poisoned() -> PyErr {
    PyRuntimeError::new_err("an earlier call on this object has panicked; open a new one")
}
