//! Iterators over a snapshot, with bounds and prefixes.

use std::sync::Arc;

use quintet_compat::{
    boundary::{Array, Bytes, Out, OutArray, View, give, required},
    export, export_fallible,
    iterator::{Direction, Source, StoreIterator},
    keys,
    status::Status,
    versions::{EntryIterator, VersionIterator, version_bounds},
};

use crate::{
    core::{Core, Db, Family, bounds},
    families::{FamilyHandle, family_of},
    options::reads::ReadOptions,
    perf::{self, Stopwatch},
};

/// `rocksdb_iterator_t`. An iterator that could not be made has only a failure.
#[derive(Debug)]
pub struct IteratorObject {
    entries: Result<EntryIterator, Status>,
    family: Option<Arc<Family>>,
    /// What a seek needs, beside the entries.
    seek: Option<SeekRules>,
}

/// What a seek does beside the search.
#[derive(Debug)]
struct SeekRules {
    core: Arc<Core>,
    family: Arc<Family>,
    options: ReadOptions,
}

impl IteratorObject {
    /// Makes an iterator of a family.
    pub fn new(
        core: &Arc<Core>,
        options: Option<&ReadOptions>,
        family: &Arc<Family>,
    ) -> Result<Self, Status> {
        if family.history.is_some() {
            return Self::of_versions(core, options, family);
        }
        family.check_reads_plain(options)?;
        let watch = Stopwatch::start();
        let snapshot = core.snapshot(options)?;
        watch.stop(|counters, time| counters.snapshot_time += time);
        let source = Source::Snapshot(snapshot);
        let entries =
            StoreIterator::new(family.table.clone(), source, bounds(options), family.comparator);
        let entries = EntryIterator::Plain(entries);
        let wants_rules = |options: &&ReadOptions| {
            options.is_tailing() || (options.is_prefix_same_as_start() && family.prefix.is_some())
        };
        let seek = options.filter(wants_rules).map(|options| SeekRules {
            core: core.clone(),
            family: family.clone(),
            options: options.clone(),
        });
        Ok(Self { entries: Ok(entries), family: Some(family.clone()), seek })
    }

    /// Makes an iterator of a family whose keys have timestamps.
    fn of_versions(
        core: &Arc<Core>,
        options: Option<&ReadOptions>,
        family: &Arc<Family>,
    ) -> Result<Self, Status> {
        let range = family.versions(options)?;
        if options.is_some_and(|o| o.is_tailing() || o.is_prefix_same_as_start()) {
            let message = "an iterator with timestamps is not tailing and has no prefix";
            return Err(Status::unsupported(message));
        }
        let watch = Stopwatch::start();
        let source = Source::Snapshot(core.snapshot(options)?);
        watch.stop(|counters, time| counters.snapshot_time += time);
        let bounds = version_bounds(bounds(options));
        let stored = StoreIterator::new(family.table.clone(), source, bounds, None);
        let versions = VersionIterator::new(stored, range, family.comparator);
        let entries = Ok(EntryIterator::Versions(versions));
        Ok(Self { entries, family: Some(family.clone()), seek: None })
    }

    /// Makes an iterator of a family in a transaction.
    pub fn in_source(source: Source, options: Option<&ReadOptions>, family: &Arc<Family>) -> Self {
        if let Err(status) = family.check_reads_plain(options) {
            return Self::failed(status);
        }
        let entries =
            StoreIterator::new(family.table.clone(), source, bounds(options), family.comparator);
        let entries = Ok(EntryIterator::Plain(entries));
        Self { entries, family: Some(family.clone()), seek: None }
    }

    /// Makes an iterator that has only a failure.
    pub fn failed(status: Status) -> Self {
        Self { entries: Err(status), family: None, seek: None }
    }

    /// Returns the family.
    pub fn family(&self) -> Option<&Arc<Family>> {
        self.family.as_ref()
    }

    /// Replaces what the iterator reads. It does not read the present state at a seek then.
    #[must_use]
    pub fn map_source(mut self, map: impl FnOnce(Source) -> Source) -> Self {
        self.entries = self.entries.map(|entries| entries.map_source(map));
        self.seek = self.seek.filter(|rules| !rules.options.is_tailing());
        self
    }

    fn get(&self) -> Option<&EntryIterator> {
        self.entries.as_ref().ok()
    }

    /// Counts a movement, and the entry that it led to.
    fn count_movement(&mut self, watch: Stopwatch, is_seek: bool) {
        watch.stop(|counters, time| {
            let sum = if is_seek { &mut counters.seek_time } else { &mut counters.step_time };
            *sum += time;
        });
        perf::count(|counters| {
            if let Ok(EntryIterator::Versions(versions)) = &mut self.entries {
                let passed = versions.take_passed();
                counters.skipped_versions += passed.versions;
                counters.skipped_deletes += passed.deletes;
            }
            let entry = self.get().and_then(|entries| entries.key().zip(entries.value()));
            counters.iterator_bytes +=
                entry.map_or(0, |(key, value)| perf::size(key) + perf::size(value));
        });
    }

