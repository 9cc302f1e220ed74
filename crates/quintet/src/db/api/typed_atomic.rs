//! Atomic operations on one key of a typed table, and its counterparts of the whole-table reads.

use std::borrow::Borrow;

use super::{
    atomic::{CasOutcome, change_to},
    typed::TypedTable,
    write_options::UpdateOptions,
};
use crate::{
    Result,
    db::{core::key_change::ComputeSite, tables::value::Value},
    util::types::{KeyRef, TypedKey, TypedValue, ValueRef},
};

impl<K: TypedKey, V: TypedValue> TypedTable<K, V> {
    /// Replaces the value of `key` by the one that `update` returns for it; `None` deletes the key.
    /// Returns the new value. As [`Table::update`](super::Table::update), and fails with
    /// [`Error::Corruption`](crate::Error::Corruption) if the stored bytes do not decode.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// let balances = db.typed::<String, i64>("balances")?;
    /// balances.update("alice", |old| Some(old.unwrap_or(0) * 2))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<Q>(
        &self,
        key: &Q,
        update: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.update_with(key, UpdateOptions::new(), update)
    }

    /// Updates the value of `key` as `options` say. Otherwise as [`TypedTable::update`].
    pub fn update_with<Q>(
        &self,
        key: &Q,
        options: UpdateOptions,
        mut update: impl FnMut(Option<V>) -> Option<V>,
    ) -> Result<Option<V>>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        let mut new = None;
        let site = ComputeSite::Unlocked;
        self.table().commit_update_at(site, &key.encode(), options, |rule, old| {
            new = update(self.optional(old)?);
            change_to(rule, old, new.as_ref().map(bytes_of).transpose()?)
        })?;
        Ok(new)
    }

    /// Sets the value of `key` to `new` if it is `expected`; compares the encoded values. As
    /// [`Table::compare_and_swap`](super::Table::compare_and_swap).
    pub fn compare_and_swap<Q>(
        &self,
        key: &Q,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<CasOutcome<V>>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        let expected = expected.map(bytes_of).transpose()?;
        let new = new.map(bytes_of).transpose()?;
        match self.table().compare_and_swap(key.encode(), expected.as_deref(), new.as_deref())? {
            CasOutcome::Swapped => Ok(CasOutcome::Swapped),
            CasOutcome::Different { current } => {
                Ok(CasOutcome::Different { current: self.optional(current.as_ref())? })
            }
        }
    }

    /// Adds `delta` to the value of `key`, and returns the value before. For tables of `u32`, `u64`
    /// and `i64`; otherwise as [`Table::fetch_and_add`](super::Table::fetch_and_add).
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// let hits = db.typed::<String, u64>("hits")?;
    /// let before: u64 = hits.fetch_and_add("/index.html", 1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_and_add<Q>(&self, key: &Q, delta: i64) -> Result<V>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
        V: TryFrom<i128>,
    {
        let convert = |before| V::try_from(before).ok();
        self.table().add_to_integer(&key.encode(), delta, UpdateOptions::new(), convert)
    }

    /// Merges `operand` into the value of `key`. As [`Table::merge`](super::Table::merge).
    pub fn merge<Q, W>(&self, key: &Q, operand: &W) -> Result<()>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: KeyRef + ?Sized,
        W: ValueRef + ?Sized,
    {
        operand.with_bytes(|operand| self.table().merge(key.encode(), operand))
    }

    /// Returns the value of `key`. If it has none, sets it to the value that `make` returns, and
    /// returns that. As [`Table::get_or_insert_with`](super::Table::get_or_insert_with).
    pub fn get_or_insert_with<Q>(&self, key: &Q, make: impl FnOnce() -> V) -> Result<V>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        let value = self.table().get_or_try_insert_with(&key.encode(), || bytes_of(&make()))?;
        self.value(&value)
    }

    /// Removes `key` and returns the value that it had. As [`Table::take`](super::Table::take).
    pub fn take<Q>(&self, key: &Q) -> Result<Option<V>>
    where
        K: Borrow<Q>,
        Q: KeyRef + ?Sized,
    {
        self.optional(self.table().take(key.encode())?.as_ref())
    }

    /// Sets the value of `key` and returns the value that it replaced. As
    /// [`Table::replace`](super::Table::replace).
    pub fn replace<Q, W>(&self, key: &Q, value: &W) -> Result<Option<V>>
    where
        K: Borrow<Q>,
        V: Borrow<W>,
        Q: KeyRef + ?Sized,
        W: ValueRef + ?Sized,
    {
        let before = value.with_bytes(|value| self.table().replace(key.encode(), value))?;
        self.optional(before.as_ref())
    }

    /// Returns the entry with the least key. As [`Table::first`](super::Table::first).
    pub fn first(&self) -> Result<Option<(K, V)>> {
        self.table().first()?.map(|entry| self.entry(&entry)).transpose()
    }

    /// Returns the entry with the greatest key. As [`Table::last`](super::Table::last).
    pub fn last(&self) -> Result<Option<(K, V)>> {
        self.table().last()?.map(|entry| self.entry(&entry)).transpose()
    }

    /// Removes the entry with the least key and returns it. As
    /// [`Table::pop_first`](super::Table::pop_first).
    pub fn pop_first(&self) -> Result<Option<(K, V)>> {
        self.table().pop_first()?.map(|entry| self.entry(&entry)).transpose()
    }

    /// Removes the entry with the greatest key and returns it. As
    /// [`Table::pop_last`](super::Table::pop_last).
    pub fn pop_last(&self) -> Result<Option<(K, V)>> {
        self.table().pop_last()?.map(|entry| self.entry(&entry)).transpose()
    }

    /// Returns all entries. As [`Table::iter`](super::Table::iter).
    pub fn iter(&self) -> impl Iterator<Item = Result<(K, V)>> {
        self.table().iter().map(|entry| self.entry(&entry?))
    }

    /// Returns the number of entries. As [`Table::len`](super::Table::len).
    pub fn len(&self) -> Result<u64> {
        self.table().len()
    }

    /// Returns whether the table has no entry. As [`Table::is_empty`](super::Table::is_empty).
    pub fn is_empty(&self) -> Result<bool> {
        self.table().is_empty()
    }

    /// Removes all entries. As [`Table::clear`](super::Table::clear).
    pub fn clear(&self) -> Result<()> {
        self.table().clear()
    }

    fn optional(&self, value: Option<&Value>) -> Result<Option<V>> {
        value.map(|value| self.value(value)).transpose()
    }
}

/// Returns the bytes of a value.
fn bytes_of(value: &impl ValueRef) -> Result<Vec<u8>> {
    value.with_bytes(|bytes| Ok(bytes.to_vec()))
}
