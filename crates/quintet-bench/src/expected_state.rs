//! The expected content of every record, which `--verify` compares each read with.
//!
//! Each record has one word: the version of the last write shifted left by one (0 if absent), and a
//! low bit that is set during a write. A reader loads the word before and after its read. If both
//! are equal and no write was in progress, the read must return exactly that version. Otherwise any
//! version of the record is right, and with deletes also none.
//!
//! Thread rules: a striped lock excludes concurrent writers of one record, because two unordered
//! writes leave no expected content. This makes runs with `--verify` slower; their figures are not
//! comparable.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::{data::ReadMatch, failure::Failure, numbers::to_usize};

/// Number of locks for writers. Far more than threads, so that writers rarely wait.
const STRIPES: usize = 1024;
/// Bit that is set during a write.
const BUSY: u64 = 1;

/// Expected content of all records.
#[derive(Debug)]
pub struct ExpectedState {
    words: Vec<AtomicU64>,
    stripes: Vec<Mutex<()>>,
}

/// A write in progress.
#[derive(Debug)]
pub struct PendingWrite<'a> {
    word: &'a AtomicU64,
    _stripe: MutexGuard<'a, ()>,
}

impl ExpectedState {
    /// Returns the expected content of `records` absent records.
    pub fn new(records: u64) -> Self {
        Self {
            words: (0..records).map(|_| AtomicU64::new(0)).collect(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Begins a write of a record; `None` if the record number is too large.
    pub fn write(&self, number: u64) -> Option<PendingWrite<'_>> {
        let stripe = self.stripes.get(to_usize(number) % STRIPES)?;
        let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        let word = self.words.get(to_usize(number))?;
        word.fetch_or(BUSY, Ordering::SeqCst);
        Some(PendingWrite { word, _stripe: stripe })
    }

    /// Returns the word of a record before a read, for [`ExpectedState::agrees`].
    pub fn before(&self, number: u64) -> u64 {
        self.words.get(to_usize(number)).map_or(BUSY, |word| word.load(Ordering::SeqCst))
    }

    /// Returns whether a read that began when the word was `before` may return `found`.
    pub fn agrees(&self, number: u64, before: u64, found: ReadMatch) -> bool {
        let after = self.before(number);
        if found != ReadMatch::Foreign && (before != after || before & BUSY != 0) {
            return true;
        }
        match found {
            ReadMatch::Foreign => false,
            ReadMatch::Absent => before == 0,
            ReadMatch::Unversioned => before != 0,
            ReadMatch::Version(version) => before == version << 1,
        }
    }
}

impl PendingWrite<'_> {
    /// Ends the write: the record has this version, or is absent.
    pub fn finish(self, version: Option<u64>) {
        self.word.store(version.map_or(0, |version| version << 1), Ordering::SeqCst);
    }
}

/// Returns the failure of a read that did not return the last write.
pub fn wrong_read(number: u64, found: ReadMatch) -> Failure {
    let what = match found {
        ReadMatch::Version(version) => format!("version {version}, which is not the last one"),
        ReadMatch::Unversioned => "a value where there should be none".to_owned(),
        ReadMatch::Absent => "nothing where there should be a value".to_owned(),
        ReadMatch::Foreign => "bytes that were never written for it".to_owned(),
    };
    Failure::Damage(format!("record {number} gave {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_record_must_match_exactly() {
        let truth = ExpectedState::new(2);
        assert!(truth.agrees(0, truth.before(0), ReadMatch::Absent));
        assert!(!truth.agrees(0, truth.before(0), ReadMatch::Version(1)));
        truth.write(0).unwrap().finish(Some(5));
        assert!(truth.agrees(0, truth.before(0), ReadMatch::Version(5)));
        assert!(truth.agrees(0, truth.before(0), ReadMatch::Unversioned));
        assert!(!truth.agrees(0, truth.before(0), ReadMatch::Version(4)), "a lost update is found");
        assert!(!truth.agrees(0, truth.before(0), ReadMatch::Absent), "a lost record is found");
        truth.write(0).unwrap().finish(None);
        assert!(truth.agrees(0, truth.before(0), ReadMatch::Absent));
        assert!(truth.write(2).is_none());
    }

    #[test]
    fn a_record_being_written_allows_any_version() {
        let truth = ExpectedState::new(1);
        let before = truth.before(0);
        let writing = truth.write(0).unwrap();
        assert!(truth.agrees(0, before, ReadMatch::Version(9)));
        let during = truth.before(0);
        writing.finish(Some(9));
        assert!(truth.agrees(0, during, ReadMatch::Absent));
        assert!(truth.agrees(0, truth.before(0), ReadMatch::Version(9)));
    }
}
