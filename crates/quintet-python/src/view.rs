//! `TableView`: the reads that tables, their snapshots and transactions have in common.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use pyo3::{
    exceptions::{PyIndexError, PyTypeError},
    prelude::*,
    sync::PyOnceLock,
    types::{PyList, PySlice, PyTuple, PyType},
};
use quintet::{Table, Value};

use crate::{
    codec::Codecs,
    errors::{closed, forked, missing, raised},
    options::{self, RangeArguments},
    range::{Part, PyRange, everything},
    source::Source,
};

/// Maximum number of bytes that a thread keeps for the next value. Larger values are rare, and
/// their copy costs more than the allocation.
const BUFFER_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Where a get puts the value before it becomes a Python object.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A table as it can be read: now, in a snapshot, or in a transaction. A `Mapping` of its entries.
///
/// Keys and values are `bytes`, or what the codecs of the table make of them. Iteration yields
/// keys, in key order on an ordered engine. `table[start:stop]` is a `Range`.
#[pyclass(frozen, subclass, weakref, generic, module = "quintet", name = "TableView")]
pub(crate) struct TableView {
    pub(crate) source: Source,
    pub(crate) table: Table,
    pub(crate) codecs: Arc<Codecs>,
    closed: AtomicBool,
}

impl TableView {
    pub(crate) fn new(source: Source, table: Table, codecs: Arc<Codecs>) -> Self {
        Self { source, table, codecs, closed: AtomicBool::new(false) }
    }

    /// Returns the table as `source` shows it.
    pub(crate) fn within(&self, source: Source) -> Self {
        Self::new(source, self.table.clone(), Arc::clone(&self.codecs))
    }

    /// Raises if the object was closed.
    #[inline]
    pub(crate) fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.load(Ordering::Relaxed) { Err(closed(py, "table")) } else { Ok(()) }
    }

    /// Makes every later call raise.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Returns the value of a key.
    #[inline]
    pub(crate) fn find(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
        let py = key.py();
        self.check_open(py)?;
        self.source.get(py, &self.table, &self.codecs.keys.encode(key)?)
    }

    /// Returns the decoded value of a key.
    ///
    /// A table that is read as it is now copies the value into a buffer of the thread. That takes
    /// 80 ns less than a [`Value`], which is larger than most values and moves several times.
    #[inline]
    pub(crate) fn read<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        if !matches!(self.source, Source::Now(_)) {
            let value = self.find(key)?;
            return value.map(|value| self.codecs.values.decode(py, &value)).transpose();
        }
        self.check_open(py)?;
        let encoded = self.codecs.keys.encode(key)?;
        let bytes: &[u8] = &encoded;
        // Taken: a codec in Python may read another value meanwhile.
        let mut buffer = BUFFER.take();
        let found = py.detach(|| self.table.get_into(bytes, &mut buffer));
        let value = match found {
            Ok(true) => self.codecs.values.decode(py, &buffer).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(raised(py, &error)),
        };
        if buffer.capacity() <= BUFFER_BYTES_MAX {
            BUFFER.set(buffer);
        }
        value
    }

    /// Returns the entries of a range.
    pub(crate) fn select(
        &self,
        py: Python<'_>,
        arguments: &RangeArguments<'_, '_>,
        reverse: bool,
    ) -> PyResult<PyRange> {
        self.check_open(py)?;
        Ok(self.between(arguments.bounds(&self.codecs.keys)?, reverse))
    }

    /// Returns the range of `table[start:stop:step]`.
    pub(crate) fn slice(&self, slice: &Bound<'_, PySlice>) -> PyResult<PyRange> {
        self.check_open(slice.py())?;
        let (bounds, reverse) = options::slice(&self.codecs.keys, slice)?;
        Ok(self.between(bounds, reverse))
    }

    fn between(&self, bounds: options::Bounds, reverse: bool) -> PyRange {
        PyRange {
            source: self.source.clone(),
            table: self.table.clone(),
            codecs: Arc::clone(&self.codecs),
            bounds,
            reverse,
        }
    }

    /// Returns the range of all entries.
    pub(crate) fn whole(&self, py: Python<'_>) -> PyResult<PyRange> {
        self.check_open(py)?;
        Ok(self.between(everything(), false))
    }

    /// Returns the pair of decoded key and value.
    pub(crate) fn pair<'py>(
        &self,
        py: Python<'py>,
        entry: Option<(Vec<u8>, Value)>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some((key, value)) = entry else { return Ok(None) };
        let key = self.codecs.keys.decode(py, &key)?;
        PyTuple::new(py, [key, self.codecs.values.decode(py, &value)?]).map(Some)
    }
}

/// Returns a class of `quintet._views`, which has the views of a mapping.
fn views<'py>(
    py: Python<'py>,
    view: &Bound<'py, TableView>,
    name: &str,
) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("quintet._views").map(Bound::unbind))?;
    module.bind(py).call_method1(name, (view,))
}

