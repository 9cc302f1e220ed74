//! One file of a database in words, for people who look for damage or learn the formats.
//!
//! What: a log segment, the catalog, a snapshot of a naive table, a manifest or data file of a
//! hashlog table, the pages of a btree table, a manifest or piece of a tph table, a run of an slm
//! table, or images,
//! records, large values or journal of a trie table, recognised by its magic and printed in the
//! layout that the head of its module documents.
//! Why: a format that cannot be looked at cannot be trusted; and `quintet inspect` needs no code
//! of its own for any of them.
//!
//! Invariants: nothing is written; bytes are decoded by the modules that own them, with their
//! checks; memory holds one record or block, or the catalog; a damaged file is an error after what
//! could be read of it. No lock is taken: a file of an open database shows what it held at some
//! moment.

#![deny(clippy::indexing_slicing)]

use std::{ops::ControlFlow, path::Path, sync::Arc};

use super::{catalog, record_body, stored_value};
use crate::{
    Error, Result,
    engine::{
        btree::inspect as btree, hashlog::describe, naive::checkpoint, slm, tph::inspect as tph,
        trie::inspect as trie,
    },
    io::{Env as _, File, Open, os::OsEnv, read_up_to},
    util::{
        codec::to_usize,
        format::{brief, hex},
    },
    wal::{RecordInfo, RecordKind, SegmentReader},
};

/// Takes one line of the description; `Break` when no more are wanted.
pub type Sink<'a> = dyn FnMut(&str) -> ControlFlow<()> + 'a;

/// Describes the file at `path`: a log segment, a catalog or a file of a table, line by line.
///
/// Fails with [`Error::Corruption`] where the file is damaged or is none of these, with
/// [`Error::NewerFormat`] and [`Error::Io`]. Lines given before a failure hold.
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
    let mut lines = Lines { sink, is_wanted: true };
    if btree::is_pages(head.get(..count).unwrap_or(&[])) {
        return btree::describe(&*file, &shown, &mut |line| lines.say(line));
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
        b"QHLINDEX" => describe::manifest(&dir, file, &shown, &mut |line| lines.say(line)),
        b"QTPHMANI" => tph::manifest(&*file, &shown, &mut |line| lines.say(line)),
        b"QTPHPIEC" => tph::sst(&dir, &*file, &shown, &mut |line| lines.say(line)),
        b"QSLMRUN\0" => slm::describe_run(&dir, &*file, &shown, &mut |line| lines.say(line)),
        b"QTRIENOD" | b"QTRIEDAT" | b"QTRIEEXT" => {
            trie::pages(&*file, &shown, &mut |line| lines.say(line))
        }
        b"QREDOGRP" => trie::journal(&dir, &*file, &shown, &mut |line| lines.say(line)),
        b"QHASHLOG" => describe::data(&*file, &shown, &mut |line| lines.say(line)),
        other => {
            let found = other.escape_ascii();
            let what = format!("no log segment, catalog or table's file starts with \"{found}\"");
            Err(Error::corruption(shown, 0, what))
        }
    }
}

/// The sink, until it has had enough.
struct Lines<'a, 'b> {
    sink: &'a mut Sink<'b>,
    is_wanted: bool,
}

impl Lines<'_, '_> {
    /// Whether more are wanted.
    fn say(&mut self, line: impl AsRef<str>) -> bool {
        if self.is_wanted {
            self.is_wanted = (self.sink)(line.as_ref()).is_continue();
        }
        self.is_wanted
    }
}

fn describe_segment(file: Arc<dyn File>, name: &str, lines: &mut Lines<'_, '_>) -> Result<()> {
    let mut reader = SegmentReader::open(file, name)?;
    let head = *reader.head();
    lines.say("log segment");
    lines.say(format!("  database id  {}", hex(&head.database_id)));
    lines.say(format!("  number       {}", head.number));
    lines.say(format!("  base lsn     {}", head.base));
    lines.say(format!("  capacity     {}", head.capacity));
    lines.say(format!("  boot id      {}", hex(&head.boot_id)));
    lines.say(format!("  nonce        {:016x}", head.nonce));
    lines.say(format!("  in use       {}", head.in_use));
    lines.say(format!("  catalog      {} edits", head.catalog));
    lines.say(format!("  failed       {}", head.failed));
    let mut offset = SegmentReader::first_offset();
    while lines.is_wanted {
        if let Some(found) = reader.record_at(offset)? {
            describe_record(&mut reader, &found, lines)?;
            offset += found.size;
        } else if let Some(found) = reader.next_valid(offset)? {
            let gap = found.offset - offset;
            lines.say(format!("byte {offset}: no valid record for {gap} bytes"));
            offset = found.offset;
        } else {
            lines.say(format!("byte {offset}: no record from here on"));
            break;
        }
    }
    Ok(())
}

fn describe_record(
    reader: &mut SegmentReader,
    found: &RecordInfo,
    lines: &mut Lines<'_, '_>,
) -> Result<()> {
    let RecordInfo { kind, offset, lsn, durable, body_bytes, .. } = *found;
    let kind_name = match kind {
        RecordKind::Commit => "commit",
        RecordKind::Filler => "filler",
    };
    lines.say(format!(
        "byte {offset}: {kind_name}, lsn {lsn}, durable below {durable}, {body_bytes} bytes of body"
    ));
    if kind == RecordKind::Filler {
        return Ok(());
    }
    for operation in record_body(reader.body(found)?)? {
        lines.say(format!("  {operation}"));
    }
    Ok(())
}

fn describe_catalog(bytes: &[u8], lines: &mut Lines<'_, '_>) -> Result<()> {
    lines.say("catalog");
    for (offset, change) in catalog(bytes)? {
        lines.say(format!("byte {offset}: {change}"));
    }
    Ok(())
}

fn describe_snapshot(file: &dyn File, name: &str, lines: &mut Lines<'_, '_>) -> Result<()> {
    let identity = checkpoint::identify(file, name)?;
    lines.say("snapshot of a naive table");
    lines.say(format!("  database id  {}", hex(&identity.database_id)));
    lines.say(format!("  table id     {}", identity.table_id));
    lines.say(format!("  complete to  {}", identity.lsn));
    let summary = checkpoint::load(file, name, &identity, &mut |key, stored| {
        let value = stored_value(stored).unwrap_or_else(|error| error.to_string());
        lines.say(format!("key {}: {value}", brief(key)));
    })?;
    lines.say(format!("{} entries in {} bytes", summary.entries, summary.file_bytes));
    Ok(())
}
