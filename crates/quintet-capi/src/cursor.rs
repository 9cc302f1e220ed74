//! Iterators over ranges and whole tables, and cursors that move both ways.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use quintet::{Cursor, Entries, Key, KeyRange, Table, TableCursor, Value};

use crate::{
    boundary::{In, Out, Slice, View, export, give, required},
    failure::Failure,
    handles::Handle,
    range::{self, Range},
    table::{SharedTransaction, Source, TableHandle, exclusive},
};

/// Number of entries that are read at a time where the library has no iterator to keep.
const PAGE_ENTRIES: usize = 128;

/// An iterator over entries. One thread at a time uses it.
#[derive(Debug)]
pub struct EntryIterator(Mutex<State>);

#[derive(Debug)]
struct State {
    pages: Pages,
    /// The entry that the program sees.
    current: Option<(Key, Value)>,
}

/// Where entries come from.
#[derive(Debug)]
enum Pages {
    Range {
        entries: Box<Entries>,
        is_reverse: bool,
    },
    Transaction {
        transaction: Arc<SharedTransaction>,
        table: Table,
        /// The range that is left to read. `None`: none.
        rest: Option<KeyRange>,
        is_reverse: bool,
        page: VecDeque<(Key, Value)>,
    },
    Scan {
        handle: Box<TableHandle>,
        cursor: Option<Cursor>,
        page: VecDeque<(Key, Value)>,
    },
}

impl Pages {
    fn next(&mut self) -> Result<Option<(Key, Value)>, Failure> {
        match self {
            Self::Range { entries, is_reverse: false } => Ok(entries.next().transpose()?),
            Self::Range { entries, is_reverse: true } => Ok(entries.next_back().transpose()?),
            Self::Transaction { transaction, table, rest, is_reverse, page } => {
                if page.is_empty()
                    && let Some(range) = rest
                {
                    *page = page_of(transaction, table, range, *is_reverse)?;
                    let is_last = page.len() < PAGE_ENTRIES;
                    match page.back() {
                        Some((key, _)) if !is_last && *is_reverse => range.end = Some(key.clone()),
                        Some((key, _)) if !is_last => range.start = Some(range::after(key)),
                        _ => *rest = None,
                    }
                }
                Ok(page.pop_front())
            }
            Self::Scan { handle, cursor, page } => {
                while page.is_empty()
                    && let Some(at) = cursor
                {
                    let (entries, next) = scan(handle, at)?;
                    *page = entries.into();
                    *cursor = (!next.is_start()).then_some(next);
                }
                Ok(page.pop_front())
            }
        }
    }
}

/// Reads a page of a range of a transaction.
fn page_of(
    transaction: &SharedTransaction,
    table: &Table,
    range: &KeyRange,
    is_reverse: bool,
) -> Result<VecDeque<(Key, Value)>, Failure> {
    transaction.with(|tx| {
        let entries = tx.range(table, range.clone())?;
        if is_reverse {
            entries.rev().take(PAGE_ENTRIES).collect()
        } else {
            entries.take(PAGE_ENTRIES).collect()
        }
    })
}

fn scan(handle: &TableHandle, cursor: &Cursor) -> Result<(Vec<(Key, Value)>, Cursor), Failure> {
    let table = &handle.table;
    match &handle.source {
        Source::Live => Ok(table.scan(cursor, PAGE_ENTRIES)?),
        Source::Snapshot(snapshot) => Ok(snapshot.scan(table, cursor, PAGE_ENTRIES)?),
        Source::Transaction(tx) => tx.with(|tx| tx.scan(table, cursor, PAGE_ENTRIES)),
    }
}

fn new_iterator(pages: Pages) -> Result<Handle<EntryIterator>, Failure> {
    Handle::new(EntryIterator(Mutex::new(State { pages, current: None })))
}

/// A cursor of an ordered table. One thread at a time uses it.
#[derive(Debug)]
pub struct CursorHandle(Mutex<TableCursor>);

fn with_cursor(
    cursor: Handle<CursorHandle>,
    found: Out<'_, bool>,
    step: impl FnOnce(&mut TableCursor) -> quintet::Result<bool>,
) -> Result<(), Failure> {
    let cursor = cursor.get()?;
    let is_found = step(&mut *exclusive(&cursor.0)?)?;
    give(found, is_found);
    Ok(())
}

