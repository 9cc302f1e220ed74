//! Codecs: how Python objects become keys and values, and how they are read back.
//!
//! The codecs for bytes, text and the types of typed tables run here, so a get of bytes calls no
//! Python code. Every other codec is a Python object with `encode` and `decode`.

mod encoded;
mod typed;

pub(crate) use encoded::Encoded;
use encoded::{bytes_like, text, wrong_type};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBytes, PyString},
};
use quintet::{TableTypes, TypeTag};

/// How keys or values of a table are converted.
#[derive(Debug)]
pub(crate) enum Codec {
    /// `bytes`, or anything with the bytes of a `bytearray` or a `memoryview`.
    Bytes,
    /// `str`, as UTF-8.
    Text,
    /// The key of a typed table: its parts.
    TypedKey(Vec<TypeTag>),
    /// The value of a typed table.
    TypedValue(TypeTag),
    /// An object with methods `encode` and `decode`.
    Object {
        /// `encode(object) -> bytes`
        encode: Py<PyAny>,
        /// `decode(bytes) -> object`
        decode: Py<PyAny>,
    },
}

/// The codecs of a table.
#[derive(Debug)]
pub(crate) struct Codecs {
    pub(crate) keys: Codec,
    pub(crate) values: Codec,
}

impl Codecs {
    /// Returns the codecs that the caller asked for. `None`: those of the table's types, or bytes.
    pub(crate) fn new(
        keys: Option<&Bound<'_, PyAny>>,
        values: Option<&Bound<'_, PyAny>>,
        types: Option<&TableTypes>,
    ) -> PyResult<Self> {
        let keys = match (keys, types) {
            (Some(keys), _) => Codec::from_object(keys)?,
            (None, Some(types)) => Codec::TypedKey(types.key().to_vec()),
            (None, None) => Codec::Bytes,
        };
        let values = match (values, types) {
            (Some(values), _) => Codec::from_object(values)?,
            (None, Some(types)) => Codec::TypedValue(types.value()),
            (None, None) => Codec::Bytes,
        };
        Ok(Self { keys, values })
    }
}

impl Codec {
    /// Returns the codec that `quintet.codecs.resolve` finds for an object.
    fn from_object(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let resolved = object.py().import("quintet.codecs")?.call_method1("resolve", (object,))?;
        if let Ok(name) = resolved.cast::<PyString>() {
            return Ok(if name.to_cow()? == "bytes" { Self::Bytes } else { Self::Text });
        }
        let encode = resolved.getattr("encode")?.unbind();
        Ok(Self::Object { encode, decode: resolved.getattr("decode")?.unbind() })
    }

    /// Encodes a key or a value.
    #[inline]
    pub(crate) fn encode<'a, 'py>(
        &self,
        object: &'a Bound<'py, PyAny>,
    ) -> PyResult<Encoded<'a, 'py>> {
        if let Self::Bytes = self
            && let Ok(bytes) = object.cast::<PyBytes>()
        {
            return Ok(Encoded::Borrowed(bytes.as_bytes()));
        }
        self.encode_other(object)
    }

    fn encode_other<'a, 'py>(&self, object: &'a Bound<'py, PyAny>) -> PyResult<Encoded<'a, 'py>> {
        match self {
            Self::Bytes => bytes_like(object),
            Self::Text => match object.cast::<PyString>() {
                Ok(text) => Ok(Encoded::Object(text.encode_utf8()?)),
                Err(_) => Err(wrong_type(object, "str")),
            },
            Self::TypedKey(tags) => typed::encode_key(tags, object).map(Encoded::Owned),
            Self::TypedValue(tag) => typed::encode_value(*tag, object),
            Self::Object { encode, .. } => {
                let encoded = encode.bind(object.py()).call1((object,))?;
                match encoded.cast_into::<PyBytes>() {
                    Ok(bytes) => Ok(Encoded::Object(bytes)),
                    Err(other) => {
                        let other = other.into_inner();
                        bytes_like(&other).map(|bytes| Encoded::Owned(bytes.to_vec()))
                    }
                }
            }
        }
    }

    /// Encodes the prefix of keys: text of text, bytes of bytes, the first parts of a composite
    /// key. Another codec has no prefixes.
    pub(crate) fn encode_prefix(&self, object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        match self {
            Self::Object { .. } => Err(PyTypeError::new_err(
                "a prefix needs keys of bytes, text or the types of a typed table: the order of \
                 other encoded keys is not that of their values",
            )),
            Self::TypedKey(tags) => typed::encode_prefix(tags, object),
            _ => self.encode(object).map(|bytes| bytes.to_vec()),
        }
    }

    /// Returns the object of stored bytes.
    #[inline]
    pub(crate) fn decode<'py>(
        &self,
        py: Python<'py>,
        stored: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Self::Bytes = self {
            return Ok(PyBytes::new(py, stored).into_any());
        }
        self.decode_other(py, stored)
    }

    fn decode_other<'py>(&self, py: Python<'py>, stored: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Bytes => Ok(PyBytes::new(py, stored).into_any()),
            Self::Text => text(py, stored),
            Self::TypedKey(tags) => typed::decode_key(py, tags, stored),
            Self::TypedValue(tag) => typed::decode_value(py, *tag, stored),
            Self::Object { decode, .. } => decode.bind(py).call1((PyBytes::new(py, stored),)),
        }
    }

    /// Whether stored bytes are the bytes that the caller sees.
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self, Self::Bytes)
    }
}
