//! Values of applications' own types, encoded by serde.
//!
//! Behind the features `json` and `postcard`: the library depends on neither by default.

use std::any::type_name;

use serde::{Serialize, de::DeserializeOwned};

use super::{
    tag::TypeTag,
    values::{TypedValue, ValueRef},
};
use crate::{Error, Result};

/// A value that is stored as JSON: text that other programs and the command line can read. The
/// feature `json` has it.
///
/// Fields may be added to and removed from a type as serde allows it; see
/// [`serde(default)`](https://serde.rs/attr-default.html). Stored text that is no `T` fails with
/// [`Error::TypeMismatch`].
#[cfg(feature = "json")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Json<T>(pub T);

/// A value that is stored in the format of [postcard](https://docs.rs/postcard): a few bytes less
/// than in memory, without names of fields. The feature `postcard` has it.
///
/// The bytes do not tell the type that they are of: a changed type reads old values as wrong ones,
/// or fails with [`Error::TypeMismatch`]. Keep a version in an enum around the type.
#[cfg(feature = "postcard")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Postcard<T>(pub T);

#[cfg(feature = "json")]
impl<T: Serialize> ValueRef for Json<T> {
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let bytes = serde_json::to_vec(&self.0).map_err(|error| not_encodable::<T>(&error))?;
        use_bytes(&bytes)
    }
}

#[cfg(feature = "json")]
impl<T: Serialize + DeserializeOwned> TypedValue for Json<T> {
    const TAG: TypeTag = TypeTag::String;

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().map(Self)
    }

    fn decode_failure(bytes: &[u8]) -> Option<String> {
        serde_json::from_slice::<T>(bytes).err().map(|error| error.to_string())
    }
}

#[cfg(feature = "postcard")]
impl<T: Serialize> ValueRef for Postcard<T> {
    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
        let bytes = postcard::to_stdvec(&self.0).map_err(|error| not_encodable::<T>(&error))?;
        use_bytes(&bytes)
    }
}

#[cfg(feature = "postcard")]
impl<T: Serialize + DeserializeOwned> TypedValue for Postcard<T> {
    const TAG: TypeTag = TypeTag::Blob;

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        // Bytes that are left show that the value is of another type.
        let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(Self(value))
    }

    fn decode_failure(bytes: &[u8]) -> Option<String> {
        Some(match postcard::take_from_bytes::<T>(bytes) {
            Ok((_, rest)) => format!("{} bytes are left", rest.len()),
            Err(error) => error.to_string(),
        })
    }
}

fn not_encodable<T>(error: &dyn std::fmt::Display) -> Error {
    Error::NotEncodable { value: type_name::<T>(), reason: error.to_string() }
}
