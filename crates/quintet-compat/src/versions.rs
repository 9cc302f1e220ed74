//! Iterators of all column families: those without timestamps, and those with them.
//!
//! How: an iterator over versions moves an iterator over the stored forms ([`crate::timestamps`]).
//! It shows the newest version of each key that is not newer than the read timestamp, unless that
//! is a delete. With an oldest timestamp it shows each version between the two, deletes too, under
//! RocksDB's internal keys.
//!
//! Cost: a step upwards passes the older versions of the key. A step downwards costs two searches,
//! because the versions of a key are stored newest first.

use quintet::Snapshot;

use crate::{
    comparator::ComparatorCalls,
    iterator::{Bounds, Source, StoreIterator},
    keys,
    status::Status,
    timestamps::{self, TIMESTAMP_BYTES, TimestampOrder, Version},
};

/// Number of older versions of a key that a step upwards passes one by one. Then it searches.
const STEPS_MAX: usize = 4;
/// RocksDB's types of internal keys: a put, and a delete with a timestamp.
const TYPE_PUT: u64 = 1;
const TYPE_DELETE: u64 = 0x14;

/// Which versions an iterator shows.
#[derive(Clone, Copy, Debug)]
pub struct VersionRange {
    /// The newest timestamp.
    pub newest: u64,
    /// The oldest timestamp. `None`: of each key, the newest version alone.
    pub oldest: Option<u64>,
    /// The byte order of the program's timestamps.
    pub order: TimestampOrder,
}

/// Numbers of what an iterator over versions has passed.
#[derive(Clone, Copy, Debug, Default)]
pub struct SkipCounts {
    /// Versions.
    pub versions: u64,
    /// Deletes.
    pub deletes: u64,
}

/// The version that an iterator is at.
#[derive(Debug)]
struct CurrentVersion {
    version: Version,
    /// The key that the program sees.
    key: Vec<u8>,
    timestamp: [u8; TIMESTAMP_BYTES],
}

/// An iterator over versions.
#[derive(Debug)]
pub struct VersionIterator {
    /// At the stored form of the version that is shown.
    stored: StoreIterator,
    range: VersionRange,
    comparator: Option<ComparatorCalls>,
    shown: Option<CurrentVersion>,
    failure: Option<Status>,
    passed: SkipCounts,
}

impl VersionIterator {
    /// Makes an iterator at no entry. `stored` is one over the table, whose bounds are those of
    /// [`version_bounds`] and which has no comparator.
    pub fn new(
        stored: StoreIterator,
        range: VersionRange,
        comparator: Option<ComparatorCalls>,
    ) -> Self {
        let passed = SkipCounts::default();
        Self { stored, range, comparator, shown: None, failure: None, passed }
    }

    /// Replaces what the iterator reads. It is at no entry then.
    #[must_use]
    fn map_source(mut self, map: impl FnOnce(Source) -> Source) -> Self {
        self.shown = None;
        self.stored = self.stored.map_source(map);
        self
    }

    /// Returns what was passed since the last call.
    pub fn take_passed(&mut self) -> SkipCounts {
        std::mem::take(&mut self.passed)
    }

    /// Returns the version of the stored entry, and whether it is a delete. `None`: there is none.
    fn entry(&self) -> Result<Option<(Version, bool)>, Status> {
        if let Some(failure) = self.stored.failure() {
            return Err(failure.clone());
        }
        let Some((stored, value)) = self.stored.entry() else { return Ok(None) };
        Ok(Some((timestamps::version(stored)?, timestamps::value(value)?.is_none())))
    }

    fn is_in(&self, version: &Version) -> bool {
        version.timestamp <= self.range.newest
            && self.range.oldest.is_none_or(|oldest| oldest <= version.timestamp)
    }

    /// Moves, and shows the entry that the movement finds.
    fn movement(
        &mut self,
        find: impl FnOnce(&mut Self) -> Result<Option<(Version, bool)>, Status>,
    ) {
        self.failure = None;
        let (before, order) = (self.shown.take(), self.range.order);
        let shown = find(self).and_then(|found| {
            let Some((version, is_delete)) = found else { return Ok(None) };
            if let (Some(comparator), Some(before)) = (&self.comparator, &before) {
                comparator.check(&before.version.key, &version.key)?;
            }
            let key = if self.range.oldest.is_some() {
                let kind = if is_delete { TYPE_DELETE } else { TYPE_PUT };
                [order.joined(&version), kind.to_le_bytes().to_vec()].concat()
            } else {
                version.key.clone()
            };
            let timestamp = order.bytes(version.timestamp);
            Ok(Some(CurrentVersion { version, key, timestamp }))
        });
        match shown {
            Ok(shown) => self.shown = shown,
            Err(status) => self.failure = Some(status),
        }
    }

