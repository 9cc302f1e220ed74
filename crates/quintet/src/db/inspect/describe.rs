//! Descriptions of a file of a database, and of its parts, for people who look for damage or learn
//! the formats.
//!
//! The magic at the start of the file tells its format: a log segment, the catalog, or a file of a
//! table. The module that owns a format decodes it, with its checks, and prints the layout that its
//! head documents.
//!
//! Invariants:
//! - Nothing is written. No lock is taken: a file of an open database shows the bytes at the moment
//!   of each read.
//! - Memory holds one record or block, or the whole catalog.
//! - A damaged file is an error after the lines that could be read.

#![deny(clippy::indexing_slicing)]

use std::{fmt::Write as _, ops::ControlFlow, path::Path, sync::Arc};

use crate::{
    Error, Result,
    contract::Op,
    db::{
        catalog,
        encoding::{
            envelope::Envelope,
            operations::Ops,
            table_begin::{NO_TABLE, TableBegin},
        },
    },
    engine::{
        btree::inspect as btree, hashlog::inspect as hashlog, naive::checkpoint, slm,
        tph::inspect as tph, trie::inspect as trie,
    },
    io::{Env as _, File, Open, os::OsEnv, read_up_to},
    util::{
        codec::to_usize,
        format::{brief, hex},
    },
    wal::{RecordInfo, RecordKind, SegmentReader},
};

/// Receives the lines of a description. `Break` ends the description.
pub type Sink<'a> = dyn FnMut(&str) -> ControlFlow<()> + 'a;

/// Describes the file at `path`: a log segment, a catalog or a file of a table, line by line.
///
/// Fails with [`Error::Corruption`] if the file is damaged or has another format, with
/// [`Error::NewerFormat`] and [`Error::Io`]. The lines before a failure are correct.
pub fn file(path: &Path, sink: &mut Sink<'_>) -> Result<()> {
    let shown = path.display().to_string();
    let io = |error| Error::io(format!("read {shown}"), error);
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| io(std::io::ErrorKind::InvalidFilename.into()))?;
    let dir = OsEnv::new().open_dir(parent.unwrap_or(Path::new(".")), false).map_err(io)?;
    let file = dir.open(name, Open::READ).map_err(io)?;
    let mut head = vec![0; btree::HEAD_BYTES];
    let count = read_up_to(&*file, &mut head, 0).map_err(io)?;
    let mut lines = LineWriter { sink, is_wanted: true };
    if btree::is_pages(head.get(..count).unwrap_or(&[])) {
        return btree::describe(&*file, &shown, &mut |line| lines.write(line));
    }
    let magic = head.get(..8).unwrap_or(&[]);
    match magic.get(..count.min(8)).unwrap_or(&[]) {
        b"QTLOGSEG" => describe_segment(file, &shown, &mut lines),
        b"QUINTCAT" => {
            let mut bytes = vec![0; to_usize(file.len().map_err(io)?)];
            let count = read_up_to(&*file, &mut bytes, 0).map_err(io)?;
            describe_catalog(bytes.get(..count).unwrap_or(&[]), &mut lines)
        }
        b"QNAIVSNP" => describe_snapshot(&*file, &shown, &mut lines),
        b"QHLINDEX" => hashlog::manifest(&dir, file, &shown, &mut |line| lines.write(line)),
        b"QTPHMANI" => tph::manifest(&*file, &shown, &mut |line| lines.write(line)),
        b"QTPHSLOT" => tph::piece(&dir, &*file, &shown, &mut |line| lines.write(line)),
        b"QTPHPIEC" => tph::sst(&dir, &*file, &shown, &mut |line| lines.write(line)),
        b"QSLMRUN\0" => slm::describe_run(&dir, &*file, &shown, &mut |line| lines.write(line)),
        b"QNTPMEM\0" => slm::describe_pool(&file, &shown, &mut |line| lines.write(line)),
        b"QTRIENOD" | b"QTRIEDAT" | b"QTRIEEXT" => {
            trie::pages(&*file, &shown, &mut |line| lines.write(line))
        }
        b"QREDOGRP" => trie::journal(&dir, &*file, &shown, &mut |line| lines.write(line)),
        b"QHASHLOG" => hashlog::data(&*file, &shown, &mut |line| lines.write(line)),
        other => {
            let found = other.escape_ascii();
            let what = format!("no log segment, catalog or table's file starts with \"{found}\"");
            Err(Error::corruption(shown, 0, what))
        }
    }
}

/// Returns the changes in a catalog's bytes, each with the offset of its edit.
pub fn catalog(bytes: &[u8]) -> Result<Vec<(u64, String)>> {
    catalog::describe(bytes)
}

