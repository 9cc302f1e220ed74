//! Entries of a batch over those of an iterator.
//!
//! How: a page of the iterator below is read, and what the batch does to the keys that the page
//! covers is merged into it.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use quintet::{KeyRange, Table};
use quintet_compat::{
    iterator::{Direction, Entry, EntryValue, Page, PageSource, Source},
    status::Status,
};

use super::{Change, FamilyIndex};
use crate::callbacks::MergeOperator;

/// A batch over what another iterator reads.
pub struct Overlay {
    below: Source,
    index: Arc<FamilyIndex>,
    operator: Option<Arc<MergeOperator>>,
}

impl Overlay {
    /// Makes the source of an iterator.
    pub fn source(
        below: Source,
        index: Arc<FamilyIndex>,
        operator: Option<Arc<MergeOperator>>,
    ) -> Source {
        Source::Pages(Arc::new(Self { below, index, operator }))
    }

    fn value(
        &self,
        key: &[u8],
        change: &Change,
        below: Option<&[u8]>,
    ) -> Result<Option<EntryValue>, Status> {
        let value = change.value(self.operator.as_deref(), key, below)?;
        Ok(value.map(EntryValue::Own))
    }
}

/// Returns the part of a range that a page covers.
fn covered(range: &KeyRange, rest: Option<&KeyRange>, direction: Direction) -> KeyRange {
    let mut covered = range.clone();
    match (rest, direction) {
        (Some(rest), Direction::Up) => covered.end.clone_from(&rest.start),
        (Some(rest), Direction::Down) => covered.start.clone_from(&rest.end),
        (None, _) => {}
    }
    covered
}

impl PageSource for Overlay {
    fn page(
        &self,
        table: &Table,
        range: KeyRange,
        direction: Direction,
        count: usize,
    ) -> Result<Page, Status> {
        let Page { entries, rest } = self.below.page(table, range.clone(), direction, count)?;
        let KeyRange { start, end } = covered(&range, rest.as_ref(), direction);
        let mut merged = BTreeMap::new();
        for (key, value) in entries {
            if !self.index.is_deleted(&key) {
                merged.insert(key, value);
            }
        }
        // A range of a map panics if its start is above its end.
        if start.as_ref().zip(end.as_ref()).is_none_or(|(start, end)| start < end) {
            let bounds = (
                start.map_or(Bound::Unbounded, Bound::Included),
                end.map_or(Bound::Unbounded, Bound::Excluded),
            );
            for (key, change) in self.index.keys.range::<Vec<u8>, _>(bounds) {
                match self.value(key, change, merged.get(key).map(|value| &**value))? {
                    Some(value) => drop(merged.insert(key.clone(), value)),
                    None => drop(merged.remove(key)),
                }
            }
        }
        let entries: Box<dyn Iterator<Item = Entry>> = match direction {
            Direction::Up => Box::new(merged.into_iter()),
            Direction::Down => Box::new(merged.into_iter().rev()),
        };
        Ok(Page { entries: entries.collect(), rest })
    }
}
