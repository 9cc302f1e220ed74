//! The files in words.

use super::{
    block,
    manifest::decode,
    piece::{self, Owner, Piece},
};
use crate::{
    Error, Result,
    codec::to_usize,
    disk::{Dir, File, read_up_to},
    engine::lines::{Say, hex},
};

use std::sync::Arc;

/// Entries of a block that are shown.
const SHOWN_ENTRIES: usize = 8;

/// Describes a manifest.
pub fn manifest(file: &dyn File, label: &str, say: &mut Say<'_>) -> Result<()> {
    let io = |error| Error::io(format!("read {label}"), error);
    let mut bytes = vec![0; to_usize(file.len().map_err(io)?)];
    let count = read_up_to(file, &mut bytes, 0).map_err(io)?;
    bytes.truncate(count);
    let found = decode(&bytes).map_err(|(at, what)| Error::corruption(label, at, what))?;
    let contents = found.contents;
    let mut more = say("tph manifest");
    let (database_id, table_id, number) = found.identity;
    more &= say(&format!("  database id  {}", hex(&database_id)));
    more &= say(&format!("  table id     {table_id}"));
    more &= say(&format!("  number       {number}"));
    more &= say(&format!("  edits        {}, to offset {}", found.edits, found.end));
    if found.is_torn {
        more &= say("  behind them  bytes that are no edit");
    }
    more &= say(&format!("  complete to  {}", contents.complete));
    more &= say(&format!("  next piece   {}", contents.next_piece));
    for (number, level) in contents.levels.iter().enumerate() {
        more &= say(&format!("level {number}: {} tables", level.len()));
        for table in level.iter().take_while(|_| more) {
            let low = table.low.escape_ascii();
            say(&format!("  from \"{low}\": {} tombstones", table.tombstones));
            for one in &table.pieces {
                say(&format!(
                    "    {}: {} bytes, {} live entries of {} bytes",
                    piece::name_of(one.number),
                    one.file_bytes,
                    one.live,
                    one.live_bytes
                ));
            }
        }
    }
    Ok(())
}

/// Describes a piece.
pub fn piece(dir: &Arc<dyn Dir>, file: &dyn File, label: &str, say: &mut Say<'_>) -> Result<()> {
    let io = |error| Error::io(format!("read {label}"), error);
    let head = piece::first_bytes(file).map_err(io)?;
    let damage = |what: &str| Error::corruption(label, 0, what);
    let identity = piece::identity_of(&head);
    let (database_id, table_id, number) =
        identity.ok_or_else(|| damage("the checksum of the head does not match"))?;
    say("tph piece");
    say(&format!("  database id  {}", hex(&database_id)));
    say(&format!("  table id     {table_id}"));
    say(&format!("  number       {number}"));
    let owner = Owner { dir: Arc::clone(dir), database_id, table_id };
    let piece = Piece::open(&owner, number, file.len().map_err(io)?)?;
    say(&format!("  blocks       {}", piece.footer.blocks));
    say(&format!("  entries      {}", piece.footer.entries));
    say(&format!("  tombstones   {}", piece.footer.tombstones));
    say(&format!("  index        {} bytes", piece.footer.index.bytes));
    piece.section(piece.footer.index)?;
    for number in 0..piece.blocks() {
        let span = piece.span(number..number + 1);
        let buffer = piece.read(span)?;
        let open = piece.open_block(&buffer, span, (number, number))?;
        let mut entries = Vec::new();
        let parsed = block::all_entries(open.entries(), &mut entries);
        parsed.map_err(|what| piece.damage(span.offset, what))?;
        let mut more = say(&format!("block {number}: {} entries", entries.len()));
        for entry in entries.iter().take(SHOWN_ENTRIES) {
            let key = open.entries().get(entry.key.clone()).unwrap_or(&[]).escape_ascii();
            let what = if entry.tombstone {
                "deleted".to_owned()
            } else {
                format!("{} bytes", entry.value.len())
            };
            more &= say(&format!("  \"{key}\" {what}"));
        }
        if !more {
            break;
        }
    }
    Ok(())
}