    /// Leaves the versions of a key upwards, from one of them.
    fn pass_up(&mut self, key: &[u8]) {
        let start = timestamps::start(key);
        for _ in 0..STEPS_MAX {
            self.stored.next();
            match self.stored.entry() {
                Some((stored, _)) if stored.starts_with(&start) => self.passed.versions += 1,
                _ => return,
            }
        }
        self.stored.seek_stored(timestamps::end(key));
    }

    /// Finds the first version to show, from the stored entry on upwards.
    fn find_up(&mut self) -> Result<Option<(Version, bool)>, Status> {
        while let Some((version, is_delete)) = self.entry()? {
            if version.timestamp > self.range.newest {
                self.passed.versions += 1;
                self.stored.seek_stored(timestamps::stored(&version.key, self.range.newest));
            } else if self.is_in(&version) && (!is_delete || self.range.oldest.is_some()) {
                return Ok(Some((version, is_delete)));
            } else {
                self.passed.versions += u64::from(!is_delete);
                self.passed.deletes += u64::from(is_delete);
                self.pass_up(&version.key);
            }
        }
        Ok(None)
    }

    /// Finds the first version to show, from the stored entry on downwards.
    fn find_down(&mut self) -> Result<Option<(Version, bool)>, Status> {
        while let Some((version, is_delete)) = self.entry()? {
            if self.range.oldest.is_some() {
                if self.is_in(&version) {
                    return Ok(Some((version, is_delete)));
                }
                self.passed.versions += 1;
                self.stored.prev();
                continue;
            }
            self.stored.seek_stored(timestamps::stored(&version.key, self.range.newest));
            match self.entry()? {
                Some((found, false)) if found.key == version.key => {
                    return Ok(Some((found, false)));
                }
                Some((found, true)) if found.key == version.key => self.passed.deletes += 1,
                _ => self.passed.versions += 1,
            }
            self.stored.seek_before_stored(timestamps::start(&version.key));
        }
        Ok(None)
    }

    fn seek_to_first(&mut self) {
        self.shown = None;
        self.movement(|this| {
            this.stored.seek_to_first();
            this.find_up()
        });
    }

    fn seek_to_last(&mut self) {
        self.shown = None;
        self.movement(|this| {
            this.stored.seek_to_last();
            this.find_down()
        });
    }

    fn seek(&mut self, key: &[u8]) {
        self.shown = None;
        self.movement(|this| {
            this.stored.seek_stored(timestamps::stored(key, this.range.newest));
            this.find_up()
        });
    }

    fn seek_for_prev(&mut self, key: &[u8]) {
        self.shown = None;
        self.movement(|this| {
            this.stored.seek_before_stored(timestamps::end(key));
            this.find_down()
        });
    }

    fn next(&mut self) {
        let Some(key) = self.shown.as_ref().map(|shown| shown.version.key.clone()) else { return };
        self.movement(|this| {
            match this.range.oldest {
                Some(_) => this.stored.next(),
                None => this.pass_up(&key),
            }
            this.find_up()
        });
    }

    fn prev(&mut self) {
        let Some(key) = self.shown.as_ref().map(|shown| shown.version.key.clone()) else { return };
        self.movement(|this| {
            match this.range.oldest {
                Some(_) => this.stored.prev(),
                None => this.stored.seek_before_stored(timestamps::start(&key)),
            }
            this.find_down()
        });
    }

    fn value(&self) -> Option<&[u8]> {
        self.shown.as_ref()?;
        let (_, value) = self.stored.entry()?;
        // A delete has no value; its form was checked when the iterator came to it.
        Some(timestamps::value(value).ok().flatten().unwrap_or_default())
    }
}

/// Returns the bounds of stored forms for those of keys.
pub fn version_bounds(bounds: Bounds) -> Bounds {
    let start = |bound: Vec<u8>| timestamps::start(keys::key(&bound));
    Bounds { lower: bounds.lower.map(start), upper: bounds.upper.map(start) }
}

