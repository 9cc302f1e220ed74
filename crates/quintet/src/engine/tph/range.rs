//! Ranges in key order, from both ends.
//!
//! Invariants: what the front has given lies below what the back may still give, and the other way
//! round. The files that a range walks over stay until it goes.

use std::sync::Arc;

use super::{
    Inner, SuperVersion,
    cursor::{LevelCursor, MergeCursor, Source},
    flush::walks,
};
use crate::{
    Result,
    contract::{Entry, KeyRange, Value, Visit},
    lsm::cursor::merge::{Direction, ReadAheadSizes, ScanStart},
    util::codec::to_u64,
};

/// See the module head.
#[derive(Debug)]
pub(super) struct Range {
    inner: Arc<Inner>,
    walk: Walk,
}

/// A range without what keeps its table alive.
#[derive(Debug)]
pub(super) struct Walk {
    view: SuperVersion,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    /// Nothing is left.
    is_done: bool,
    front: Option<MergeCursor>,
    back: Option<MergeCursor>,
}

impl Range {
    pub(super) fn new(inner: Arc<Inner>, range: KeyRange) -> Self {
        let view = inner.front.view.load();
        let walk = Walk::new(&view, range);
        drop(view);
        Self { inner, walk }
    }

    /// Keys of a range, for the table itself.
    pub(super) fn over<'a>(inner: &'a Inner, view: &SuperVersion, range: KeyRange) -> Keys<'a> {
        Keys { inner, walk: Walk::new(view, range) }
    }
}

/// See [`Range::over`].
#[derive(Debug)]
pub(super) struct Keys<'a> {
    inner: &'a Inner,
    walk: Walk,
}

impl Keys<'_> {
    /// The next key that has a value.
    pub(super) fn next_key(&mut self) -> Result<Option<Vec<u8>>> {
        let entry = self.walk.step(Direction::Up, self.inner)?;
        Ok(entry.map(|entry| entry.key))
    }
}

/// Shows `each` the entries of a range, in key order, until it breaks off.
pub(super) fn visit(inner: &Inner, range: KeyRange, each: Visit<'_>) -> Result<()> {
    let view = inner.front.view.load_full();
    let walk = Walk::new(&view, range);
    if walk.is_done {
        return Ok(());
    }
    let mut merge = walk.open(Direction::Up, inner)?;
    while let Some(key) = merge.key() {
        if walk.end.as_deref().is_some_and(|end| key >= end) {
            break;
        }
        if let Some(value) = merge.value()
            && each(key, value)?.is_break()
        {
            break;
        }
        merge.advance()?;
    }
    Ok(())
}

impl Inner {
    /// Whether tables of a level follow each other in key order.
    pub(super) fn is_sorted(&self) -> bool {
        matches!(self.route, super::table::Route::Key)
    }
}

impl Walk {
    fn new(view: &SuperVersion, range: KeyRange) -> Self {
        let start = range.start.unwrap_or_default();
        let is_done = range.end.as_ref().is_some_and(|end| *end <= start);
        let view = view.share();
        Self { view, start, end: range.end, is_done, front: None, back: None }
    }

    fn open(&self, way: Direction, inner: &Inner) -> Result<MergeCursor> {
        let key = match way {
            Direction::Up => Some(self.start.as_slice().into()),
            Direction::Down => self.end.as_deref().map(Arc::from),
        };
        let start = ScanStart { way, key, cache: Some(Arc::clone(&inner.cache)), flow: None };
        let mut sources = walks(std::slice::from_ref(&self.view.active), &start);
        sources.extend(walks(&self.view.frozen, &start));
        let version = &self.view.version;
        let ahead = ReadAheadSizes::scan(version.data_bytes);
        for table in &version.level0 {
            sources.extend(table.cursors(&start, ahead));
        }
        for (place, level) in version.levels.iter().enumerate() {
            if inner.is_sorted() {
                let version = Arc::clone(version);
                // Each of its tables has all of the level's keys of some places.
                let ahead = ReadAheadSizes::scan(version.data_bytes / to_u64(level.len().max(1)));
                let cursor = LevelCursor::new(version, place, start.clone(), ahead);
                sources.push(Source::Level(Box::new(cursor)));
            } else {
                // Levels in their order; tables of one level share no key.
                for table in level {
                    sources.extend(table.cursors(&start, ahead));
                }
            }
        }
        let mut merge = MergeCursor::new(sources, way);
        merge.prime(&*inner.context.env, &inner.queues)?;
        merge.load_first()?;
        Ok(merge)
    }

    fn step(&mut self, way: Direction, inner: &Inner) -> Result<Option<Entry>> {
        if self.is_done {
            return Ok(None);
        }
        let found = self.find(way, inner);
        if !matches!(found, Ok(Some(_))) {
            self.is_done = true;
            self.front = None;
            self.back = None;
        }
        found
    }

    fn find(&mut self, way: Direction, inner: &Inner) -> Result<Option<Entry>> {
        let open = match way {
            Direction::Up => self.front.take(),
            Direction::Down => self.back.take(),
        };
        let mut merge = match open {
            Some(merge) => merge,
            None => self.open(way, inner)?,
        };
        while let Some(key) = merge.key() {
            let inside = match way {
                Direction::Up => self.end.as_deref().is_none_or(|end| key < end),
                Direction::Down => key >= self.start.as_slice(),
            };
            if !inside {
                return Ok(None);
            }
            let entry = merge.value().map(|value| Entry {
                key: key.to_vec(),
                value: Value::fill_with(value.len(), |out| out.copy_from_slice(value)),
            });
            merge.advance()?;
            let Some(entry) = entry else { continue };
            match way {
                Direction::Up => {
                    // The back stops before what the front has given.
                    self.start.clear();
                    self.start.extend_from_slice(&entry.key);
                    self.start.push(0);
                    self.front = Some(merge);
                }
                Direction::Down => {
                    self.end = Some(entry.key.clone());
                    self.back = Some(merge);
                }
            }
            return Ok(Some(entry));
        }
        Ok(None)
    }
}

impl Iterator for Range {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.walk.step(Direction::Up, &self.inner).transpose()
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.walk.step(Direction::Down, &self.inner).transpose()
    }
}
