//! `import`: reads a file into a table.
//!
//! Rows are written in atomic batches, one after the other. An error, an interrupt or a kill
//! therefore leaves only complete batches. Memory is bounded by one batch, which is bounded in rows
//! and in bytes. Sorted rows can be written as one sorted load.

use std::{
    collections::HashSet,
    io::{BufReader, Read},
};

use quintet::{Database, Error, KEY_BYTES_MAX, LoadOptions, Table, VALUE_BYTES_MAX};

use crate::{
    failure::{Failure, Outcome},
    form::Form,
    formats::{
        Column, Format, ReadError, ReadRows, Row,
        delimited::{DelimitedReader, Layout},
        dump::DumpReader,
        json_lines::{JsonLinesReader, LineShape},
    },
};

/// Bytes of keys and values after which a batch is written, even if it has few rows.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Bytes read from the file at once.
const READ_BYTES: usize = 1 << 18;

/// How `import` reads the file.
#[derive(Clone, Debug)]
pub struct ImportSource {
    /// Its name, for messages.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// The key's column.
    pub key: Option<Column>,
    /// The value's column.
    pub value: Option<Column>,
    /// CSV, TSV: the first line has the names of the columns.
    pub has_header: bool,
    /// CSV, TSV: fields may be quoted.
    pub has_quotes: bool,
    /// Dump: the database to read if the file has several.
    pub database: Option<String>,
}

/// Counts of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportProgress {
    /// Rows in committed batches.
    pub rows: u64,
    /// Of these, rows whose key had a value already, from the file or from before the import.
    pub replaced: u64,
    /// Committed batches.
    pub batches: u64,
}

impl ImportSource {
    /// Fails with [`Failure::Usage`] if a setting does not apply to the format.
    pub fn check(&self) -> Outcome {
        let is_delimited = matches!(self.format, Format::Csv | Format::Tsv);
        let has_column = self.key.is_some() || self.value.is_some();
        let what = if self.format == Format::Dump && has_column {
            "a dump has no columns; omit --key and --value"
        } else if self.format != Format::Dump && self.database.is_some() {
            "--database is for dumps"
        } else if !is_delimited && (!self.has_header || !self.has_quotes) {
            "--no-header and --no-quotes are for CSV and TSV"
        } else if self.format == Format::Jsonl && self.key.is_none() && self.value.is_some() {
            "--value needs --key for JSON lines"
        } else {
            return Ok(());
        };
        Err(Failure::Usage(what.to_owned()))
    }

    /// Opens the file and reads up to the first row, so that a malformed file fails before anything
    /// is written.
    pub fn open<'a>(&self, input: Box<dyn Read + 'a>) -> Outcome<Box<dyn ReadRows + 'a>> {
        let buffered = |input| BufReader::with_capacity(READ_BYTES, input);
        let reader: Result<Box<dyn ReadRows>, ReadError> = match self.format {
            Format::Csv | Format::Tsv => {
                let layout = Layout {
                    delimiter: if self.format == Format::Csv { b',' } else { b'\t' },
                    has_header: self.has_header,
                    has_quotes: self.has_quotes,
                    key: self.key.clone().unwrap_or_else(|| Column::from("1")),
                    value: self.value.clone(),
                };
                DelimitedReader::new(buffered(input), &layout).map(|reader| Box::new(reader) as _)
            }
            Format::Jsonl => {
                let shape = match (&self.key, &self.value) {
                    (Some(key), value) => {
                        LineShape::Records { key: key.clone(), value: value.clone() }
                    }
                    (None, _) => LineShape::Pairs,
                };
                Ok(Box::new(JsonLinesReader::new(buffered(input), shape)))
            }
            Format::Dump => DumpReader::new(buffered(input), self.database.clone())
                .map(|reader| Box::new(reader) as _),
        };
        reader.map_err(|error| self.explain(error))
    }

    fn explain(&self, error: ReadError) -> Failure {
        match error {
            ReadError::Io(error) => Failure::io(&self.name, &error),
            ReadError::Malformed { line, what } => {
                Failure::Failed(format!("{}:{line}: {what}", self.name))
            }
        }
    }
}

/// The table that `import` writes to.
#[derive(Clone, Copy, Debug)]
pub struct ImportTarget<'a> {
    /// The database.
    pub database: &'a Database,
    /// The table in it.
    pub table: &'a Table,
    /// How text becomes typed keys and values; `None`: its bytes are stored unchanged.
    pub form: Option<&'a Form>,
}

