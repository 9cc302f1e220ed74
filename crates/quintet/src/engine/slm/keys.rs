//! How the index writes keys: as they are, or in a code of the table's own.
//!
//! What: the first flush into an empty index decides, by a sample of the keys that it brings,
//! whether they are coded ([`crate::engine::slm::key_code`]), and in which code. Then it stays so
//! for the
//! life of the table. Why: the index takes most of the memory that a table of small values needs,
//! and half of that is keys.
//!
//! Invariants:
//! - It is decided before any key is in the index, and saved with the list of runs
//!   ([`super::runs`]), in each cut. So a cut with keys has the code that they are in, and a crash
//!   before the first such cut finds an empty index, which may be decided on anew.
//! - As long as it is not decided the index is empty. Who finds it so has looked for the view of
//!   memtables before: what was written until then is in these, so "nothing" is a true answer of
//!   the index, and later changes of it are none that he would have to see.
//! - No coded key is empty: the empty key is that of the list, which is never coded.
//!
//! Thread rules: it is decided once, under `flushing`; reading it takes no lock.

use std::sync::Arc;

use crate::{
    bptree::KEY_BYTES_MAX,
    engine::slm::key_code::{Buffer, GROWTH_MAX, KeyCode, Series, Trainer},
    lsm::{
        cursor::merge::{Direction, MemtableCursor, Merge, Start},
        memtable::Memtable,
    },
    util::sync::OnceLock,
};

/// Keys of a sample, about: more would not change a code much.
const SAMPLE: u64 = 10_000;

/// A key as the index has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexKey<'k>(pub(super) &'k [u8]);

/// How a table's index writes keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    /// That is to be decided; there are no keys.
    #[default]
    Open,
    /// As they are.
    Plain,
    Code(Arc<KeyCode>),
}

/// See the module head.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// None: as they are.
    code: OnceLock<Option<Arc<KeyCode>>>,
}

impl Keys {
    /// What a list of runs says.
    pub(super) fn new(coding: Coding) -> Self {
        match coding {
            Coding::Open => Self::default(),
            Coding::Plain => Self { code: OnceLock::from(None) },
            Coding::Code(code) => Self { code: OnceLock::from(Some(code)) },
        }
    }

    /// What is to be saved.
    pub(super) fn coding(&self) -> Coding {
        match self.code.get() {
            None => Coding::Open,
            Some(None) => Coding::Plain,
            Some(Some(code)) => Coding::Code(Arc::clone(code)),
        }
    }

    pub(super) fn is_decided(&self) -> bool {
        self.code.get().is_some()
    }

    /// Decides for keys like those of these memtables. Where they are to be coded, but would not
    /// gain by it, they are not.
    pub(super) fn decide(&self, memtables: &[Arc<Memtable>], is_coded: bool) -> crate::Result<()> {
        let code = if is_coded { train(memtables)? } else { None };
        // Whoever was first has decided.
        let _ = self.code.set(code.map(Arc::new));
        Ok(())
    }

    /// A key as the index has it, if it has any.
    #[inline]
    pub(super) fn index_key<'k>(
        &self,
        key: &'k [u8],
        buffer: &'k mut Buffer,
    ) -> Option<IndexKey<'k>> {
        Some(IndexKey(match self.code.get()? {
            None => key,
            Some(code) => code.encode_in(key, buffer),
        }))
    }

    /// Adds a key as the index has it; `false` where the index has none.
    pub(super) fn push(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        match self.code.get() {
            None => return false,
            Some(None) => out.extend_from_slice(key),
            Some(Some(code)) => code.encode(key, out),
        }
        true
    }

    /// Adds the key that the index has as `key`; `None` where that is none.
    #[inline]
    pub(super) fn restore(&self, IndexKey(key): IndexKey<'_>, out: &mut Vec<u8>) -> Option<()> {
        match self.code.get() {
            Some(Some(code)) => return code.decode(key, out),
            _ => out.extend_from_slice(key),
        }
        Some(())
    }

    /// As [`Keys::restore`], of a key that follows the one before in the index.
    #[inline]
    pub(super) fn restore_next(
        &self,
        IndexKey(key): IndexKey<'_>,
        series: &mut Series,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match self.code.get() {
            Some(Some(code)) => out.extend_from_slice(code.decode_next(key, series)?),
            _ => out.extend_from_slice(key),
        }
        Some(())
    }

    /// A key of the index for people to read: as it was written, or else as the index has it.
    pub(super) fn shown(&self, key: IndexKey<'_>) -> String {
        let mut out = Vec::new();
        match self.restore(key, &mut out) {
            Some(()) => out.escape_ascii().to_string(),
            None => format!("{} (as the index has it)", key.0.escape_ascii()),
        }
    }
}

/// A code for the keys of some memtables, of which it looks at some.
fn train(memtables: &[Arc<Memtable>]) -> crate::Result<Option<KeyCode>> {
    let keys: u64 = memtables.iter().map(|memtable| memtable.keys()).sum();
    let (every, mut number) = ((keys / SAMPLE).max(1), 0_u64);
    let mut trainer = Trainer::default();
    let mut walk =
        Merge::new(MemtableCursor::all(memtables.to_vec(), &Start::up(None)), Direction::Up);
    walk.settle()?;
    while let Some(key) = walk.key() {
        if number.is_multiple_of(every) {
            trainer.note(key);
        }
        number += 1;
        walk.advance()?;
    }
    Ok(trainer.finish())
}

const _: () = assert!((1 << 16) * GROWTH_MAX <= KEY_BYTES_MAX, "the index has every key whole");
