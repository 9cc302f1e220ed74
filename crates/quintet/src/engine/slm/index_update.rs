//! Index updates: the only code that changes places in the index.
//!
//! A [`Batch`] is a durable run and the places of its entries. A flush replaces whatever place a
//! key had. A compaction changes a place only if the index still points to the entry
//! that it copied, because a flush may have replaced it meanwhile. The change of the place and of
//! both runs' live counts happens inside the gate: a checkpoint has all of it or nothing.
//!
//! Each turn clears the keys' words in the location cache
//! ([`crate::engine::slm::location_cache`]).
//!
//! Thread rules: `entering` is held for some keys at a time. Between the lookup of a place and its
//! change no other thread changes it, and flushes and compactions alternate.

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
        mutant::{self, Bug},
        sync::{Mutex, lock},
    },
};

/// Keys that are entered before others have their turn.
const TURN: usize = 256;

/// What becomes of a key's place.
#[derive(Clone, Copy, Debug)]
struct Move {
    /// Where its key ends among the keys.
    key_end: usize,
    /// Of the key as it was written.
    hash: u64,
    /// The new place; `None`: the key goes.
    to: Option<Entered>,
    /// Only from here; `None`: from wherever it was.
    from: Option<Place>,
}

/// Moves of keys, in key order.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// As the index has them.
    keys: Vec<u8>,
    list: Vec<Move>,
}

impl Moves {
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

/// A run, or none, and what is to be entered with it.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) run: Option<Arc<Run>>,
    pub(super) moves: Moves,
}

impl Drop for Batch {
    /// Entered or given up: nothing more will point to the run.
    fn drop(&mut self) {
        if let Some(run) = &self.run {
            run.seal();
        }
    }
}

/// What makes batches, one after the other.
pub(super) type Produce<'p> = dyn FnMut() -> Result<Option<Batch>> + Send + 'p;

impl Inner {
    /// Enters all batches that come, each while the next one is made.
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

    /// Enters one batch.
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
            // Of those before one that failed, too.
            self.shortcuts.forget(batch.moves.hashes(first..last));
            entered?;
            first = last;
        }
        Ok(())
    }

    fn enter_one(&self, moves: &Moves, index: usize, runs: &Runs, near: &mut Finger) -> Result<()> {
        let (key, Some(one)) = (moves.key(index), moves.list.get(index)) else { return Ok(()) };
        let tree = &self.paged.tree;
        self.paged.make_room(CHANGE_PAGES + tree.pages_for(key.0, size_of::<Place>()))?;
        let pass = self.paged.gate.enter(key.0);
        let old = self.locate_near(near, key)?;
        let is_sure = one.from.is_none() || mutant::active(Bug::SlmMovesUnconditionally);
        if !is_sure && old != one.from {
            return Ok(());
        }
        let find = |place: Place| {
            runs.find(place.run).ok_or_else(|| self.no_run(self.keys.shown(key), place))
        };
        let (before, after) =
            (old.map(find).transpose()?, one.to.map(|to| find(to.place)).transpose()?);
        let change = match one.to {
            Some(to) => tree.put_by_finger(near, key.0, &to.encode())?,
            None if old.is_some() && !mutant::active(Bug::SlmForgetsDeletes) => {
                tree.delete(key.0, None)?
            }
            None => return Ok(()),
        };
        after.inspect(|run| run.gain());
        before.inspect(|run| run.lose());
        if let (Some(run), Some(place)) = (before, old) {
            let new = after.zip(one.to);
            let new = new.and_then(|(run, to)| run.sst.slot(to.place.block));
            self.cache.replace(run.sst.slot(place.block), new);
        }
        pass.add(change);
        Ok(())
    }

    /// The index points where there is nothing.
    pub(super) fn no_run(&self, key: impl std::fmt::Display, place: Place) -> Error {
        let what = format!("key {key} is said to be in run {:08x}", place.run);
        Error::corruption(self.paged.tree.cache().label(), 0, what)
    }
}
