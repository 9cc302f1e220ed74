//! How the index stores keys: as they are, or in an order-preserving code of the table.
//!
//! Problem: the index takes most of the memory of a table of small values, and half of that is
//! keys. The first flush into an empty index samples its keys and decides whether to code them
//! ([`crate::engine::slm::key_code`]), and in which code. The choice is final for the table.
//!
//! Invariants:
//! - The choice is made before the index has any key. Each checkpoint saves it with the list of
//!   runs ([`super::run_list`]). A crash before the first checkpoint finds an empty index, so the
//!   next flush may choose again.
//! - The index is empty until the choice is made. A reader that finds no choice has loaded its
//!   super version before: its memtables have all earlier writes, so "absent" is a correct answer.
//! - No coded key is empty: the empty key has the list of runs and is never coded.
//!
//! Thread rules: the choice is made once, under `flushing`; reading it takes no lock.

use std::sync::Arc;

use super::key_code::{self, DecodeState, GROWTH_MAX, KeyBuffer, KeyCode};
use crate::{Result, bptree::KEY_BYTES_MAX, lsm::memtable::Memtable, util::sync::OnceLock};

/// Key of the list of runs in the index. No entry can have the empty key.
pub(super) const LIST_KEY: &[u8] = b"";
/// The lowest key that an entry can have.
pub(super) const FIRST_KEY: &[u8] = &[0];

/// A key as the index stores it.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexKey<'k>(pub(super) &'k [u8]);

/// How a table's index stores keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    /// Not chosen yet; the index has no keys.
    #[default]
    Open,
    /// As they are.
    Plain,
    /// In a code of the table.
    Code(Arc<KeyCode>),
}

/// Encodes and decodes the keys of a table's index.
#[derive(Debug, Default)]
pub(super) struct IndexKeyCodec {
    /// `None` inside: as they are.
    code: OnceLock<Option<Arc<KeyCode>>>,
}

impl IndexKeyCodec {
    /// Creates the codec from the coding of a list of runs.
    pub(super) fn new(coding: Coding) -> Self {
        match coding {
            Coding::Open => Self::default(),
            Coding::Plain => Self { code: OnceLock::from(None) },
            Coding::Code(code) => Self { code: OnceLock::from(Some(code)) },
        }
    }

    /// Returns the coding to save with the list of runs.
    pub(super) fn coding(&self) -> Coding {
        match self.code.get() {
            None => Coding::Open,
            Some(None) => Coding::Plain,
            Some(Some(code)) => Coding::Code(Arc::clone(code)),
        }
    }

    /// Whether the coding is chosen.
    pub(super) fn is_decided(&self) -> bool {
        self.code.get().is_some()
    }

    /// Chooses the coding for keys like those of these memtables: plain unless `is_coded` and a
    /// code saves enough.
    pub(super) fn decide(&self, memtables: &[Arc<Memtable>], is_coded: bool) -> Result<()> {
        let code = if is_coded { key_code::train(memtables)? } else { None };
        // The first choice stays.
        let _ = self.code.set(code.map(Arc::new));
        Ok(())
    }

    /// Encodes a key for the index; `None` if the coding is not chosen yet.
    #[inline]
    pub(super) fn index_key<'k>(
        &self,
        key: &'k [u8],
        buffer: &'k mut KeyBuffer,
    ) -> Option<IndexKey<'k>> {
        Some(IndexKey(match self.code.get()? {
            None => key,
            Some(code) => code.encode_in(key, buffer),
        }))
    }

    /// Appends a key as the index stores it; returns `false` if the coding is not chosen yet.
    pub(super) fn push(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        match self.code.get() {
            None => return false,
            Some(None) => out.extend_from_slice(key),
            Some(Some(code)) => code.encode(key, out),
        }
        true
    }

    /// Appends the user key of an index key; `None` if no user key has this code.
    #[inline]
    pub(super) fn restore(&self, IndexKey(key): IndexKey<'_>, out: &mut Vec<u8>) -> Option<()> {
        match self.code.get() {
            Some(Some(code)) => return code.decode(key, out),
            _ => out.extend_from_slice(key),
        }
        Some(())
    }

    /// As [`IndexKeyCodec::restore`], cheaper for keys in index order.
    #[inline]
    pub(super) fn restore_next(
        &self,
        IndexKey(key): IndexKey<'_>,
        state: &mut DecodeState,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match self.code.get() {
            Some(Some(code)) => out.extend_from_slice(code.decode_next(key, state)?),
            _ => out.extend_from_slice(key),
        }
        Some(())
    }

    /// Formats an index key for messages: the user key, or the stored bytes if none decodes.
    pub(super) fn format(&self, key: IndexKey<'_>) -> String {
        let mut out = Vec::new();
        match self.restore(key, &mut out) {
            Some(()) => out.escape_ascii().to_string(),
            None => format!("{} (as the index stores it)", key.0.escape_ascii()),
        }
    }
}

const _: () = assert!((1 << 16) * GROWTH_MAX <= KEY_BYTES_MAX, "the index has every key whole");
