//! Typed tables.
//!
//! [`TypedTable`] is a [`Table`] whose keys and values are Rust types. The catalog stores the
//! types, and every write through any handle is checked against them. Opening a table with other
//! types fails with [`Error::TypeMismatch`], so a program never decodes another program's bytes as
//! its own type.
//!
//! From ckvs (its README), which has typed stores without this check. [`crate::util::types`]
//! defines the order of keys.
//!
//! Threads: as [`Table`].

use std::{
    borrow::Borrow,
    fmt,
    marker::PhantomData,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use super::{
    batch::Batch,
    database::Database,
    key_bounds::KeyBounds,
    table::{Entries, Table},
    write_options::{DeleteOptions, PutOptions},
};
use crate::{
    Error, Result,
    contract::{Cursor, Engine as _, KeyRange, TableOptions},
    db::{
        core::Core,
        tables::{
            state::TableState,
            value::{Key, Value},
        },
    },
    util::types::{KeyPrefix, KeyRef, TableTypes, TypedKey, TypedValue, ValueRef},
};

/// A table with keys `K` and values `V`; [`Database::typed`] opens it. Clones are cheap; any thread
/// may use them.
///
/// Operations fail as those of [`Table`] do. A key that encodes to no bytes (an empty string or
/// blob alone) fails with [`Error::Limit`]. Reads fail with [`Error::Corruption`] if stored bytes
/// do not decode.
pub struct TypedTable<K, V> {
    table: Table,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for TypedTable<K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), types: PhantomData }
    }
}

impl<K, V> fmt::Debug for TypedTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedTable").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens a table with keys `K` and values `V`.
    ///
    /// An untyped empty table gets these types, durably. An untyped table with entries opens only
    /// as `Vec<u8>` and `Vec<u8>`.
    ///
    /// Fails with [`Error::NoSuchTable`], or with [`Error::TypeMismatch`] naming both types.
    pub fn typed<K: TypedKey, V: TypedValue>(&self, path: &str) -> Result<TypedTable<K, V>> {
        let table = self.table(path)?;
        self.session.core.agree_types(&table.current().state, &TableTypes::of::<K, V>())?;
        Ok(TypedTable { table, types: PhantomData })
    }

    /// Creates a table with keys `K` and values `V`. Otherwise as [`Database::create_table`].
    pub fn create_typed<K: TypedKey, V: TypedValue>(
        &self,
        path: &str,
        options: impl Borrow<TableOptions>,
    ) -> Result<TypedTable<K, V>> {
        let options = options.borrow().clone().types(TableTypes::of::<K, V>());
        let table = self.create_table(path, options)?;
        Ok(TypedTable { table, types: PhantomData })
    }

    /// Opens a table with keys `K` and values `V`, or creates it. Otherwise as [`Database::typed`]
    /// and [`Database::create_typed`].
    pub fn open_or_create_typed<K: TypedKey, V: TypedValue>(
        &self,
        path: &str,
        options: impl Borrow<TableOptions>,
    ) -> Result<TypedTable<K, V>> {
        let options = options.borrow().clone().types(TableTypes::of::<K, V>());
        self.open_or_create_table(path, options)?;
        self.typed(path)
    }
}

impl<K: TypedKey, V: TypedValue> TypedTable<K, V> {
    /// Returns the untyped table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Sets the value of `key`. Fails as [`Table::put`] does.
    pub fn put<Q, W>(&self, key: &Q, value: &W) -> Result<()>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: KeyRef + ?Sized,
        W: ValueRef + ?Sized,
    {
        self.put_with(key, value, PutOptions::new()).map(drop)
    }

    /// Sets the value of `key` as `options` say. Returns `false`, and writes nothing, if a
    /// condition does not hold.
    pub fn put_with<Q, W>(&self, key: &Q, value: &W, options: PutOptions) -> Result<bool>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: KeyRef + ?Sized,
        W: ValueRef + ?Sized,
    {
        value.with_bytes(|value| self.table.put_with(key.encode(), value, options))
    }

