//! What every record should hold: the model that `--verify` checks each read against.
//!
//! Each record has one word: the version last written shifted left by one (0: absent), and a low
//! bit that is set while a write of it is under way. A reader looks at the word before and after
//! its read: if it is the same and no write was under way, the read must give exactly that
//! version; otherwise any version of the record (or, with deletes about, none) is right.
//!
//! Thread rules: writers of one record exclude each other by a stripe of locks, since two
//! unordered writes would leave nothing to compare with. That makes `--verify` runs slower; their
//! figures are not comparable.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::{data::Found, numbers::to_usize};

/// Locks for writers. More than any sensible number of threads, so that they rarely collide.
const STRIPES: usize = 1024;
const BUSY: u64 = 1;

/// The expected state of all records.
#[derive(Debug)]
pub struct Truth {
    words: Vec<AtomicU64>,
    stripes: Vec<Mutex<()>>,
}

/// A write under way; the new state is known when it is finished.
#[derive(Debug)]
pub struct Writing<'a> {
    word: &'a AtomicU64,
    _stripe: MutexGuard<'a, ()>,
}

impl Truth {
    /// Room for `records`, all absent.
    pub fn new(records: u64) -> Self {
        Self {
            words: (0..records).map(|_| AtomicU64::new(0)).collect(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Begins a write of a record; `None` for a record that there is no room for.
    pub fn write(&self, number: u64) -> Option<Writing<'_>> {
        let stripe = self.stripes.get(to_usize(number) % STRIPES)?;
        let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        let word = self.words.get(to_usize(number))?;
        word.fetch_or(BUSY, Ordering::SeqCst);
        Some(Writing { word, _stripe: stripe })
    }

    /// The record's word now, to be handed to [`Truth::agrees`] after the read.
    pub fn before(&self, number: u64) -> u64 {
        self.words.get(to_usize(number)).map_or(BUSY, |word| word.load(Ordering::SeqCst))
    }

    /// Whether a read that began when the word was `before` may have given `found`.
    pub fn agrees(&self, number: u64, before: u64, found: Found) -> bool {
        let after = self.before(number);
        if found != Found::Foreign && (before != after || before & BUSY != 0) {
            return true;
        }
        match found {
            Found::Foreign => false,
            Found::Absent => before == 0,
            Found::Unversioned => before != 0,
            Found::Version(version) => before == version << 1,
        }
    }
}

impl Writing<'_> {
    /// Ends the write: the record now has this version, or is absent.
    pub fn finish(self, version: Option<u64>) {
        self.word.store(version.map_or(0, |version| version << 1), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_record_must_match_exactly() {
        let truth = Truth::new(2);
        assert!(truth.agrees(0, truth.before(0), Found::Absent));
        assert!(!truth.agrees(0, truth.before(0), Found::Version(1)));
        truth.write(0).unwrap().finish(Some(5));
        assert!(truth.agrees(0, truth.before(0), Found::Version(5)));
        assert!(truth.agrees(0, truth.before(0), Found::Unversioned));
        assert!(!truth.agrees(0, truth.before(0), Found::Version(4)), "a lost update is found");
        assert!(!truth.agrees(0, truth.before(0), Found::Absent), "a lost record is found");
        truth.write(0).unwrap().finish(None);
        assert!(truth.agrees(0, truth.before(0), Found::Absent));
        assert!(truth.write(2).is_none());
    }

    #[test]
    fn a_record_being_written_allows_any_version() {
        let truth = Truth::new(1);
        let before = truth.before(0);
        let writing = truth.write(0).unwrap();
        assert!(truth.agrees(0, before, Found::Version(9)));
        let during = truth.before(0);
        writing.finish(Some(9));
        assert!(truth.agrees(0, during, Found::Absent));
        assert!(truth.agrees(0, truth.before(0), Found::Version(9)));
    }
}
