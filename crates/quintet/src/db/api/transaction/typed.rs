//! Typed tables in transactions.

use std::{borrow::Borrow, fmt, ops::RangeBounds};

use super::{handle::Transaction, ranges::TransactionEntries};
use crate::{
    Result,
    contract::{Cursor, KeyRange},
    db::api::{
        key_bounds::KeyBounds,
        typed::{TypedTable, encoded},
        write_options::{DeleteOptions, PutOptions},
    },
    util::types::{KeyPrefix, KeyRef, TypedKey, TypedValue, ValueRef},
};

/// A typed table as a transaction reads and writes it; [`Transaction::typed`] returns it.
///
/// Operations fail as those of [`Transaction`] and [`TypedTable`] do.
#[derive(Debug)]
pub struct TransactionTable<'a, K, V> {
    transaction: &'a mut Transaction,
    table: &'a TypedTable<K, V>,
}

impl Transaction {
    /// Returns a typed table as this transaction reads and writes it.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// let stock = db.typed::<String, u64>("stock")?;
    /// db.transaction(|tx| {
    ///     let mut stock = tx.typed(&stock);
    ///     let count = stock.get("teapot")?.unwrap_or(0);
    ///     stock.put("teapot", &(count + 1))
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn typed<'a, K: TypedKey, V: TypedValue>(
        &'a mut self,
        table: &'a TypedTable<K, V>,
    ) -> TransactionTable<'a, K, V> {
        TransactionTable { transaction: self, table }
    }
}

impl<K: TypedKey, V: TypedValue> TransactionTable<'_, K, V> {
    /// Returns the value of `key`; see [`Transaction::get`].
    pub fn get<Q>(&self, key: &Q) -> Result<Option<V>>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        let value = self.transaction.get(self.table.table(), key.encode())?;
        value.map(|value| self.table.value(&value)).transpose()
    }

    /// Returns the value of `key` after locking the key; see [`Transaction::get_for_update`].
    pub fn get_for_update<Q>(&mut self, key: &Q) -> Result<Option<V>>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        let value = self.transaction.get_for_update(self.table.table(), key.encode())?;
        value.map(|value| self.table.value(&value)).transpose()
    }

    /// Returns the values of `keys` in the same order.
    pub fn multi_get(&self, keys: &[K]) -> Result<Vec<Option<V>>> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    /// Returns whether `key` has a value.
    pub fn contains<Q>(&self, key: &Q) -> Result<bool>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.transaction.contains(self.table.table(), key.encode())
    }

    /// Sets the value of `key`; see [`Transaction::put`].
    pub fn put<Q, W>(&mut self, key: &Q, value: &W) -> Result<()>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: KeyRef + ?Sized,
        W: ValueRef + ?Sized,
    {
        self.put_with(key, value, PutOptions::new()).map(drop)
    }

    /// Sets the value of `key` as `options` say; see [`Transaction::put_with`].
    pub fn put_with<Q, W>(&mut self, key: &Q, value: &W, options: PutOptions) -> Result<bool>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: KeyRef + ?Sized,
        W: ValueRef + ?Sized,
    {
        let table = self.table.table();
        value.with_bytes(|value| self.transaction.put_with(table, key.encode(), value, options))
    }

    /// Merges `operand` into the value of `key`; see [`Transaction::merge`].
    pub fn merge<Q, W>(&mut self, key: &Q, operand: &W) -> Result<()>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: KeyRef + ?Sized,
        W: ValueRef + ?Sized,
    {
        let table = self.table.table();
        operand.with_bytes(|operand| self.transaction.merge(table, key.encode(), operand))
    }

    /// Removes `key`, present or not.
    pub fn delete<Q>(&mut self, key: &Q) -> Result<()>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.delete_with(key, DeleteOptions::new()).map(drop)
    }

    /// Removes `key` as `options` say.
    pub fn delete_with<Q>(&mut self, key: &Q, options: DeleteOptions) -> Result<bool>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.transaction.delete_with(self.table.table(), key.encode(), options)
    }

    /// Removes all keys of a range; see [`Transaction::delete_range`].
    pub fn delete_range(&mut self, range: impl RangeBounds<K>) -> Result<()> {
        self.transaction.delete_range(self.table.table(), encoded(&range))
    }

    /// Returns the entries of a range in key order; see [`Transaction::range`].
    pub fn range(&self, range: impl RangeBounds<K>) -> Result<TypedTransactionEntries<'_, K, V>> {
        self.entries(encoded(&range))
    }

    /// Returns the entries whose keys start with `prefix`; see [`TypedTable::prefix`].
    pub fn prefix<P: KeyPrefix<K> + ?Sized>(
        &self,
        prefix: &P,
    ) -> Result<TypedTransactionEntries<'_, K, V>> {
        self.entries(KeyRange::prefix(&prefix.encode_prefix()))
    }

    /// Returns about `count` entries from `cursor`, and the cursor of the next page; see
    /// [`Transaction::scan`].
    pub fn scan(&self, cursor: impl Borrow<Cursor>, count: usize) -> Result<(Vec<(K, V)>, Cursor)> {
        let (entries, next) = self.transaction.scan(self.table.table(), cursor, count)?;
        let entries = entries.iter().map(|entry| self.table.entry(entry)).collect::<Result<_>>()?;
        Ok((entries, next))
    }

    fn entries(&self, bounds: impl KeyBounds) -> Result<TypedTransactionEntries<'_, K, V>> {
        let entries = self.transaction.range(self.table.table(), bounds)?;
        Ok(TypedTransactionEntries { entries, table: self.table })
    }
}

/// Iterator over a range; see [`TransactionTable::range`].
pub struct TypedTransactionEntries<'a, K, V> {
    entries: TransactionEntries<'a>,
    table: &'a TypedTable<K, V>,
}

impl<K, V> fmt::Debug for TypedTransactionEntries<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.fmt(f)
    }
}

impl<K: TypedKey, V: TypedValue> Iterator for TypedTransactionEntries<'_, K, V> {
    type Item = Result<(K, V)>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.entries.next()?.and_then(|entry| self.table.entry(&entry)))
    }
}

impl<K: TypedKey, V: TypedValue> DoubleEndedIterator for TypedTransactionEntries<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.entries.next_back()?.and_then(|entry| self.table.entry(&entry)))
    }
}
