//! `Table`: reads and writes of a table of an open database.

use std::sync::Arc;

use pyo3::{
    exceptions::{PyKeyError, PyTypeError},
    prelude::*,
    types::{PyDict, PyMapping, PySlice, PyTuple},
};
use quintet::{CasOutcome, LoadOptions};

use crate::{
    batch::{Batch, TableBatch},
    codec::Codecs,
    errors::{OrRaise, missing},
    options::{PutArguments, delete_options, update_options},
    range::Part,
    source::Source,
    stats,
    view::TableView,
};

/// Entries that a sorted load takes from Python before it hands them to the store.
const LOADED_ENTRIES: usize = 512;

/// A table of an open database: a `MutableMapping` of its entries.
///
/// `Database.table` opens it. Any number of threads may use it. As a context manager it closes
/// itself; the table's data does not change by that. Two tables compare by identity.
#[pyclass(frozen, weakref, extends = TableView, module = "quintet", name = "Table")]
pub(crate) struct PyTable {}

impl PyTable {
    pub(crate) fn create(
        py: Python<'_>,
        db: &quintet::Database,
        table: quintet::Table,
        codecs: Codecs,
    ) -> PyResult<Py<Self>> {
        let view = TableView::new(Source::Now(db.clone()), table, Arc::new(codecs));
        Py::new(py, PyClassInitializer::from(view).add_subclass(Self {}))
    }
}

/// Returns the table and its codecs, if it is open.
fn open<'a>(slf: &'a Bound<'_, PyTable>) -> PyResult<&'a TableView> {
    let view = slf.as_super().get();
    view.check_open(slf.py())?;
    Ok(view)
}

/// Returns a batch that is committed at once.
fn batch_of(view: &TableView) -> Option<quintet::Batch> {
    match &view.source {
        Source::Now(db) => Some(db.batch()),
        Source::Snapshot(_) | Source::Transaction(_) => None,
    }
}

