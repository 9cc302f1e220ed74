//! Ranges: the entries of a table between two keys, and the iterators over them.
//!
//! Problem: a Python iterator costs a call for each entry, and each call into the store would
//! attach and detach the interpreter.
//! How: [`Chunks`] reads some hundred entries at a time, detached, into one buffer. Then it makes
//! the Python objects of all of them as a list. `itertools.chain` hands out the elements of these
//! lists, so that an entry costs no call of ours.
//!
//! An iterator over a table holds a snapshot, and so shows one moment. Each chunk is a descent to
//! the key after the last one. Signals are checked between chunks: `list(range)` ends with
//! `KeyboardInterrupt`.

mod reader;

use std::{ops::Bound as End, sync::Arc};

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyList, PyTuple},
};
use quintet::Table;
pub(crate) use reader::Part;
use reader::{CHUNK_ENTRIES_MAX, Reader};

use crate::{
    codec::Codecs,
    errors::OrRaise,
    guarded::Guarded,
    options::Bounds,
    source::{Source, with_transaction},
};

/// Entries that are counted between two looks at signals.
const COUNTED_ENTRIES: usize = 1 << 16;

/// The entries of a table whose keys lie between two bounds, in the order of the keys.
///
/// A range reads nothing until it is iterated, and can be iterated many times. Each iteration shows
/// the table at the moment when it begins. Iterating yields pairs of key and value; `keys()` and
/// `values()` yield the parts.
#[pyclass(frozen, module = "quintet", name = "Range")]
pub(crate) struct PyRange {
    pub(crate) source: Source,
    pub(crate) table: Table,
    pub(crate) codecs: Arc<Codecs>,
    pub(crate) bounds: Bounds,
    pub(crate) reverse: bool,
}

impl PyRange {
    /// Returns an iterator over a part of the entries.
    pub(crate) fn iterate<'py>(
        &self,
        py: Python<'py>,
        part: Part,
        reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = Guarded::new(self.reader(py, part, reverse, CHUNK_ENTRIES_MAX)?);
        let chunks = Chunks { codecs: Arc::clone(&self.codecs), part, reader };
        chain(py)?.call1((chunks,))
    }

    fn reader(&self, py: Python<'_>, part: Part, reverse: bool, most: usize) -> PyResult<Reader> {
        Reader::new(py, (&self.source, &self.table), self.bounds.clone(), (part, reverse, most))
    }

    /// Returns the first entry in the order of `reverse`.
    fn end<'py>(&self, py: Python<'py>, reverse: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut reader = self.reader(py, Part::Items, reverse, 1)?;
        reader.read(py)?;
        let Some((key, value)) = reader.entries().next() else { return Ok(None) };
        let pair = [self.codecs.keys.decode(py, key)?, self.codecs.values.decode(py, value)?];
        PyTuple::new(py, pair).map(Some)
    }

    /// Returns the number of entries.
    pub(crate) fn count(&self, py: Python<'_>) -> PyResult<usize> {
        let mut reader = self.reader(py, Part::Count, false, COUNTED_ENTRIES)?;
        let mut count = 0;
        loop {
            py.check_signals()?;
            match reader.read(py)? {
                0 => return Ok(count),
                more => count += more,
            }
        }
    }

    /// Returns whether there is an entry.
    pub(crate) fn has_entries(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.reader(py, Part::Count, false, 1)?.read(py)? > 0)
    }
}

#[pymethods]
impl PyRange {
    /// Returns an iterator over pairs of key and value.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iterate(py, Part::Items, self.reverse)
    }

    /// Returns an iterator over pairs of key and value, in the opposite order.
    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iterate(py, Part::Items, !self.reverse)
    }

    /// Returns an iterator over pairs of key and value.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iterate(py, Part::Items, self.reverse)
    }

    /// Returns an iterator over the keys. Values are not converted.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iterate(py, Part::Keys, self.reverse)
    }

    /// Returns an iterator over the values. Keys are not converted.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.iterate(py, Part::Values, self.reverse)
    }

    /// Returns the number of entries. Reads all of them.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.count(py)
    }

    /// Returns whether the range has an entry. Reads one.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.has_entries(py)
    }

    /// Returns the pair that iteration yields first, or `None`.
    pub(crate) fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.end(py, self.reverse)
    }

    /// Returns the pair that iteration yields last, or `None`.
    pub(crate) fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.end(py, !self.reverse)
    }

    /// Deletes the entries of the range: on a table as one commit, in a transaction with it.
    /// Raises `TypeError` for a range of a snapshot.
    pub(crate) fn delete(&self, py: Python<'_>) -> PyResult<()> {
        let (table, bounds) = (&self.table, self.bounds.clone());
        match &self.source {
            Source::Now(_) => py.detach(|| table.delete_range(bounds)).or_raise(py),
            Source::Transaction(shared) => {
                with_transaction(py, shared, |tx| tx.delete_range(table, bounds))
            }
            Source::Snapshot(_) => Err(PyTypeError::new_err("a snapshot cannot be changed")),
        }
    }

    /// Returns an estimate of the number of entries, within a small factor. Reads only the two
    /// ends. In a snapshot or a transaction it is that of the table now.
    fn estimate_count(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.table.estimate_count(self.bounds.clone())).or_raise(py)
    }
}

/// An iterator over lists of entries: each list is one read of the store.
#[pyclass(frozen, module = "quintet._quintet")]
pub(crate) struct Chunks {
    codecs: Arc<Codecs>,
    part: Part,
    reader: Guarded<Reader>,
}

#[pymethods]
impl Chunks {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        py.check_signals()?;
        let mut reader = self.reader.lock(py)?;
        if reader.read(py)? == 0 {
            return Ok(None);
        }
        self.list(py, &reader).map(Some)
    }
}

impl Chunks {
    fn list<'py>(&self, py: Python<'py>, reader: &Reader) -> PyResult<Bound<'py, PyList>> {
        let Codecs { keys, values } = &*self.codecs;
        let are_bytes = keys.is_bytes() && values.is_bytes();
        match self.part {
            Part::Items if are_bytes => PyList::new(
                py,
                reader
                    .entries()
                    .map(|(key, value)| (PyBytes::new(py, key), PyBytes::new(py, value))),
            ),
            Part::Items => {
                let pairs: PyResult<Vec<_>> = reader
                    .entries()
                    .map(|(key, value)| Ok((keys.decode(py, key)?, values.decode(py, value)?)))
                    .collect();
                PyList::new(py, pairs?)
            }
            Part::Values => {
                let all: PyResult<Vec<_>> =
                    reader.entries().map(|(_, value)| values.decode(py, value)).collect();
                PyList::new(py, all?)
            }
            Part::Keys | Part::Count => {
                let all: PyResult<Vec<_>> =
                    reader.entries().map(|(key, _)| keys.decode(py, key)).collect();
                PyList::new(py, all?)
            }
        }
    }
}

/// Returns `itertools.chain.from_iterable`.
fn chain(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CHAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let chain = CHAIN.get_or_try_init(py, || {
        let class = py.import("itertools")?.getattr("chain")?;
        class.getattr("from_iterable").map(Bound::unbind)
    })?;
    Ok(chain.bind(py))
}

/// Returns the bounds of a whole table.
pub(crate) fn everything() -> Bounds {
    (End::Unbounded, End::Unbounded)
}
