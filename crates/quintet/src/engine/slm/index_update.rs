//! Index updates: the only code that changes values in the index.
//!
//! A [`Batch`] is a durable run and the index values of its entries. A flush replaces any previous
//! value of a key. A compaction changes a value only if the index still points to the entry that it
//! copied, because a flush may have replaced it meanwhile. The change of the value and of both
//! runs' live counts happens inside the gate: a checkpoint has all of it or nothing.
//!
//! After each [`TURN`] keys, their words in the location cache
//! ([`crate::engine::slm::location_cache`]) are invalidated.
//!
//! Thread rules: `entering` is held for [`TURN`] keys at a time. Between the lookup of a value and
//! its change no other thread changes it, and flushes and compactions alternate.

use std::{ops::Range, sync::Arc};

use super::{
    Inner,
    keys::IndexKey,
    runs::{Entered, Place, Run, Runs},
};
use crate::{
    Error, Result,
    bptree::{checkpoint::CHANGE_PAGES, finger::Finger},
    util::{
        mutant::mutant,
        sync::{Mutex, lock},
    },
};

/// Number of keys that are updated before another flush or compaction may take the lock.
const TURN: usize = 256;

/// The change of one key's value in the index.
#[derive(Clone, Copy, Debug)]
struct Move {
    /// End of the key in [`Moves::keys`].
    key_end: usize,
    /// Hash of the user key.
    hash: u64,
    /// The new value; `None` removes the key.
    to: Option<Entered>,
    /// The address that the index must still have; `None` applies the update unconditionally.
    from: Option<Place>,
}

/// Index updates, in key order.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// The keys as the index stores them, one after the other.
    keys: Vec<u8>,
    list: Vec<Move>,
}

impl Moves {
    /// Appends an update of a key that is greater than the previous ones.
    pub(super) fn push(
        &mut self,
        (hash, key): (u64, IndexKey<'_>),
        to: Option<Entered>,
        from: Option<Place>,
    ) {
        self.keys.extend_from_slice(key.0);
        self.list.push(Move { key_end: self.keys.len(), hash, to, from });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    fn hashes(&self, turn: Range<usize>) -> impl Iterator<Item = u64> + Clone {
        self.list.get(turn).unwrap_or(&[]).iter().map(|one| one.hash)
    }

    fn key(&self, index: usize) -> IndexKey<'_> {
        let end = self.list.get(index).map_or(0, |one| one.key_end);
        let before = index.checked_sub(1).and_then(|before| self.list.get(before));
        IndexKey(self.keys.get(before.map_or(0, |one| one.key_end)..end).unwrap_or(&[]))
    }
}

/// A run and the index updates that point to it.
#[derive(Debug)]
pub(super) struct Batch {
    /// `None` if all updates remove keys.
    pub(super) run: Option<Arc<Run>>,
    pub(super) moves: Moves,
}

impl Drop for Batch {
    /// Applied or abandoned: no further update will point to the run.
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            run.seal();
        }
    }
}

/// Returns the next edit, or `None` at the end.
pub(super) type Produce<'p> = dyn FnMut() -> Result<Option<Batch>> + Send + 'p;

impl Inner {
    /// Applies all edits of a flush or a merge. Each is applied while the next one is produced.
    pub(super) fn enter_all(&self, produce: &mut Produce<'_>) -> Result<()> {
        let mut ready = produce()?;
        while let Some(batch) = ready.take() {
            let producer = Mutex::new(&mut *produce);
            let (next, entered) = (Mutex::new(None), Mutex::new(Ok(())));
            self.context.env.parallel(2, &|side| {
                if side == 0 {
                    let made = (*lock(&producer))();
                    *lock(&next) = Some(made);
                } else {
                    *lock(&entered) = self.enter(&batch);
                }
            });
            let (next, entered) =
                (lock(&next).take(), std::mem::replace(&mut *lock(&entered), Ok(())));
            entered?;
            ready = next.transpose()?.flatten();
        }
        Ok(())
    }

    /// Applies one edit.
    fn enter(&self, batch: &Batch) -> Result<()> {
        let count = batch.moves.len();
        let (mut first, mut near) = (0, Finger::default());
        while first < count {
            let last = (first + TURN).min(count);
            let entered = {
                let _entering = lock(&self.entering);
                let view = self.front.view.load();
                (first..last).try_for_each(|index| {
                    self.enter_one(&batch.moves, index, &view.version, &mut near)
                })
            };
            // Also after a failure: the keys before the failed one have changed.
            self.shortcuts.forget(batch.moves.hashes(first..last));
            entered?;
            first = last;
        }
        Ok(())
    }

    /// Applies one update: changes the index and both live counts, and drops the old block from the
    /// block cache if the replaced entry was alone in it.
    fn enter_one(&self, moves: &Moves, index: usize, runs: &Runs, near: &mut Finger) -> Result<()> {
        let (key, Some(one)) = (moves.key(index), moves.list.get(index)) else { return Ok(()) };
        let tree = &self.paged.tree;
        self.paged.make_room(CHANGE_PAGES + tree.pages_for(key.0, size_of::<Place>()))?;
        let pass = self.paged.gate.enter(key.0);
        let old = self.locate_near(near, key)?;
        let is_stale = one.from.is_some() && old != one.from;
        if mutant!(SlmMovesUnconditionally: false, else is_stale) {
            return Ok(());
        }
        let find = |place: Place| {
            runs.find(place.run).ok_or_else(|| self.no_run(self.keys.shown(key), place))
        };
        let (before, after) =
            (old.map(find).transpose()?, one.to.map(|to| find(to.place)).transpose()?);
        let change = match one.to {
            Some(to) => tree.put_near(near, key.0, &to.encode())?,
            None if mutant!(SlmForgetsDeletes: true, else old.is_none()) => return Ok(()),
            None => tree.delete(key.0, None)?,
        };
        after.inspect(|run| run.gain());
        before.inspect(|run| run.lose());
        if let (Some(run), Some(place)) = (before, old) {
            let new = after.zip(one.to);
            let new = new.and_then(|(run, to)| run.sst.slot(to.place.block));
            self.cache.replace(run.sst.slot(place.block), new);
        }
        pass.note(change);
        Ok(())
    }

    /// Returns the error of an index value that points to a run that does not exist.
    pub(super) fn no_run(&self, key: impl std::fmt::Display, place: Place) -> Error {
        let what = format!("key {key} points to run {:08x}, which does not exist", place.run);
        Error::corruption(self.paged.tree.cache().label(), 0, what)
    }
}
