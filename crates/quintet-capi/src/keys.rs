//! Typed keys and values: their bytes.
//!
//! The keys of typed tables have the order of their values as bytes. A composite key is its parts
//! one after the other, of which the last is appended with `last`.

use quintet::{KeyRef, TypedKey, TypedValue};

use crate::{
    boundary::{Buffer, InOut, Out, Slice, export, required},
    failure::{Code, Failure},
    options,
};

/// Appends the bytes of a number.
fn append(key: InOut<'_, Buffer>, number: &impl KeyRef) -> Result<(), Failure> {
    let key = required(key, "key")?;
    let mut bytes = key.take();
    number.encode_into(&mut bytes);
    key.set(bytes);
    Ok(())
}

/// Reads a number of `N` bytes from the front of `rest`.
fn read<T: TypedKey, const N: usize>(
    rest: InOut<'_, Slice>,
    number: Out<'_, T>,
) -> Result<(), Failure> {
    let rest = required(rest, "rest")?;
    let bytes = rest.bytes()?;
    let decoded = bytes.get(..N).and_then(T::decode);
    required(number, "number")?.write(decoded.ok_or_else(not_of_type)?);
    rest.remove_first(N)
}

/// Copies the bytes of a value.
fn value_of<T: TypedValue>(bytes: Slice, number: Out<'_, T>) -> Result<(), Failure> {
    let value = T::decode_value(bytes.bytes()?).ok_or_else(not_of_type)?;
    required(number, "number")?.write(value);
    Ok(())
}

fn not_of_type() -> Failure {
    Failure::new(Code::TypeMismatch, "the bytes are not of this type")
}