#[pymethods]
impl PyTable {
    /// Sets the value of `key`.
    fn __setitem__(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (py, view) = (slf.py(), open(slf)?);
        let (key, value) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(value)?);
        let (key, value): (&[u8], &[u8]) = (&key, &value);
        py.detach(|| view.table.put(key, value)).or_raise(py)
    }

    /// Deletes `key`, or all keys of a slice. Raises `KeyError` if a single key has no value.
    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(slice) = key.cast::<PySlice>() {
            return open(slf)?.slice(slice)?.delete(slf.py());
        }
        if Self::delete(slf, key, true, None)? { Ok(()) } else { Err(missing(key)) }
    }

    /// Sets the value of `key`. Returns whether it was written: `False` if `if_absent` or
    /// `if_present` does not hold. `ttl` is in seconds, or a `timedelta`; `expires_at` in seconds
    /// since 1970, or a `datetime`. `sync` overrides the durability of the database.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None, if_absent=false,
        if_present=false, sync=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn put(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
        if_absent: bool,
        if_present: bool,
        sync: Option<bool>,
    ) -> PyResult<bool> {
        let (py, view) = (slf.py(), open(slf)?);
        let arguments = PutArguments { ttl, expires_at, if_absent, if_present, sync };
        let options = if arguments.is_plain() { None } else { Some(arguments.options()?) };
        let (key, value) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(value)?);
        let (key, value): (&[u8], &[u8]) = (&key, &value);
        match options {
            None => py.detach(|| view.table.put(key, value)).or_raise(py).map(|()| true),
            Some(options) => py.detach(|| view.table.put_with(key, value, options)).or_raise(py),
        }
    }

    /// Deletes `key`, whether or not it has a value. With `if_present`, returns whether it had one;
    /// otherwise returns `True`.
    #[pyo3(signature = (key, *, if_present=false, sync=None))]
    fn delete(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        if_present: bool,
        sync: Option<bool>,
    ) -> PyResult<bool> {
        let (py, view) = (slf.py(), open(slf)?);
        let key = view.codecs.keys.encode(key)?;
        let (key, options): (&[u8], _) = (&key, delete_options(if_present, sync));
        py.detach(|| view.table.delete_with(key, options)).or_raise(py)
    }

    /// Deletes `key` and returns the value that it had. Without one, returns `default`, or raises
    /// `KeyError` if there is no default. Two threads never get the same value.
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, view) = (slf.py(), open(slf)?);
        if default.len() > 1 {
            return Err(PyTypeError::new_err("pop takes a key and at most one default"));
        }
        let encoded = view.codecs.keys.encode(key)?;
        let bytes: &[u8] = &encoded;
        match py.detach(|| view.table.take(bytes)).or_raise(py)? {
            Some(value) => view.codecs.values.decode(py, &value),
            None => default.get_item(0).map_err(|_| missing(key)),
        }
    }

    /// Deletes an entry and returns it: the last one on an ordered engine. Raises `KeyError` if
    /// the table is empty.
    fn popitem<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, view) = (slf.py(), open(slf)?);
        if view.table.kind().is_ordered() {
            return Self::pop_last(slf)?.ok_or_else(|| PyKeyError::new_err("the table is empty"));
        }
        loop {
            let mut keys = view.whole(py)?.iterate(py, Part::Keys, false)?.try_iter()?;
            let Some(key) = keys.next().transpose()? else {
                return Err(PyKeyError::new_err("the table is empty"));
            };
            let encoded = view.codecs.keys.encode(&key)?;
            let bytes: &[u8] = &encoded;
            // `None`: another thread took it first.
            if let Some(value) = py.detach(|| view.table.take(bytes)).or_raise(py)? {
                return PyTuple::new(py, [key.clone(), view.codecs.values.decode(py, &value)?]);
            }
        }
    }

    /// Deletes the entry with the least key and returns it, or `None` if the table is empty.
    fn pop_first<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, view) = (slf.py(), open(slf)?);
        let entry = py.detach(|| view.table.pop_first()).or_raise(py)?;
        view.pair(py, entry)
    }

    /// Deletes the entry with the greatest key and returns it, or `None` if the table is empty.
    fn pop_last<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, view) = (slf.py(), open(slf)?);
        let entry = py.detach(|| view.table.pop_last()).or_raise(py)?;
        view.pair(py, entry)
    }

    /// Returns the value of `key`. If it has none, sets it to `default` and returns that.
    #[pyo3(signature = (key, default, /))]
    fn setdefault<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, view) = (slf.py(), open(slf)?);
        let (key, made) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(default)?);
        let (key, made): (&[u8], &[u8]) = (&key, &made);
        let value = py.detach(|| view.table.get_or_insert_with(key, || made)).or_raise(py)?;
        view.codecs.values.decode(py, &value)
    }

    /// `update(key, function)` replaces the value of `key` by what `function` returns for it, and
    /// returns the new value. `function` gets the value, or `None` without one, and returns the new
    /// one, or `None` to delete the key. No other write of the key comes between: if one does, the
    /// function runs again. What it raises ends the update, and nothing is written. The value keeps
    /// its expiry unless `ttl` or `expires_at` sets one.
    ///
    /// `update(entries)` and `update(name=value)` write all entries of a mapping, or of an iterable
    /// of pairs, as one atomic batch.
    #[pyo3(signature = (other=None, function=None, /, **kwargs))]
    fn update<'py>(
        slf: &Bound<'py, Self>,
        other: Option<&Bound<'py, PyAny>>,
        function: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match (other, function) {
            (Some(key), Some(function)) => update_value(slf, key, function, kwargs),
            (other, _) => update_entries(slf, other, kwargs).map(|()| None),
        }
    }

    /// Sets the value of `key` and returns the one that it replaced, or `None`.
    fn replace<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, view) = (slf.py(), open(slf)?);
        let (key, value) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(value)?);
        let (key, value): (&[u8], &[u8]) = (&key, &value);
        let old = py.detach(|| view.table.replace(key, value)).or_raise(py)?;
        old.map(|old| view.codecs.values.decode(py, &old)).transpose()
    }

    /// Sets the value of `key` to `new` if it is `expected`, and returns whether it was. `None` is
    /// a key without a value. Encoded values are compared.
    #[pyo3(signature = (key, expected, new, *, ttl=None, expires_at=None, sync=None))]
    fn compare_and_swap(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        expected: Option<&Bound<'_, PyAny>>,
        new: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
        sync: Option<bool>,
    ) -> PyResult<bool> {
        let (py, view) = (slf.py(), open(slf)?);
        let options = update_options(ttl, expires_at, sync)?;
        let key = view.codecs.keys.encode(key)?;
        let expected = expected.map(|value| view.codecs.values.encode(value)).transpose()?;
        let new = new.map(|value| view.codecs.values.encode(value)).transpose()?;
        let (key, expected, new): (&[u8], _, _) = (&key, expected.as_deref(), new.as_deref());
        let outcome = py
            .detach(|| view.table.compare_and_swap_with(key, expected, new, options))
            .or_raise(py)?;
        Ok(outcome.is_swapped())
    }

    /// Adds `delta` to the integer of `key`, and returns the one before. A key without a value
    /// counts as 0. An untyped value is 8 bytes, little-endian, signed.
    #[pyo3(signature = (key, delta=1))]
    fn fetch_and_add(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, delta: i64) -> PyResult<i64> {
        let (py, view) = (slf.py(), open(slf)?);
        let key = view.codecs.keys.encode(key)?;
        let key: &[u8] = &key;
        py.detach(|| view.table.fetch_and_add(key, delta)).or_raise(py)
    }

    /// Changes the value of `key` by the table's merge operator. `operand` is encoded as a value
    /// is. The value keeps its expiry unless `ttl` or `expires_at` sets one.
    #[pyo3(signature = (key, operand, *, ttl=None, expires_at=None, sync=None))]
    fn merge(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
        sync: Option<bool>,
    ) -> PyResult<()> {
        let (py, view) = (slf.py(), open(slf)?);
        let options = update_options(ttl, expires_at, sync)?;
        let (key, operand) = (view.codecs.keys.encode(key)?, view.codecs.values.encode(operand)?);
        let (key, operand): (&[u8], &[u8]) = (&key, &operand);
        py.detach(|| view.table.merge_with(key, operand, options)).or_raise(py)
    }

    /// Deletes all entries. Takes constant time.
    fn clear(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, view) = (slf.py(), open(slf)?);
        py.detach(|| view.table.clear()).or_raise(py)
    }

    /// Writes pairs of key and value in strictly ascending key order, and returns their number.
    /// Faster than puts on `btree`, where it takes effect as a whole; elsewhere in batches of
    /// 256 KiB. Raises `OutOfOrderError` for a key that is not above the one before.
    #[pyo3(signature = (entries, *, logged=false))]
    fn load_sorted(
        slf: &Bound<'_, Self>,
        entries: &Bound<'_, PyAny>,
        logged: bool,
    ) -> PyResult<u64> {
        let (py, view) = (slf.py(), open(slf)?);
        let options = if logged { LoadOptions::new().logged() } else { LoadOptions::new() };
        let mut loader = py.detach(|| view.table.sorted_loader(options)).or_raise(py)?;
        let mut waiting = Vec::with_capacity(LOADED_ENTRIES);
        let mut entries = entries.try_iter()?;
        loop {
            for entry in entries.by_ref().take(LOADED_ENTRIES) {
                let (key, value) = entry?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
                let key = view.codecs.keys.encode(&key)?.to_vec();
                waiting.push((key, view.codecs.values.encode(&value)?.to_vec()));
            }
            if waiting.is_empty() {
                return py.detach(|| loader.commit()).or_raise(py);
            }
            py.check_signals()?;
            let load = || waiting.drain(..).try_for_each(|(key, value)| loader.put(key, value));
            py.detach(load).or_raise(py)?;
        }
    }

    /// Returns a batch of operations on this table alone: `batch[key] = value`, `del batch[key]`.
    fn batch(slf: &Bound<'_, Self>, py: Python<'_>) -> PyResult<TableBatch> {
        let view = open(slf)?;
        let batch = batch_of(view).ok_or_else(|| PyTypeError::new_err("the table is read-only"))?;
        TableBatch::new(py, &Batch::shared(batch), slf.as_super())
    }

    /// Checkpoints the table: makes every earlier write durable in the table's files.
    fn persist(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, view) = (slf.py(), open(slf)?);
        py.detach(|| view.table.persist()).or_raise(py)
    }

    /// Releases the space of deleted, replaced and expired entries, as far as the engine can. May
    /// read and write the whole table, and cannot be interrupted.
    fn compact(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, view) = (slf.py(), open(slf)?);
        py.detach(|| view.table.compact()).or_raise(py)
    }

    /// Returns the counters and sizes of the table.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (py, view) = (slf.py(), open(slf)?);
        let stats = py.detach(|| view.table.stats()).or_raise(py)?;
        stats::table(py, &stats)
    }

    /// The types of the table's keys and values, such as `string,u64 -> blob`, or `None`.
    #[getter]
    fn types(slf: &Bound<'_, Self>) -> PyResult<Option<String>> {
        Ok(open(slf)?.table.types().map(|types| types.to_string()))
    }

    /// Makes every later call of this object raise `ClosedError`. The data stays as it is.
    fn close(slf: &Bound<'_, Self>) {
        slf.as_super().get().close();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) {
        Self::close(slf);
    }
}