/// One batch under construction.
#[derive(Debug, Default)]
struct Pending {
    keys: HashSet<Vec<u8>>,
    rows: u64,
    replaced: u64,
    bytes: usize,
}

/// Imports every row in batches of at most `batch_rows` rows, and calls `acknowledge` after each
/// batch.
pub fn import(
    target: &ImportTarget<'_>,
    source: &ImportSource,
    rows: &mut dyn ReadRows,
    batch_rows: u64,
    acknowledge: &mut dyn FnMut(ImportProgress) -> Outcome,
) -> Outcome<ImportProgress> {
    let mut progress = ImportProgress::default();
    let mut row = Row::default();
    loop {
        let done = fill_and_commit(target, source, rows, batch_rows, &mut row, &mut progress)
            .map_err(|failure| with_progress(failure, progress))?;
        if done {
            return Ok(progress);
        }
        acknowledge(progress)?;
    }
}

/// Imports every row as one sorted load.
pub fn import_sorted(
    target: &ImportTarget<'_>,
    source: &ImportSource,
    rows: &mut dyn ReadRows,
) -> Outcome<ImportProgress> {
    let mut loader = target.table.sorted_loader(LoadOptions::new())?;
    let mut row = Row::default();
    while rows.read(&mut row).map_err(|error| source.explain(error))? {
        let line = row.line;
        let at = |what| source.explain(ReadError::at(line, what));
        if let Some(form) = target.form {
            apply_form(form, &mut row).map_err(at)?;
        }
        loader.put(&row.key, &row.value).map_err(|error| match error {
            Error::OutOfOrder { .. } | Error::Limit { .. } => at(error.to_string()),
            other => other.into(),
        })?;
    }
    let rows = loader.commit()?;
    Ok(ImportProgress { rows, replaced: 0, batches: 1 })
}

/// Reads and commits one batch. Returns true if there was no further row.
fn fill_and_commit(
    target: &ImportTarget<'_>,
    source: &ImportSource,
    rows: &mut dyn ReadRows,
    batch_rows: u64,
    row: &mut Row,
    progress: &mut ImportProgress,
) -> Outcome<bool> {
    let ImportTarget { database, table, form } = *target;
    let mut batch = database.batch();
    let mut pending = Pending::default();
    while pending.rows < batch_rows && pending.bytes < BATCH_BYTES_MAX {
        if !rows.read(row).map_err(|error| source.explain(error))? {
            break;
        }
        if let Some(form) = form {
            apply_form(form, row).map_err(|what| source.explain(ReadError::at(row.line, what)))?;
        }
        check_limits(row).map_err(|what| source.explain(ReadError::at(row.line, what)))?;
        if pending.keys.contains(&row.key) || table.contains(&row.key)? {
            pending.replaced += 1;
        }
        pending.rows += 1;
        pending.bytes += row.key.len() + row.value.len();
        batch.put(table, &row.key, &row.value);
        pending.keys.insert(std::mem::take(&mut row.key));
    }
    if pending.rows == 0 {
        return Ok(true);
    }
    batch.commit()?;
    progress.rows += pending.rows;
    progress.replaced += pending.replaced;
    progress.batches += 1;
    Ok(false)
}

/// Converts the text of a row to the bytes of the table's types.
fn apply_form(form: &Form, row: &mut Row) -> Result<(), String> {
    row.key = form.key(&row.key).map_err(|failure| failure.to_string())?;
    row.value = form.value(&row.value).map_err(|failure| failure.to_string())?;
    Ok(())
}

/// Checks the limits of the database. The database checks them too; this check knows the line.
fn check_limits(row: &Row) -> Result<(), String> {
    match (row.key.len(), row.value.len()) {
        (0, _) => Err("the key is empty".to_owned()),
        (key, _) if key > KEY_BYTES_MAX => {
            Err(format!("the key has {key} bytes; a key has at most {KEY_BYTES_MAX}"))
        }
        (_, value) if value > VALUE_BYTES_MAX => {
            Err(format!("the value has {value} bytes; a value has at most {VALUE_BYTES_MAX}"))
        }
        _ => Ok(()),
    }
}

/// Adds the number of imported rows to the message of a failed import.
fn with_progress(failure: Failure, progress: ImportProgress) -> Failure {
    let note = |what: String| match progress.rows {
        0 => format!("{what}; nothing was imported"),
        rows => format!("{what}; the first {rows} rows were imported"),
    };
    match failure {
        Failure::Failed(what) => Failure::Failed(note(what)),
        Failure::Damage(what) => Failure::Damage(note(what)),
        other => other,
    }
}