    /// Prepares a seek: a tailing iterator reads the present state, and one with a prefix ends
    /// where the prefix of `key` ends.
    fn before_seek(&mut self, key: Option<&[u8]>) {
        let (Ok(entries), Some(rules)) = (&mut self.entries, &self.seek) else { return };
        if rules.options.is_tailing() {
            match rules.core.present() {
                Ok(snapshot) => entries.set_snapshot(snapshot),
                Err(status) => return entries.fail(status),
            }
        }
        self.narrow(key);
    }

    /// Prepares a step: a tailing iterator reads the present state.
    fn before_step(&mut self) {
        let (Ok(entries), Some(rules)) = (&mut self.entries, &self.seek) else { return };
        if rules.options.is_tailing() {
            match rules.core.present() {
                Ok(snapshot) => entries.move_to_snapshot(snapshot),
                Err(status) => entries.fail(status),
            }
        }
    }

    /// Bounds an iterator with a prefix by the prefix of `key`.
    fn narrow(&mut self, key: Option<&[u8]>) {
        let (Ok(entries), Some(rules)) = (&mut self.entries, &self.seek) else { return };
        if rules.options.is_prefix_same_as_start() {
            let mut limits = bounds(Some(&rules.options));
            let extractor = rules.family.prefix.as_ref();
            if let Some(prefix) = key.and_then(|key| extractor.and_then(|e| e.prefix(key))) {
                limits.narrow_to_prefix(prefix);
            }
            entries.set_bounds(limits);
        }
    }

    /// Moves to the first or the last entry. The prefix of an iterator with one is that of its
    /// bound at that end, or of the entry if it has no such bound.
    fn move_to_end(&mut self, direction: Direction) {
        let watch = Stopwatch::start();
        self.enter_at_end(direction);
        self.count_movement(watch, true);
    }

    fn enter_at_end(&mut self, direction: Direction) {
        let movement = match direction {
            Direction::Up => EntryIterator::seek_to_first,
            Direction::Down => EntryIterator::seek_to_last,
        };
        let has_prefix = |rules: &&SeekRules| rules.options.is_prefix_same_as_start();
        let options = self.seek.as_ref().filter(has_prefix).map(|rules| &rules.options);
        let bound = options.and_then(|options| match direction {
            Direction::Up => options.lower.as_deref(),
            Direction::Down => options.upper.as_deref(),
        });
        let bound = bound.map(|bound| keys::key(bound).to_vec());
        let takes_prefix_of_entry = options.is_some() && bound.is_none();
        self.before_seek(bound.as_deref());
        let Ok(entries) = &mut self.entries else { return };
        movement(entries);
        if takes_prefix_of_entry && let Some(key) = entries.key().map(<[u8]>::to_vec) {
            self.narrow(Some(&key));
            if let Ok(entries) = &mut self.entries {
                movement(entries);
            }
        }
    }
}

fn move_to(
    iterator: Option<&mut IteratorObject>,
    key: Option<Result<&[u8], Status>>,
    movement: impl FnOnce(&mut EntryIterator, &[u8]),
) {
    let Some(iterator) = iterator else { return };
    let (watch, is_seek) = (Stopwatch::start(), key.is_some());
    match key {
        Some(Ok(key)) => {
            iterator.before_seek(Some(key));
            if let Ok(entries) = &mut iterator.entries {
                movement(entries, key);
            }
        }
        Some(Err(status)) => {
            if let Ok(entries) = &mut iterator.entries {
                entries.fail(status);
            }
        }
        None => {
            iterator.before_step();
            if let Ok(entries) = &mut iterator.entries {
                movement(entries, &[]);
            }
        }
    }
    iterator.count_movement(watch, is_seek);
}

/// Returns the address of bytes of the current entry, and stores their size.
fn view(bytes: Option<&[u8]>, size: Out<'_, usize>) -> View {
    give(size, bytes.map_or(0, <[u8]>::len));
    bytes.map_or(View::NULL, View::of)
}

fn core(db: Option<&Db>) -> Result<&Arc<Core>, Status> {
    Ok(&required(db, "the database")?.core)
}

/// Returns the object of an iterator, or of its failure.
pub fn object(iterator: Result<IteratorObject, Status>) -> Box<IteratorObject> {
    Box::new(iterator.unwrap_or_else(IteratorObject::failed))
}