    /// Adds a put to a batch. A value that cannot be encoded makes the commit fail.
    pub fn put_in<Q, W>(&self, batch: &mut Batch, key: &Q, value: &W)
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: KeyRef + ?Sized,
        W: ValueRef + ?Sized,
    {
        let added = value.with_bytes(|value| {
            batch.put(&self.table, key.encode(), value);
            Ok(())
        });
        batch.keep_refusal(added);
    }

    /// Returns the value of `key`, or `None` if it is absent or expired. Fails as [`Table::get`]
    /// does, and with [`Error::Corruption`] if the stored bytes do not decode.
    pub fn get<Q>(&self, key: &Q) -> Result<Option<V>>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.table.get(key.encode())?.map(|value| self.value(&value)).transpose()
    }

    /// Returns the values of `keys` in the same order; see [`Table::multi_get`].
    pub fn multi_get(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let keys: Vec<_> = keys.iter().map(KeyRef::encode).collect();
        let value = |value: Option<Value>| value.map(|value| self.value(&value)).transpose();
        self.table.multi_get(&keys)?.into_iter().map(value).collect()
    }

    /// Returns whether `key` has a value.
    pub fn contains<Q>(&self, key: &Q) -> Result<bool>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.table.contains(key.encode())
    }

    /// Removes `key`, whether or not it is present.
    pub fn delete<Q>(&self, key: &Q) -> Result<()>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.delete_with(key, DeleteOptions::new()).map(drop)
    }

    /// Removes `key` as `options` say. Returns `false`, and writes nothing, if a condition does not
    /// hold.
    pub fn delete_with<Q>(&self, key: &Q, options: DeleteOptions) -> Result<bool>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.table.delete_with(key.encode(), options)
    }

    /// Adds a delete to a batch.
    pub fn delete_in<Q>(&self, batch: &mut Batch, key: &Q)
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        batch.delete(&self.table, key.encode());
    }

    /// Returns the entries of a range in key order; see [`Table::range`]. Fails with
    /// [`Error::Unordered`] on an engine without key order.
    pub fn range(&self, range: impl RangeBounds<K>) -> Result<TypedEntries<K, V>> {
        self.entries(encoded(&range))
    }

    /// Removes all keys of a range as one commit; see [`Table::delete_range`]. Fails with
    /// [`Error::Unordered`] on an engine without key order.
    pub fn delete_range(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.table.delete_range(encoded(&range))
    }

    /// Returns the entries whose keys start with `prefix`: text of a text, bytes of a blob, or the
    /// first parts `(a,)`, `(a, b)` of a composite key. Fails with [`Error::Unordered`] on an
    /// engine without key order.
    pub fn prefix<P: KeyPrefix<K> + ?Sized>(&self, prefix: &P) -> Result<TypedEntries<K, V>> {
        self.entries(KeyRange::prefix(&prefix.encode_prefix()))
    }

    /// Returns about `count` entries from `cursor`, and the cursor of the next page; see
    /// [`Table::scan`].
    pub fn scan(&self, cursor: impl Borrow<Cursor>, count: usize) -> Result<(Vec<(K, V)>, Cursor)> {
        let (entries, next) = self.table.scan(cursor, count)?;
        let entries = entries.into_iter().map(|entry| self.entry(&entry)).collect::<Result<_>>()?;
        Ok((entries, next))
    }

    fn entries(&self, bounds: impl KeyBounds) -> Result<TypedEntries<K, V>> {
        Ok(TypedEntries::new(self.table.range(bounds)?, self.clone()))
    }

    /// Decodes a stored value.
    pub(super) fn value(&self, bytes: &[u8]) -> Result<V> {
        V::decode_value(bytes).ok_or_else(|| self.undecodable(bytes))
    }

    /// Decodes a stored entry.
    pub(super) fn entry(&self, (key, value): &(Key, Value)) -> Result<(K, V)> {
        let key = K::decode(key).ok_or_else(|| self.damage("key"))?;
        Ok((key, self.value(value)?))
    }

    /// Builds the error of a stored value that does not decode. Bytes that are of the type's tag
    /// are no damage: they are of another type of a program, or of another version of it.
    #[cold]
    fn undecodable(&self, bytes: &[u8]) -> Error {
        let types = TableTypes::of::<K, V>();
        if !types.is_value(bytes) {
            return self.damage("value");
        }
        let found = format!("a value of {} bytes that does not decode", bytes.len());
        let found = match V::decode_failure(bytes) {
            Some(reason) => format!("{found}: {reason}"),
            None => found,
        };
        let expected = std::any::type_name::<V>().to_owned();
        Error::TypeMismatch { table: self.table.name(), expected, found }
    }

    /// Builds the error of stored bytes that do not decode. Writes are checked against the types,
    /// so such bytes are damage.
    #[cold]
    fn damage(&self, what: &str) -> Error {
        let types = TableTypes::of::<K, V>();
        let what = format!("a {what} of {} is not of its types ({types})", self.table.name());
        Error::corruption(format!("tables/{}", self.table.state.id), 0, what)
    }
}