/// Replaces a value by what `function` returns for it.
fn update_value<'py>(
    slf: &Bound<'py, PyTable>,
    key: &Bound<'py, PyAny>,
    function: &Bound<'py, PyAny>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let (py, view) = (slf.py(), open(slf)?);
    let (mut ttl, mut expires_at, mut sync) = (None, None, None);
    for (name, value) in kwargs.into_iter().flatten() {
        match name.extract::<String>()?.as_str() {
            "ttl" => ttl = Some(value),
            "expires_at" => expires_at = Some(value),
            "sync" => sync = Some(value.extract()?),
            other => {
                return Err(PyTypeError::new_err(format!("update has no argument {other}")));
            }
        }
    }
    let options = update_options(ttl.as_ref(), expires_at.as_ref(), sync)?;
    let key = view.codecs.keys.encode(key)?;
    let key: &[u8] = &key;
    let mut old = py.detach(|| view.table.get(key)).or_raise(py)?;
    loop {
        let current = old.as_ref().map(|old| view.codecs.values.decode(py, old)).transpose()?;
        let new = function.call1((current,))?;
        let new = (!new.is_none()).then_some(new);
        let encoded = new.as_ref().map(|new| view.codecs.values.encode(new)).transpose()?;
        let (expected, bytes) = (old.as_deref(), encoded.as_deref());
        let swap = || view.table.compare_and_swap_with(key, expected, bytes, options);
        match py.detach(swap).or_raise(py)? {
            CasOutcome::Swapped => {
                drop(encoded);
                return Ok(new);
            }
            CasOutcome::Different { current } => old = current,
        }
        py.check_signals()?;
    }
}

/// Writes all entries of a mapping or an iterable as one batch.
fn update_entries(
    slf: &Bound<'_, PyTable>,
    other: Option<&Bound<'_, PyAny>>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let (py, view) = (slf.py(), open(slf)?);
    let Some(mut batch) = batch_of(view) else { return Ok(()) };
    let mut add = |key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>| -> PyResult<()> {
        let key = view.codecs.keys.encode(key)?;
        batch.put(&view.table, &*key, &*view.codecs.values.encode(value)?);
        Ok(())
    };
    let mut add_pairs = |pairs: &Bound<'_, PyAny>| -> PyResult<()> {
        for pair in pairs.try_iter()? {
            let (key, value) = pair?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            add(&key, &value)?;
        }
        Ok(())
    };
    match other {
        None => {}
        Some(other) => match other.cast::<PyMapping>() {
            Ok(mapping) => add_pairs(&mapping.as_any().call_method0("items")?)?,
            Err(_) if other.hasattr("keys")? => add_pairs(&other.call_method0("items")?)?,
            Err(_) => add_pairs(other)?,
        },
    }
    for (key, value) in kwargs.into_iter().flatten() {
        add(&key, &value)?;
    }
    py.detach(|| batch.commit()).or_raise(py)
}