export! {
    /// Makes an iterator of the default column family, at no entry.
    pub fn rocksdb_create_iterator(
        db: Option<&Db>, options: Option<&ReadOptions>,
    ) -> Option<Box<IteratorObject>>, None, {
        let new = || IteratorObject::new(core(db)?, options, core(db)?.default_family()?);
        Some(object(new()))
    }

    /// Makes an iterator of a column family, at no entry.
    pub fn rocksdb_create_iterator_cf(
        db: Option<&Db>, options: Option<&ReadOptions>, family: Option<&FamilyHandle>,
    ) -> Option<Box<IteratorObject>>, None, {
        Some(object((|| IteratorObject::new(core(db)?, options, family_of(family)?))()))
    }

    /// Frees an iterator.
    pub fn rocksdb_iter_destroy(iterator: Option<Box<IteratorObject>>) {
        drop(iterator);
    }

    /// Returns 1 if the iterator is at an entry.
    pub fn rocksdb_iter_valid(iterator: Option<&IteratorObject>) -> u8, 0, {
        iterator.and_then(IteratorObject::get).is_some_and(EntryIterator::is_valid).into()
    }

    /// Moves to the first entry.
    pub fn rocksdb_iter_seek_to_first(iterator: Option<&mut IteratorObject>) {
        if let Some(iterator) = iterator {
            iterator.move_to_end(Direction::Up);
        }
    }

    /// Moves to the last entry.
    pub fn rocksdb_iter_seek_to_last(iterator: Option<&mut IteratorObject>) {
        if let Some(iterator) = iterator {
            iterator.move_to_end(Direction::Down);
        }
    }

    /// Moves to the first entry whose key is `key` or greater.
    pub fn rocksdb_iter_seek(iterator: Option<&mut IteratorObject>, key: Bytes, size: usize) {
        move_to(iterator, Some(key.items(size)), EntryIterator::seek);
    }

    /// Moves to the last entry whose key is `key` or less.
    pub fn rocksdb_iter_seek_for_prev(
        iterator: Option<&mut IteratorObject>, key: Bytes, size: usize,
    ) {
        move_to(iterator, Some(key.items(size)), EntryIterator::seek_for_prev);
    }

    /// Moves to the next entry.
    pub fn rocksdb_iter_next(iterator: Option<&mut IteratorObject>) {
        move_to(iterator, None, |iterator, _| iterator.next());
    }

    /// Moves to the entry before.
    pub fn rocksdb_iter_prev(iterator: Option<&mut IteratorObject>) {
        move_to(iterator, None, |iterator, _| iterator.prev());
    }

    /// Returns the key, which is valid until the iterator moves. Null at no entry.
    pub fn rocksdb_iter_key(
        iterator: Option<&IteratorObject>, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        view(iterator.and_then(IteratorObject::get).and_then(EntryIterator::key), size)
    }

    /// Returns the timestamp, which is valid until the iterator moves. Null at no entry, and in a
    /// family without timestamps.
    pub fn rocksdb_iter_timestamp(
        iterator: Option<&IteratorObject>, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        view(iterator.and_then(IteratorObject::get).and_then(EntryIterator::timestamp), size)
    }

    /// Returns the value, which is valid until the iterator moves. Null at no entry.
    pub fn rocksdb_iter_value(
        iterator: Option<&IteratorObject>, size: Out<'_, usize>,
    ) -> View, View::NULL, {
        view(iterator.and_then(IteratorObject::get).and_then(EntryIterator::value), size)
    }
}

export_fallible! {
    /// Makes an iterator of each column family. All of them show one moment.
    pub fn rocksdb_create_iterators(
        db: Option<&Db>, options: Option<&ReadOptions>, families: Array<Option<&FamilyHandle>>,
        iterators: OutArray<Option<Box<IteratorObject>>>, count: usize,
    ) {
        let core = core(db)?;
        let mut iterators = iterators;
        let (families, iterators) = (families.items(count)?, iterators.items(count)?);
        let families: Vec<_> =
            families.iter().map(|handle| family_of(*handle)).collect::<Result<_, _>>()?;
        let snapshot = core.snapshot(options)?;
        // All of them are made before one is written, so that a failure leaves none.
        let made = families.into_iter().map(|family| {
            let mut iterator = IteratorObject::new(core, options, family)?;
            if let Ok(entries) = &mut iterator.entries {
                entries.set_snapshot(snapshot.clone());
            }
            Ok(iterator)
        });
        let made: Vec<_> = made.collect::<Result<_, Status>>()?;
        for (iterator, out) in made.into_iter().zip(iterators) {
            out.write(Some(Box::new(iterator)));
        }
        Ok(())
    }

    /// Stores why the last movement failed, if it did.
    pub fn rocksdb_iter_get_error(iterator: Option<&IteratorObject>) {
        match iterator.map(|iterator| &iterator.entries) {
            Some(Ok(iterator)) => iterator.failure().map_or(Ok(()), |status| Err(status.clone())),
            Some(Err(status)) => Err(status.clone()),
            None => Err(Status::invalid("the iterator is null")),
        }
    }
}
