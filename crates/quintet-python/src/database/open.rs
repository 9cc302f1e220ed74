//! The options of a database by the names of the keyword arguments of Python.

use pyo3::{exceptions::PyTypeError, prelude::*, types::PyDict};
use quintet::Options;

use crate::{
    errors::keep_merge_failure,
    options::{durability, duration},
};

/// Reads the options to open a database.
pub(super) fn options(given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    let mut options = Options::new();
    for (name, value) in given.into_iter().flatten() {
        if value.is_none() {
            continue;
        }
        options = match name.extract::<String>()?.as_str() {
            "sync" => options.durability(durability(value.extract()?)),
            "memory_budget" => options.memory_budget(value.extract()?),
            "sync_interval" => options.sync_interval(duration(&value)?),
            "recovery_budget" => options.recovery_budget(value.extract()?),
            "space_reserve" => options.space_reserve(value.extract()?),
            "checkpoint_interval" => options.checkpoint_interval(duration(&value)?),
            "read_only" => options.read_only(value.extract()?),
            "create" => options.create(value.extract()?),
            "segment_bytes" => options.segment_bytes(value.extract()?),
            "log_retention" => options.log_retention(value.extract()?),
            "snapshot_limit" => options.snapshot_limit(value.extract()?),
            "snapshot_max_age" => options.snapshot_max_age(duration(&value)?),
            "allow_missing_merge_operators" => {
                options.allow_missing_merge_operators(value.extract()?)
            }
            "merge_operators" => merge_operators(options, &value)?,
            other => {
                return Err(PyTypeError::new_err(format!("a database has no option {other}")));
            }
        };
    }
    Ok(options)
}

/// Adds merge operators: `function(key, old, operand)` returns the new value, all as bytes; `old`
/// is `None` for a key without a value. What a function raises is the cause of the refusal.
fn merge_operators(mut options: Options, given: &Bound<'_, PyAny>) -> PyResult<Options> {
    for (name, function) in given.cast::<PyDict>()? {
        let function = function.unbind();
        let operator = move |key: &[u8], old: Option<&[u8]>, operand: &[u8]| {
            Python::attach(|py| {
                let merged = function.call1(py, (key, old, operand));
                merged.and_then(|merged| merged.extract::<Vec<u8>>(py)).map_err(keep_merge_failure)
            })
        };
        options = options.merge_operator(name.extract::<String>()?, operator);
    }
    Ok(options)
}