export! {
    /// Opens an iterator over a range, in the direction of the range. A null range is the whole
    /// table. It shows the table at the moment of this call. In a transaction it also shows later
    /// writes of the transaction. It keeps the table open.
    ///
    /// Errors: those of a read; `QUINTET_UNORDERED` if the engine keeps no key order.
    pub fn quintet_iterate(
        table: Handle<TableHandle>, range: In<Range>, iterator: Out<Handle<EntryIterator>>,
    ) {
        let (handle, out) = (table.get()?, required(iterator, "iterator")?);
        let (range, is_reverse) = range::bounds(range)?;
        let pages = match &handle.source {
            Source::Live => {
                Pages::Range { entries: Box::new(handle.table.range(range)?), is_reverse }
            }
            Source::Snapshot(snapshot) => {
                let entries = snapshot.range(&handle.table, range)?;
                Pages::Range { entries: Box::new(entries), is_reverse }
            }
            Source::Transaction(transaction) => {
                // An engine without order, or another database, is an error here.
                transaction.with(|tx| tx.range(&handle.table, range.clone()).map(drop))?;
                Pages::Transaction {
                    transaction: transaction.clone(),
                    table: handle.table.clone(),
                    rest: Some(range),
                    is_reverse,
                    page: VecDeque::new(),
                }
            }
        };
        out.write(new_iterator(pages)?);
        Ok(())
    }

    /// Opens an iterator over all entries of a table of any engine, in no order. An entry that is
    /// present throughout is returned at least once, and may be returned twice.
    ///
    /// Errors: those of a read.
    pub fn quintet_scan(table: Handle<TableHandle>, iterator: Out<Handle<EntryIterator>>) {
        let (handle, out) = (table.get()?, required(iterator, "iterator")?);
        let handle = Box::new(handle.clone());
        let cursor = Some(Cursor::START);
        out.write(new_iterator(Pages::Scan { handle, cursor, page: VecDeque::new() })?);
        Ok(())
    }

    /// Moves an iterator to the next entry. `key` and `value` (may be null) get slices that are
    /// valid until the next call with this iterator. `found` gets false at the end. After an error
    /// the iterator is at no entry.
    ///
    /// Errors: those of a read. An iterator over a range of a table reads a snapshot, so
    /// it can also fail with `QUINTET_SNAPSHOT_EXPIRED`, as it does after `quintet_close`.
    pub fn quintet_iterator_next(
        iterator: Handle<EntryIterator>, key: Out<View>, value: Out<View>, found: Out<bool>,
    ) {
        let found = required(found, "found")?;
        let iterator = iterator.get()?;
        let state = &mut *exclusive(&iterator.0)?;
        state.current = None;
        state.current = state.pages.next()?;
        found.write(state.current.is_some());
        let entry = state.current.as_ref();
        give(key, entry.map_or(View::NONE, |(key, _)| View::of(key)));
        give(value, entry.map_or(View::NONE, |(_, value)| View::of(value)));
        Ok(())
    }

    /// Frees an iterator and the entry that its slices name. Null is allowed.
    ///
    /// Errors: those of every function.
    pub fn quintet_iterator_free(iterator: Handle<EntryIterator>) {
        iterator.free().map(drop)
    }

    /// Opens a cursor of an ordered table, at no entry. A seek reads the table; a step may return
    /// an entry as it was some steps before.
    ///
    /// Errors: those of a read; `QUINTET_UNORDERED` if the engine keeps no key order;
    /// `QUINTET_UNSUPPORTED` in a snapshot or a transaction.
    pub fn quintet_cursor_new(table: Handle<TableHandle>, cursor: Out<Handle<CursorHandle>>) {
        let out = required(cursor, "cursor")?;
        let cursor = table.get()?.table()?.cursor()?;
        out.write(Handle::new(CursorHandle(Mutex::new(cursor)))?);
        Ok(())
    }

    /// Moves a cursor to the first entry whose key is `key` or greater. `found` (may be null) gets
    /// whether there is one.
    ///
    /// Errors: those of a read.
    pub fn quintet_cursor_seek(cursor: Handle<CursorHandle>, key: Slice, found: Out<bool>) {
        let key = key.bytes()?;
        with_cursor(cursor, found, |cursor| cursor.seek(key))
    }

    /// Moves a cursor to the last entry whose key is `key` or less. `found` (may be null) gets
    /// whether there is one.
    ///
    /// Errors: those of a read.
    pub fn quintet_cursor_seek_for_prev(
        cursor: Handle<CursorHandle>, key: Slice, found: Out<bool>,
    ) {
        let key = key.bytes()?;
        with_cursor(cursor, found, |cursor| cursor.seek_for_prev(key))
    }

    /// Moves a cursor to the first entry. `found` (may be null) gets whether there is one.
    ///
    /// Errors: those of a read.
    pub fn quintet_cursor_first(cursor: Handle<CursorHandle>, found: Out<bool>) {
        with_cursor(cursor, found, TableCursor::seek_to_first)
    }

    /// Moves a cursor to the last entry. `found` (may be null) gets whether there is one.
    ///
    /// Errors: those of a read.
    pub fn quintet_cursor_last(cursor: Handle<CursorHandle>, found: Out<bool>) {
        with_cursor(cursor, found, TableCursor::seek_to_last)
    }

    /// Moves a cursor to the next greater key, or from no entry to the first. `found` (may be null)
    /// gets whether there is one.
    ///
    /// Errors: those of a read.
    pub fn quintet_cursor_next(cursor: Handle<CursorHandle>, found: Out<bool>) {
        with_cursor(cursor, found, TableCursor::next)
    }

    /// Moves a cursor to the next lesser key, or from no entry to the last. `found` (may be null)
    /// gets whether there is one.
    ///
    /// Errors: those of a read.
    pub fn quintet_cursor_prev(cursor: Handle<CursorHandle>, found: Out<bool>) {
        with_cursor(cursor, found, TableCursor::prev)
    }

    /// Stores the entry at a cursor. `key` and `value` (may be null) get slices that are valid
    /// until the cursor moves or is freed. `found` (may be null) gets whether the cursor is at an
    /// entry.
    ///
    /// Errors: those of every function.
    pub fn quintet_cursor_entry(
        cursor: Handle<CursorHandle>, key: Out<View>, value: Out<View>, found: Out<bool>,
    ) {
        let cursor = cursor.get()?;
        let cursor = exclusive(&cursor.0)?;
        give(found, cursor.key().is_some());
        give(key, cursor.key().map_or(View::NONE, View::of));
        give(value, cursor.value().map_or(View::NONE, View::of));
        Ok(())
    }

    /// Frees a cursor. Null is allowed.
    ///
    /// Errors: those of every function.
    pub fn quintet_cursor_free(cursor: Handle<CursorHandle>) {
        cursor.free().map(drop)
    }
}
