//! Writes the entries of one column family to a table, in atomic batches or as a sorted load.

use quintet::{Batch, Database, KEY_BYTES_MAX, LoadOptions, SortedLoader, Table};
use quintet_compat::keys;

use crate::{
    bytes::quote,
    failure::{Failure, Outcome},
};

/// Bytes of keys and values after which a batch is committed, even if it has few entries.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// The table of a column family.
#[derive(Debug)]
pub struct FamilyTable {
    /// The name of the family.
    pub family: String,
    /// The path of the table.
    pub name: String,
    /// The table.
    pub table: Table,
    /// Whether keys of zeros get one more, as in the compatible libraries.
    pub has_stored_keys: bool,
}

/// Counts of a column family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyCounts {
    /// Entries in committed batches.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Of the entries, those whose key had a value before the import.
    pub replaced: u64,
}

/// Where entries go.
enum Sink {
    /// A batch, and its counts.
    Batches { batch: Box<Batch>, pending: FamilyCounts },
    /// A sorted load. It commits all at its end, on `btree`.
    Sorted(SortedLoader),
}

/// Writes the entries of a family.
pub struct FamilyWriter<'a> {
    database: &'a Database,
    target: &'a FamilyTable,
    sink: Sink,
    batch_entries: u64,
    was_empty: bool,
    counts: FamilyCounts,
}

impl<'a> FamilyWriter<'a> {
    /// Creates a writer of batches of at most `batch_entries` entries, or of a sorted load.
    pub fn new(
        database: &'a Database,
        target: &'a FamilyTable,
        batch_entries: u64,
        is_sorted: bool,
    ) -> Outcome<Self> {
        let was_empty = target.table.is_empty()?;
        let sink = if is_sorted {
            Sink::Sorted(target.table.sorted_loader(LoadOptions::new())?)
        } else {
            Sink::Batches { batch: Box::new(database.batch()), pending: FamilyCounts::default() }
        };
        let counts = FamilyCounts::default();
        Ok(Self { database, target, sink, batch_entries, was_empty, counts })
    }

    /// Writes an entry. Returns whether a batch was committed.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<bool> {
        let stored = if self.target.has_stored_keys { keys::stored(key) } else { key.into() };
        if stored.is_empty() || stored.len() > KEY_BYTES_MAX {
            return Err(refused(&self.target.family, &stored));
        }
        let size = key.len() + value.len();
        let bytes = u64::try_from(size).unwrap_or(u64::MAX);
        match &mut self.sink {
            Sink::Sorted(loader) => {
                loader.put(&*stored, value)?;
                self.counts.entries += 1;
                self.counts.bytes += bytes;
                Ok(false)
            }
            Sink::Batches { batch, pending } => {
                // Keys of the source are unique, so only earlier entries of the table count.
                if !self.was_empty && self.target.table.contains(&*stored)? {
                    pending.replaced += 1;
                }
                batch.put(&self.target.table, &*stored, value);
                pending.entries += 1;
                pending.bytes += bytes;
                let is_full = pending.entries >= self.batch_entries
                    || usize::try_from(pending.bytes).map_or(true, |b| b >= BATCH_BYTES_MAX);
                if is_full {
                    self.commit()?;
                }
                Ok(is_full)
            }
        }
    }

    fn commit(&mut self) -> Outcome {
        let Sink::Batches { batch, pending } = &mut self.sink else { return Ok(()) };
        std::mem::replace(&mut **batch, self.database.batch()).commit()?;
        self.counts.entries += pending.entries;
        self.counts.bytes += pending.bytes;
        self.counts.replaced += pending.replaced;
        *pending = FamilyCounts::default();
        Ok(())
    }

    /// Returns the entries that are committed so far. A sorted load may have committed none.
    pub fn committed(&self) -> u64 {
        match self.sink {
            Sink::Batches { .. } => self.counts.entries,
            Sink::Sorted(_) => 0,
        }
    }

    /// Commits the rest, and checks that the table has all `expected` entries.
    pub fn finish(mut self, expected: u64) -> Outcome<FamilyCounts> {
        self.commit()?;
        let Self { target, sink, was_empty, counts, .. } = self;
        if let Sink::Sorted(loader) = sink {
            loader.commit()?;
        }
        let FamilyTable { family, name, table, .. } = target;
        let found = table.len()?;
        // Entries that the table had before may have expired meanwhile.
        let has_all = if was_empty { found == expected } else { found >= expected };
        if counts.entries == expected && has_all {
            return Ok(counts);
        }
        Err(Failure::Damage(format!(
            "column family {family} has {expected} entries, {} were imported, and table {name} has \
             {found}",
            counts.entries
        )))
    }
}

/// Returns the failure of a key that no table can have.
fn refused(family: &str, stored: &[u8]) -> Failure {
    let what = match stored.len() {
        0 => "a key is empty; without TABLE, it is stored as one zero byte".to_owned(),
        size => {
            let shown = quote(stored.get(..64).unwrap_or(stored));
            format!(
                "the key that begins with {shown} is stored with {size} bytes; a key has at most \
                 {KEY_BYTES_MAX}"
            )
        }
    };
    Failure::Failed(format!("column family {family}: {what}"))
}
