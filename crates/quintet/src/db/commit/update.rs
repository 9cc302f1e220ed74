//! Read-modify-write of one key: commits a change that is computed from the key's value.
//!
//! Problem: the function that computes the change may be the user's. It may be slow, panic, or
//! write to other keys of the same stripe, so it must not run under a lock.
//!
//! Algorithm: optimistic concurrency control with the versions of the stripes.
//! 1. Read the version of the key's stripe, then the value, and compute the change.
//! 2. Admit the write. Lock the stripe.
//! 3. If the version is the same, the value is too: commit.
//! 4. Otherwise another write of the stripe came between. Read the value again. If it is equal,
//!    commit: writes of other keys never cause a second round.
//! 5. If it differs, a change that calls no code of the user is computed again under the stripe. It
//!    is committed if what was admitted serves for it.
//! 6. Otherwise unlock, cancel, and go to step 1. Another write of this key has succeeded then.
//!
//! Invariants: a version changes after a write is applied and before its stripe is unlocked. So an
//! equal version under the lock means that no write was applied since it was read. A value that has
//! expired since counts as changed.

use super::steps::frees;
use crate::{
    Result,
    contract::{MemoryWait, Op},
    db::{
        core::{
            Core,
            condition::Condition,
            durability::Durability,
            key_change::{ComputeSite, ComputedChange, KeyChange},
        },
        encoding::operations::{Frame, size_of_pieces},
        tables::{
            state::TableState,
            stripes::{StripeGuard, StripeIndex},
            value::Value,
        },
    },
    util::mutant::mutant,
    wal::Appended,
};

/// The key of a read-modify-write.
#[derive(Clone, Copy)]
struct UpdatedKey<'a> {
    table: &'a TableState,
    key: &'a [u8],
    hash: u64,
    index: StripeIndex,
}

/// The outcome of one round.
enum UpdateRound<B> {
    /// Logged and applied. `other` was committed, if it is set.
    Logged { logged: (Appended, Result<()>), other: Option<ComputedChange<B>> },
    /// The change that was computed from the current value writes nothing.
    Unneeded(ComputedChange<B>),
    /// Another write of the key came between.
    Lost,
}

impl Core {
    /// Commits the change of `key` that `compute` returns for its value, and returns both.
    /// `compute` runs once for each round.
    pub(crate) fn commit_update<B: AsRef<[u8]>>(
        &self,
        (table, key): (&TableState, &[u8]),
        site: ComputeSite,
        durability: Durability,
        mut compute: impl FnMut(Option<&Value>) -> Result<KeyChange<B>>,
    ) -> Result<ComputedChange<B>> {
        let hash = table.hash.hash(key);
        let updated =
            UpdatedKey { table, key, hash, index: self.tables.stripes.index(table.id, hash) };
        loop {
            self.tables.check_writable()?;
            if let Err(error) = self.tables.check_takes_writes(table) {
                let Some(next) = table.successor() else { return Err(error) };
                return self.commit_update((&next, key), site, durability, compute);
            }
            let version = self.tables.stripes.version(updated.index);
            let old = self.tables.get(table, key)?;
            let change = compute(old.as_ref())?;
            // The function may have forked.
            self.tables.check_process()?;
            let computed = ComputedChange { version, old, change };
            let again = match site {
                ComputeSite::Unlocked => None,
                ComputeSite::Anywhere => Some(&mut compute),
            };
            let tried = self.try_update(updated, computed, again, durability);
            // A table that was cleared meanwhile has a successor, which the next round finds.
            if tried.is_err() && table.successor().is_some() {
                continue;
            }
            if let Some(committed) = tried? {
                return Ok(committed);
            }
        }
    }

