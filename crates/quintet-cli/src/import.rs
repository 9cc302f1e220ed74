//! `import`: a file into a table.
//!
//! Rows go in as atomic batches, one after the other, so that whatever ends the import (an error,
//! an interrupt, a kill) leaves whole batches. Memory holds one batch: bounded in rows and in
//! bytes. Rows that are sorted can go in as one load.

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
        json_lines::{JsonLinesReader, Shape},
    },
};

/// A batch is written when it holds this many bytes of keys and values, however few its rows.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How much is read from the file at once.
const READ_BYTES: usize = 1 << 18;

/// How to read the file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name, for messages.
    pub name: String,
    /// Its format.
    pub format: Format,
    /// The key's column.
    pub key: Option<Column>,
    /// The value's column.
    pub value: Option<Column>,
    /// CSV, TSV: the first line names the columns.
    pub has_header: bool,
    /// CSV, TSV: fields may be quoted.
    pub has_quotes: bool,
    /// Dump: which of several databases.
    pub database: Option<String>,
}

/// What has been imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows in committed batches.
    pub rows: u64,
    /// Of these, rows whose key had a value already: from earlier in the file, or from before.
    pub replaced: u64,
    /// Committed batches.
    pub batches: u64,
}

impl Source {
    /// Refuses what the format has no use for.
    pub fn check(&self) -> Outcome {
        let is_delimited = matches!(self.format, Format::Csv | Format::Tsv);
        let has_column = self.key.is_some() || self.value.is_some();
        let what = if self.format == Format::Dump && has_column {
            "a dump has no columns: --key and --value mean nothing"
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

    /// Reads as far as the first row: a file that makes no sense is refused before anything is
    /// written.
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
                    (Some(key), value) => Shape::Records { key: key.clone(), value: value.clone() },
                    (None, _) => Shape::Pairs,
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

/// Where rows go.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The database.
    pub database: &'a Database,
    /// The table in it.
    pub table: &'a Table,
    /// How text becomes typed keys and values; `None`: as it is.
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

/// Imports every row in batches of at most `batch_rows`, calling `acknowledge` after
/// each.
pub fn import(
    target: &Target<'_>,
    source: &Source,
    rows: &mut dyn ReadRows,
    batch_rows: u64,
    acknowledge: &mut dyn FnMut(Progress) -> Outcome,
) -> Outcome<Progress> {
    let mut progress = Progress::default();
    let mut row = Row::default();
    loop {
        let done = fill_and_commit(target, source, rows, batch_rows, &mut row, &mut progress)
            .map_err(|failure| note_progress(failure, progress))?;
        if done {
            return Ok(progress);
        }
        acknowledge(progress)?;
    }
}

/// Imports every row as one sorted load.
pub fn import_sorted(
    target: &Target<'_>,
    source: &Source,
    rows: &mut dyn ReadRows,
) -> Outcome<Progress> {
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
    Ok(Progress { rows, replaced: 0, batches: 1 })
}

/// Reads, and commits, one batch; true when there was nothing left to read.
fn fill_and_commit(
    target: &Target<'_>,
    source: &Source,
    rows: &mut dyn ReadRows,
    batch_rows: u64,
    row: &mut Row,
    progress: &mut Progress,
) -> Outcome<bool> {
    let Target { database, table, form } = *target;
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

/// Turns the text of a typed table's row into its bytes.
fn apply_form(form: &Form, row: &mut Row) -> Result<(), String> {
    row.key = form.key(&row.key).map_err(|failure| failure.to_string())?;
    row.value = form.value(&row.value).map_err(|failure| failure.to_string())?;
    Ok(())
}

/// The limits of the database, checked here as well to name the line.
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

/// Says what the table holds of the file although the import failed.
fn note_progress(failure: Failure, progress: Progress) -> Failure {
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
