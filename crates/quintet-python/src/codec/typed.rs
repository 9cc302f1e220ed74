//! Keys and values of typed tables, by the types of the catalog.
//!
//! The bytes are those of the library, so programs in both languages read the same table. A part of
//! a composite key goes through the library's [`KeyPart`], one part at a time. Its types are known
//! only at run time.

use pyo3::{
    IntoPyObjectExt,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyString, PyTuple},
};
use quintet::{KeyPart, TypeTag, TypedValue, ValueRef};

use super::encoded::{Encoded, bytes_like, text, wrong_type};

/// Encodes a key: one value, or a tuple of its parts. A shorter tuple encodes as the prefix of the
/// keys that begin with it, and so comes before them.
pub(super) fn encode_key(tags: &[TypeTag], key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut out = Vec::with_capacity(16);
    match tags {
        [tag] => put_part(*tag, key, &mut out, true)?,
        tags => put_parts(tags, key, &mut out)?,
    }
    Ok(out)
}

/// Encodes a prefix: the beginning of a text or blob, or the first parts of a composite key.
pub(super) fn encode_prefix(tags: &[TypeTag], prefix: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match tags {
        [TypeTag::String | TypeTag::Blob] | [_, _, ..] => encode_key(tags, prefix),
        _ => Err(PyTypeError::new_err("a number has no prefixes; use a range")),
    }
}

fn put_parts(tags: &[TypeTag], key: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    let Ok(parts) = key.cast::<PyTuple>() else {
        return Err(wrong_type(key, "a tuple"));
    };
    let count = parts.len();
    if count == 0 || count > tags.len() {
        return Err(PyTypeError::new_err(format!("a key has {} parts, not {count}", tags.len())));
    }
    for (index, (tag, part)) in tags.iter().zip(parts.iter()).enumerate() {
        put_part(*tag, &part, out, index + 1 == tags.len())?;
    }
    Ok(())
}

/// Appends one part of a key.
fn put_part(
    tag: TypeTag,
    part: &Bound<'_, PyAny>,
    out: &mut Vec<u8>,
    is_last: bool,
) -> PyResult<()> {
    fn put<T: KeyPart>(part: &T, out: &mut Vec<u8>, is_last: bool) {
        part.put(out, is_last);
    }
    match tag {
        TypeTag::U32 => put(&part.extract::<u32>()?, out, is_last),
        TypeTag::U64 => put(&part.extract::<u64>()?, out, is_last),
        TypeTag::I64 => put(&part.extract::<i64>()?, out, is_last),
        TypeTag::F32 => put(&part.extract::<f32>()?, out, is_last),
        TypeTag::F64 => put(&part.extract::<f64>()?, out, is_last),
        TypeTag::String => match part.cast::<PyString>() {
            Ok(text) => put(&text.to_cow()?.into_owned(), out, is_last),
            Err(_) => return Err(wrong_type(part, "str")),
        },
        TypeTag::Blob => put(&bytes_like(part)?.to_vec(), out, is_last),
        other => return Err(unknown(other)),
    }
    Ok(())
}

/// Returns the value, or the tuple of the parts, of a stored key.
pub(super) fn decode_key<'py>(
    py: Python<'py>,
    tags: &[TypeTag],
    mut stored: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    if let [tag] = tags {
        return take_part(py, *tag, &mut stored, true);
    }
    let mut parts = Vec::with_capacity(tags.len());
    for (index, tag) in tags.iter().enumerate() {
        parts.push(take_part(py, *tag, &mut stored, index + 1 == tags.len())?);
    }
    Ok(PyTuple::new(py, parts)?.into_any())
}

/// Reads one part from the front of `stored`.
fn take_part<'py>(
    py: Python<'py>,
    tag: TypeTag,
    stored: &mut &[u8],
    is_last: bool,
) -> PyResult<Bound<'py, PyAny>> {
    fn take<T: KeyPart>(stored: &mut &[u8], is_last: bool) -> PyResult<T> {
        T::take(stored, is_last).ok_or_else(|| undecodable("key", T::TAG))
    }
    match tag {
        TypeTag::U32 => take::<u32>(stored, is_last)?.into_bound_py_any(py),
        TypeTag::U64 => take::<u64>(stored, is_last)?.into_bound_py_any(py),
        TypeTag::I64 => take::<i64>(stored, is_last)?.into_bound_py_any(py),
        TypeTag::F32 => take::<f32>(stored, is_last)?.into_bound_py_any(py),
        TypeTag::F64 => take::<f64>(stored, is_last)?.into_bound_py_any(py),
        TypeTag::String => take::<String>(stored, is_last)?.into_bound_py_any(py),
        TypeTag::Blob => {
            let bytes = take::<Vec<u8>>(stored, is_last)?;
            Ok(PyBytes::new(py, &bytes).into_any())
        }
        other => Err(unknown(other)),
    }
}

/// Encodes a value.
pub(super) fn encode_value<'a, 'py>(
    tag: TypeTag,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<Encoded<'a, 'py>> {
    fn owned<'a, 'py, T: ValueRef>(value: &T) -> PyResult<Encoded<'a, 'py>> {
        let bytes = value.with_bytes(|bytes| Ok(bytes.to_vec()));
        bytes.map(Encoded::Owned).map_err(|error| PyValueError::new_err(error.to_string()))
    }
    match tag {
        TypeTag::U32 => owned(&value.extract::<u32>()?),
        TypeTag::U64 => owned(&value.extract::<u64>()?),
        TypeTag::I64 => owned(&value.extract::<i64>()?),
        TypeTag::F32 => owned(&value.extract::<f32>()?),
        TypeTag::F64 => owned(&value.extract::<f64>()?),
        TypeTag::String => match value.cast::<PyString>() {
            Ok(text) => Ok(Encoded::Object(text.encode_utf8()?)),
            Err(_) => Err(wrong_type(value, "str")),
        },
        TypeTag::Blob => bytes_like(value),
        other => Err(unknown(other)),
    }
}

/// Returns the value of stored bytes.
pub(super) fn decode_value<'py>(
    py: Python<'py>,
    tag: TypeTag,
    stored: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    fn read<T: TypedValue>(stored: &[u8]) -> PyResult<T> {
        T::decode_value(stored).ok_or_else(|| undecodable("value", T::TAG))
    }
    match tag {
        TypeTag::U32 => read::<u32>(stored)?.into_bound_py_any(py),
        TypeTag::U64 => read::<u64>(stored)?.into_bound_py_any(py),
        TypeTag::I64 => read::<i64>(stored)?.into_bound_py_any(py),
        TypeTag::F32 => read::<f32>(stored)?.into_bound_py_any(py),
        TypeTag::F64 => read::<f64>(stored)?.into_bound_py_any(py),
        TypeTag::String => text(py, stored),
        TypeTag::Blob => Ok(PyBytes::new(py, stored).into_any()),
        other => Err(unknown(other)),
    }
}

#[cold]
fn undecodable(what: &str, tag: TypeTag) -> PyErr {
    PyValueError::new_err(format!("the stored {what} is not of the type {tag}"))
}

#[cold]
fn unknown(tag: TypeTag) -> PyErr {
    PyTypeError::new_err(format!("this package does not know the type {tag}"))
}
