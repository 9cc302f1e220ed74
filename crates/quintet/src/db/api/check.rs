//! Verification of an open database. Never writes.

use crate::{
    Error, Result,
    contract::{Cursor, Engine as _, Entry},
    db::{
        core::Core,
        encoding::envelope::Envelope,
        expiry::ExpiryEntry,
        tables::state::{TableState, TableStatus},
    },
    util::{report::Report, sync::lock},
};

/// The extent of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckLevel {
    /// The catalog and the log.
    Quick,
    /// The catalog, the log, every file of every table, and that every entry can be read.
    #[default]
    Deep,
}

/// Number of entries read at a time.
const STEP_ENTRIES: usize = 1024;

impl Core {
    pub(crate) fn check(&self, level: CheckLevel) -> Result<Report> {
        self.tables.check_open()?;
        let mut report = Report::default();
        self.tables.catalog.check(&mut report)?;
        self.log.check(&mut report)?;
        if let Some(reason) = self.log.failure() {
            report.add("log", 0, format!("it takes no more writes: {reason}"));
        }
        if let Some(reason) = self.tables.catalog.failure() {
            report.add("catalog", 0, format!("it takes no more edits: {reason}"));
        }
        if level == CheckLevel::Deep {
            for id in self.tables.ids() {
                match self.open_table(id) {
                    Ok(Some(table)) => self.check_table(&table, &mut report)?,
                    Ok(None) => {}
                    Err(Error::Corruption { file, offset, what }) => report.add(file, offset, what),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(report)
    }

    fn check_table(&self, table: &TableState, report: &mut Report) -> Result<()> {
        let _maintenance = lock(&table.maintenance);
        let file = format!("tables/{}", table.id);
        match table.status() {
            TableStatus::Open | TableStatus::Loading => {}
            TableStatus::Failed => {
                let reason = table.failure().unwrap_or_default();
                report.add(file, 0, format!("the table stopped: {reason}"));
                return Ok(());
            }
            TableStatus::Dropped | TableStatus::Closed | TableStatus::Forked => return Ok(()),
        }
        table.engine.check(report)?;
        let entries = if self.expiry.is_index(table) {
            check_index_entries(table, report)
        } else {
            self.check_entries(table, report)
        };
        match entries {
            Err(Error::Corruption { file, offset, what }) => {
                report.add(file, offset, what);
                Ok(())
            }
            other => other,
        }
    }

    /// Verifies that every entry has a valid envelope, and is in the expiry index if it expires.
    fn check_entries(&self, table: &TableState, report: &mut Report) -> Result<()> {
        for_each_entry(table, report, |entry, report| {
            report.checked_entries += 1;
            let wrong = match Envelope::decode(&entry.value) {
                None => "has no envelope",
                Some((Envelope { expires_at: Some(time), .. }, _))
                    if !self.has_index_entry(table, &entry.key, time)? =>
                {
                    "expires, and the expiry index does not list it"
                }
                Some(_) => return Ok(()),
            };
            let what = format!("the value of key \"{}\" {wrong}", entry.key.escape_ascii());
            report.add(format!("tables/{}", table.id), 0, what);
            Ok(())
        })
    }

    /// Returns whether the expiry index has the entry of a value that was read, or the value has
    /// changed since.
    fn has_index_entry(&self, table: &TableState, key: &[u8], time: u64) -> Result<bool> {
        let Some(index) = self.expiry.table() else { return Ok(false) };
        let entry = ExpiryEntry { time, table_id: table.id, key };
        if entry.is_in(index)? {
            return Ok(true);
        }
        // Value and entry change together under the stripe.
        let _held =
            self.tables.stripes.hold(self.tables.stripes.index(table.id, table.hash.hash(key)));
        Ok(table.stored_expiry(key)? != Some(time) || entry.is_in(index)?)
    }
}

/// Verifies that every entry of the expiry index decodes.
fn check_index_entries(index: &TableState, report: &mut Report) -> Result<()> {
    for_each_entry(index, report, |entry, report| {
        if ExpiryEntry::decode(&entry.key).is_none() {
            let what = format!("\"{}\" is no entry", entry.key.escape_ascii());
            report.add(format!("tables/{}", index.id), 0, what);
        }
        Ok(())
    })
}

fn for_each_entry(
    table: &TableState,
    report: &mut Report,
    mut check: impl FnMut(&Entry, &mut Report) -> Result<()>,
) -> Result<()> {
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = table.engine.scan(&cursor, STEP_ENTRIES)?;
        entries.iter().try_for_each(|entry| check(entry, report))?;
        if next.is_start() {
            return Ok(());
        }
        cursor = next;
    }
}
