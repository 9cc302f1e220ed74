//! `export`: writes a table to a file.

use std::{
    borrow::Cow,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use quintet::Table;

use crate::{
    entries::Entries,
    failure::{Failure, Outcome},
    form::Form,
    formats::{
        Format, WriteError, WriteRows,
        delimited::{DelimitedPairWriter, DelimitedRecordWriter},
        dump::{Coding, DumpWriter},
        is_record_of, json_lines,
    },
};

/// The shape of the rows of the file.
#[derive(Clone, Debug)]
pub enum RowShape {
    /// Rows if the first entry is a record that has its key in a field, else pairs.
    Guessed,
    /// Key and value.
    Pairs,
    /// The columns of the first entry's value.
    Rows,
    /// These columns.
    Columns(Vec<String>),
}

/// How `export` writes the file.
#[derive(Clone, Debug)]
pub struct ExportTarget {
    /// Its format.
    pub format: Format,
    /// What a row is.
    pub shape: RowShape,
    /// CSV, TSV: the first line has the names of the columns.
    pub has_header: bool,
    /// How typed keys and values become text; `None`: their bytes are written unchanged.
    pub form: Option<Form>,
    /// Dump: how bytes are encoded.
    pub coding: Coding,
}

impl ExportTarget {
    /// Returns the text of an entry in the file.
    fn text_of<'a>(&self, key: &'a [u8], value: &'a [u8]) -> (Cow<'a, [u8]>, Cow<'a, [u8]>) {
        match &self.form {
            Some(form) => (form.file_key(key), form.file_value(value)),
            None => (key.into(), value.into()),
        }
    }

    /// Returns the writer for a table whose first entry is `first`.
    fn open<'a>(
        &self,
        out: Box<dyn Write + 'a>,
        first: Option<(&[u8], &[u8])>,
    ) -> Result<Box<dyn WriteRows + 'a>, WriteError> {
        let shape = match (&self.shape, first) {
            (RowShape::Guessed, Some((key, value))) if is_record_of(key, value) => &RowShape::Rows,
            (RowShape::Guessed, _) => &RowShape::Pairs,
            (shape, _) => shape,
        };
        let header = self.has_header;
        let first_value = first.map_or(&b""[..], |(_, value)| value);
        Ok(match (self.format, shape) {
            (Format::Dump, _) => Box::new(DumpWriter::new(out, self.coding)?),
            (Format::Jsonl, RowShape::Rows) => {
                Box::new(json_lines::JsonRecordWriter::new(out, None))
            }
            (Format::Jsonl, RowShape::Columns(names)) => {
                Box::new(json_lines::JsonRecordWriter::new(out, Some(names.clone())))
            }
            (Format::Jsonl, _) => Box::new(json_lines::JsonPairWriter::new(out)),
            (Format::Csv | Format::Tsv, shape) => {
                let delimiter = if self.format == Format::Csv { b',' } else { b'\t' };
                match shape {
                    RowShape::Columns(names) => {
                        let names = names.clone();
                        Box::new(DelimitedRecordWriter::chosen(out, delimiter, header, names)?)
                    }
                    RowShape::Rows if first.is_some() => {
                        Box::new(DelimitedRecordWriter::exact(out, delimiter, header, first_value)?)
                    }
                    _ => Box::new(DelimitedPairWriter::new(out, delimiter, header)?),
                }
            }
        })
    }
}

/// Counts of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportSummary {
    /// Entries in the file.
    pub entries: u64,
    /// Of these, entries whose expiry time or type tag is not in the file.
    pub stripped: u64,
}

/// Writes every entry of `table` to `out`. `tick` is called after each.
pub fn export(
    table: &Table,
    target: &ExportTarget,
    name: &str,
    out: Box<dyn Write + '_>,
    tick: &mut dyn FnMut(),
) -> Outcome<ExportSummary> {
    let explain = |error| match error {
        WriteError::Io(error) => Failure::io(name, &error),
        WriteError::Unfit(what) => Failure::Failed(what),
    };
    let mut entries = Entries::new(table);
    let first = entries.next().transpose()?;
    let example = first.as_ref().map(|(key, value)| target.text_of(key, value));
    let example = example.as_ref().map(|(key, value)| (&**key, &**value));
    let mut writer = target.open(out, example).map_err(explain)?;
    let mut summary = ExportSummary::default();
    for entry in first.map(Ok).into_iter().chain(entries) {
        let (key, value) = entry?;
        let (key_text, value_text) = target.text_of(&key, &value);
        writer.write(&key_text, &value_text).map_err(explain)?;
        summary.entries += 1;
        let is_plain = value.expires_at_unix_millis().is_none() && value.type_tag().is_none();
        summary.stripped += u64::from(!is_plain);
        tick();
    }
    writer.finish().map_err(explain)?;
    Ok(summary)
}

/// A file that gets its name when it is complete.
#[derive(Debug)]
pub struct NewFile {
    file: Option<BufWriter<File>>,
    path: PathBuf,
    /// The path until then; `None` if the name is a pipe or a device.
    partial: Option<PathBuf>,
}

impl NewFile {
    /// Creates a file with the name of `path` plus `.partial`. A file at `path` stays until
    /// [`NewFile::finish`].
    pub fn create(path: &Path) -> io::Result<Self> {
        // If `path` is a link, the file that it points to is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let partial = match fs::metadata(&path) {
            Ok(found) if !found.is_file() && !found.is_dir() => None,
            _ => {
                let mut name = path.as_os_str().to_owned();
                name.push(".partial");
                Some(PathBuf::from(name))
            }
        };
        let file = match &partial {
            Some(partial) => File::create(partial)?,
            None => File::options().write(true).open(&path)?,
        };
        Ok(Self { file: Some(BufWriter::with_capacity(1 << 18, file)), path, partial })
    }

    /// Makes the file durable and gives it its name.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if let Some(partial) = &self.partial {
            file.sync_all()?;
            fs::rename(partial, &self.path)?;
            self.partial = None;
        }
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // The export has failed already; an error here would hide the first one.
            let _ = fs::remove_file(partial);
        }
    }
}
