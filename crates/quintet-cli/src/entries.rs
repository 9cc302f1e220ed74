//! All entries of a table, or some, in bounded memory.

use quintet::{Cursor, Error, KeyRange, Table, Value};

use crate::failure::Outcome;

/// Entries asked for at first; more when they turn out to be small.
const PAGE_ENTRIES_FIRST: usize = 16;
/// Entries asked for at most.
const PAGE_ENTRIES_MAX: usize = 1024;
/// How many bytes of keys and values one page should hold.
const PAGE_BYTES: usize = 1 << 20;

/// What is done with each entry; false ends it.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Outcome<bool> + 'a;

/// Scans a whole table page by page. The page is sized by the entries seen, so that memory stays
/// bounded for large values and calls stay few for small ones.
#[derive(Debug)]
pub struct Entries<'a> {
    table: &'a Table,
    page: std::vec::IntoIter<(Vec<u8>, Value)>,
    /// Where the next page starts; `None` after the last.
    next: Option<Cursor>,
    /// Entries to ask for.
    page_size: usize,
}

impl<'a> Entries<'a> {
    /// From the first entry.
    pub fn new(table: &'a Table) -> Self {
        let next = Some(Cursor::START);
        Self { table, page: Vec::new().into_iter(), next, page_size: PAGE_ENTRIES_FIRST }
    }

    fn turn_page(&mut self, cursor: &Cursor) -> Result<(), Error> {
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

impl Iterator for Entries<'_> {
    type Item = Result<(Vec<u8>, Value), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.page.next() {
                return Some(Ok(entry));
            }
            let cursor = self.next.take()?;
            if let Err(error) = self.turn_page(&cursor) {
                return Some(Err(error));
            }
        }
    }
}

/// Which keys.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Those that start with this.
    pub prefix: Option<Vec<u8>>,
    /// From this on.
    pub from: Option<Vec<u8>>,
    /// Up to, without, this.
    pub to: Option<Vec<u8>>,
    /// Last first.
    pub is_reverse: bool,
}

impl Wanted {
    /// Whether only an engine that keeps order can do it.
    fn needs_order(&self) -> bool {
        self.from.is_some() || self.to.is_some() || self.is_reverse
    }

    fn bounds(&self) -> KeyRange {
        match &self.prefix {
            Some(prefix) => KeyRange::prefix(prefix),
            None => KeyRange { start: self.from.clone(), end: self.to.clone() },
        }
    }

    /// Calls `visit` with each wanted entry until it says no.
    pub fn for_each(&self, table: &Table, visit: &mut Visit<'_>) -> Outcome {
        let is_ordered = table.kind().is_ordered();
        if self.needs_order() || (is_ordered && self.prefix.is_some()) {
            let range = table.range(self.bounds())?;
            return if self.is_reverse { each(range.rev(), visit) } else { each(range, visit) };
        }
        let prefix = self.prefix.as_deref().unwrap_or(&[]);
        let chosen = Entries::new(table)
            .filter(|entry| entry.as_ref().map_or(true, |(key, _)| key.starts_with(prefix)));
        each(chosen, visit)
    }
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