    /// One round: commits a change that was computed before. Returns what was committed, or `None`
    /// if the round was lost. `again` computes the change under the stripe.
    fn try_update<B: AsRef<[u8]>>(
        &self,
        updated: UpdatedKey<'_>,
        computed: ComputedChange<B>,
        again: Option<&mut impl FnMut(Option<&Value>) -> Result<KeyChange<B>>>,
        durability: Durability,
    ) -> Result<Option<ComputedChange<B>>> {
        let table = updated.table;
        let head = computed.change.head();
        let Some(op) = computed.change.op(updated.key, &head) else { return Ok(Some(computed)) };
        let frame = Frame::alone(table.id, &op);
        self.admit_to_log(size_of_pieces(&frame.pieces(&op)), frees(&op))?;
        let wait = MemoryWait::default();
        self.admit_first(table, &op, &wait)?;
        let round = self
            .expiry
            .admit(&self.tables, table, &op, &wait)
            .and_then(|()| self.log_update(updated, &computed, (&frame, &op), again));
        match round {
            Ok(UpdateRound::Logged { logged: (appended, applied), other }) => {
                self.finish(appended, durability)?;
                applied?;
                Ok(Some(other.unwrap_or(computed)))
            }
            Ok(UpdateRound::Unneeded(other)) => {
                self.cancel(table, &op);
                Ok(Some(other))
            }
            Ok(UpdateRound::Lost) => {
                self.cancel(table, &op);
                Ok(None)
            }
            Err(error) => {
                self.cancel(table, &op);
                Err(error)
            }
        }
    }

    /// Logs and applies an admitted change under its stripe, if the key still has the value that it
    /// was computed from. On an error nothing was logged.
    fn log_update<B: AsRef<[u8]>>(
        &self,
        updated: UpdatedKey<'_>,
        computed: &ComputedChange<B>,
        (frame, op): (&Frame, &Op<'_>),
        again: Option<&mut impl FnMut(Option<&Value>) -> Result<KeyChange<B>>>,
    ) -> Result<UpdateRound<B>> {
        let stripe = self.tables.stripes.hold(updated.index);
        if Self::is_current(&stripe, computed) {
            return self.log_change(updated, &stripe, (frame, op), computed.old.as_ref());
        }
        self.log_other(updated, &stripe, computed, (frame, op), again)
    }

    /// Returns whether nothing was written under the stripe since the value was read.
    fn is_current<B>(stripe: &StripeGuard<'_>, computed: &ComputedChange<B>) -> bool {
        mutant!(UpdateIgnoresOtherWrites => return true);
        stripe.version() == computed.version
    }

    /// Steps 4 and 5: the stripe was written.
    #[cold]
    fn log_other<B: AsRef<[u8]>>(
        &self,
        updated: UpdatedKey<'_>,
        stripe: &StripeGuard<'_>,
        computed: &ComputedChange<B>,
        (frame, op): (&Frame, &Op<'_>),
        again: Option<&mut impl FnMut(Option<&Value>) -> Result<KeyChange<B>>>,
    ) -> Result<UpdateRound<B>> {
        let old = self.tables.get(updated.table, updated.key)?;
        if is_same(old.as_ref(), computed.old.as_ref()) {
            return self.log_change(updated, stripe, (frame, op), old.as_ref());
        }
        let Some(again) = again else { return Ok(UpdateRound::Lost) };
        let change = again(old.as_ref())?;
        let other = ComputedChange { version: stripe.version(), old, change };
        let head = other.change.head();
        let Some(op) = other.change.op(updated.key, &head) else {
            return Ok(UpdateRound::Unneeded(other));
        };
        if !other.change.is_admitted_by(&computed.change) {
            return Ok(UpdateRound::Lost);
        }
        let frame = Frame::alone(updated.table.id, &op);
        let round = self.log_change(updated, stripe, (&frame, &op), other.old.as_ref())?;
        Ok(match round {
            UpdateRound::Logged { logged, .. } => {
                UpdateRound::Logged { logged, other: Some(other) }
            }
            lost => lost,
        })
    }

    /// Logs and applies one operation under its stripe, unless the value that it was computed from
    /// has expired.
    fn log_change<B>(
        &self,
        updated: UpdatedKey<'_>,
        stripe: &StripeGuard<'_>,
        (frame, op): (&Frame, &Op<'_>),
        old: Option<&Value>,
    ) -> Result<UpdateRound<B>> {
        let entry = (op, updated.hash, None);
        let pieces = frame.pieces(op);
        let begin = || stripe.begin_write();
        let table = updated.table;
        let expires_at = old.and_then(Value::expires_at_unix_millis);
        let condition = expires_at.map_or(Condition::Always, Condition::Before);
        let condition = mutant!(UpdateIgnoresExpiryMeanwhile: Condition::Always, else condition);
        let logged = self.log_and_apply_locked(table, entry, &pieces, condition, begin);
        stripe.end_write();
        Ok(logged?.map_or(UpdateRound::Lost, |logged| UpdateRound::Logged { logged, other: None }))
    }
}

/// Returns whether two values are equal, expiry and type tag included.
fn is_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.envelope() == other.envelope() && **one == **other,
        _ => false,
    }
}
