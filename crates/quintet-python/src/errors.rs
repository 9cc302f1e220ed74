//! Turns the errors of the library into Python exceptions.
//!
//! The classes are in `quintet/_errors.py`: one for each variant of [`quintet::Error`], with the
//! fields of the variant as attributes. An error is rare, so a lookup by name costs nothing that
//! matters.

use pyo3::{
    exceptions::{PyKeyError, PyRuntimeError},
    prelude::*,
    types::{PyBytes, PyDict},
};
use quintet::{Error, LockHolder};

/// The module of the exception classes.
const CLASSES: &str = "quintet._errors";

/// Turns a result of the library into one of PyO3.
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

/// Returns the exception of an error.
#[cold]
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let fields = PyDict::new(py);
    let built = set_fields(py, error, &fields)
        .and_then(|name| build(py, name, &error.to_string(), &fields));
    built.unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, name: &str, message: &str, fields: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let class = py.import(CLASSES)?.getattr(name)?;
    Ok(PyErr::from_value(class.call((message,), Some(fields))?))
}

/// Sets the fields of an error. Returns the name of its class.
fn set_fields(py: Python<'_>, error: &Error, fields: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    let text = |name: &str, value: &str| fields.set_item(name, value);
    let number = |name: &str, value: u64| fields.set_item(name, value);
    let bytes = |name: &str, value: &[u8]| fields.set_item(name, PyBytes::new(py, value));
    Ok(match error {
        Error::Locked { path, holder } => {
            fields.set_item("path", path)?;
            set_holder(holder, fields)?;
            "LockedError"
        }
        Error::NotADatabase { path, what } => {
            fields.set_item("path", path)?;
            text("what", what)?;
            "NotADatabaseError"
        }
        Error::Io { doing, source } => {
            text("doing", doing)?;
            fields.set_item("errno", source.raw_os_error())?;
            "IoError"
        }
        Error::DiskFull { doing } => {
            text("doing", doing)?;
            "DiskFullError"
        }
        Error::Corruption { file, offset, what } => {
            (text("file", file)?, number("offset", *offset)?, text("what", what)?);
            "CorruptionError"
        }
        Error::NewerFormat { file, found, supported } => {
            text("file", file)?;
            (number("found", u64::from(*found))?, number("supported", u64::from(*supported))?);
            "NewerFormatError"
        }
        Error::LogFailed { reason } => {
            text("reason", reason)?;
            "LogFailedError"
        }
        Error::OutOfMemory { budget, needed } => {
            (number("budget", *budget)?, number("needed", *needed)?);
            "OutOfMemoryError"
        }
        Error::Limit { what } => {
            text("what", what)?;
            "LimitError"
        }
        Error::InvalidOption { name, what } => {
            (text("name", name)?, text("what", what)?);
            "InvalidOptionError"
        }
        Error::OutOfOrder { key, after } => {
            (bytes("key", key)?, bytes("after", after)?);
            "OutOfOrderError"
        }
        Error::SnapshotExpired { reason } => {
            text("reason", reason)?;
            "SnapshotExpiredError"
        }
        Error::Mount { path, what } => {
            (text("path", path)?, text("what", what)?);
            "MountError"
        }
        Error::UnknownEngine { name, available } => {
            (text("name", name)?, text("available", available)?);
            "UnknownEngineError"
        }
        Error::NotEncodable { value, reason } => {
            (text("value", value)?, text("reason", reason)?);
            "NotEncodableError"
        }
        Error::ReadOnly => "ReadOnlyError",
        Error::Closed => "ClosedError",
        Error::Forked => "ForkedError",
        of_table => set_table_fields(py, of_table, fields)?,
    })
}

/// Sets the fields of an error that names a table. Returns the name of its class.
fn set_table_fields(
    py: Python<'_>,
    error: &Error,
    fields: &Bound<'_, PyDict>,
) -> PyResult<&'static str> {
    let text = |name: &str, value: &str| fields.set_item(name, value);
    let bytes = |name: &str, value: &[u8]| fields.set_item(name, PyBytes::new(py, value));
    Ok(match error {
        Error::TableFailed { table, reason } => {
            (text("table", table)?, text("reason", reason)?);
            "TableFailedError"
        }
        Error::Loading { table } => {
            text("table", table)?;
            "LoadingError"
        }
        Error::NoSuchTable { name } => {
            text("name", name)?;
            "NoSuchTableError"
        }
        Error::TableExists { name } => {
            text("name", name)?;
            "TableExistsError"
        }
        Error::StaleTable { name } => {
            text("name", name)?;
            "StaleTableError"
        }
        Error::TypeMismatch { table, expected, found } => {
            (text("table", table)?, text("expected", expected)?, text("found", found)?);
            "TypeMismatchError"
        }
        Error::OtherDatabase { table } => {
            text("table", table)?;
            "OtherDatabaseError"
        }
        Error::Unordered { table, engine } => {
            (text("table", table)?, text("engine", engine)?);
            "UnorderedError"
        }
        Error::MergeOperatorMissing { table, operator } => {
            (text("table", table)?, text("operator", operator)?);
            "MergeOperatorMissingError"
        }
        Error::MergeRefused { table, key, operator, reason } => {
            (text("table", table)?, bytes("key", key)?);
            (text("operator", operator)?, text("reason", reason)?);
            "MergeRefusedError"
        }
        Error::Conflict { table, key } => {
            (text("table", table)?, bytes("key", key)?);
            "ConflictError"
        }
        Error::Deadlock { table, key } => {
            (text("table", table)?, bytes("key", key)?);
            "DeadlockError"
        }
        Error::LockTimeout { table, key } => {
            (text("table", table)?, bytes("key", key)?);
            "LockTimeoutError"
        }
        // A variant that is newer than this function.
        _ => "QuintetError",
    })
}

fn set_holder(holder: &LockHolder, fields: &Bound<'_, PyDict>) -> PyResult<()> {
    let (pid, program) = match holder {
        LockHolder::ThisProcess => (Some(std::process::id()), None),
        LockHolder::Process { id, name } => (Some(*id), name.clone()),
        _ => (None, None),
    };
    fields.set_item("pid", pid)?;
    fields.set_item("program", program)
}

/// Returns the exception of a lock that another thread left broken by a panic.
#[cold]
pub(crate) fn poisoned() -> PyErr {
    PyRuntimeError::new_err("an earlier call on this object has panicked; open a new one")
}
