//! Compaction filters: callbacks that decide for each entry whether it is kept, removed or changed.
//!
//! How: the engines compact without asking. So the functions that compact a range read it from a
//! snapshot and ask the filter for each entry first. A removal or a
//! change is committed only if the entry has still the value that the filter saw. Background
//! compactions do not call a filter. Snapshots show what the filter removed.

use std::{ffi::c_int, sync::Arc};

use quintet_compat::{
    boundary::{Bytes, Context, View},
    comparator::{Destructor, NameFunction},
    export,
    status::Status,
};

/// Decides about an entry. Returns 1 to remove it. Stores 1 in `changed`, with a value, to change
/// it.
pub type FilterFunction = extern "C-unwind" fn(
    state: Context,
    level: c_int,
    key: View,
    key_size: usize,
    value: View,
    size: usize,
    new_value: &mut Bytes,
    new_size: &mut usize,
    changed: &mut u8,
) -> u8;
/// Makes a filter for one compaction.
pub type CreateFilterFunction =
    extern "C-unwind" fn(state: Context, context: &FilterContext) -> Option<Box<CompactionFilter>>;

/// `rocksdb_compactionfilter_t`. Dropping it releases the state of its callbacks.
#[derive(Debug)]
pub struct CompactionFilter {
    calls: FilterCalls,
    destructor: Option<Destructor>,
}

/// The callback of a filter, which lives longer than its databases.
#[derive(Clone, Copy, Debug)]
pub struct FilterCalls {
    state: Context,
    filter: Option<FilterFunction>,
}

/// `rocksdb_compactionfilterfactory_t`. Dropping it releases the state of its callbacks.
#[derive(Debug)]
pub struct FilterFactory {
    state: Context,
    destructor: Option<Destructor>,
    create: Option<CreateFilterFunction>,
}

/// `rocksdb_compactionfiltercontext_t`.
#[derive(Debug)]
pub struct FilterContext {
    is_full: bool,
}

/// Where the filter of a column family comes from.
#[derive(Clone, Debug)]
pub enum FilterSource {
    /// One filter for all compactions.
    One(FilterCalls),
    /// A filter for each compaction.
    Factory(Arc<FilterFactory>),
}

/// What becomes of an entry.
#[derive(Debug)]
pub enum Verdict {
    /// It stays.
    Keep,
    /// It is removed.
    Remove,
    /// It has another value.
    Change(Vec<u8>),
}

impl CompactionFilter {
    /// Returns the callback.
    pub fn calls(&self) -> FilterCalls {
        self.calls
    }
}

impl Drop for CompactionFilter {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            destructor(self.calls.state);
        }
    }
}

impl Drop for FilterFactory {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            destructor(self.state);
        }
    }
}

impl FilterCalls {
    /// Asks the program for the verdict on an entry.
    pub fn decide(&self, key: &[u8], value: &[u8]) -> Result<Verdict, Status> {
        let Some(filter) = self.filter else { return Ok(Verdict::Keep) };
        let (mut new_value, mut new_size, mut changed) = (Bytes::NULL, 0, 0);
        let removes = filter(
            self.state,
            0,
            View::of(key),
            key.len(),
            View::of(value),
            value.len(),
            &mut new_value,
            &mut new_size,
            &mut changed,
        );
        if removes != 0 {
            return Ok(Verdict::Remove);
        }
        if changed == 0 {
            return Ok(Verdict::Keep);
        }
        Ok(Verdict::Change(new_value.items(new_size)?.to_vec()))
    }
}

impl FilterSource {
    /// Calls `sweep` with the filter for a compaction, if there is one.
    pub fn filter(
        &self,
        is_full: bool,
        sweep: impl FnOnce(&FilterCalls) -> Result<(), Status>,
    ) -> Result<(), Status> {
        match self {
            Self::One(calls) => sweep(calls),
            Self::Factory(factory) => {
                let context = FilterContext { is_full };
                let filter = factory.create.and_then(|create| create(factory.state, &context));
                filter.map_or(Ok(()), |filter| sweep(&filter.calls))
            }
        }
    }
}

export! {
    /// Makes a compaction filter of callbacks.
    pub fn rocksdb_compactionfilter_create(
        state: Context, destructor: Option<Destructor>, filter: Option<FilterFunction>,
        _name: Option<NameFunction>,
    ) -> Option<Box<CompactionFilter>>, None, {
        Some(Box::new(CompactionFilter { calls: FilterCalls { state, filter }, destructor }))
    }

    /// Does nothing: a filter never changes what a snapshot shows.
    pub fn rocksdb_compactionfilter_set_ignore_snapshots(
        _filter: Option<&CompactionFilter>, _ignore: u8,
    ) {}

    /// Frees a compaction filter: calls its destructor.
    pub fn rocksdb_compactionfilter_destroy(filter: Option<Box<CompactionFilter>>) {
        drop(filter);
    }

    /// Returns 1 if a compaction is of all entries.
    pub fn rocksdb_compactionfiltercontext_is_full_compaction(
        context: Option<&FilterContext>,
    ) -> u8, 0, {
        context.is_some_and(|context| context.is_full).into()
    }

    /// Returns 1: filters are called in compactions that the program asks for.
    pub fn rocksdb_compactionfiltercontext_is_manual_compaction(
        context: Option<&FilterContext>,
    ) -> u8, 0, {
        context.is_some().into()
    }

    /// Makes what makes compaction filters.
    pub fn rocksdb_compactionfilterfactory_create(
        state: Context, destructor: Option<Destructor>, create: Option<CreateFilterFunction>,
        _name: Option<NameFunction>,
    ) -> Option<Box<FilterFactory>>, None, {
        Some(Box::new(FilterFactory { state, destructor, create }))
    }

    /// Frees what makes compaction filters, if it belongs to no options.
    pub fn rocksdb_compactionfilterfactory_destroy(factory: Option<Box<FilterFactory>>) {
        drop(factory);
    }
}
