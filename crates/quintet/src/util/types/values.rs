//! Encoding of typed values: numbers little-endian (4 or 8 bytes, floats bit for bit), text as
//! UTF-8, blobs unchanged. Values have no order.

use super::tag::TypeTag;
use crate::Result;

/// A value of a typed table: `u32`, `u64`, `i64`, `f32`, `f64`, `String` or `Vec<u8>`. With the
/// features `json` and `postcard` also `Json` and `Postcard`, which hold values of any type that
/// serde can serialize.
///
/// A program can implement it for its own types, with the bytes of the [`TypedValue::TAG`]. A write
/// of other bytes fails.
///
/// ```
/// use quintet::{TypeTag, TypedValue, ValueRef};
///
/// /// A colour: three bytes.
/// #[derive(Debug, PartialEq)]
/// struct Rgb(u8, u8, u8);
///
/// impl ValueRef for Rgb {
///     fn with_bytes<T>(
///         &self,
///         use_bytes: impl FnOnce(&[u8]) -> quintet::Result<T>,
///     ) -> quintet::Result<T> {
///         use_bytes(&[self.0, self.1, self.2])
///     }
/// }
///
/// impl TypedValue for Rgb {
///     const TAG: TypeTag = TypeTag::Blob;
///
///     fn decode_value(bytes: &[u8]) -> Option<Self> {
///         let [red, green, blue] = bytes.try_into().ok()?;
///         Some(Self(red, green, blue))
///     }
/// }
///
/// let colour = Rgb(255, 128, 0);
/// let bytes = colour.with_bytes(|bytes| Ok(bytes.to_vec()))?;
/// assert_eq!(Rgb::decode_value(&bytes), Some(colour));
/// # Ok::<(), quintet::Error>(())
/// ```
pub trait TypedValue: Sized + ValueRef {
    /// The type.
    const TAG: TypeTag;
    /// Returns the value with these bytes; `None` if they are no value of this type.
    fn decode_value(bytes: &[u8]) -> Option<Self>;

    /// Returns why bytes do not decode, for the message of an error. Called only after
    /// [`TypedValue::decode_value`] has refused them.
    fn decode_failure(_bytes: &[u8]) -> Option<String> {
        None
    }
}

/// A value or a borrowed form of it: `str` for `String`, `[u8]` for `Vec<u8>`.
pub trait ValueRef {
    /// Calls `use_bytes` with the value's bytes and returns its result. Fails with
    /// [`Error::NotEncodable`](crate::Error::NotEncodable) if the value cannot be encoded.
    fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> Result<T>) -> Result<T>;
}

macro_rules! number {
    ($type:ty, $tag:ident) => {
        impl TypedValue for $type {
            const TAG: TypeTag = TypeTag::$tag;

            fn decode_value(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self::from_le_bytes)
            }
        }

        impl ValueRef for $type {
            fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
                use_bytes(&self.to_le_bytes())
            }
        }
    };
}

number!(u32, U32);
number!(u64, U64);
number!(i64, I64);
number!(f32, F32);
number!(f64, F64);

impl ValueRef for str {
    fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        use_bytes(self.as_bytes())
    }
}

impl ValueRef for String {
    fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        use_bytes(self.as_bytes())
    }
}

impl TypedValue for String {
    const TAG: TypeTag = TypeTag::String;

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        Self::from_utf8(bytes.to_vec()).ok()
    }
}

impl ValueRef for [u8] {
    fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        use_bytes(self)
    }
}

impl ValueRef for Vec<u8> {
    fn with_bytes<T>(&self, use_bytes: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        use_bytes(self)
    }
}

impl TypedValue for Vec<u8> {
    const TAG: TypeTag = TypeTag::Blob;

    fn decode_value(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

/// Returns whether `bytes` are a value of this type.
pub(super) fn is_valid(tag: TypeTag, bytes: &[u8]) -> bool {
    match tag {
        TypeTag::U32 | TypeTag::F32 => bytes.len() == 4,
        TypeTag::U64 | TypeTag::I64 | TypeTag::F64 => bytes.len() == 8,
        TypeTag::String => std::str::from_utf8(bytes).is_ok(),
        TypeTag::Blob => true,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn round_trip<V: TypedValue + PartialEq + Debug>(value: &V, bytes: &[u8]) {
        assert_eq!(value.with_bytes(|found| Ok(found.to_vec())).unwrap(), bytes);
        assert_eq!(V::decode_value(bytes).as_ref(), Some(value));
        assert!(is_valid(V::TAG, bytes));
    }

    #[test]
    fn values_round_trip_and_their_bytes_are_pinned() {
        round_trip(&7_u32, &[7, 0, 0, 0]);
        round_trip(&7_u64, &[7, 0, 0, 0, 0, 0, 0, 0]);
        round_trip(&-2_i64, &[254, 255, 255, 255, 255, 255, 255, 255]);
        round_trip(&1.0_f32, &[0, 0, 0x80, 0x3f]);
        round_trip(&-0.0_f64, &[0, 0, 0, 0, 0, 0, 0, 0x80]);
        round_trip(&"\u{e9}".to_owned(), &[0xc3, 0xa9]);
        round_trip(&vec![0_u8, 255], &[0, 255]);
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(u32::decode_value(&[1, 2, 3]), None);
        assert_eq!(String::decode_value(&[0xff]), None);
        assert!(!is_valid(TypeTag::U64, &[0; 4]));
        assert!(!is_valid(TypeTag::String, &[0xff]));
    }
}
