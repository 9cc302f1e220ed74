//! Pages of the keys of a database, of a bounded number of bytes.
//!
//! A page has the heads of its keys too, and so the strings. Pages begin small and grow while their
//! bytes are few, so that a database of long strings is not read into memory a thousand at a time.

use quintet::{Cursor, Key, Table, Value};

use crate::failure::Done;

/// Entries of the first page.
const FIRST: usize = 16;
/// Most entries of a page.
const ENTRIES_MAX: usize = 1024;
/// Bytes that a page should have at most. One entry may have more.
const PAGE_BYTES: usize = 1 << 20;

/// Entries with their bytes.
type Page = (Vec<(Key, Value)>, usize);

/// A scan of a table.
#[derive(Debug)]
pub(crate) struct Pages<'t> {
    table: &'t Table,
    /// Where the next page begins.
    pub(crate) cursor: Cursor,
    size: usize,
    entries_max: usize,
    is_over: bool,
}

impl<'t> Pages<'t> {
    /// A scan from a cursor.
    pub(crate) fn new(table: &'t Table, cursor: Cursor) -> Self {
        Self { table, cursor, size: FIRST, entries_max: ENTRIES_MAX, is_over: false }
    }

    /// A scan whose pages begin with one entry and have at most about `entries_max`, for readers
    /// that need few entries: fewer long strings are read before their length is known.
    pub(crate) fn small(table: &'t Table, cursor: Cursor, entries_max: usize) -> Self {
        Self { size: 1, entries_max, ..Self::new(table, cursor) }
    }

    /// The next page, of about `most` entries or fewer, with its bytes. `None` at the end.
    pub(crate) fn next(&mut self, most: usize) -> Done<Option<Page>> {
        if self.is_over {
            return Ok(None);
        }
        let (entries, next) = self.table.scan(&self.cursor, self.size.min(most).max(1))?;
        self.is_over = next.is_start();
        self.cursor = next;
        let bytes = entries.iter().map(|(key, head)| key.len() + head.len()).sum::<usize>();
        let mean = bytes / entries.len().max(1);
        self.size = (PAGE_BYTES / mean.max(1)).clamp(1, (self.size * 2).min(self.entries_max));
        Ok(Some((entries, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use quintet::{EngineKind, Options, TableOptions};

    use super::*;

    #[test]
    fn a_scan_returns_all_entries_and_small_pages_of_long_values() {
        let dir = tempfile::tempdir().unwrap();
        let database = Options::new().memory_budget(64 << 20).open(dir.path()).unwrap();
        let options = TableOptions::new(EngineKind::HashLog);
        let table = database.open_or_create_table("t", &options).unwrap();
        let long = vec![b'x'; 512 << 10];
        for number in 0_u32..40 {
            table.put(number.to_be_bytes(), &long).unwrap();
        }
        let mut pages = Pages::new(&table, Cursor::START);
        let (mut keys, mut sizes) = (std::collections::BTreeSet::new(), Vec::new());
        while let Some((entries, bytes)) = pages.next(usize::MAX).unwrap() {
            sizes.push(bytes);
            keys.extend(entries.iter().map(|(key, _)| key.clone()));
        }
        assert_eq!(keys.len(), 40);
        // The engine's pages have about as many entries as asked for.
        assert!(sizes.iter().skip(1).all(|bytes| *bytes <= 8 << 20), "{sizes:?}");
        let mut small = Pages::small(&table, Cursor::START, 64);
        let (_, bytes) = small.next(usize::MAX).unwrap().unwrap();
        assert!(bytes < sizes[0], "{bytes} of {sizes:?}");
        for number in 0_u32..4000 {
            table.put(number.to_be_bytes(), b"short").unwrap();
        }
        let mut pages = Pages::new(&table, Cursor::START);
        let mut counts = Vec::new();
        while let Some((entries, _)) = pages.next(usize::MAX).unwrap() {
            counts.push(entries.len());
        }
        assert!(counts.iter().sum::<usize>() >= 4000);
        assert!(counts.len() < 100, "pages grow: {counts:?}");
    }
}
