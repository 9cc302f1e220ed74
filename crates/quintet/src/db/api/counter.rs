//! Counters: atomic addition to integer values.
//!
//! The type of an integer is the value type of the table. In a table without types it is the type
//! tag of the value; a value without a tag is an `i64`. Integers are little-endian, as
//! [`TypedValue`](crate::util::types::TypedValue) encodes them.

use super::{table::Table, write_options::UpdateOptions};
use crate::{
    Error, Result,
    db::{core::key_change::KeyChange, tables::value::Value},
    util::{
        error::printable,
        mutant::mutant,
        types::{TableTypes, TypeTag},
    },
};

impl Table {
    /// Adds `delta` to the integer value of `key`, and returns the value before. A key without a
    /// value counts as 0.
    ///
    /// The integer is of the table's value type (`u32`, `u64` or `i64`). In a table without types
    /// it is of the type of the value's tag. Without a tag it is an `i64`: 8 bytes, little-endian.
    /// The new value keeps the expiry and the type tag; see [`Table::fetch_and_add_with`].
    ///
    /// Fails with [`Error::TypeMismatch`] if the value is no such integer, and with
    /// [`Error::Limit`] if the sum is outside the type's range, or a `u64` before is outside that
    /// of `i64`. Nothing has changed then. Otherwise fails as [`Table::put`] and [`Table::get`] do.
    /// Cost: that of a get and a put.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let counters = db.table("counters")?;
    /// let ticket = counters.fetch_and_add("tickets", 1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_and_add(&self, key: impl AsRef<[u8]>, delta: i64) -> Result<i64> {
        self.fetch_and_add_with(key, delta, UpdateOptions::new())
    }

    /// Adds `delta` to the integer value of `key` as `options` say. A type tag of the options is
    /// the type of the new value. Otherwise as [`Table::fetch_and_add`].
    pub fn fetch_and_add_with(
        &self,
        key: impl AsRef<[u8]>,
        delta: i64,
        options: UpdateOptions,
    ) -> Result<i64> {
        self.add_to_integer(key.as_ref(), delta, options, |before| i64::try_from(before).ok())
    }

    /// Adds `delta` to the integer value of `key`. Returns the value before as `convert` does.
    pub(super) fn add_to_integer<N>(
        &self,
        key: &[u8],
        delta: i64,
        options: UpdateOptions,
        convert: impl Fn(i128) -> Option<N>,
    ) -> Result<N> {
        let of_table = self.state.types().map(TableTypes::value);
        let mut converted = None;
        self.commit_update(key, options, |rule, old| {
            let envelope = rule.envelope(old);
            let type_of = |tag: Option<TypeTag>| of_table.or(tag).unwrap_or(TypeTag::I64);
            let before = match old {
                Some(old) => self.decode_integer(type_of(old.type_tag()), old)?,
                None => 0,
            };
            let refuse = || self.integer_overflow(key, before, delta);
            converted = Some(convert(before).ok_or_else(refuse)?);
            let target = type_of(envelope.type_tag);
            let body =
                self.encode_integer(target, before + i128::from(delta))?.ok_or_else(refuse)?;
            Ok(KeyChange::Put { envelope, body })
        })?;
        converted.ok_or_else(|| self.integer_overflow(key, 0, delta))
    }

    fn decode_integer(&self, tag: TypeTag, value: &Value) -> Result<i128> {
        let bytes: &[u8] = value;
        let decoded = match tag {
            TypeTag::U32 => bytes.try_into().ok().map(|bytes| u32::from_le_bytes(bytes).into()),
            TypeTag::U64 => bytes.try_into().ok().map(|bytes| u64::from_le_bytes(bytes).into()),
            TypeTag::I64 => bytes.try_into().ok().map(|bytes| i64::from_le_bytes(bytes).into()),
            _ => return Err(self.no_integer(tag, format!("a value that is a {tag}"))),
        };
        decoded.ok_or_else(|| self.no_integer(tag, format!("a value of {} bytes", bytes.len())))
    }

    /// Returns the bytes of an integer; `None` if it is outside the range of its type.
    fn encode_integer(&self, tag: TypeTag, integer: i128) -> Result<Option<IntegerBytes>> {
        let [low @ .., _, _, _, _, _, _, _, _] = integer.to_le_bytes();
        mutant!(CounterWrapsAround => return Ok(Some(IntegerBytes { bytes: low, length: 8 })));
        let (is_in_range, length) = match tag {
            TypeTag::U32 => (u32::try_from(integer).is_ok(), 4),
            TypeTag::U64 => (u64::try_from(integer).is_ok(), 8),
            TypeTag::I64 => (i64::try_from(integer).is_ok(), 8),
            _ => return Err(self.no_integer(tag, format!("an addition to a {tag}"))),
        };
        Ok(is_in_range.then_some(IntegerBytes { bytes: low, length }))
    }

    #[cold]
    fn no_integer(&self, tag: TypeTag, found: String) -> Error {
        let expected = match self.types() {
            Some(types) => types.to_string(),
            None if matches!(tag, TypeTag::U32 | TypeTag::U64 | TypeTag::I64) => {
                format!("a value that is a {tag}")
            }
            None => "a value that is a u32, a u64 or an i64".to_owned(),
        };
        Error::TypeMismatch { table: self.name(), expected, found }
    }

    #[cold]
    fn integer_overflow(&self, key: &[u8], before: i128, delta: i64) -> Error {
        let what = format!(
            "the value {before} of key \"{}\" of {}, or its sum with {delta}, is outside the range",
            printable(key),
            self.name()
        );
        Error::Limit { what }
    }
}

/// The bytes of an integer, on the stack.
#[derive(Clone, Copy, Debug)]
struct IntegerBytes {
    bytes: [u8; 8],
    length: usize,
}

impl AsRef<[u8]> for IntegerBytes {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}