/// An iterator of a column family.
#[derive(Debug)]
pub enum EntryIterator {
    /// One without timestamps.
    Plain(StoreIterator),
    /// One with timestamps.
    Versions(VersionIterator),
}

macro_rules! movements {
    ($(#[doc = $doc:literal] $name:ident($($key:ident)?);)*) => {
        $(
            #[doc = $doc]
            pub fn $name(&mut self $(, $key: &[u8])?) {
                match self {
                    Self::Plain(entries) => entries.$name($($key)?),
                    Self::Versions(versions) => versions.$name($($key)?),
                }
            }
        )*
    };
}

impl EntryIterator {
    movements! {
        #[doc = "Moves to the first entry."] seek_to_first();
        #[doc = "Moves to the last entry."] seek_to_last();
        #[doc = "Moves to the first entry whose key is `key` or greater."] seek(key);
        #[doc = "Moves to the last entry whose key is `key` or less."] seek_for_prev(key);
        #[doc = "Moves to the next entry. Does nothing if the iterator is at none."] next();
        #[doc = "Moves to the entry before. Does nothing if the iterator is at none."] prev();
    }

    fn stored(&mut self) -> &mut StoreIterator {
        match self {
            Self::Plain(entries) => entries,
            Self::Versions(versions) => &mut versions.stored,
        }
    }

    /// Sets the snapshot for the next seek.
    pub fn set_snapshot(&mut self, snapshot: Snapshot) {
        self.stored().set_snapshot(snapshot);
    }

    /// Sets the snapshot for the next movement from the present entry.
    pub fn move_to_snapshot(&mut self, snapshot: Snapshot) {
        self.stored().move_to_snapshot(snapshot);
    }

    /// Sets the bounds of keys for the next seek.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        match self {
            Self::Plain(entries) => entries.set_bounds(bounds),
            Self::Versions(versions) => versions.stored.set_bounds(version_bounds(bounds)),
        }
    }

    /// Replaces what the iterator reads. It is at no entry then.
    #[must_use]
    pub fn map_source(self, map: impl FnOnce(Source) -> Source) -> Self {
        match self {
            Self::Plain(entries) => Self::Plain(entries.map_source(map)),
            Self::Versions(versions) => Self::Versions(versions.map_source(map)),
        }
    }

    /// Returns whether the iterator is at an entry.
    pub fn is_valid(&self) -> bool {
        match self {
            Self::Plain(entries) => entries.is_valid(),
            Self::Versions(versions) => versions.shown.is_some(),
        }
    }

    /// Returns the key of the entry. It is valid until the iterator moves.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(entries) => entries.key(),
            Self::Versions(versions) => versions.shown.as_ref().map(|shown| &*shown.key),
        }
    }

    /// Returns the value of the entry. It is valid until the iterator moves.
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(entries) => entries.value(),
            Self::Versions(versions) => versions.value(),
        }
    }

    /// Returns the timestamp of the entry. It is valid until the iterator moves.
    pub fn timestamp(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Versions(versions) => versions.shown.as_ref().map(|shown| &shown.timestamp[..]),
        }
    }

    /// Returns why the last movement failed. A seek forgets it.
    pub fn failure(&self) -> Option<&Status> {
        match self {
            Self::Plain(entries) => entries.failure(),
            Self::Versions(versions) => versions.failure.as_ref(),
        }
    }

    /// Stores a failure: the iterator is at no entry, and `failure` returns it.
    pub fn fail(&mut self, status: Status) {
        match self {
            Self::Plain(entries) => entries.fail(status),
            Self::Versions(versions) => {
                versions.shown = None;
                versions.failure = Some(status);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quintet::{Database, EngineKind, TableOptions};

    use super::*;
    use crate::random::Random;

    /// The versions of the keys, the newest first. `None`: a delete.
    type Model = BTreeMap<(Vec<u8>, u64), Option<Vec<u8>>>;

    const KEYS: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0b", b"b"];

    fn random_key(random: &mut Random) -> &'static [u8] {
        KEYS[usize::try_from(random.below(7)).expect("small")]
    }

    /// Returns what an iterator shows: keys with timestamps, in its order, and the values.
    fn shown(model: &Model, range: VersionRange, bounds: &Bounds) -> Vec<(Version, Vec<u8>)> {
        let is_inside = |key: &[u8]| {
            let stored = keys::stored(key).into_owned();
            bounds.lower.as_ref().is_none_or(|lower| *lower <= stored)
                && bounds.upper.as_ref().is_none_or(|upper| stored < *upper)
        };
        let mut shown = Vec::new();
        let mut last = None;
        for ((key, inverted), value) in model {
            let timestamp = !inverted;
            if timestamp > range.newest || !is_inside(key) {
                continue;
            }
            let is_shown = match range.oldest {
                Some(oldest) => oldest <= timestamp,
                None => last.replace(key) != Some(key) && value.is_some(),
            };
            if is_shown {
                let version = Version { key: key.clone(), timestamp };
                shown.push((version, value.clone().unwrap_or_default()));
            }
        }
        shown
    }

    #[test]
    fn iterators_over_versions_move_as_in_a_sorted_map() {
        let directory = tempfile::tempdir().expect("a directory");
        let database = Database::open(directory.path()).expect("a database");
        for seed in 1..120 {
            let mut random = Random(seed * 1_000_003);
            let options = TableOptions::new(EngineKind::BTree);
            let table = database.create_table(&format!("t{seed}"), options).expect("a table");
            let mut model = Model::new();
            for number in 0..random.below(60) {
                let (key, timestamp) = (random_key(&mut random), random.below(12));
                let value = (random.below(4) > 0).then(|| number.to_le_bytes().to_vec());
                let stored = timestamps::stored(key, timestamp);
                table.put(stored, timestamps::stored_value(value.as_deref())).expect("a put");
                model.insert((key.to_vec(), !timestamp), value);
            }
            let mut bound = |share| {
                (random.below(share) == 0)
                    .then(|| keys::stored(random_key(&mut random)).into_owned())
            };
            let bounds = Bounds { lower: bound(3), upper: bound(3) };
            let order = TimestampOrder::ALL[usize::from(random.below(2) == 0)];
            let oldest = (random.below(3) == 0).then(|| random.below(8));
            let range = VersionRange { newest: random.below(14), oldest, order };
            let source = Source::Snapshot(database.snapshot().expect("a snapshot"));
            let inner = version_bounds(bounds.clone());
            let stored = StoreIterator::new(table, source, inner, None);
            let versions = VersionIterator::new(stored, range, None);
            let mut iterator = EntryIterator::Versions(versions);
            check_moves(&mut iterator, &shown(&model, range, &bounds), &mut random, range);
        }
    }

    /// Moves an iterator at random, and compares its place with that in a list.
    fn check_moves(
        iterator: &mut EntryIterator,
        rows: &[(Version, Vec<u8>)],
        random: &mut Random,
        range: VersionRange,
    ) {
        let mut place: Option<usize> = None;
        for step in 0..80 {
            let key = random_key(random);
            match random.below(8) {
                0 => {
                    iterator.seek_to_first();
                    place = (!rows.is_empty()).then_some(0);
                }
                1 => {
                    iterator.seek_to_last();
                    place = rows.len().checked_sub(1);
                }
                2 => {
                    iterator.seek(key);
                    place = rows.iter().position(|(version, _)| version.key.as_slice() >= key);
                }
                3 => {
                    iterator.seek_for_prev(key);
                    place = rows.iter().rposition(|(version, _)| version.key.as_slice() <= key);
                }
                4 | 5 => {
                    iterator.next();
                    place = place.map(|place| place + 1).filter(|place| *place < rows.len());
                }
                _ => {
                    iterator.prev();
                    place = place.and_then(|place| place.checked_sub(1));
                }
            }
            let row = place.map(|place| &rows[place]);
            let doing = format!("step {step} of {rows:?} in {range:?}");
            assert!(iterator.failure().is_none(), "{doing}");
            assert_eq!(iterator.is_valid(), row.is_some(), "{doing}");
            assert_eq!(iterator.value(), row.map(|(_, value)| value.as_slice()), "{doing}");
            let timestamp = row.map(|(version, _)| range.order.bytes(version.timestamp));
            assert_eq!(iterator.timestamp(), timestamp.as_ref().map(|bytes| &bytes[..]), "{doing}");
            let is_key = |(version, _): &(Version, Vec<u8>)| match range.oldest {
                None => iterator.key() == Some(&version.key),
                Some(_) => {
                    iterator.key().is_some_and(|key| key.starts_with(&range.order.joined(version)))
                }
            };
            assert!(row.is_none_or(is_key), "{doing}");
        }
    }
}
