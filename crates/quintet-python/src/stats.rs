//! Statistics as dictionaries.

use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};
use quintet::{DatabaseStats, TableStats};

/// Returns the counters and sizes of a table by name.
pub(crate) fn table<'py>(py: Python<'py>, stats: &TableStats) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("name", &stats.name)?;
    all.set_item("engine", stats.kind.to_string())?;
    for (name, value) in stats.numbers() {
        all.set_item(name, value)?;
    }
    all.set_item("failure", &stats.failure)?;
    let details = PyDict::new(py);
    for (name, value) in &stats.details {
        details.set_item(name, value)?;
    }
    all.set_item("details", details)?;
    Ok(all)
}

/// Returns the counters and sizes of a database by name.
pub(crate) fn database<'py>(
    py: Python<'py>,
    stats: &DatabaseStats,
) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (name, value) in stats.numbers() {
        all.set_item(name, value)?;
    }
    all.set_item("background_failure", &stats.background_failure)?;
    let tables = stats.tables.iter().map(|stats| table(py, stats)).collect::<PyResult<Vec<_>>>()?;
    all.set_item("tables", PyList::new(py, tables)?)?;
    Ok(all)
}