export! {
    /// Appends an unsigned 32-bit number to a key: a `"u32"` part.
    ///
    /// Errors: `QUINTET_NULL_ARGUMENT`.
    pub fn quintet_key_append_u32(key: InOut<Buffer>, number: u32) {
        append(key, &number)
    }

    /// Appends an unsigned 64-bit number to a key: a `"u64"` part.
    ///
    /// Errors: `QUINTET_NULL_ARGUMENT`.
    pub fn quintet_key_append_u64(key: InOut<Buffer>, number: u64) {
        append(key, &number)
    }

    /// Appends a signed 64-bit number to a key: a `"i64"` part.
    ///
    /// Errors: `QUINTET_NULL_ARGUMENT`.
    pub fn quintet_key_append_i64(key: InOut<Buffer>, number: i64) {
        append(key, &number)
    }

    /// Appends a 32-bit floating-point number to a key: a `"f32"` part.
    ///
    /// Errors: `QUINTET_NULL_ARGUMENT`.
    pub fn quintet_key_append_f32(key: InOut<Buffer>, number: f32) {
        append(key, &number)
    }

    /// Appends a 64-bit floating-point number to a key: a `"f64"` part.
    ///
    /// Errors: `QUINTET_NULL_ARGUMENT`.
    pub fn quintet_key_append_f64(key: InOut<Buffer>, number: f64) {
        append(key, &number)
    }

    /// Appends bytes to a key: a `"string"` part, which is UTF-8, or a `"blob"` part. `last` must
    /// be true for the last part of a key, and false for the others.
    ///
    /// Errors: `QUINTET_NULL_ARGUMENT`.
    pub fn quintet_key_append_bytes(key: InOut<Buffer>, bytes: Slice, last: bool) {
        let key = required(key, "key")?;
        let bytes = bytes.bytes()?;
        let mut content = key.take();
        if last {
            content.extend_from_slice(bytes);
        } else {
            // The first part of a composite key is escaped and ended; the second is empty.
            (bytes.to_vec(), Vec::<u8>::new()).encode_into(&mut content);
        }
        key.set(content);
        Ok(())
    }

    /// Reads a `"u32"` part of a key from the front of `rest`, and moves `rest` behind it.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_key_read_u32(rest: InOut<Slice>, number: Out<u32>) {
        read::<_, 4>(rest, number)
    }

    /// Reads a `"u64"` part of a key from the front of `rest`, and moves `rest` behind it.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_key_read_u64(rest: InOut<Slice>, number: Out<u64>) {
        read::<_, 8>(rest, number)
    }

    /// Reads a `"i64"` part of a key from the front of `rest`, and moves `rest` behind it.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_key_read_i64(rest: InOut<Slice>, number: Out<i64>) {
        read::<_, 8>(rest, number)
    }

    /// Reads a `"f32"` part of a key from the front of `rest`, and moves `rest` behind it.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_key_read_f32(rest: InOut<Slice>, number: Out<f32>) {
        read::<_, 4>(rest, number)
    }

    /// Reads a `"f64"` part of a key from the front of `rest`, and moves `rest` behind it.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_key_read_f64(rest: InOut<Slice>, number: Out<f64>) {
        read::<_, 8>(rest, number)
    }

    /// Reads a `"string"` or `"blob"` part of a key from the front of `rest` into `bytes`, and
    /// moves `rest` behind it. `last` is that of `quintet_key_append_bytes`: the last
    /// part is all of `rest`.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_key_read_bytes(rest: InOut<Slice>, bytes: InOut<Buffer>, last: bool) {
        let (rest, bytes) = (required(rest, "rest")?, required(bytes, "bytes")?);
        let all = rest.bytes()?;
        let (part, size) = if last {
            (all.to_vec(), all.len())
        } else {
            let end = all.windows(2).position(|pair| pair == [0, 1]).ok_or_else(not_of_type)? + 2;
            let head = all.get(..end).ok_or_else(not_of_type)?;
            let (part, _) = <(Vec<u8>, Vec<u8>)>::decode(head).ok_or_else(not_of_type)?;
            (part, end)
        };
        rest.remove_first(size)?;
        bytes.set(part);
        Ok(())
    }

    /// Encodes a key from text, as the command line does. A key of several parts is a JSON array.
    /// `types` are such as `"string,u64 -> blob"`.
    ///
    /// Errors: `QUINTET_INVALID_OPTION` for bad types, `QUINTET_TYPE_MISMATCH` for text that is no
    /// such key.
    pub fn quintet_key_from_text(types: Slice, text: Slice, key: InOut<Buffer>) {
        let bytes = options::types(types.text()?)?.key_from_text(text.text()?)?;
        required(key, "key")?.set(bytes);
        Ok(())
    }

    /// Formats a key as text, as the command line does. `types` are such as `"string,u64 -> blob"`.
    ///
    /// Errors: `QUINTET_INVALID_OPTION` for bad types, `QUINTET_TYPE_MISMATCH` for bytes that are
    /// no such key.
    pub fn quintet_key_to_text(types: Slice, key: Slice, text: InOut<Buffer>) {
        let formatted = options::types(types.text()?)?.key_to_text(key.bytes()?);
        required(text, "text")?.set(formatted.ok_or_else(not_of_type)?.into_bytes());
        Ok(())
    }

    /// Reads a `"u32"` value: 4 bytes, little-endian.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_value_read_u32(value: Slice, number: Out<u32>) {
        value_of(value, number)
    }

    /// Reads a `"u64"` value: 8 bytes, little-endian.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_value_read_u64(value: Slice, number: Out<u64>) {
        value_of(value, number)
    }

    /// Reads a `"i64"` value: 8 bytes, little-endian.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_value_read_i64(value: Slice, number: Out<i64>) {
        value_of(value, number)
    }

    /// Reads a `"f32"` value: 4 bytes, little-endian.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_value_read_f32(value: Slice, number: Out<f32>) {
        value_of(value, number)
    }

    /// Reads a `"f64"` value: 8 bytes, little-endian.
    ///
    /// Errors: `QUINTET_TYPE_MISMATCH` if the bytes are not of this type.
    pub fn quintet_value_read_f64(value: Slice, number: Out<f64>) {
        value_of(value, number)
    }
}
