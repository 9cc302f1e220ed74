//! Typed tables in a snapshot.

use std::{borrow::Borrow, fmt, ops::RangeBounds};

use super::{
    snapshot::Snapshot,
    typed::{TypedEntries, TypedTable, encoded},
};
use crate::{
    Result,
    contract::{Cursor, KeyRange},
    util::types::{KeyPrefix, KeyRef, TypedKey, TypedValue},
};

/// A typed table as a snapshot shows it. [`Snapshot::typed`] returns it. A clone shares both.
pub struct TypedSnapshot<K, V> {
    snapshot: Snapshot,
    table: TypedTable<K, V>,
}

impl<K, V> Clone for TypedSnapshot<K, V> {
    fn clone(&self) -> Self {
        Self { snapshot: self.snapshot.clone(), table: self.table.clone() }
    }
}

impl<K, V> fmt::Debug for TypedSnapshot<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedSnapshot")
            .field("snapshot", &self.snapshot)
            .field("table", &self.table)
            .finish()
    }
}

impl Snapshot {
    /// Returns a typed table as the snapshot shows it.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// let readings = db.typed::<(String, i64), f64>("readings")?;
    /// let snapshot = db.snapshot()?;
    /// for reading in snapshot.typed(&readings).prefix(&("roof".to_owned(),))? {
    ///     let ((_, time), value) = reading?;
    ///     println!("{time}: {value}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn typed<K: TypedKey, V: TypedValue>(
        &self,
        table: &TypedTable<K, V>,
    ) -> TypedSnapshot<K, V> {
        TypedSnapshot { snapshot: self.clone(), table: table.clone() }
    }
}

impl<K: TypedKey, V: TypedValue> TypedSnapshot<K, V> {
    /// Returns the value of `key`, or `None` if it is absent or had expired. Fails as
    /// [`Snapshot::get`] and [`TypedTable::get`] do.
    pub fn get<Q>(&self, key: &Q) -> Result<Option<V>>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        let value = self.snapshot.get(self.table.table(), key.encode())?;
        value.map(|value| self.table.value(&value)).transpose()
    }

    /// Returns the values of `keys` in the same order.
    pub fn multi_get(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        let keys: Vec<_> = keys.iter().map(KeyRef::encode).collect();
        let values = self.snapshot.multi_get(self.table.table(), &keys)?;
        values.iter().map(|v| v.as_deref().map(|v| self.table.value(v)).transpose()).collect()
    }

    /// Returns whether `key` has a value.
    pub fn contains<Q>(&self, key: &Q) -> Result<bool>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.snapshot.contains(self.table.table(), key.encode())
    }

    /// Returns the entries of a range in key order. Fails as [`Snapshot::range`] does.
    pub fn range(&self, range: impl RangeBounds<K>) -> Result<TypedEntries<K, V>> {
        let entries = self.snapshot.range(self.table.table(), encoded(&range))?;
        Ok(TypedEntries::new(entries, self.table.clone()))
    }

    /// Returns the entries whose keys start with `prefix`, as [`TypedTable::prefix`] does.
    pub fn prefix<P: KeyPrefix<K> + ?Sized>(&self, prefix: &P) -> Result<TypedEntries<K, V>> {
        let range = KeyRange::prefix(&prefix.encode_prefix());
        let entries = self.snapshot.range(self.table.table(), range)?;
        Ok(TypedEntries::new(entries, self.table.clone()))
    }

    /// Returns about `count` entries from `cursor`, and the cursor of the next page; see
    /// [`Snapshot::scan`].
    pub fn scan(&self, cursor: impl Borrow<Cursor>, count: usize) -> Result<(Vec<(K, V)>, Cursor)> {
        let (entries, next) = self.snapshot.scan(self.table.table(), cursor, count)?;
        let entries = entries.iter().map(|entry| self.table.entry(entry)).collect::<Result<_>>()?;
        Ok((entries, next))
    }
}
