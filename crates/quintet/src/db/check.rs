//! Verifying an open database. Never writes.

use super::{
    core::{Core, Status, TableState},
    envelope::Envelope,
};
use crate::{
    Error, Result,
    codec::to_u64,
    engine::{Cursor, Engine as _},
    report::Report,
    sync::lock,
};

/// How much a check looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckLevel {
    /// The catalog and the log.
    Quick,
    /// The catalog, the log, every file of every table, and that every entry can be read.
    #[default]
    Deep,
}

/// Entries that are read at a time.
const STEP_ENTRIES: usize = 1024;

impl Core {
    pub(super) fn check(&self, level: CheckLevel) -> Result<Report> {
        self.check_open()?;
        let mut report = Report::default();
        self.catalog.check(&mut report)?;
        self.log.check(&mut report)?;
        if let Some(reason) = self.log.failure() {
            report.add("log", 0, format!("it takes no more writes: {reason}"));
        }
        if let Some(reason) = self.catalog.failure() {
            report.add("catalog", 0, format!("it takes no more edits: {reason}"));
        }
        if level == CheckLevel::Deep {
            for table in self.all_tables() {
                check_table(&table, &mut report)?;
            }
        }
        Ok(report)
    }
}

fn check_table(table: &TableState, report: &mut Report) -> Result<()> {
    let _maintenance = lock(&table.maintenance);
    let file = format!("tables/{}", table.id);
    match table.status() {
        Status::Open => {}
        Status::Failed => {
            let reason = table.failure().unwrap_or_default();
            report.add(file, 0, format!("the table stopped: {reason}"));
            return Ok(());
        }
        Status::Dropped | Status::Closed => return Ok(()),
    }
    table.engine.check(report)?;
    match check_entries(table, report) {
        Err(Error::Corruption { file, offset, what }) => {
            report.add(file, offset, what);
            Ok(())
        }
        other => other,
    }
}

/// Every entry has a sound envelope.
fn check_entries(table: &TableState, report: &mut Report) -> Result<()> {
    let mut cursor = Cursor::START;
    loop {
        let (entries, next) = table.engine.scan(&cursor, STEP_ENTRIES)?;
        report.checked_entries += to_u64(entries.len());
        for entry in entries {
            if Envelope::decode(&entry.value).is_none() {
                let what =
                    format!("the value of key \"{}\" has no envelope", entry.key.escape_ascii());
                report.add(format!("tables/{}", table.id), 0, what);
            }
        }
        if next.is_start() {
            return Ok(());
        }
        cursor = next;
    }
}
