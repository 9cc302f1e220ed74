//! A run of versions: a segment in memory, or a file that took the place of some.

use std::sync::Arc;

use super::{
    cursor::{ReplacedValue, VersionCursor},
    file::VersionFile,
    segment::VersionSegment,
    version_key::VersionKey,
};
use crate::{Result, contract::Value, util::codec::Lsn};

/// A run. Clones share it.
#[derive(Clone, Debug)]
pub(super) enum VersionRun {
    Memory(Arc<VersionSegment>),
    File(Arc<VersionFile>),
}

impl VersionRun {
    /// Returns the segment, if the run is in memory.
    pub(super) fn segment(&self) -> Option<&Arc<VersionSegment>> {
        match self {
            Self::Memory(segment) => Some(segment),
            Self::File(_) => None,
        }
    }

    /// Returns whether both are the same run.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(one), Self::Memory(other)) => Arc::ptr_eq(one, other),
            (Self::File(one), Self::File(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Returns whether a version in it was replaced at `lsn` or later.
    #[inline]
    pub(super) fn reaches(&self, lsn: Lsn) -> bool {
        match self {
            Self::Memory(segment) => segment.reaches(lsn),
            Self::File(file) => file.reaches(lsn),
        }
    }

    /// Returns whether all writers that may add to it have applied their writes.
    pub(super) fn is_complete(&self, applied: Lsn) -> bool {
        self.segment().is_none_or(|segment| segment.is_complete(applied))
    }

    /// Returns the bytes that it takes from the budget.
    pub(super) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Memory(segment) => segment.memory_bytes(),
            Self::File(file) => file.memory_bytes(),
        }
    }

    /// Returns its bytes on disk.
    pub(super) fn file_bytes(&self) -> u64 {
        match self {
            Self::Memory(_) => 0,
            Self::File(file) => file.file_bytes(),
        }
    }

    /// Returns the number of its versions.
    pub(super) fn versions(&self) -> u64 {
        match self {
            Self::Memory(segment) => segment.versions(),
            Self::File(file) => file.versions(),
        }
    }

    /// Returns whether the key has a version that was replaced at `lsn` or later.
    pub(super) fn has_since(&self, key: &VersionKey, lsn: Lsn) -> Result<bool> {
        match self {
            Self::Memory(segment) => Ok(segment.has_since(key, lsn)),
            Self::File(file) => file.has_since(key, lsn),
        }
    }

    /// Returns the oldest version of the key that was replaced at `lsn` or later: the LSN of the
    /// write that replaced it, and the value, if there was one.
    pub(super) fn oldest_since(
        &self,
        key: &VersionKey,
        lsn: Lsn,
    ) -> Result<Option<(Lsn, Option<Value>)>> {
        match self {
            Self::Memory(segment) => Ok(segment.oldest_since(key, lsn)),
            Self::File(file) => file.oldest_since(key, lsn),
        }
    }

    /// Copies the first encoded key that is not below `start` to `out`. Returns whether there is
    /// one.
    pub(super) fn first_key(&self, start: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Memory(segment) => Ok(segment.first_key(start, out)),
            Self::File(file) => file.first_key(start, out),
        }
    }

    /// Copies the last encoded key below `end` to `out`. Returns whether there is one.
    pub(super) fn last_key(&self, end: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        match self {
            Self::Memory(segment) => Ok(segment.last_key(end, out)),
            Self::File(file) => file.last_key(end, out),
        }
    }

    /// Returns a cursor at the first key of a run to which no writer adds.
    pub(super) fn cursor(&self) -> Result<Box<dyn VersionCursor + '_>> {
        match self {
            Self::Memory(segment) => Ok(Box::new(SegmentCursor::new(segment))),
            Self::File(file) => file.cursor(),
        }
    }
}

/// A cursor over the keys of a segment.
struct SegmentCursor<'a> {
    segment: &'a VersionSegment,
    key: Option<Vec<u8>>,
}

impl<'a> SegmentCursor<'a> {
    fn new(segment: &'a VersionSegment) -> Self {
        let mut cursor = Self { segment, key: None };
        cursor.seek(&[]);
        cursor
    }

    fn seek(&mut self, start: &[u8]) {
        let mut key = self.key.take().unwrap_or_default();
        self.key = self.segment.first_key(start, &mut key).then_some(key);
    }
}

impl VersionCursor for SegmentCursor<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    fn take(&mut self, lsn: Lsn, out: &mut Vec<ReplacedValue>) -> Result<u32> {
        let Some(mut key) = self.key.clone() else { return Ok(0) };
        let half = self.segment.versions_since(&key, lsn, out).unwrap_or(0);
        key.push(0);
        self.seek(&key);
        Ok(half)
    }
}