/// Returns the encoded bounds of a range.
pub(super) fn encoded<K: TypedKey>(
    range: &impl RangeBounds<K>,
) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (range.start_bound().map(KeyRef::encode), range.end_bound().map(KeyRef::encode))
}

/// Iterator over a range; see [`TypedTable::range`].
pub struct TypedEntries<K, V> {
    entries: Entries,
    table: TypedTable<K, V>,
}

impl<K, V> TypedEntries<K, V> {
    pub(super) fn new(entries: Entries, table: TypedTable<K, V>) -> Self {
        Self { entries, table }
    }
}

impl<K, V> fmt::Debug for TypedEntries<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedEntries").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl<K: TypedKey, V: TypedValue> Iterator for TypedEntries<K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.entries.next()?.and_then(|entry| self.table.entry(&entry)))
    }
}

impl<K: TypedKey, V: TypedValue> DoubleEndedIterator for TypedEntries<K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.entries.next_back()?.and_then(|entry| self.table.entry(&entry)))
    }
}

impl Core {
    /// Checks that a table has the types `wanted`. Gives them to an untyped empty table.
    fn agree_types(&self, table: &Arc<TableState>, wanted: &TableTypes) -> Result<()> {
        let recorded = self.tables.catalog.with_tree(|tree| tree.table(table.id)?.types.clone());
        match recorded {
            Some(types) if types == *wanted => return Ok(()),
            Some(types) => {
                return Err(self.tables.type_mismatch(table, &types, wanted.to_string()));
            }
            None if *wanted == TableTypes::bytes() => return Ok(()),
            None => {}
        }
        self.tables.prepare_edit()?;
        self.tables.catalog.fix_types(table.id, wanted, || {
            // No write comes between the check that the table is empty and the types taking effect.
            let _every = self.tables.stripes.hold_every();
            self.tables.check_takes_writes(table)?;
            if table.types().is_none() && !is_empty(table)? {
                let expected = format!("{} (it was made without)", TableTypes::bytes());
                let (table, found) = (self.tables.name_of(table), wanted.to_string());
                return Err(Error::TypeMismatch { table, expected, found });
            }
            match table.fix_types(wanted) {
                fixed if fixed == wanted => Ok(()),
                fixed => Err(self.tables.type_mismatch(table, fixed, wanted.to_string())),
            }
        })?;
        self.tables.report_edits();
        Ok(())
    }
}

/// Returns whether a table has no entry. Expired entries count.
fn is_empty(table: &TableState) -> Result<bool> {
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = table.engine.scan(&cursor, 1)?;
        if !entries.is_empty() || next.is_start() {
            return Ok(entries.is_empty());
        }
        cursor = next;
    }
}
