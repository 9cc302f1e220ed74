//! Atomic operations on one key of a table: each reads the key's value and writes a new one. Other
//! writes of the key come before or after both.
//!
//! No function of the user runs under a lock: see [`crate::db::commit::update`] for the algorithm.

use super::{
    table::Table,
    write_options::{EnvelopeRule, UpdateOptions},
};
use crate::{
    Result, contract,
    db::{
        core::key_change::{ComputeSite, ComputedChange, KeyChange},
        encoding::envelope::Envelope,
        limits::{check_key, check_value},
        tables::value::Value,
    },
    util::mutant::mutant,
};

/// The outcome of a compare-and-swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CasOutcome<V = Value> {
    /// The key had the expected value, and has the new one now.
    Swapped,
    /// The key had another value. Nothing was written.
    Different {
        /// The key's value. `None`: it has none.
        current: Option<V>,
    },
}

impl<V> CasOutcome<V> {
    /// Returns whether the key has the new value.
    pub fn is_swapped(&self) -> bool {
        matches!(self, Self::Swapped)
    }
}

impl Table {
    /// Replaces the value of `key` by the one that `update` returns for it; `None` deletes the key.
    /// Returns the new value.
    ///
    /// No other write of the key comes between the value that `update` got and the new one. If one
    /// did, `update` runs again with the current value. It runs without a lock: it may write to
    /// this table, take long, or panic. Of several concurrent updates of one key, one always
    /// succeeds; writes of other keys never make it run again.
    ///
    /// The new value keeps the expiry and the type tag of the old one; see [`Table::update_with`].
    /// An expired value counts as absent. If the key has no value and `update` returns `None`,
    /// nothing is written.
    ///
    /// Cost: that of a get and a put. Fails as [`Table::put`] and [`Table::get`] do.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let table = db.table("log")?;
    /// table.update("lines", |old| Some([old.unwrap_or_default(), b"one more\n"].concat()))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<V>> {
        self.update_with(key, UpdateOptions::new(), update)
    }

    /// Updates the value of `key` as `options` say. Otherwise as [`Table::update`].
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let sessions = db.table("sessions")?;
    /// # use std::time::Duration;
    /// let options = quintet::UpdateOptions::new().ttl(Duration::from_secs(60));
    /// sessions.update_with("alice", options, |old| old.map(<[u8]>::to_vec))?; // one minute more
    /// # Ok(())
    /// # }
    /// ```
    pub fn update_with<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        options: UpdateOptions,
        update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<V>> {
        let committed = self.commit_user_update(key.as_ref(), options, update)?;
        Ok(match committed.change {
            KeyChange::Put { body, .. } => Some(body),
            KeyChange::Keep | KeyChange::Delete => None,
        })
    }

    /// Updates the value of `key` as [`Table::update`] does, and returns the value that it had
    /// before.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let table = db.table("states")?;
    /// let before = table.fetch_and_update("door", |_| Some("open"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fetch_and_update<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Value>> {
        Ok(self.commit_user_update(key.as_ref(), UpdateOptions::new(), update)?.old)
    }

    /// Sets the value of `key` to `new` if it is `expected`. `None` is a key without a value: as
    /// `expected`, a key that must be absent; as `new`, a delete. Keeps the expiry and the type tag
    /// of a value that is replaced; see [`Table::compare_and_swap_with`].
    ///
    /// The expiry and the type tag are not compared. An expired value counts as absent. Cost: that
    /// of a get, and of a put if the value is swapped. Fails as [`Table::put`] and [`Table::get`]
    /// do.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let locks = db.table("locks")?;
    /// use quintet::CasOutcome;
    /// match locks.compare_and_swap("job", None, Some(b"worker 7"))? {
    ///     CasOutcome::Swapped => println!("the lock is ours"),
    ///     CasOutcome::Different { current } => println!("{current:?} holds it"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<CasOutcome> {
        self.compare_and_swap_with(key, expected, new, UpdateOptions::new())
    }

    /// Sets the value of `key` to `new`, as `options` say, if it is `expected`. Otherwise as
    /// [`Table::compare_and_swap`].
    pub fn compare_and_swap_with(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        options: UpdateOptions,
    ) -> Result<CasOutcome> {
        let is_expected = |old: Option<&Value>| {
            let (old, length) = (old.map(|old| &**old), expected.map(<[u8]>::len));
            mutant!(SwapComparesLengths: old.map(<[u8]>::len) == length, else old == expected)
        };
        let committed = self.commit_update(key.as_ref(), options, |rule, old| {
            if !is_expected(old) {
                return Ok(KeyChange::Keep);
            }
            change_to(rule, old, new)
        })?;
        if is_expected(committed.old.as_ref()) {
            return Ok(CasOutcome::Swapped);
        }
        Ok(CasOutcome::Different { current: committed.old })
    }

    /// Returns the value of `key`. If it has none, sets it to the value that `make` returns, and
    /// returns that. `make` runs at most once, without a lock. If another thread sets the key
    /// meanwhile, its value is returned and that of `make` is dropped.
    ///
    /// Cost: that of a get, and of a put if the key has no value. Fails as [`Table::put`] and
    /// [`Table::get`] do.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let settings = db.table("settings")?;
    /// let theme = settings.get_or_insert_with("theme", || "dark")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_or_insert_with<V: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        make: impl FnOnce() -> V,
    ) -> Result<Value> {
        self.get_or_try_insert_with(key.as_ref(), || Ok(make()))
    }

    /// As [`Table::get_or_insert_with`]. If `make` fails, so does the call, and nothing is written.
    pub(super) fn get_or_try_insert_with<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        make: impl FnOnce() -> Result<V>,
    ) -> Result<Value> {
        let (mut make, mut stored) = (Some(make), None);
        let committed = self.commit_update(key, UpdateOptions::new(), |_, old| {
            if old.is_some() {
                return Ok(KeyChange::Keep);
            }
            if let Some(make) = make.take() {
                stored = Some(stored_value(make()?.as_ref())?);
            }
            // It was made without a lock, in the first round that found no value.
            let body = stored.clone().unwrap_or_else(|| contract::Value::copy(&[])).skip(1);
            Ok(KeyChange::Put { envelope: Envelope::default(), body })
        })?;
        let value = committed.old.or_else(|| stored.and_then(Value::open));
        value.ok_or_else(|| self.session.core.tables.bad_envelope(&self.state))
    }

    /// Removes `key` and returns the value that it had. Two threads never get the same value.
    /// Writes nothing if the key has none.
    ///
    /// Cost: that of a get and a delete. Fails as [`Table::delete`] and [`Table::get`] do.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let inbox = db.table("inbox")?;
    /// if let Some(message) = inbox.take("oldest")? {
    ///     println!("{} bytes, for this thread alone", message.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let options = UpdateOptions::new();
        let absent = None::<&[u8]>;
        let taken =
            self.commit_update(key.as_ref(), options, |rule, old| change_to(rule, old, absent))?;
        Ok(taken.old)
    }

    /// Sets the value of `key`, as [`Table::put`] does, and returns the value that it replaced. The
    /// new value does not expire and has no type tag.
    ///
    /// Cost: that of a get and a put. Fails as [`Table::put`] and [`Table::get`] do.
    ///
    /// ```no_run
    /// # fn main() -> quintet::Result<()> {
    /// # let db = quintet::Database::open("data")?;
    /// # let owners = db.table("owners")?;
    /// let before = owners.replace("key", "alice")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let body = value.as_ref();
        check_value(body)?;
        let replaced = self.commit_update(key.as_ref(), UpdateOptions::new(), |_, _| {
            Ok(KeyChange::Put { envelope: Envelope::default(), body })
        })?;
        Ok(replaced.old)
    }

    /// Commits a change of `key` whose function is the user's.
    fn commit_user_update<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        options: UpdateOptions,
        mut update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<ComputedChange<V>> {
        self.commit_update_at(ComputeSite::Unlocked, key, options, |rule, old| {
            change_to(rule, old, update(old.map(|old| &**old)))
        })
    }

    /// Commits a change of `key` whose function may run under the key's stripe.
    pub(super) fn commit_update<B: AsRef<[u8]>>(
        &self,
        key: &[u8],
        options: UpdateOptions,
        compute: impl FnMut(&EnvelopeRule, Option<&Value>) -> Result<KeyChange<B>>,
    ) -> Result<ComputedChange<B>> {
        self.commit_update_at(ComputeSite::Anywhere, key, options, compute)
    }

    /// Commits the change of `key` that `compute` returns for its value.
    pub(super) fn commit_update_at<B: AsRef<[u8]>>(
        &self,
        site: ComputeSite,
        key: &[u8],
        options: UpdateOptions,
        mut compute: impl FnMut(&EnvelopeRule, Option<&Value>) -> Result<KeyChange<B>>,
    ) -> Result<ComputedChange<B>> {
        check_key(key)?;
        let core = &self.session.core;
        let rule = options.envelope_rule(|| core.host.clock.now())?;
        let durability = options.durability_or(core.durability);
        core.commit_update((&self.state, key), site, durability, |old| compute(&rule, old))
    }
}

/// Returns the change from `old` to `new`.
pub(super) fn change_to<B: AsRef<[u8]>>(
    rule: &EnvelopeRule,
    old: Option<&Value>,
    new: Option<B>,
) -> Result<KeyChange<B>> {
    match new {
        Some(body) => {
            check_value(body.as_ref())?;
            Ok(KeyChange::Put { envelope: rule.envelope(old), body })
        }
        None if old.is_some() => Ok(KeyChange::Delete),
        None => Ok(KeyChange::Keep),
    }
}

/// Returns a value as it is stored without expiry and type tag.
fn stored_value(bytes: &[u8]) -> Result<contract::Value> {
    check_value(bytes)?;
    Ok(contract::Value::fill_with(bytes.len() + 1, |stored| {
        if let Some((head, body)) = stored.split_first_mut() {
            *head = Envelope::PLAIN;
            body.copy_from_slice(bytes);
        }
    }))
}