#[pymethods]
impl TableView {
    /// The path of the table.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        match self.table.name() {
            name if name.is_empty() => Err(forked(py)),
            name => Ok(name),
        }
    }

    /// The name of the table's engine: naive, hashlog, trie, btree, slm or tph.
    #[getter]
    fn engine(&self) -> String {
        self.table.kind().to_string()
    }

    /// Whether the engine keeps the order of keys, so that the table has ranges.
    #[getter]
    fn is_ordered(&self) -> bool {
        self.table.kind().is_ordered()
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns the value of `key`. Raises `KeyError` if it has none. A slice of keys returns the
    /// `Range` of the entries between them, without reading.
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        if let Ok(slice) = key.cast::<PySlice>() {
            return Ok(Bound::new(py, self.slice(slice)?)?.into_any());
        }
        self.read(key)?.ok_or_else(|| missing(key))
    }

    /// Returns the value of `key`, or `default` if it has none.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.read(key)?.or(default))
    }

    /// Returns whether `key` has a value. Copies no value.
    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = key.py();
        self.check_open(py)?;
        self.source.contains(py, &self.table, &self.codecs.keys.encode(key)?)
    }

    /// Returns the values of `keys`, in their order, with `None` for each key that has none. Faster
    /// than a get for each. It is no snapshot: values may be of different moments.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.check_open(py)?;
        let objects = keys.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let encode = |key| self.codecs.keys.encode(key);
        let encoded = objects.iter().map(encode).collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<&[u8]> = encoded.iter().map(|key| &**key).collect();
        let found = self.source.multi_get(py, &self.table, &keys)?;
        let decode = |value: Option<Value>| {
            value.map(|value| self.codecs.values.decode(py, &value)).transpose()
        };
        PyList::new(py, found.into_iter().map(decode).collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the value of `key` as a read-only `memoryview`, or `None`. Copies no byte of a value
    /// of more than 141 bytes beyond what the engine copies. The value stays as it was, whatever
    /// happens to the table.
    fn get_view<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let Some(value) = self.find(key)? else { return Ok(None) };
        let view = py.import("quintet._views")?.getattr("view")?;
        view.call1((Bytes { value },)).map(Some)
    }

    /// Returns the entries from `start` up to `stop`, or those whose keys begin with `prefix`, in
    /// key order or its reverse. `start` is the lesser bound in both orders.
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false, include_start=true,
        include_stop=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn range(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        include_start: bool,
        include_stop: bool,
    ) -> PyResult<PyRange> {
        let arguments = RangeArguments {
            start,
            stop,
            prefix,
            excludes_start: !include_start,
            includes_stop: include_stop,
        };
        self.select(py, &arguments, reverse)
    }

    /// Returns the entries whose keys begin with `prefix`: text of a text, bytes of bytes, the
    /// tuple of the first parts of a composite key.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(
        &self,
        py: Python<'_>,
        prefix: &Bound<'_, PyAny>,
        reverse: bool,
    ) -> PyResult<PyRange> {
        let arguments = RangeArguments { prefix: Some(prefix), ..RangeArguments::default() };
        self.select(py, &arguments, reverse)
    }

    /// Returns an iterator over the keys, at one moment.
    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.whole(py)?.iterate(py, Part::Keys, false)
    }

    /// Returns an iterator over the keys in descending order.
    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.whole(py)?.iterate(py, Part::Keys, true)
    }

    /// Returns the number of entries. Reads the whole table.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.whole(py)?.count(py)
    }

    /// Returns whether the table has an entry. Reads one.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.whole(py)?.has_entries(py)
    }

    /// Returns a view of the keys.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        views(slf.py(), slf, "TableKeys")
    }

    /// Returns a view of the values.
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        views(slf.py(), slf, "TableValues")
    }

    /// Returns a view of the pairs of key and value.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        views(slf.py(), slf, "TableItems")
    }

    /// Returns the entry with the least key, or `None`.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.whole(py)?.first(py)
    }

    /// Returns the entry with the greatest key, or `None`.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.whole(py)?.last(py)
    }

    /// Returns when the value of `key` expires, in seconds since 1970, or `None` if it never does.
    /// Raises `KeyError` if the key has no value.
    fn expires_at(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        let value = self.find(key)?.ok_or_else(|| missing(key))?;
        let since = value
            .expires_at()
            .and_then(|time| time.duration_since(std::time::SystemTime::UNIX_EPOCH).ok());
        Ok(since.map(|since| since.as_secs_f64()))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let class: Bound<'_, PyType> = slf.get_type();
        let view = slf.get();
        Ok(format!("<{} {:?} ({})>", class.name()?, view.table.name(), view.table.kind()))
    }

    #[staticmethod]
    fn __reduce__() -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a table cannot be pickled or sent to another process; open the database there",
        ))
    }
}

/// The bytes of a value that stay in the memory of the library.
#[pyclass(frozen, module = "quintet._quintet", name = "Bytes")]
pub(crate) struct Bytes {
    value: Value,
}

#[pymethods]
impl Bytes {
    /// The address of the first byte. Valid as long as this object.
    #[getter]
    fn address(&self) -> usize {
        self.value.as_ptr().addr()
    }

    fn __len__(&self) -> usize {
        self.value.len()
    }

    fn __getitem__(&self, index: usize) -> PyResult<u8> {
        let byte = self.value.get(index).copied();
        byte.ok_or_else(|| PyIndexError::new_err("index out of range"))
    }
}
