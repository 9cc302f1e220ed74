//! Reads all entries of a table, or a selection, in bounded memory.

use quintet::{Cursor, EngineKind, Error, KeyRange, ReadableTable, Table, Value};

use crate::failure::{Failure, Outcome};

/// Entries in the first page. Later pages have more entries if the entries are small.
const PAGE_ENTRIES_FIRST: usize = 16;
/// Maximum number of entries in a page.
const PAGE_ENTRIES_MAX: usize = 1024;
/// Target size of a page, in bytes of keys and values.
const PAGE_BYTES: usize = 1 << 20;

/// A function that is called with each entry. It returns false to end the scan.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Outcome<bool> + 'a;

/// Scans a whole table, or what a snapshot or a transaction shows of it, page by page. The number
/// of entries in a page depends on the mean size of the entries so far. Memory stays bounded for
/// large values, and small ones need few calls.
#[derive(Debug)]
pub struct Entries<'a, T = Table> {
    table: &'a T,
    page: std::vec::IntoIter<(Vec<u8>, Value)>,
    /// Where the next page starts; `None` after the last.
    next: Option<Cursor>,
    /// Number of entries in the next page.
    page_size: usize,
}

impl<'a, T: ReadableTable> Entries<'a, T> {
    /// Starts at the first entry.
    pub fn new(table: &'a T) -> Self {
        let next = Some(Cursor::START);
        Self { table, page: Vec::new().into_iter(), next, page_size: PAGE_ENTRIES_FIRST }
    }

    fn read_page(&mut self, cursor: &Cursor) -> Result<(), Error> {
        let (page, next) = self.table.scan(cursor, self.page_size)?;
        let bytes: usize = page.iter().map(|(key, value)| key.len() + value.len()).sum();
        if let Some(mean) = bytes.checked_div(page.len()) {
            let fitting = PAGE_BYTES / mean.max(1);
            self.page_size = fitting.clamp(1, PAGE_ENTRIES_MAX).min(self.page_size * 4);
        }
        self.page = page.into_iter();
        self.next = Some(next).filter(|next| !next.is_start());
        Ok(())
    }
}

impl<T: ReadableTable> Iterator for Entries<'_, T> {
    type Item = Result<(Vec<u8>, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.page.next() {
                return Some(Ok(entry));
            }
            let cursor = self.next.take()?;
            if let Err(error) = self.read_page(&cursor) {
                return Some(Err(error));
            }
        }
    }
}

/// The entries that a command reads.
#[derive(Clone, Debug, Default)]
pub struct EntrySelection {
    /// Only keys that start with these bytes.
    pub prefix: Option<Vec<u8>>,
    /// Only keys at or above this one.
    pub from: Option<Vec<u8>>,
    /// Only keys below this one.
    pub to: Option<Vec<u8>>,
    /// Descending key order.
    pub is_reverse: bool,
}

impl EntrySelection {
    /// Whether only an ordered engine can do it.
    fn needs_order(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.is_reverse
    }

    fn bounds(&self) -> KeyRange {
        match &self.prefix {
            Some(prefix) => KeyRange::prefix(prefix),
            None => KeyRange { start: self.from.clone(), end: self.to.clone() },
        }
    }

    /// Calls `visit` with each selected entry of a table until it returns false.
    pub fn for_each(&self, table: &Table, visit: &mut Visit<'_>) -> Outcome {
        self.for_each_in(table, table, visit)
    }

    /// Calls `visit` with each selected entry that `shown` has of the table, until it returns
    /// false.
    pub fn for_each_in(
        &self,
        table: &Table,
        shown: &impl ReadableTable,
        visit: &mut Visit<'_>,
    ) -> Outcome {
        let is_ordered = table.kind().is_ordered();
        if self.needs_order() && !is_ordered {
            return Err(unordered(table));
        }
        if self.needs_order() || (is_ordered && self.prefix.is_some()) {
            let range = shown.range(self.bounds())?;
            return if self.is_reverse { each(range.rev(), visit) } else { each(range, visit) };
        }
        let prefix = self.prefix.as_deref().unwrap_or(&[]);
        let chosen = Entries::new(shown)
            .filter(|entry| entry.as_ref().map_or(true, |(key, _)| key.starts_with(prefix)));
        each(chosen, visit)
    }
}

/// Builds the failure of a selection that needs key order.
fn unordered(table: &Table) -> Failure {
    let ordered: Vec<_> = EngineKind::AVAILABLE
        .iter()
        .filter(|kind| kind.is_ordered())
        .map(EngineKind::name)
        .collect();
    let (name, engine) = (table.name(), table.kind());
    let engines = match ordered.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => ordered.concat(),
    };
    Failure::Failed(format!(
        "table {name} uses the {engine} engine, which keeps no key order; --from, --to and \
         --reverse need key order: use {engines}"
    ))
}

fn each<K: AsRef<[u8]>>(
    entries: impl Iterator<Item = Result<(K, Value), Error>>,
    visit: &mut Visit<'_>,
) -> Outcome {
    for entry in entries {
        let (key, value) = entry?;
        if !visit(key.as_ref(), &value)? {
            break;
        }
    }
    Ok(())
}
