//! Encoded keys and values, and the objects that have bytes or text.

use std::ops::Deref;

use pyo3::{
    exceptions::{PyTypeError, PyUnicodeDecodeError},
    prelude::*,
    types::{PyByteArray, PyBytes, PyMemoryView, PyString},
};

/// An encoded key or value. Borrows the bytes of a `bytes` object.
pub(crate) enum Encoded<'a, 'py> {
    Borrowed(&'a [u8]),
    Owned(Vec<u8>),
    Object(Bound<'py, PyBytes>),
}

impl Deref for Encoded<'_, '_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
            Self::Object(bytes) => bytes.as_bytes(),
        }
    }
}

/// Returns the bytes of a `bytes`, a `bytearray` or a `memoryview`. Copies what can change.
pub(super) fn bytes_like<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<Encoded<'a, 'py>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Encoded::Borrowed(bytes.as_bytes()));
    }
    if object.is_instance_of::<PyByteArray>() || object.is_instance_of::<PyMemoryView>() {
        let copy = object.py().get_type::<PyBytes>().call1((object,))?;
        return Ok(Encoded::Object(copy.cast_into::<PyBytes>()?));
    }
    Err(wrong_type(object, "bytes"))
}

/// Returns the `str` of UTF-8.
pub(super) fn text<'py>(py: Python<'py>, stored: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(stored) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(error) => Err(PyUnicodeDecodeError::new_utf8(py, stored, error)?.into()),
    }
}

#[cold]
pub(super) fn wrong_type(object: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let found = object.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    PyTypeError::new_err(format!(
        "expected {wanted}, found {found}; `keys` and `values` of `Database.table` choose the types"
    ))
}