/// Returns the operations in a log record's body, one line each.
pub fn record_body(body: &[u8]) -> Result<Vec<String>> {
    let damage = || Error::corruption("record body", 0, "its operations do not parse");
    Ops::new(body)
        .map(|item| {
            let (table, op) = item.ok_or_else(damage)?;
            if table == NO_TABLE {
                let begin = TableBegin::parse(&op).map(|number| format!("table {number} begins"));
                return Ok(begin.unwrap_or_else(|| "nothing".to_owned()));
            }
            Ok(match op {
                Op::Put { key, body, .. } => {
                    let value = stored_value(body)?;
                    format!("table {table} put \"{}\" {value}", key.escape_ascii())
                }
                Op::Delete { key } => format!("table {table} delete \"{}\"", key.escape_ascii()),
                Op::DeleteRange { start, end } => format!(
                    "table {table} delete-range \"{}\" to \"{}\"",
                    start.escape_ascii(),
                    end.escape_ascii()
                ),
            })
        })
        .collect()
}

/// Describes a stored value: its length, expiry and type.
pub fn stored_value(stored: &[u8]) -> Result<String> {
    let damage = || Error::corruption("stored value", 0, "it has no envelope");
    let (envelope, start) = Envelope::decode(stored).ok_or_else(damage)?;
    let mut line = format!("value of {} bytes", stored.len() - start);
    if let Some(expires_at) = envelope.expires_at {
        let _ = write!(line, ", expires at {expires_at} ms");
    }
    if let Some(tag) = envelope.type_tag {
        let _ = write!(line, ", type {tag}");
    }
    Ok(line)
}

/// Passes lines to the sink until it returns `Break`.
struct LineWriter<'a, 'b> {
    sink: &'a mut Sink<'b>,
    is_wanted: bool,
}

impl LineWriter<'_, '_> {
    /// Passes a line on. Returns whether the sink wants more.
    fn write(&mut self, line: impl AsRef<str>) -> bool {
        if self.is_wanted {
            self.is_wanted = (self.sink)(line.as_ref()).is_continue();
        }
        self.is_wanted
    }
}

fn describe_segment(file: Arc<dyn File>, name: &str, lines: &mut LineWriter<'_, '_>) -> Result<()> {
    let mut reader = SegmentReader::open(file, name)?;
    let head = *reader.head();
    lines.write("log segment");
    lines.write(format!("  database id  {}", hex(&head.database_id)));
    lines.write(format!("  number       {}", head.number));
    lines.write(format!("  base lsn     {}", head.base));
    lines.write(format!("  capacity     {}", head.capacity));
    lines.write(format!("  boot id      {}", hex(&head.boot_id)));
    lines.write(format!("  nonce        {:016x}", head.nonce));
    lines.write(format!("  in use       {}", head.in_use));
    lines.write(format!("  catalog      {} edits", head.catalog));
    lines.write(format!("  failed       {}", head.failed));
    let mut offset = SegmentReader::first_offset();
    while lines.is_wanted {
        if let Some(found) = reader.record_at(offset)? {
            describe_record(&mut reader, &found, lines)?;
            offset += found.size;
        } else if let Some(found) = reader.next_valid(offset)? {
            let gap = found.offset - offset;
            lines.write(format!("byte {offset}: no valid record for {gap} bytes"));
            offset = found.offset;
        } else {
            lines.write(format!("byte {offset}: no record from here on"));
            break;
        }
    }
    Ok(())
}

fn describe_record(
    reader: &mut SegmentReader,
    found: &RecordInfo,
    lines: &mut LineWriter<'_, '_>,
) -> Result<()> {
    let RecordInfo { kind, offset, lsn, durable, body_bytes, .. } = *found;
    let kind_name = match kind {
        RecordKind::Commit => "commit",
        RecordKind::Filler => "filler",
    };
    lines.write(format!(
        "byte {offset}: {kind_name}, lsn {lsn}, durable below {durable}, {body_bytes} bytes of body"
    ));
    if kind == RecordKind::Filler {
        return Ok(());
    }
    for operation in record_body(reader.body(found)?)? {
        lines.write(format!("  {operation}"));
    }
    Ok(())
}

fn describe_catalog(bytes: &[u8], lines: &mut LineWriter<'_, '_>) -> Result<()> {
    lines.write("catalog");
    for (offset, change) in catalog(bytes)? {
        lines.write(format!("byte {offset}: {change}"));
    }
    Ok(())
}

fn describe_snapshot(file: &dyn File, name: &str, lines: &mut LineWriter<'_, '_>) -> Result<()> {
    let identity = checkpoint::identify(file, name)?;
    lines.write("snapshot of a naive table");
    lines.write(format!("  database id  {}", hex(&identity.database_id)));
    lines.write(format!("  table id     {}", identity.table_id));
    lines.write(format!("  complete to  {}", identity.lsn));
    let summary = checkpoint::load(file, name, &identity, &mut |key, stored| {
        let value = stored_value(stored).unwrap_or_else(|error| error.to_string());
        lines.write(format!("key {}: {value}", brief(key)));
    })?;
    lines.write(format!("{} entries in {} bytes", summary.entries, summary.file_bytes));
    Ok(())
}
